//! What a neighbour can do wrong on a link that is open. A direct connection brings no less evidence than a stream.

use std::net::{IpAddr, Ipv4Addr};

use libp2p::identity::Keypair;
use starling_collective::Phase;
use starling_topology::{RunId, WorldSize};

use super::*;
use crate::data::DataPlane;
use crate::data::handshake::Purpose;
use crate::data::link::{Receiver, Sender};
use crate::data::listener::{Listener, dial};
use crate::identity::from_libp2p;

const RUN: RunId = RunId([1; 32]);
const VIEW: ViewId = ViewId([3; 32]);
const LAYOUT: LayoutConfig = LayoutConfig { bucket_elements: 2, segment_elements: 2 };
const LONGEST: usize = 8;

fn layout() -> Layout {
    Layout::new(2, WorldSize::new(2), LAYOUT)
}

/// The only segment that a neighbour owes first, of one element.
fn header() -> SegmentHeader {
    let segment = SegmentId { bucket: 0, phase: Phase::ReduceScatter, chunk: Rank(1), segment: 0 };
    SegmentHeader { operation: OperationKey { step: 1, attempt: 0 }, segment, payload_bytes: 4 }
}

fn operation() -> Operation {
    Operation { step: 1, buffer: vec![0.5; 2], divisor: 1.0 }
}

fn somebody() -> (Keypair, PeerId) {
    let keypair = Keypair::generate_ed25519();
    let peer = from_libp2p(&keypair.public().to_peer_id()).expect("an Ed25519 key");
    (keypair, peer)
}

/// A connection between two neighbours: the end that sends, and the end that receives.
async fn connection() -> (Connection, Connection) {
    let ((ours, our_peer), (theirs, their_peer)) = (somebody(), somebody());
    let listener = Listener::bind(&[IpAddr::V4(Ipv4Addr::LOCALHOST)]).await;
    let addresses = listener.addresses();
    let purpose = |peer| Purpose { run: RUN, view: VIEW, peer };
    let (dialed, accepted) = tokio::join!(
        dial(&addresses, &ours, purpose(their_peer), Duration::from_secs(30)),
        listener.accept(&theirs, purpose(our_peer)),
    );
    (dialed.expect("dialed"), accepted.expect("accepted"))
}

/// The first of two members reduces over direct links, of which the other sends `segment` and no more.
async fn reduce_after(segment: Option<(SegmentHeader, &[f32])>) -> RingFailure {
    let traffic = Arc::new(Traffic::default());
    let ((to_us, from_previous), (to_next, _from_us)) = tokio::join!(connection(), connection());
    let mut neighbour = Sender::new(to_us, LONGEST, traffic.clone());
    if let Some((header, values)) = segment {
        neighbour.load(&header, values);
        neighbour.flush().await.expect("sent");
    }
    drop(neighbour);
    let ((keypair, _), (_, peer)) = (somebody(), somebody());
    let exchange = Exchange::new(0, 9, 1);
    exchange.open(&View::found(RUN, peer), None, false);
    let mut driver = Driver {
        layout: layout(),
        rank: Rank(0),
        next: peer,
        previous: peer,
        view: VIEW,
        config: RingConfig {
            elements: 2,
            layout: LAYOUT,
            in_flight: 1,
            open_limit: Duration::from_secs(30),
            protocol: StreamProtocol::new("/test"),
            door: Arc::new(Door { mode: DataPlane::Direct, run: RUN, keypair, ips: Vec::new() }),
            traffic: traffic.clone(),
        },
        gate: exchange.gate(),
        exchange,
        events: mpsc::channel(1).0,
    };
    let mut incoming = Incoming::Direct(Box::new(Receiver::new(from_previous, LONGEST, traffic.clone())));
    let mut outgoing = Outgoing::Direct(Box::new(Sender::new(to_next, LONGEST, traffic)));
    match driver.reduce(operation(), &mut incoming, &mut outgoing).await {
        Err(Blame(blamed, failure)) => {
            assert_eq!(blamed, peer);
            failure
        }
        Ok(()) => panic!("the neighbour sends too little for an end"),
    }
}

#[tokio::test]
async fn evidence_holds_on_a_direct_link() {
    let elsewhere = SegmentHeader { operation: OperationKey { step: 7, attempt: 0 }, ..header() };
    let unasked = SegmentHeader { segment: SegmentId { chunk: Rank(0), ..header().segment }, ..header() };
    let unknown = SegmentHeader { segment: SegmentId { bucket: 9, ..header().segment }, ..header() };
    let lying = SegmentHeader { payload_bytes: u32::MAX, ..header() };
    for (header, values, what) in [
        (elsewhere, &[1.0][..], "a segment of step 7"),
        (unasked, &[1.0], "step 1: "),
        (unknown, &[1.0], "wrong length"),
        (lying, &[1.0], "wrong length"),
        (header(), &[1.0, 2.0], "wrong length"),
        (header(), &[f32::NAN], "not finite"),
    ] {
        let failure = reduce_after(Some((header, values))).await;
        assert!(matches!(&failure, RingFailure::Misbehaved(claim) if claim.contains(what)), "{what}: {failure:?}");
    }
}

#[tokio::test]
async fn a_direct_link_that_ends_is_broken() {
    for segment in [None, Some((header(), &[1.0][..]))] {
        let failure = reduce_after(segment).await;
        assert!(matches!(failure, RingFailure::Broken(_)), "{failure:?}");
    }
}

#[test]
fn a_header_of_nonsense_is_refused() {
    let mut session = Session::new(layout(), Rank(0), 1);
    session.handle(Input::Start).expect("the first input");
    let nonsense = [0xff; SegmentHeader::BYTES];
    take(&mut session, Rank(1), header().operation, &nonsense, &[0; 4]).expect_err("nonsense");
}

#[test]
fn a_value_that_is_not_finite_names_its_segment() {
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut session = Session::new(layout(), Rank(0), 1);
        session.handle(Input::Start).expect("the first input");
        let (mut operation, payload) = (operation(), value.to_le_bytes());
        take(&mut session, Rank(1), header().operation, &header().to_bytes(), &payload).expect("in order");
        let error = execute(&mut session, &mut operation, &payload, &mut VecDeque::new()).expect_err("not finite");
        assert!(error.contains("not finite") && error.contains("bucket: 0"), "{error}");
    }
}
