//! A world of executors over links that a seed reorders.

use std::borrow::BorrowMut;
use std::collections::VecDeque;
use std::fmt::Debug;

use starling_topology::plan::{GroupTable, HubSet, MAX_HUBS, Plan};
use starling_topology::{Rank, WorldSize};

use crate::{
    Buffer, Codec, Execution, ForwardPolicy, Layout, LayoutConfig, Operation, OperationKey, OwnedPayload, Phase,
    RankSet, Schedule, SegmentHeader, SegmentId, SegmentViolation, Violation, Workspace,
};
use starling_topology::SplitMix64Generator;

/// What a seed decides.
#[derive(Debug)]
pub(super) struct Rng(SplitMix64Generator);

impl Rng {
    pub(super) fn new(seed: u64) -> Self {
        Self(SplitMix64Generator::new(seed))
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// A buffer whose payloads are made here.
pub(super) trait Tested: Buffer<Payload: ToOwned<Owned: Debug + Clone + BorrowMut<Self::Payload>>> {
    /// Room for a payload.
    fn blank(header: &SegmentHeader) -> OwnedPayload<Self>;
}

impl Tested for Workspace {
    fn blank(header: &SegmentHeader) -> Vec<u8> {
        vec![0; header.payload_bytes as usize]
    }
}

/// A buffer, and what an executor may do to it.
#[derive(Debug)]
pub(super) struct Watched<B> {
    inner: B,
    /// The first bucket whose contribution is there.
    ready: u32,
    /// Whether contributions are added up; else what others hold may come before a rank's own is there.
    reduces: bool,
    owns: Vec<bool>,
}

impl<B: Buffer> Watched<B> {
    fn touch(&mut self, segment: &SegmentId) -> &mut B {
        assert!(segment.bucket >= self.ready || !self.reduces, "{segment} before its contribution is there");
        &mut self.inner
    }
}

impl<B: Buffer> Buffer for Watched<B> {
    type Payload = B::Payload;

    fn layout(&self) -> &Layout {
        self.inner.layout()
    }

    fn codec(&self) -> Codec {
        self.inner.codec()
    }

    fn length(payload: &B::Payload) -> usize {
        B::length(payload)
    }

    fn expect(&mut self, contributions: u32) {
        self.inner.expect(contributions);
    }

    fn inspect(
        &self,
        segment: &SegmentId,
        payload: &B::Payload,
        summed: &RankSet,
        answered: Option<Rank>,
    ) -> Result<(), SegmentViolation> {
        self.inner.inspect(segment, payload, summed, answered)
    }

    fn accumulate(&mut self, segment: &SegmentId, payload: &B::Payload) -> Result<(), SegmentViolation> {
        self.touch(segment).accumulate(segment, payload)
    }

    fn prepend(&mut self, segment: &SegmentId, payloads: Vec<&B::Payload>) -> Result<(), SegmentViolation> {
        assert!(payloads.len() > 1, "a single payload is accumulated");
        self.touch(segment).prepend(segment, payloads)
    }

    fn divide(&mut self, segment: &SegmentId) {
        assert!(self.owns[segment.chunk.0 as usize], "only a chunk's owner divides it");
        self.touch(segment).divide(segment);
    }

    fn round(&mut self, segment: &SegmentId) {
        self.touch(segment).round(segment);
    }

    fn store(&mut self, segment: &SegmentId, payload: &B::Payload) -> Result<(), SegmentViolation> {
        self.touch(segment).store(segment, payload)
    }

    fn write(&mut self, segment: &SegmentId, into: &mut B::Payload) {
        self.touch(segment).write(segment, into);
    }

    fn contribute(&mut self, segment: &SegmentId, payload: &mut B::Payload) -> Result<(), SegmentViolation> {
        self.touch(segment).contribute(segment, payload)
    }

    fn conclude(&mut self, segment: &SegmentId, payload: &B::Payload) -> Result<(), SegmentViolation> {
        assert!(self.owns[segment.chunk.0 as usize], "only a chunk's owner divides it");
        self.touch(segment).conclude(segment, payload)
    }

    fn check(&mut self, segment: &SegmentId, payload: &B::Payload) -> Result<(), SegmentViolation> {
        self.inner.check(segment, payload)
    }
}

/// Links that pass on without a copy, or don't.
#[derive(Debug, Clone, Copy)]
struct Links {
    take: bool,
    give_place: bool,
}

impl ForwardPolicy for Links {
    fn takes(&self, _: Rank) -> bool {
        self.take
    }

    fn gives_place(&self) -> bool {
        self.give_place
    }
}

/// In which order a link delivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// As sent; only the links race each other.
    Fifo,
    /// Any.
    Shuffled,
}

/// What becomes of what a rank sends.
type Change<B> = Box<dyn FnMut(Rank, &SegmentHeader, &mut <B as Buffer>::Payload)>;

/// What travels: from whom, as what, its content.
type Message<B> = (Rank, SegmentHeader, OwnedPayload<B>);

pub(super) struct Cluster<B: Tested> {
    pub(super) layout: Layout,
    pub(super) executions: Vec<Execution<Watched<B>>>,
    /// What is on its way to each rank.
    pub(super) links: Vec<VecDeque<Message<B>>>,
    /// Elements that all ranks have sent.
    pub(super) sent: Vec<usize>,
    waiting: Vec<usize>,
    plan: Plan,
    in_flight: u32,
    /// Who is named for what it sent; `None` if nobody may be.
    pub(super) blamed: Option<Vec<(Rank, Violation)>>,
    /// For a rank that sends other than it should.
    pub(super) change: Option<Change<B>>,
    /// A link, and after how many segments nothing comes over it any more.
    pub(super) lost: Option<(Rank, Rank, usize)>,
}

impl<B: Tested> Cluster<B> {
    pub(super) fn new(layout: Layout, in_flight: u32, buffer: impl FnMut(Rank) -> B) -> Self {
        Self::over(&Plan::Ring, Operation::AllReduce, layout, in_flight, buffer)
    }

