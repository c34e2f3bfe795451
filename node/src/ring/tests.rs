//! What a neighbour can do wrong on a link that is open. A direct connection brings no less evidence than a stream.

use std::net::SocketAddr;

use starling_collective::Phase;
use starling_topology::WorldSize;
use tokio::sync::oneshot;

use super::*;
use crate::data::fixture::{LIMIT, LOOPBACK, VIEW, connection, door, key, limits, purpose};
use crate::data::handshake::Purpose;
use crate::data::link::{Receiver, Sender};
use crate::data::listener::{Listener, dial};
use crate::data::{DataPlane, Transport, local};

const LAYOUT: LayoutConfig = LayoutConfig { bucket_elements: 2, segment_elements: 2 };
const LONGEST: usize = 8;

fn layout() -> Layout {
    Layout::new(2, WorldSize::new(2), LAYOUT)
}

/// The only segment that a neighbour owes first, of one element.
fn header() -> SegmentHeader {
    let segment = SegmentId { bucket: 0, phase: Phase::ReduceScatter, chunk: Rank(1), segment: 0 };
    SegmentHeader { operation: OperationKey { step: 1, attempt: 0 }, segment, codec: Codec::F32, payload_bytes: 4 }
}

fn operation() -> Operation {
    Operation { step: 1, buffer: vec![0.5; 2], divisor: 1.0 }
}

fn driver(layout: Layout, rank: Rank, results: Arc<Sums>) -> Driver {
    let (door, peer) = door(DataPlane::Direct, &[]);
    let config = RingConfig {
        elements: layout.elements(),
        layout: LAYOUT,
        in_flight: 2,
        open_limit: LIMIT,
        limits: limits(),
        protocol: StreamProtocol::new("/test"),
        door: Arc::new(door),
        traffic: Arc::default(),
    };
    let (gate, events) = (results.gate(), mpsc::channel(1).0);
    Driver { layout, rank, next: peer, previous: peer, view: VIEW, config, gate, results, events }
}

/// Both ends of a link, over memory if `mode` allows it.
async fn link(mode: DataPlane) -> (Outgoing, Incoming) {
    let (sending, receiving) = connection(mode, LONGEST).await;
    let (transport, traffic) = (sending.transport(), Arc::new(Traffic::default()));
    let outgoing = match local::Sender::new(sending, LONGEST, limits(), &traffic) {
        Ok(sender) => Outgoing::Local(Box::new(sender)),
        Err(sending) => Outgoing::Direct(Box::new(Sender::new(sending, LONGEST, limits(), traffic.clone())), transport),
    };
    let incoming = match local::Receiver::new(receiving, LONGEST, &traffic) {
        Ok(receiver) => Incoming::Local(Box::new(receiver)),
        Err(receiving) => Incoming::Direct(Box::new(Receiver::new(receiving, LONGEST, limits(), traffic)), transport),
    };
    (outgoing, incoming)
}

#[tokio::test]
async fn rings_reduce_over_every_kind_of_connection() {
    /// Far more segments than any link holds.
    const ELEMENTS: usize = 3001;
    let ring = Layout::new(
        ELEMENTS,
        WorldSize::new(3),
        LayoutConfig { bucket_elements: 500, segment_elements: LAYOUT.segment_elements },
    );
    for mode in [DataPlane::Local, DataPlane::Direct, DataPlane::Plaintext] {
        let ((out_0, in_1), (out_1, in_2), (out_2, in_0)) = tokio::join!(link(mode), link(mode), link(mode));
        let members = [(out_0, in_0), (out_1, in_1), (out_2, in_2)];
        let reduce = |(rank, (mut outgoing, mut incoming)): (u32, (Outgoing, Incoming))| {
            let (sums, mut reduced) = Sums::new();
            let mut driver = driver(ring.clone(), Rank(rank), sums);
            async move {
                let mut results = Vec::new();
                for step in 1..=2 {
                    let buffer = (0..ELEMENTS).map(|element| (element * (rank as usize + 1)) as f32).collect();
                    let operation = Operation { step, buffer, divisor: 2.0 };
                    let done = driver.reduce(operation, &mut incoming, &mut outgoing).await;
                    assert!(done.is_ok(), "{mode:?}");
                    results.push(reduced.recv().await.expect("a result"));
                }
                results
            }
        };
        let all = futures::future::join_all((0..).zip(members).map(reduce)).await;
        for result in all.iter().flatten() {
            let expected = |element: usize| (element * 6) as f32 / 2.0;
            let wrong = result.iter().enumerate().find(|(element, value)| **value != expected(*element));
            assert_eq!(wrong, None, "{mode:?}");
        }
    }
}

