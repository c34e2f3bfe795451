//! Reductions over real connections, by all plans and codecs; and what a neighbour can do wrong on a link that is open. A
//! direct connection brings no less evidence than a stream.

mod fixture;

use starling_collective::codec::kernel;
use starling_collective::{OperationKey, Phase, SegmentHeader, SegmentId};
use starling_topology::plan::{GroupTable, HubSet, Plan};
use starling_topology::{Rank, WorldSize};

use std::sync::Mutex;

use starling_run::Gradient;

use super::*;
use fixture::{LIMIT, VIEW, answer, config, connection, endpoint, limits, link, open, peer, stream};
use starling_links::direct::Sender;
use starling_links::{
    BrokenLink, IncomingLink, IncomingLinkSet, LinkFailure, OutgoingLink, OutgoingLinkSet, Transport, TransportPolicy,
};
use tokio::io::DuplexStream;

const LAYOUT: LayoutConfig = LayoutConfig { bucket_elements: 2, segment_elements: 2 };
const LONGEST: usize = 8;
/// The largest number that a member brings.
const MOST: f32 = 1e6;

fn layout() -> Layout {
    Layout::new(2, WorldSize::new(2), LAYOUT)
}

/// The only segment that a neighbour owes first, of one element.
fn header() -> SegmentHeader {
    let segment = SegmentId { bucket: 0, phase: Phase::ReduceScatter, chunk: Rank(1), segment: 0 };
    SegmentHeader { operation: OperationKey { step: 1, attempt: 0 }, segment, codec: Codec::F32, payload_bytes: 4 }
}

fn operation(step: u64, buffer: Vec<f32>, divisor: f32) -> Operation {
    let dropped = Some(OperationResidual::new(buffer.len(), Vec::new()));
    Operation { step, buffer, contribution: None, is_agreed: false, divisor, dropped }
}

fn reduce_task(layout: Layout, plan: &Plan, codec: Codec, rank: Rank, results: Arc<dyn ResultSink>) -> ReduceTask {
    let (endpoint, peer) = endpoint(TransportPolicy::Direct, LONGEST);
    let schedule = Schedule::new(plan, layout.world_size(), collective::Operation::AllReduce, rank);
    let config = ReducerConfig {
        elements: layout.elements(),
        planned: layout.elements(),
        exact: 0,
        chooses: false,
        words: Vec::new(),
        layout: LAYOUT,
        codec,
        plan: PlanPolicy::Ring,
        most: MOST,
        in_flight: 2,
        open_limit: LIMIT,
        limits: limits(),
        protocol: StreamProtocol::new("/test"),
        endpoint: Arc::new(endpoint),
        traffic: Arc::default(),
    };
    let peers = |ranks: &[Rank]| vec![peer; ranks.len()];
    let (receivers, senders) = (peers(schedule.receivers()), peers(schedule.senders()));
    let (gate, events, spare) = (results.gate(), mpsc::channel(1).0, Vec::new());
    let spin_policy = SpinPolicy::new(Instant::now());
    let (plan, reason) = (plan.to_string(), String::new());
    ReduceTask {
        operations: None,
        slots: SlotLayout::default(),
        magnitudes: collective::SumLimit::new(MOST, codec, layout.world_size().get()),
        layout,
        schedule,
        plan,
        reason,
        receivers,
        senders,
        view: VIEW,
        spare,
        spin_policy,
        config,
        gate,
        results,
        events,
    }
}