    pub(super) fn over(
        plan: &Plan,
        operation: Operation,
        layout: Layout,
        in_flight: u32,
        mut buffer: impl FnMut(Rank) -> B,
    ) -> Self {
        let world = layout.world_size();
        let execution = |rank| {
            let schedule = Schedule::new(plan, world, operation, rank);
            let buffer = Watched {
                inner: buffer(rank),
                ready: layout.buckets(),
                reduces: matches!(operation, Operation::AllReduce | Operation::ReduceScatter),
                owns: (0..schedule.chunks()).map(|chunk| schedule.owns(Rank(chunk))).collect(),
            };
            Execution::new(OperationKey { step: 1, attempt: 0 }, schedule, buffer, in_flight, Vec::new())
        };
        Self {
            executions: world.ranks().map(execution).collect(),
            links: world.ranks().map(|_| VecDeque::new()).collect(),
            sent: Vec::new(),
            waiting: (0..world.get() as usize).collect(),
            plan: plan.clone(),
            in_flight: in_flight.max(1),
            blamed: None,
            change: None,
            lost: None,
            layout,
        }
    }

    /// What all ranks hold.
    pub(super) fn buffers(&self) -> impl Iterator<Item = &B> {
        self.executions.iter().map(|execution| &execution.buffer().inner)
    }

    pub(super) fn into_buffers(self) -> impl Iterator<Item = B> {
        self.executions.into_iter().map(|execution| execution.finish().0.inner)
    }

    /// Delivers until nothing is on its way, or `limit` things have happened. Shuffled links are busy half of the time, and
    /// pass on without a copy as often.
    pub(super) fn run(&mut self, rng: &mut Rng, order: Order, limit: usize) {
        for _ in 0..limit {
            if self.blamed.as_ref().is_some_and(|blamed| !blamed.is_empty()) {
                return; // The operation ends.
            }
            let (size, first) = (self.links.len(), rng.below(self.links.len()));
            let busy = (0..size).map(|offset| (first + offset) % size).find(|rank| !self.links[*rank].is_empty());
            let begin = !self.waiting.is_empty() && (busy.is_none() || rng.below(8) == 0);
            let rank = match (busy, begin) {
                (Some(rank), false) => {
                    let link = &self.links[rank];
                    let mut at = rng.below(link.len());
                    if order == Order::Fifo {
                        let from = link[at].0;
                        at = link.iter().position(|message| message.0 == from).expect("it is in there");
                    }
                    let shuffled = order == Order::Shuffled;
                    let mut links = || shuffled && rng.below(2) == 0;
                    self.deliver(rank, at, Links { take: links(), give_place: links() });
                    rank
                }
                (_, true) => {
                    let at = rng.below(self.waiting.len());
                    self.begin(at)
                }
                (None, false) => {
                    (0..size).for_each(|rank| self.drain(rank));
                    if self.links.iter().all(VecDeque::is_empty) {
                        return;
                    }
                    continue;
                }
            };
            if order == Order::Fifo || rng.below(2) == 0 {
                self.drain(rank);
            }
        }
    }

    /// How many different things could happen next.
    pub(super) fn options(&self) -> usize {
        self.waiting.len() + self.links.iter().map(VecDeque::len).sum::<usize>()
    }

