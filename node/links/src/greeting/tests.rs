//! Both ends of a link always use the same transport.

use tokio_util::compat::TokioAsyncReadCompatExt;

use super::*;
use crate::Transport;
use crate::TransportPolicy::{Auto, Direct, Local, Plaintext, Universal};
use crate::fixture::{self, LIMIT, LOOPBACK, VIEW, endpoint};

type End = io::Result<Vec<Connection>>;

async fn greet(opener: TransportPolicy, acceptor: TransportPolicy, ips: &[IpAddr]) -> (End, End) {
    let ((ours, our_peer), (theirs, their_peer)) = (endpoint(opener, &[]), endpoint(acceptor, ips));
    let (near, far) = tokio::io::duplex(64);
    let open = async move {
        let mut near = near.compat();
        open(&mut near, &ours, their_peer, VIEW, ConnectionCount::ONE, LIMIT).await
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
    let loopback: &[IpAddr] = &[LOOPBACK];
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
        assert_eq!(opened.expect(&case).len(), usize::from(is_direct), "{case}");
        assert_eq!(answered.expect(&case).len(), usize::from(is_direct), "{case}");
    }
}

#[tokio::test]
async fn a_short_link_has_as_many_connections_as_it_is_to_have() {
    for (mode, is_brief, expected) in [(Direct, false, 2), (Plaintext, false, 2), (Direct, true, 1), (Local, false, 1)]
    {
        if mode == Local && cfg!(not(target_os = "linux")) {
            continue;
        }
        let ((mut ours, our_peer), (theirs, their_peer)) = (endpoint(mode, &[]), endpoint(mode, &[LOOPBACK]));
        ours.is_brief = is_brief;
        let (near, far) = tokio::io::duplex(256);
        let open = async move {
            let count = ConnectionCount { near: 2, far: 5 };
            open(&mut near.compat(), &ours, their_peer, VIEW, count, LIMIT).await.expect("opened")
        };
        let answer = async move {
            let mut far = far.compat();
            assert_eq!(read_view(&mut far).await.expect("a view"), VIEW);
            answer(&mut far, &theirs, our_peer, VIEW).await.expect("answered")
        };
        let (opened, answered) = tokio::join!(open, answer);
        assert_eq!((opened.len(), answered.len()), (expected, expected), "{mode:?}, brief: {is_brief}");
    }
}

#[tokio::test]
async fn only_connections_that_the_opener_names_count() {
    let ((ours, our_peer), (theirs, their_peer)) = (endpoint(Direct, &[]), endpoint(Direct, &[LOOPBACK]));
    let (near, far) = tokio::io::duplex(64);
    let open = async move {
        let mut near = near.compat();
        near.write_all(&[DIRECT]).await.expect("written");
        let addresses = read_addresses(&mut near).await.expect("told");
        let link_params = ours.link_params(VIEW, their_peer);
        let (first, _) = listener::dial(&addresses, &ours.keypair, link_params, LIMIT).await.expect("dialed");
        let mut connections = listener::dial_beside((&first, true), &ours.keypair, link_params, 4, LIMIT).await;
        connections.remove(1);
        connections.push(first);
        near.write_all(&made(&connections)).await.expect("written");
        (near, connections)
    };
    let (opened, answered) = tokio::join!(open, answer_to(far.compat(), &theirs, our_peer));
    assert_eq!(opened.1.len(), 3);
    assert_eq!(made(&answered.expect("as said")), made(&opened.1), "in the same order");
}

async fn answer_to(
    mut stream: tokio_util::compat::Compat<tokio::io::DuplexStream>,
    endpoint: &Endpoint,
    opener: PeerId,
) -> End {
    answer(&mut stream, endpoint, opener, VIEW).await
}

#[tokio::test]
async fn who_insists_on_direct_gets_nothing_else() {
    let loopback: &[IpAddr] = &[LOOPBACK];
    let (opened, answered) = greet(Direct, Universal, loopback).await;
    opened.expect_err("the acceptor is universal");
    assert!(answered.expect("no objection").is_empty());
    let (opened, answered) = greet(Universal, Direct, loopback).await;
    assert!(opened.expect("no objection").is_empty());
    answered.expect_err("the opener is universal");
}

#[tokio::test]
async fn the_kind_of_connection_is_the_best_that_both_allow() {
    for (opener, acceptor, expected) in [
        (Auto, Auto, Transport::Local),
        (Local, Auto, Transport::Local),
        (Auto, Direct, Transport::Direct),
        (Plaintext, Plaintext, Transport::Plaintext),
    ] {
        let (opened, answered) = greet(opener, acceptor, &[LOOPBACK]).await;
        let case = format!("{opener:?} to {acceptor:?}");
        for end in [opened, answered] {
            let transport = end.expect(&case).first().map(Connection::transport);
            // Not every system shares memory.
            let expected =
                if cfg!(target_os = "linux") || expected != Transport::Local { expected } else { Transport::Direct };
            assert_eq!(transport, Some(expected), "{case}");
        }
    }
}

#[tokio::test]
async fn one_end_alone_does_not_switch_encryption_off() {
    for (opener, acceptor) in
        [(Plaintext, Auto), (Plaintext, Universal), (Auto, Plaintext), (Direct, Plaintext), (Universal, Plaintext)]
    {
        let (opened, answered) = greet(opener, acceptor, &[LOOPBACK]).await;
        let case = format!("{opener:?} to {acceptor:?}");
        let error = answered.expect_err(&case);
        assert!(error.to_string().contains("network.data"), "{error}");
        assert!(opener == Universal || opened.is_err(), "{case}");
    }
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
    let (endpoint, peer) = endpoint(Auto, &[LOOPBACK]);
    for count in [MAX_ADDRESSES as u8 + 1, 255] {
        let bytes = [vec![count], vec![0; 255 * ADDRESS_BYTES]].concat();
        let error = read_addresses(&mut bytes.as_slice()).await.expect_err("too many");
        assert!(error.to_string().contains("at most"), "{error}");
    }
    let (too_many, twice) = ([&[9][..], &[0; 72]].concat(), [&[2][..], &[7; 16]].concat());
    for made in [&too_many[..], &twice, &twice[..9], &[255], &[]] {
        read_made(&mut &*made).await.expect_err("it names no connections");
    }
    // An opener that goes away, one that says nonsense, and one that claims a connection where there can be none.
    let (nowhere, _) = fixture::endpoint(Auto, &[]);
    for (endpoint, last) in [(&endpoint, &[][..]), (&endpoint, &[255]), (&nowhere, &[1, 7, 7, 7, 7, 7, 7, 7, 7])] {
        let (near, far) = tokio::io::duplex(256);
        let mut near = near.compat();
        near.write_all(&[&[DIRECT][..], last].concat()).await.expect("written");
        near.close().await.expect("closed");
        let answered = answer(&mut far.compat(), endpoint, peer, VIEW).await;
        answered.expect_err("no outcome");
    }
}