/// All members of a world with links of one kind, of so many connections each if they are direct, reducing several times; their
/// results by step.
async fn reduce(
    mode: TransportPolicy,
    connections: usize,
    plan: &Plan,
    codec: Codec,
    layout: &Layout,
) -> Vec<Vec<Vec<f32>>> {
    let world = layout.world_size();
    let longest = layout.longest_payload(codec);
    let mut members: Vec<(OutgoingLinkSet, IncomingLinkSet)> =
        world.ranks().map(|_| <(OutgoingLinkSet, IncomingLinkSet)>::default()).collect();
    let peer = peer();
    for from in world.ranks() {
        for to in Schedule::new(plan, world, collective::Operation::AllReduce, from).receivers() {
            let to = *to;
            let (outgoing, incoming) = link(mode, longest, connections).await;
            members[from.0 as usize].0.add(to, peer, outgoing);
            members[to.0 as usize].1.add(from, peer, incoming);
        }
    }
    let reduce = |(rank, (mut outgoing_links, mut incoming_links)): (u32, (OutgoingLinkSet, IncomingLinkSet))| {
        let (bench_sink, mut reduced) = BenchSink::new();
        let mut reduce_task = reduce_task(layout.clone(), plan, codec, Rank(rank), bench_sink);
        async move {
            let mut results = Vec::new();
            for step in 1..=4 {
                let element = |element: usize| (element % 97 * (rank as usize + 1)) as f32;
                let buffer = (0..reduce_task.layout.elements()).map(element).collect();
                let done =
                    reduce_task.reduce(operation(step, buffer, 2.0), &mut incoming_links, &mut outgoing_links).await;
                done.expect("correct neighbours are not blamed");
                results.push(reduced.recv().await.expect("a result"));
            }
            results
        }
    };
    futures::future::join_all((0..).zip(members).map(reduce)).await
}

/// Keeps the parts that are offered, and wants each only when it is offered again.
#[derive(Debug)]
struct Watched {
    bench_sink: Arc<BenchSink>,
    offered: Mutex<Vec<usize>>,
    taken: Mutex<Vec<f32>>,
}

impl Watched {
    fn new(bench_sink: Arc<BenchSink>) -> Arc<Self> {
        Arc::new(Self { bench_sink, offered: Mutex::default(), taken: Mutex::default() })
    }
}

impl ResultSink for Watched {
    fn gate(&self) -> watch::Receiver<CommitGate> {
        self.bench_sink.gate()
    }

    fn complete(&self, view: ViewId, step: u64, completion: Completion) -> bool {
        self.bench_sink.complete(view, step, completion)
    }

    fn offer(&self, _: ViewId, _: u64, start: usize, numbers: &[f32]) -> bool {
        let mut offered = self.offered.lock().expect("no panic");
        let is_again = offered.last() == Some(&start);
        offered.push(start);
        if is_again {
            let mut taken = self.taken.lock().expect("no panic");
            *taken = [numbers, &taken].concat();
        }
        is_again
    }

    fn interrupted(&self, _: ViewId, _: u64, _: Vec<f32>, _: Option<OperationResidual>) {}
}