    /// Lets one of [`Self::options`] happen.
    pub(super) fn take(&mut self, option: usize) {
        let Some(mut option) = option.checked_sub(self.waiting.len()) else {
            let rank = self.begin(option);
            return self.drain(rank);
        };
        for rank in 0..self.links.len() {
            match option.checked_sub(self.links[rank].len()) {
                Some(rest) => option = rest,
                None => {
                    self.deliver(rank, option, Links { take: false, give_place: false });
                    return self.drain(rank);
                }
            }
        }
    }

    fn begin(&mut self, at: usize) -> usize {
        let rank = self.waiting.remove(at);
        let buffer = self.executions[rank].buffer_mut();
        let from = buffer.ready.saturating_sub(1);
        buffer.ready = from;
        if from > 0 {
            self.waiting.push(rank);
        }
        self.executions[rank].bring(from);
        rank
    }

    fn deliver(&mut self, rank: usize, at: usize, links: Links) {
        let (from, header, mut payload) = self.links[rank].remove(at).expect("something is on its way");
        let taken = self.executions[rank].take(from, &header.to_bytes(), payload.borrow_mut(), &links);
        let taken = match (taken, &mut self.blamed) {
            (Err(violation), Some(blamed)) => {
                blamed.push((from, violation));
                None
            }
            (taken, _) => taken.expect("correct peers violate nothing"),
        };
        if let Some((to, header)) = taken {
            assert!(links.take && self.executions[rank].schedule().receivers().contains(&to));
            self.send(rank, to, header, payload);
        }
    }

    /// Sends what waits.
    pub(super) fn drain(&mut self, rank: usize) {
        for position in 0..self.executions[rank].schedule().receivers().len() {
            let to = self.executions[rank].schedule().receivers()[position];
            while let Some(header) = self.executions[rank].next_send(position) {
                let mut payload = B::blank(&header);
                self.executions[rank].buffer_mut().write(&header.segment, payload.borrow_mut());
                self.send(rank, to, header, payload);
            }
        }
    }

    fn send(&mut self, rank: usize, to: Rank, header: SegmentHeader, mut payload: OwnedPayload<B>) {
        if let Some(change) = &mut self.change {
            change(Rank(rank as u32), &header, payload.borrow_mut());
        }
        let segment = header.segment;
        let begins = self.plan == Plan::Ring && segment.phase == Phase::ReduceScatter;
        if begins && segment.chunk.0 as usize == rank {
            let begun = self.layout.buckets() - segment.bucket;
            let bound = self.buckets_done(rank).saturating_add(self.in_flight);
            assert!(begun <= bound, "bucket {} began beyond the bound {bound}", segment.bucket);
        }
        if let Some((_, _, rest)) = self.lost.as_mut().filter(|(from, over, _)| from.0 as usize == rank && *over == to)
        {
            match rest.checked_sub(1) {
                Some(fewer) => *rest = fewer,
                None => return,
            }
        }
        self.sent.push(self.layout.range(&segment).expect("a segment of the layout").len());
        self.links[to.0 as usize].push_back((Rank(rank as u32), header, payload));
    }

    fn buckets_done(&self, rank: usize) -> u32 {
        let done = (0..self.layout.buckets()).filter(|bucket| self.executions[rank].has_done(*bucket)).count();
        done as u32
    }

    /// Payload bytes that all ranks have sent.
    pub(super) fn sent_bytes(&self, codec: Codec) -> u64 {
        self.sent.iter().map(|elements| codec.payload_bytes(*elements) as u64).sum()
    }

    pub(super) fn assert_done(&self) {
        for (rank, execution) in self.executions.iter().enumerate() {
            assert!(execution.is_done(), "rank {rank} is not done");
            assert_eq!(self.buckets_done(rank), self.layout.buckets(), "rank {rank}");
            assert!(execution.due().iter().all(|due| *due == 0), "rank {rank} waits for {:?}", execution.due());
        }
        assert!(self.links.iter().all(VecDeque::is_empty), "something is still on its way");
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
    Layout::by_plan(elements, plan, world, config, &weights)
}

/// All plans for a world, grouped in several ways.
pub(super) fn plans(world: u32) -> Vec<Plan> {
    let grouped = |groups: u32| {
        let labels: Vec<u32> = (0..world).map(|rank| rank * rank % groups).collect();
        Plan::Hierarchical(GroupTable::from_labels(&labels))
    };
    // The last rank alone, and every other one.
    let star = |every: u32| {
        let hubs = ((world - 1) % every..world).step_by(every as usize).take(MAX_HUBS).map(Rank).collect();
        Plan::Star(HubSet::new(WorldSize::new(world), hubs).expect("hubs that can be"))
    };
    let plain = [Plan::Ring, Plan::Tree, Plan::Mesh].into_iter();
    plain.chain([2, 3, 5].map(grouped)).chain([64, 2].map(star)).collect()
}
