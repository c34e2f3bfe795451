//! A world of sessions over links that a seed reorders.

use std::collections::VecDeque;
use std::fmt::Debug;

use starling_topology::plan::{Groups, Plan};
use starling_topology::{Rank, WorldSize};

use crate::{Codec, Input, Layout, LayoutConfig, Operation, Output, Phase, Schedule, SegmentId, Session};

/// SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Debug)]
pub(super) struct Rng(pub(super) u64);

impl Rng {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// What one rank keeps, and what it makes of the machine's outputs.
pub(super) trait Buffer {
    type Payload: Debug + Clone;
    fn read(&self, layout: &Layout, segment: &SegmentId) -> Self::Payload;
    fn accumulate(&mut self, layout: &Layout, segment: &SegmentId, payload: Self::Payload);
    fn prepend(&mut self, layout: &Layout, segment: &SegmentId, payloads: Vec<Self::Payload>);
    fn divide(&mut self, layout: &Layout, segment: &SegmentId);
    fn round(&mut self, layout: &Layout, segment: &SegmentId);
    fn store(&mut self, layout: &Layout, segment: &SegmentId, payload: Self::Payload);
}

/// In which order a link delivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// As sent; only the links race each other.
    Fifo,
    /// Any.
    Shuffled,
}

/// What travels: from whom, what, its content.
type Message<P> = (Rank, SegmentId, P);

pub(super) struct Cluster<B: Buffer> {
    pub(super) layout: Layout,
    pub(super) sessions: Vec<Session<B::Payload>>,
    pub(super) buffers: Vec<B>,
    /// What is on its way to each rank.
    pub(super) links: Vec<VecDeque<Message<B::Payload>>>,
    /// Elements that all ranks have sent.
    pub(super) sent: Vec<usize>,
    waiting: Vec<usize>,
    plan: Plan,
    receivers: Vec<Vec<Rank>>,
    /// The first bucket whose contribution is there, by rank.
    ready: Vec<u32>,
    /// Whether contributions are added up; else what others hold may come before a rank's own is there.
    reduces: bool,
    in_flight: u32,
    buckets_done: Vec<u32>,
    done: Vec<bool>,
}

impl<B: Buffer> Cluster<B> {
    pub(super) fn new(layout: Layout, in_flight: u32, buffer: impl Fn(Rank) -> B) -> Self {
        Self::over(&Plan::Ring, Operation::AllReduce, layout, in_flight, buffer)
    }

    pub(super) fn over(
        plan: &Plan,
        operation: Operation,
        layout: Layout,
        in_flight: u32,
        buffer: impl Fn(Rank) -> B,
    ) -> Self {
        let world = layout.world_size();
        let size = world.get() as usize;
        let schedule = |rank| Schedule::new(plan, world, operation, rank);
        Self {
            sessions: world.ranks().map(|rank| Session::over(schedule(rank), layout.clone(), in_flight)).collect(),
            buffers: world.ranks().map(buffer).collect(),
            links: world.ranks().map(|_| VecDeque::new()).collect(),
            sent: Vec::new(),
            waiting: (0..size).collect(),
            plan: plan.clone(),
            receivers: world.ranks().map(|rank| schedule(rank).receivers()).collect(),
            ready: vec![layout.buckets(); size],
            reduces: matches!(operation, Operation::AllReduce | Operation::ReduceScatter),
            in_flight: in_flight.max(1),
            buckets_done: vec![0; size],
            done: vec![false; size],
            layout,
        }
    }

    /// Delivers until nothing is on its way, or `limit` things have happened.
    pub(super) fn run(&mut self, rng: &mut Rng, order: Order, limit: usize) {
        for _ in 0..limit {
            let (size, first) = (self.links.len(), rng.below(self.links.len()));
            let busy = (0..size).map(|offset| (first + offset) % size).find(|rank| !self.links[*rank].is_empty());
            let begin = !self.waiting.is_empty() && (busy.is_none() || rng.below(8) == 0);
            match (busy, begin) {
                (Some(rank), false) => {
                    let link = &self.links[rank];
                    let mut at = rng.below(link.len());
                    if order == Order::Fifo {
                        let from = link[at].0;
                        at = link.iter().position(|message| message.0 == from).expect("it is in there");
                    }
                    self.deliver(rank, at);
                }
                (_, true) => {
                    let at = rng.below(self.waiting.len());
                    self.begin(at);
                }
                (None, false) => return,
            }
        }
    }

    /// How many different things could happen next.
    pub(super) fn options(&self) -> usize {
        self.waiting.len() + self.links.iter().map(VecDeque::len).sum::<usize>()
    }

    /// Lets one of [`Self::options`] happen.
    pub(super) fn take(&mut self, option: usize) {
        let Some(mut option) = option.checked_sub(self.waiting.len()) else { return self.begin(option) };
        for rank in 0..self.links.len() {
            match option.checked_sub(self.links[rank].len()) {
                Some(rest) => option = rest,
                None => return self.deliver(rank, option),
            }
        }
    }

    fn begin(&mut self, at: usize) {
        let rank = self.waiting.remove(at);
        let from = self.ready[rank].saturating_sub(1);
        self.ready[rank] = from;
        if from > 0 {
            self.waiting.push(rank);
        }
        self.sessions[rank].handle(Input::Ready { from }).expect("what is ready is always taken");
        self.drain(rank);
    }