/// Contributions that come about while they are reduced, at each member in its own time, and leave in parts in the same way.
#[tokio::test]
async fn a_reduction_goes_on_as_contributions_come_about() {
    const PARAMETERS: usize = 40;
    let layout = Layout::new(PARAMETERS + 4, WorldSize::new(3), LAYOUT).with_exact(4);
    for plan in [Plan::Ring, Plan::Mesh, Plan::Tree] {
        let layout = Layout::weighted(
            PARAMETERS + 4,
            layout.world_size(),
            LAYOUT,
            &vec![1; plan.chunks(layout.world_size()) as usize],
        )
        .with_exact(4);
        let world = layout.world_size();
        let mut members: Vec<(OutgoingLinkSet, IncomingLinkSet)> =
            world.ranks().map(|_| <(OutgoingLinkSet, IncomingLinkSet)>::default()).collect();
        let peer = peer();
        for from in world.ranks() {
            for to in Schedule::new(&plan, world, collective::Operation::AllReduce, from).receivers() {
                let to = *to;
                let (outgoing, incoming) = link(TransportPolicy::Direct, layout.longest_payload(Codec::F32), 1).await;
                members[from.0 as usize].0.add(to, peer, outgoing);
                members[to.0 as usize].1.add(from, peer, incoming);
            }
        }
        let value = |rank: u32, at: usize| (at as f32 + 1.0) * (rank as f32 + 1.0);
        let all = (0..).zip(members).map(|(rank, (mut outgoing_links, mut incoming_links))| {
            let (bench_sink, mut reduced) = BenchSink::new();
            let watched = Watched::new(bench_sink);
            let mut reduce_task = reduce_task(layout.clone(), &plan, Codec::F32, Rank(rank), watched.clone());
            let gradient = Arc::new(Gradient::new(PARAMETERS));
            let (progress, ready) = watch::channel(gradient.elements());
            let contribution = Contribution::new(gradient.clone(), vec![rank as f32; 3], None, ready);
            let operation = Operation {
                step: 1,
                buffer: vec![9.0; 3],
                contribution: Some(contribution),
                is_agreed: false,
                divisor: 1.0,
                dropped: None,
            };
            let compute = async move {
                let values: Vec<f32> = (0..=PARAMETERS).map(|at| value(rank, at)).collect();
                // Pieces that end where no bucket does.
                for piece in values.rchunks(3 + 4 * rank as usize) {
                    tokio::task::yield_now().await;
                    gradient.prepend(2, [piece].into_iter());
                    progress.send_replace(gradient.ready_from());
                }
            };
            async move {
                let (done, ()) =
                    tokio::join!(reduce_task.reduce(operation, &mut incoming_links, &mut outgoing_links), compute);
                done.expect("correct neighbours are not blamed");
                (reduced.recv().await.expect("a result"), watched)
            }
        });
        let sum = |at: usize| (0..3).map(|rank| 2.0 * value(rank, at)).sum::<f32>();
        let expected: Vec<f32> = (0..=PARAMETERS).map(sum).chain([3.0; 3]).collect();
        for (result, watched) in futures::future::join_all(all).await {
            assert_eq!(result, expected, "{plan}");
            let (offered, taken) = (watched.offered.lock().expect("no panic"), watched.taken.lock().expect("no panic"));
            assert!(offered.is_sorted_by(|before, next| next <= before), "{plan}: {offered:?}");
            assert!(offered.last() >= Some(&LAYOUT.bucket_elements), "the first bucket makes the whole");
            assert_eq!(*taken, expected[expected.len() - taken.len()..], "{plan}");
            assert!(taken.len() > 4, "{plan}: only {} numbers came before all did", taken.len());
        }
    }
}

/// Far more segments than any link holds, and exact elements at the end.
fn many_segments(plan: &Plan, world: u32) -> Layout {
    let (world, config) = (WorldSize::new(world), LayoutConfig { bucket_elements: 500, segment_elements: 12 });
    Layout::by_plan(3001, plan, world, config, &vec![1; plan.chunks(world) as usize]).with_exact(13)
}

#[tokio::test]
async fn every_kind_of_connection_reduces() {
    for mode in [TransportPolicy::Local, TransportPolicy::Direct, TransportPolicy::Plaintext] {
        let layout = many_segments(&Plan::Ring, 3);
        for result in reduce(mode, 1, &Plan::Ring, Codec::F32, &layout).await.iter().flatten() {
            let expected = |element: usize| (element % 97 * 6) as f32 / 2.0;
            let wrong = result.iter().enumerate().find(|(element, value)| **value != expected(*element));
            assert_eq!(wrong, None, "{mode:?}");
        }
    }
}

