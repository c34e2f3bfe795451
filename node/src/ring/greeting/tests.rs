//! Both ends of a link always use the same transport.

use libp2p::identity::Keypair;
use starling_topology::RunId;
use tokio_util::compat::TokioAsyncReadCompatExt;

use super::*;
use crate::data::DataPlane::{Auto, Direct, Universal};
use crate::identity::from_libp2p;

const VIEW: ViewId = ViewId([3; 32]);
const LIMIT: Duration = Duration::from_secs(30);

fn door(mode: DataPlane, ips: &[[u8; 4]]) -> (Door, PeerId) {
    let keypair = Keypair::generate_ed25519();
    let peer = from_libp2p(&keypair.public().to_peer_id()).expect("an Ed25519 key");
    (Door { mode, run: RunId([1; 32]), keypair, ips: ips.iter().copied().map(IpAddr::from).collect() }, peer)
}

type End = io::Result<Option<Connection>>;

async fn greet(opener: DataPlane, acceptor: DataPlane, ips: &[[u8; 4]]) -> (End, End) {
    let ((ours, our_peer), (theirs, their_peer)) = (door(opener, &[]), door(acceptor, ips));
    let (near, far) = tokio::io::duplex(64);
    let open = async move {
        let mut near = near.compat();
        open(&mut near, &ours, their_peer, VIEW, LIMIT).await
    };
    let answer = async move {
        let mut far = far.compat();
        assert_eq!(read_view(&mut far).await.expect("a view"), VIEW);
        answer(&mut far, &theirs, our_peer, VIEW).await
    };
    tokio::join!(open, answer)
}

#[tokio::test]
async fn both_ends_take_the_best_that_both_have() {
    let loopback: &[[u8; 4]] = &[[127, 0, 0, 1]];
    for (opener, acceptor, ips, is_direct) in [
        (Auto, Auto, loopback, true),
        (Auto, Direct, loopback, true),
        (Direct, Auto, loopback, true),
        (Auto, Auto, &[], false),
        (Auto, Universal, loopback, false),
        (Universal, Auto, loopback, false),
        (Universal, Universal, loopback, false),
    ] {
        let (opened, answered) = greet(opener, acceptor, ips).await;
        let case = format!("{opener:?} to {acceptor:?} at {ips:?}");
        assert_eq!(opened.expect(&case).is_some(), is_direct, "{case}");
        assert_eq!(answered.expect(&case).is_some(), is_direct, "{case}");
    }
}

#[tokio::test]
async fn who_insists_on_direct_gets_nothing_else() {
    let loopback: &[[u8; 4]] = &[[127, 0, 0, 1]];
    let (opened, answered) = greet(Direct, Universal, loopback).await;
    opened.expect_err("the acceptor is universal");
    assert!(answered.expect("no objection").is_none());
    let (opened, answered) = greet(Universal, Direct, loopback).await;
    assert!(opened.expect("no objection").is_none());
    answered.expect_err("the opener is universal");
}

#[tokio::test]
async fn addresses_survive_the_wire() {
    let addresses: Vec<SocketAddr> =
        ["192.0.2.1:1", "[2001:db8::1]:65535", "127.0.0.1:80"].map(|text| text.parse().expect("an address")).into();
    let bytes = encode(&addresses);
    assert_eq!(read_addresses(&mut bytes.as_slice()).await.expect("decodes"), addresses);
    let many = vec![addresses[0]; MAX_ADDRESSES + 1];
    assert_eq!(read_addresses(&mut encode(&many).as_slice()).await.expect("decodes").len(), MAX_ADDRESSES);
}

#[tokio::test]
async fn nonsense_is_an_error() {
    let (door, peer) = door(Auto, &[[127, 0, 0, 1]]);
    for count in [MAX_ADDRESSES as u8 + 1, 255] {
        let bytes = [vec![count], vec![0; 255 * ADDRESS_BYTES]].concat();
        let error = read_addresses(&mut bytes.as_slice()).await.expect_err("too many");
        assert!(error.to_string().contains("at most"), "{error}");
    }
    for choice in [&[2][..], &[255], &[]] {
        read_choice(&mut &*choice).await.expect_err("no choice");
    }
    // An opener that goes away, one that says nonsense, and one that claims a connection where there can be none.
    let (nowhere, _) = self::door(Auto, &[]);
    for (door, last) in [(&door, &[][..]), (&door, &[2]), (&nowhere, &[DIRECT])] {
        let (near, far) = tokio::io::duplex(256);
        let mut near = near.compat();
        near.write_all(&[&[DIRECT][..], last].concat()).await.expect("written");
        near.close().await.expect("closed");
        let answered = answer(&mut far.compat(), door, peer, VIEW).await;
        answered.expect_err("no outcome");
    }
}
