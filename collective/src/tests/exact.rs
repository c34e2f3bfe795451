//! With contribution counts as payload, a run is a proof: each element ends with one contribution of each rank.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use starling_topology::plan::Plan;
use starling_topology::{Rank, WorldSize};

use super::cluster::{Cluster, Order, Rng, Tested, all_layouts, layout, layout_for, plans};
use crate::{Buffer, Codec, Input, Layout, Operation, SegmentHeader, SegmentId, SegmentViolation, Session};

/// The largest world here.
const RANKS: usize = 16;

/// What one element is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Made {
    /// Contributions by rank.
    of: [u32; RANKS],
    divided: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Counts {
    layout: Layout,
    made: Vec<Made>,
}

impl Counts {
    fn of(layout: &Layout, rank: Rank) -> Self {
        let of = std::array::from_fn(|other| u32::from(other == rank.0 as usize));
        Self { layout: layout.clone(), made: vec![Made { of, divided: 0 }; layout.elements()] }
    }

    fn at(&mut self, segment: &SegmentId) -> &mut [Made] {
        &mut self.made[self.layout.range(segment).expect("machines name segments of the layout")]
    }
}

fn add(mine: &mut [Made], theirs: &[Made]) {
    assert_eq!(mine.len(), theirs.len());
    for (mine, theirs) in mine.iter_mut().zip(theirs) {
        assert_eq!((mine.divided, theirs.divided), (0, 0), "only undivided sums are added");
        mine.of.iter_mut().zip(theirs.of).for_each(|(mine, theirs)| *mine += theirs);
    }
}

impl Buffer for Counts {
    type Payload = [Made];

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn codec(&self) -> Codec {
        Codec::F32
    }

    fn length(payload: &[Made]) -> usize {
        Codec::F32.payload_bytes(payload.len())
    }

    fn accumulate(&mut self, segment: &SegmentId, payload: &[Made]) -> Result<(), SegmentViolation> {
        add(self.at(segment), payload);
        Ok(())
    }

    fn prepend(&mut self, segment: &SegmentId, payloads: Vec<&[Made]>) -> Result<(), SegmentViolation> {
        payloads.into_iter().for_each(|payload| add(self.at(segment), payload));
        Ok(())
    }

    fn divide(&mut self, segment: &SegmentId) {
        self.at(segment).iter_mut().for_each(|made| made.divided += 1);
    }

    fn round(&mut self, _: &SegmentId) {}

    fn store(&mut self, segment: &SegmentId, payload: &[Made]) -> Result<(), SegmentViolation> {
        self.at(segment).clone_from_slice(payload);
        Ok(())
    }

    fn write(&mut self, segment: &SegmentId, into: &mut [Made]) {
        into.clone_from_slice(self.at(segment));
    }

    // Unlike the default, what is here stays what it was: whoever reads it before the result is here finds too little.
    fn contribute(&mut self, segment: &SegmentId, payload: &mut [Made]) -> Result<(), SegmentViolation> {
        add(payload, self.at(segment));
        Ok(())
    }

    fn check(&mut self, _: &SegmentId, _: &[Made]) -> Result<(), SegmentViolation> {
        Ok(())
    }
}

impl Tested for Counts {
    fn blank(header: &SegmentHeader) -> Vec<Made> {
        vec![Made { of: [0; RANKS], divided: 0 }; header.payload_bytes as usize / Codec::F32.payload_bytes(1)]
    }
}

fn check(layout: &Layout, in_flight: u32, order: Order, seed: u64) {
    let mut cluster = Cluster::new(layout.clone(), in_flight, |rank| Counts::of(layout, rank));
    cluster.run(&mut Rng::new(seed), order, usize::MAX);
    cluster.assert_done();
    let world = layout.world_size().get() as usize;
    let exact = Made { of: std::array::from_fn(|rank| u32::from(rank < world)), divided: 1 };
    for (rank, buffer) in cluster.buffers().enumerate() {
        let wrong = buffer.made.iter().position(|made| *made != exact);
        assert_eq!(wrong, None, "rank {rank}, seed {seed}, {order:?}, {in_flight} in flight, {layout:?}");
    }
}