#[tokio::test]
async fn every_plan_and_codec_ends_with_the_same_bits_everywhere() {
    let sites = Plan::Hierarchical(GroupTable::from_labels(&[0, 0, 1, 1, 1]));
    let hubs = HubSet::new(WorldSize::new(5), vec![Rank(1), Rank(4)]).expect("hubs that can be");
    for plan in [Plan::Ring, Plan::Tree, Plan::Mesh, sites, Plan::Star(hubs)] {
        for codec in Codec::ALL {
            let layout = many_segments(&plan, 5);
            for (mode, connections) in
                [(TransportPolicy::Local, 1), (TransportPolicy::Direct, 1), (TransportPolicy::Direct, 3)]
            {
                let all = reduce(mode, connections, &plan, codec, &layout).await;
                let bits = |values: &Vec<f32>| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
                let first = &all[0][0];
                assert!(
                    all.iter().flatten().all(|result| bits(result) == bits(first)),
                    "{plan}, {codec}, {connections} {mode:?}"
                );
                for (element, value) in first.iter().enumerate() {
                    let expected = (element % 97 * 15) as f32 / 2.0;
                    // The most that six roundings of the largest sum may add up to, for the least precise codec.
                    let most = if codec.is_lossy() && element < layout.shortened() { 6.0 * 720.0 / 250.0 } else { 0.0 };
                    assert!((value - expected).abs() <= most, "{plan}, {codec}: {value} for {expected}");
                }
            }
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
    let endpoints: Vec<_> = (0..MEMBERS).map(|_| endpoint(TransportPolicy::Local, LONGEST)).collect();
    let (opening, mut answering): (Vec<_>, Vec<_>) = (0..MEMBERS).map(|_| stream()).unzip();
    // Who sends to a member is the one before it.
    answering.rotate_right(1);
    let member = |rank: u32, near: DuplexStream, far: DuplexStream| {
        let endpoints = &endpoints;
        let at = |rank: u32| &endpoints[(rank % MEMBERS) as usize];
        move || {
            runtime().block_on(async {
                let (ours, next, previous) = (&at(rank).0, at(rank + 1).1, at(rank + MEMBERS - 1).1);
                let (sending, receiving) = tokio::join!(open(near, ours, next), answer(far, ours, previous));
                let config = config(LONGEST);
                let outgoing = OutgoingLink::over(vec![sending], &config).expect("a connection");
                let incoming = IncomingLink::over(vec![receiving], &config).expect("a connection");
                assert_eq!([outgoing.transport(), incoming.transport()], [Transport::Local; 2]);
                let (mut outgoing_links, mut incoming_links) = (OutgoingLinkSet::default(), IncomingLinkSet::default());
                outgoing_links.add(Rank((rank + 1) % MEMBERS), next, outgoing);
                incoming_links.add(Rank((rank + MEMBERS - 1) % MEMBERS), previous, incoming);
                let ring = Layout::new(
                    ELEMENTS,
                    WorldSize::new(MEMBERS),
                    LayoutConfig { bucket_elements: ELEMENTS, ..LAYOUT },
                );
                let (bench_sink, mut reduced) = BenchSink::new();
                let mut reduce_task = reduce_task(ring, &Plan::Ring, Codec::F32, Rank(rank), bench_sink);
                for step in 1..=STEPS {
                    let buffer = vec![(rank + 1) as f32; ELEMENTS];
                    let done = reduce_task
                        .reduce(operation(step, buffer, 1.0), &mut incoming_links, &mut outgoing_links)
                        .await;
                    done.expect("correct neighbours are not blamed");
                    assert_eq!(reduced.recv().await, Some(vec![6.0; ELEMENTS]), "step {step}");
                }
            });
        }
    };
    std::thread::scope(|scope| {
        for ((rank, near), far) in (0..MEMBERS).zip(opening).zip(answering) {
            scope.spawn(member(rank, near, far));
        }
    });
}

/// The first of two members reduces over direct links, of which the other sends `segment` and no more.
async fn reduce_after(segment: Option<(SegmentHeader, &[f32])>) -> LinkFailure {
    let config = config(LONGEST);
    let connected = || connection(TransportPolicy::Direct, LONGEST);
    let ((to_us, from_previous), (to_next, _from_us)) = tokio::join!(connected(), connected());
    let mut neighbour = Sender::new(to_us, &config);
    if let Some((header, values)) = segment {
        neighbour.load(&header, size_of_val(values), |payload| kernel::write(values, payload));
        neighbour.flush().await.expect("sent");
    }
    drop(neighbour);
    let mut reduce_task = reduce_task(layout(), &Plan::Ring, Codec::F32, Rank(0), BenchSink::new().0);
    let (sender, receiver) = (reduce_task.senders[0], peer());
    let (mut incoming_links, mut outgoing_links) = (IncomingLinkSet::default(), OutgoingLinkSet::default());
    incoming_links.add(Rank(1), sender, IncomingLink::over(vec![from_previous], &config).expect("a connection"));
    outgoing_links.add(Rank(1), receiver, OutgoingLink::over(vec![to_next], &config).expect("a connection"));
    match reduce_task.reduce(operation(1, vec![0.5; 2], 1.0), &mut incoming_links, &mut outgoing_links).await {
        Err(BrokenLink(blamed, failure)) => {
            assert_eq!(blamed, sender);
            failure
        }
        Ok(()) => panic!("the neighbour sends too little for an end"),
    }
}

#[tokio::test]
async fn evidence_holds_on_a_direct_link() {
    let unasked = SegmentHeader { segment: SegmentId { chunk: Rank(0), ..header().segment }, ..header() };
    let unknown = SegmentHeader { segment: SegmentId { bucket: 9, ..header().segment }, ..header() };
    let lying = SegmentHeader { payload_bytes: u32::MAX, ..header() };
    let shortened = SegmentHeader { codec: Codec::Int8, payload_bytes: 5, ..header() };
    for (header, values, what) in [
        (unasked, &[1.0][..], "step 1: "),
        (unknown, &[1.0], "the layout does not have"),
        (lying, &[1.0], "declared 4294967295 payload bytes"),
        (shortened, &[1.0], "as int8, where f32 was agreed"),
        (header(), &[1.0, 2.0], "declared 4 payload bytes"),
        (header(), &[1.1 * MOST], "can come together in this run"),
        (header(), &[f32::NAN], "not finite"),
        (header(), &[f32::INFINITY], "reduce-scatter segment 0 of chunk 1 of bucket 0"),
    ] {
        let failure = reduce_after(Some((header, values))).await;
        assert!(matches!(&failure, LinkFailure::Misbehaved(claim) if claim.contains(what)), "{what}: {failure:?}");
    }
}

#[tokio::test]
async fn whoever_is_at_another_step_is_no_liar() {
    let elsewhere = SegmentHeader { operation: OperationKey { step: 7, attempt: 0 }, ..header() };
    let failure = reduce_after(Some((elsewhere, &[1.0]))).await;
    assert!(matches!(&failure, LinkFailure::Broken(said) if said.contains("a segment of step 7")), "{failure:?}");
}

#[tokio::test]
async fn a_direct_link_that_ends_is_broken() {
    for segment in [None, Some((header(), &[1.0][..]))] {
        let failure = reduce_after(segment).await;
        assert!(matches!(failure, LinkFailure::Broken(_)), "{failure:?}");
    }
}

/// Among many links, the one that is to blame is named, and what others sent in time is no excuse for it.
#[tokio::test]
async fn in_a_mesh_the_neighbour_at_fault_is_blamed() {
    for fault in [0, 1] {
        blame_in_a_mesh(fault).await;
    }
}

async fn blame_in_a_mesh(fault: usize) {
    let mut reduce_task =
        reduce_task(Layout::new(3, WorldSize::new(3), LAYOUT), &Plan::Mesh, Codec::F32, Rank(0), BenchSink::new().0);
    let config = config(LONGEST);
    let (mut incoming_links, mut outgoing_links) = (IncomingLinkSet::default(), OutgoingLinkSet::default());
    let peers = [(); 2].map(|()| peer());
    let mut open = Vec::new();
    for (rank, peer) in (1..).map(Rank).zip(peers) {
        let (outgoing, far) = link(TransportPolicy::Direct, LONGEST, 1).await;
        outgoing_links.add(rank, peer, outgoing);
        let (sending, receiving) = connection(TransportPolicy::Direct, LONGEST).await;
        incoming_links.add(rank, peer, IncomingLink::over(vec![receiving], &config).expect("a connection"));
        open.push((far, Sender::new(sending, &config)));
    }
    for (index, (_, sender)) in open.iter_mut().enumerate() {
        let value = if index == fault { f32::NAN } else { 1.0 };
        let segment = SegmentId { chunk: Rank(0), ..header().segment };
        sender.load(&SegmentHeader { segment, ..header() }, 4, |payload| kernel::write(&[value], payload));
        sender.flush().await.expect("sent");
    }
    let failed = reduce_task.reduce(operation(1, vec![0.5; 3], 1.0), &mut incoming_links, &mut outgoing_links).await;
    let Err(BrokenLink(blamed, LinkFailure::Misbehaved(claim))) = failed else { panic!("a value is not finite") };
    assert_eq!(blamed, peers[fault], "{claim}");
    assert!(claim.contains("not finite"), "{claim}");
}