    fn deliver(&mut self, rank: usize, at: usize) {
        let (from, segment, payload) = self.links[rank].remove(at).expect("something is on its way");
        let input = Input::Received { from, segment, payload };
        self.sessions[rank].handle(input).expect("correct peers violate nothing");
        self.drain(rank);
    }

    pub(super) fn drain(&mut self, rank: usize) {
        let layout = &self.layout;
        while let Some(output) = self.sessions[rank].poll() {
            assert!(!self.done[rank], "{output:?} after the operation was done");
            let buffer = &mut self.buffers[rank];
            let schedule = self.sessions[rank].schedule();
            if let Some(segment) = touched(&output).filter(|_| self.reduces) {
                assert!(segment.bucket >= self.ready[rank], "{segment} before its contribution is there");
            }
            match output {
                Output::Send { to, segment } => {
                    assert!(self.receivers[rank].contains(&to), "rank {rank} has no link to {to:?}");
                    let begins = self.plan == Plan::Ring && segment.phase == Phase::ReduceScatter;
                    if begins && segment.chunk.0 as usize == rank {
                        let begun = layout.buckets() - segment.bucket;
                        let bound = self.buckets_done[rank].saturating_add(self.in_flight);
                        assert!(begun <= bound, "bucket {} began beyond the bound {bound}", segment.bucket);
                    }
                    self.sent.push(layout.range(&segment).expect("a segment of the layout").len());
                    let message = (Rank(rank as u32), segment, buffer.read(layout, &segment));
                    self.links[to.0 as usize].push_back(message);
                }
                Output::Accumulate { segment, payload } => buffer.accumulate(layout, &segment, payload),
                Output::Prepend { segment, payloads } => {
                    assert!(payloads.len() > 1, "a single payload is accumulated");
                    buffer.prepend(layout, &segment, payloads);
                }
                Output::Divide { segment } => {
                    assert!(schedule.owns(segment.chunk), "only a chunk's owner divides it");
                    buffer.divide(layout, &segment);
                }
                Output::Round { segment } => buffer.round(layout, &segment),
                Output::Store { segment, payload } => buffer.store(layout, &segment, payload),
                Output::BucketDone(_) => self.buckets_done[rank] += 1,
                Output::Done => {
                    assert!(self.sessions[rank].is_done(), "the machine says that it is done");
                    self.done[rank] = true;
                }
            }
        }
    }

    /// Payload bytes that all ranks have sent.
    pub(super) fn sent_bytes(&self, codec: Codec) -> u64 {
        self.sent.iter().map(|elements| codec.payload_bytes(*elements) as u64).sum()
    }

    pub(super) fn assert_done(&self) {
        assert!(self.done.iter().all(|done| *done), "not all ranks are done: {:?}", self.done);
        assert!(self.buckets_done.iter().all(|done| *done == self.layout.buckets()), "{:?}", self.buckets_done);
        assert!(self.links.iter().all(VecDeque::is_empty), "something is still on its way");
    }
}

/// The segment that an output reads or writes.
fn touched<P>(output: &Output<P>) -> Option<SegmentId> {
    match output {
        Output::Send { segment, .. }
        | Output::Accumulate { segment, .. }
        | Output::Prepend { segment, .. }
        | Output::Divide { segment }
        | Output::Round { segment }
        | Output::Store { segment, .. } => Some(*segment),
        Output::BucketDone(_) | Output::Done => None,
    }
}

pub(super) fn layout(elements: usize, world: u32, bucket_elements: usize, segment_elements: usize) -> Layout {
    Layout::new(elements, WorldSize::new(world), LayoutConfig { bucket_elements, segment_elements })
}

/// World sizes and layouts that between them have all remainders, empty chunks, one or many buckets and segments.
pub(super) fn all_layouts() -> impl Iterator<Item = Layout> {
    (1..=16).flat_map(|world| {
        let sizes = 0..=3 * world as usize + 1;
        sizes.map(move |elements| {
            let shapes = [(64, 2), (world as usize, 1), (7, 3), (2 * world as usize + 1, 1)];
            let (bucket, segment) = shapes[(elements + world as usize) % shapes.len()];
            layout(elements, world, bucket, segment)
        })
    })
}

/// A layout for `plan`, its chunks as large as the weights say, or equal.
pub(super) fn layout_for(plan: &Plan, elements: usize, world: u32, config: (usize, usize), weigh: bool) -> Layout {
    let world = WorldSize::new(world);
    let weight = |chunk: u32| if weigh { chunk * 5 % 7 + u32::from(chunk == 0) } else { 1 };
    let weights: Vec<u32> = (0..plan.chunks(world)).map(weight).collect();
    let config = LayoutConfig { bucket_elements: config.0, segment_elements: config.1 };
    Layout::weighted(elements, world, config, &weights)
}

/// All plans for a world, grouped in several ways.
pub(super) fn plans(world: u32) -> Vec<Plan> {
    let grouped = |groups: u32| {
        let labels: Vec<u32> = (0..world).map(|rank| rank * rank % groups).collect();
        Plan::Hierarchical(Groups::from_labels(&labels))
    };
    [Plan::Ring, Plan::Tree, Plan::Mesh].into_iter().chain([2, 3, 5].map(grouped)).collect()
}