#[test]
fn every_rank_counts_once_in_every_order_of_delivery() {
    for layout in all_layouts() {
        for seed in 0..8 {
            let in_flight = 1 + (seed % 4) as u32;
            check(&layout, in_flight, Order::Fifo, seed);
            check(&layout, in_flight, Order::Shuffled, seed);
        }
    }
}

#[test]
fn many_buckets_in_flight() {
    for world in [2, 3, 5, 8] {
        for in_flight in [0, 1, 2, 7, u32::MAX] {
            check(&layout(1_000, world, 64, 5), in_flight, Order::Shuffled, u64::from(world));
        }
    }
}

#[test]
fn what_is_ready_twice_is_begun_once() {
    let mut session = Session::<()>::new(layout(12, 3, 12, 1), Rank(0), 1);
    session.handle(Input::Ready { from: 0 }).expect("what is ready is always taken");
    assert_eq!(std::iter::from_fn(|| session.poll()).count(), 4, "one send per segment of the own chunk");
    session.handle(Input::Ready { from: 0 }).expect("what is ready is always taken");
    assert_eq!(session.poll(), None);
}

/// What an operation leaves on `rank`, element by element; `None` where it means nothing.
fn expected(layout: &Layout, plan: &Plan, operation: Operation, rank: Rank) -> Vec<Option<Made>> {
    let world = layout.world_size();
    let all = Made { of: std::array::from_fn(|rank| u32::from(rank < world.get() as usize)), divided: 1 };
    let of = |owner: Rank| Made { of: std::array::from_fn(|rank| u32::from(rank == owner.0 as usize)), divided: 0 };
    let chunks = (0..layout.buckets()).flat_map(|bucket| (0..layout.chunks()).map(move |chunk| (bucket, Rank(chunk))));
    let made = |(bucket, chunk): (u32, Rank)| {
        let owner = plan.route(world, chunk).owner();
        let made = match operation {
            Operation::AllReduce => Some(all),
            Operation::ReduceScatter => (owner == rank).then_some(all),
            Operation::AllGather => Some(of(owner)),
            Operation::Broadcast { root } => Some(of(root)),
        };
        vec![made; layout.chunk(bucket, chunk).len()]
    };
    chunks.flat_map(made).collect()
}

fn operations(world: u32) -> Vec<Operation> {
    let broadcasts = (0..world).map(|root| Operation::Broadcast { root: Rank(root) });
    [Operation::AllReduce, Operation::ReduceScatter, Operation::AllGather].into_iter().chain(broadcasts).collect()
}

/// That all ranks are done, hold what they should, and have sent what the formula says.
fn assert_right(cluster: &Cluster<Counts>, plan: &Plan, operation: Operation, context: &str) {
    cluster.assert_done();
    for (rank, buffer) in cluster.layout.world_size().ranks().zip(cluster.buffers()) {
        let expected = expected(&cluster.layout, plan, operation, rank);
        let is_right = |(made, expected): (&Made, &Option<Made>)| expected.is_none_or(|expected| *made == expected);
        assert!(buffer.made.iter().zip(&expected).all(is_right), "{plan}, {operation:?}, rank {rank:?}, {context}");
    }
    for codec in Codec::ALL {
        let formula = operation.wire_bytes(&cluster.layout, codec);
        assert_eq!(cluster.sent_bytes(codec), formula, "{plan}, {operation:?}, {codec}, {context}");
    }
}

