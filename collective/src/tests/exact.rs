//! With contribution counts as payload, a run is a proof: each element ends with one contribution of each rank.

use starling_topology::Rank;

use super::cluster::{Buffer, Cluster, Order, Rng, all_layouts, layout};
use crate::{Input, Layout, SegmentId};

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
struct Counts(Vec<Made>);

impl Counts {
    fn of(layout: &Layout, rank: Rank) -> Self {
        let of = std::array::from_fn(|other| u32::from(other == rank.0 as usize));
        Self(vec![Made { of, divided: 0 }; layout.elements()])
    }
}

impl Buffer for Counts {
    type Payload = Vec<Made>;

    fn read(&self, layout: &Layout, segment: &SegmentId) -> Vec<Made> {
        self.0[layout.range(segment).expect("machines name segments of the layout")].to_vec()
    }

    fn accumulate(&mut self, layout: &Layout, segment: &SegmentId, payload: Vec<Made>) {
        let mine = &mut self.0[layout.range(segment).expect("machines name segments of the layout")];
        assert_eq!(mine.len(), payload.len());
        for (mine, theirs) in mine.iter_mut().zip(payload) {
            assert_eq!((mine.divided, theirs.divided), (0, 0), "only undivided sums are added");
            mine.of.iter_mut().zip(theirs.of).for_each(|(mine, theirs)| *mine += theirs);
        }
    }

    fn divide(&mut self, layout: &Layout, segment: &SegmentId) {
        let mine = &mut self.0[layout.range(segment).expect("machines name segments of the layout")];
        mine.iter_mut().for_each(|made| made.divided += 1);
    }

    fn store(&mut self, layout: &Layout, segment: &SegmentId, payload: Vec<Made>) {
        self.0[layout.range(segment).expect("machines name segments of the layout")].clone_from_slice(&payload);
    }
}

fn check(layout: &Layout, in_flight: u32, order: Order, seed: u64) {
    let mut cluster = Cluster::new(layout.clone(), in_flight, |rank| Counts::of(layout, rank));
    cluster.run(&mut Rng(seed), order, usize::MAX);
    cluster.assert_done();
    let world = layout.world_size().get() as usize;
    let exact = Made { of: std::array::from_fn(|rank| u32::from(rank < world)), divided: 1 };
    for (rank, buffer) in cluster.buffers.iter().enumerate() {
        let wrong = buffer.0.iter().position(|made| *made != exact);
        assert_eq!(wrong, None, "rank {rank}, seed {seed}, {order:?}, {in_flight} in flight, {layout:?}");
    }
}

#[test]
fn every_rank_counts_once_in_every_order_of_delivery() {
    for layout in all_layouts() {
        for seed in 0..50 {
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
fn an_abort_at_any_point_leaves_nothing() {
    let layout = layout(60, 4, 20, 2);
    for limit in 0..200 {
        let mut rng = Rng(limit as u64);
        let mut cluster = Cluster::new(layout.clone(), 2, |rank| Counts::of(&layout, rank));
        cluster.run(&mut rng, Order::Shuffled, limit);
        let finished: Vec<bool> = cluster.sessions.iter().map(|session| session.is_done()).collect();
        let before = cluster.buffers.clone();
        for session in &mut cluster.sessions {
            session.handle(Input::Abort).expect("an abort is always taken");
            assert!(!session.is_done());
        }
        cluster.run(&mut rng, Order::Shuffled, usize::MAX);
        assert_eq!(cluster.buffers, before, "an aborted session asked for something (limit {limit})");
        assert!(limit > 0 || finished.iter().all(|finished| !finished));
    }
}

#[test]
fn an_abort_drops_outputs_that_were_not_polled() {
    let layout = layout(12, 3, 12, 1);
    let mut cluster = Cluster::new(layout.clone(), 1, |rank| Counts::of(&layout, rank));
    let session = &mut cluster.sessions[0];
    session.handle(Input::Start).expect("a start is always taken");
    session.handle(Input::Abort).expect("an abort is always taken");
    assert_eq!(session.poll(), None);
}

#[test]
fn a_second_start_changes_nothing() {
    let layout = layout(12, 3, 12, 1);
    let mut cluster = Cluster::new(layout.clone(), 1, |rank| Counts::of(&layout, rank));
    let session = &mut cluster.sessions[0];
    session.handle(Input::Start).expect("a start is always taken");
    assert_eq!(std::iter::from_fn(|| session.poll()).count(), 4, "one send per segment of the own chunk");
    session.handle(Input::Start).expect("a start is always taken");
    assert_eq!(session.poll(), None);
}