/// Members on threads of their own, as processes are: each link may become free or bring something at any instant.
#[test]
fn rings_on_threads_of_their_own_come_to_an_end() {
    const MEMBERS: u32 = 3;
    const STEPS: u64 = 300;
    /// Some more segments than a link holds.
    const ELEMENTS: usize = 70;
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    // Ends stay with the runtime that they were made on, so each link's two are made on their own threads.
    let keys: Vec<_> = (0..MEMBERS).map(|_| key()).collect();
    let (mut dialing, mut listening) = (Vec::new(), Vec::new());
    for _ in 0..MEMBERS {
        let (tell, told) = oneshot::channel();
        listening.push(tell);
        dialing.push(told);
    }
    // Who sends to a member is the one before it.
    dialing.rotate_left(1);
    let member = |rank: u32, tell: oneshot::Sender<Vec<SocketAddr>>, told: oneshot::Receiver<Vec<SocketAddr>>| {
        let keys = &keys;
        let at = |rank: u32| &keys[(rank % MEMBERS) as usize];
        move || {
            runtime().block_on(async {
                let listener = Listener::bind(&[LOOPBACK]).await;
                tell.send(listener.addresses()).expect("the other thread waits");
                let purpose = |peer| Purpose { mode: DataPlane::Local, segment_bytes: LONGEST, ..purpose(peer) };
                let told = told.await.expect("it listens");
                let (ours, next, previous) = (&at(rank).0, at(rank + 1).1, at(rank + MEMBERS - 1).1);
                let (sending, receiving) =
                    tokio::join!(dial(&told, ours, purpose(next), LIMIT), listener.accept(ours, purpose(previous)));
                let (sending, receiving) = (sending.expect("dialed"), receiving.expect("accepted"));
                let traffic = Arc::default();
                let mut outgoing = Outgoing::Local(Box::new(
                    local::Sender::new(sending, LONGEST, limits(), &traffic).expect("on one machine"),
                ));
                let mut incoming = Incoming::Local(Box::new(
                    local::Receiver::new(receiving, LONGEST, &traffic).expect("on one machine"),
                ));
                let ring = Layout::new(
                    ELEMENTS,
                    WorldSize::new(MEMBERS),
                    LayoutConfig { bucket_elements: ELEMENTS, ..LAYOUT },
                );
                let (sums, mut reduced) = Sums::new();
                let mut driver = driver(ring, Rank(rank), sums);
                for step in 1..=STEPS {
                    let buffer = vec![(rank + 1) as f32; ELEMENTS];
                    let operation = Operation { step, buffer, divisor: 1.0 };
                    assert!(driver.reduce(operation, &mut incoming, &mut outgoing).await.is_ok(), "step {step}");
                    assert_eq!(reduced.recv().await, Some(vec![6.0; ELEMENTS]), "step {step}");
                }
            });
        }
    };
    std::thread::scope(|scope| {
        for ((rank, tell), told) in (0..MEMBERS).zip(listening).zip(dialing) {
            scope.spawn(member(rank, tell, told));
        }
    });
}

/// The first of two members reduces over direct links, of which the other sends `segment` and no more.
async fn reduce_after(segment: Option<(SegmentHeader, &[f32])>) -> RingFailure {
    let traffic = Arc::new(Traffic::default());
    let connected = || connection(DataPlane::Direct, LONGEST);
    let ((to_us, from_previous), (to_next, _from_us)) = tokio::join!(connected(), connected());
    let mut neighbour = Sender::new(to_us, LONGEST, limits(), traffic.clone());
    if let Some((header, values)) = segment {
        neighbour.load(&header, values);
        neighbour.flush().await.expect("sent");
    }
    drop(neighbour);
    let mut driver = driver(layout(), Rank(0), Sums::new().0);
    let peer = driver.previous;
    let receiver = Receiver::new(from_previous, LONGEST, limits(), traffic.clone());
    let mut incoming = Incoming::Direct(Box::new(receiver), Transport::Direct);
    let sender = Sender::new(to_next, LONGEST, limits(), traffic);
    let mut outgoing = Outgoing::Direct(Box::new(sender), Transport::Direct);
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
        let (mut operation, mut payload) = (operation(), value.to_le_bytes());
        take(&mut session, Rank(1), header().operation, &header().to_bytes(), &payload).expect("in order");
        let done = execute(&mut session, &mut operation, &mut payload, &mut Sends::default(), false);
        let error = done.expect_err("not finite");
        assert!(error.contains("not finite") && error.contains("bucket: 0"), "{error}");
    }
}