#[test]
fn every_plan_and_operation_counts_every_rank_once() {
    for world in 1..=RANKS as u32 {
        for plan in plans(world) {
            for (seed, operation) in operations(world).into_iter().enumerate() {
                let elements = [0, 1, world as usize - 1, 3 * world as usize + 2, 97][seed % 5];
                let config = [(50, 3), (17, 1), (64, 64)][seed % 3];
                let layout = layout_for(&plan, elements, world, config, seed % 2 == 1);
                for order in [Order::Fifo, Order::Shuffled] {
                    let counts = |rank| Counts::of(&layout, rank);
                    let mut cluster = Cluster::over(&plan, operation, layout.clone(), 1 + seed as u32 % 3, counts);
                    cluster.run(&mut Rng::new(seed as u64), order, usize::MAX);
                    assert_right(&cluster, &plan, operation, &format!("seed {seed}, {order:?}"));
                }
            }
        }
    }
}

/// Goes through all orders of delivery there are, and says how many.
fn exhaust(plan: &Plan, operation: Operation, layout: &Layout) -> u64 {
    let (mut choices, mut orders): (Vec<(usize, usize)>, u64) = (Vec::new(), 0);
    loop {
        let mut cluster = Cluster::over(plan, operation, layout.clone(), 1, |rank| Counts::of(layout, rank));
        let mut depth = 0;
        while cluster.options() > 0 {
            if depth == choices.len() {
                choices.push((0, cluster.options()));
            }
            cluster.take(choices[depth].0);
            depth += 1;
        }
        assert_right(&cluster, plan, operation, &format!("{choices:?}"));
        orders += 1;
        while choices.last().is_some_and(|(choice, options)| choice + 1 == *options) {
            choices.pop();
        }
        match choices.last_mut() {
            Some((choice, _)) => *choice += 1,
            None => return orders,
        }
    }
}

#[test]
fn no_order_of_delivery_there_is_blocks_or_counts_twice() {
    for (world, elements) in [(1, 2), (2, 1), (2, 2), (3, 1), (4, 1)] {
        for plan in plans(world).into_iter().take(4) {
            for operation in operations(world).into_iter().take(4) {
                let orders = exhaust(&plan, operation, &layout_for(&plan, elements, world, (4, 1), false));
                assert!(orders > 1 || world == 1, "{plan} among {world}, {operation:?}");
            }
        }
    }
}

#[test]
fn sixty_four_ranks() {
    // Too many for counts by rank: every rank contributes one to the first place, so 64 there means all.
    let world = WorldSize::new(64);
    for plan in plans(64) {
        let layout = layout_for(&plan, 200, 64, (150, 2), true);
        let one = |_| Counts::of(&layout, Rank(0));
        let mut cluster = Cluster::over(&plan, Operation::AllReduce, layout.clone(), 2, one);
        cluster.run(&mut Rng::new(64), Order::Shuffled, usize::MAX);
        cluster.assert_done();
        let all = Made { of: std::array::from_fn(|place| if place == 0 { world.get() } else { 0 }), divided: 1 };
        assert!(cluster.buffers().all(|buffer| buffer.made.iter().all(|made| *made == all)), "{plan}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300, rng_seed: RngSeed::Fixed(11), failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn whatever_the_layout_and_the_order_every_rank_counts_once(
        world in 1..=RANKS as u32, plan in any::<prop::sample::Index>(), operation in any::<prop::sample::Index>(),
        elements in 0usize..400, bucket in 1usize..200, segment in 1usize..30, weigh in any::<bool>(),
        in_flight in 0u32..5, fifo in any::<bool>(), seed in any::<u64>(),
    ) {
        let (plans, operations) = (plans(world), operations(world));
        let (plan, operation) = (plan.get(&plans), *operation.get(&operations));
        let layout = layout_for(plan, elements, world, (bucket, segment), weigh);
        let order = if fifo { Order::Fifo } else { Order::Shuffled };
        let counts = |rank| Counts::of(&layout, rank);
        let mut cluster = Cluster::over(plan, operation, layout.clone(), in_flight, counts);
        cluster.run(&mut Rng::new(seed), order, usize::MAX);
        assert_right(&cluster, plan, operation, &format!("seed {seed}, {order:?}"));
    }
}
