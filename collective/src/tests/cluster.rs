//! A ring of sessions over links that a seed reorders.

use std::collections::VecDeque;
use std::fmt::Debug;

use starling_topology::{Rank, WorldSize};

use crate::{Input, Layout, LayoutConfig, Output, Phase, SegmentId, Session, reduce_scatter};

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
    fn divide(&mut self, layout: &Layout, segment: &SegmentId);
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

pub(super) struct Cluster<B: Buffer> {
    pub(super) layout: Layout,
    pub(super) sessions: Vec<Session<B::Payload>>,
    pub(super) buffers: Vec<B>,
    /// What is on its way to each rank.
    pub(super) links: Vec<VecDeque<(SegmentId, B::Payload)>>,
    waiting: Vec<usize>,
    in_flight: u32,
    buckets_done: Vec<u32>,
    done: Vec<bool>,
}

impl<B: Buffer> Cluster<B> {
    pub(super) fn new(layout: Layout, in_flight: u32, buffer: impl Fn(Rank) -> B) -> Self {
        let world = layout.world_size();
        let size = world.get() as usize;
        Self {
            sessions: world.ranks().map(|rank| Session::new(layout.clone(), rank, in_flight)).collect(),
            buffers: world.ranks().map(buffer).collect(),
            links: world.ranks().map(|_| VecDeque::new()).collect(),
            waiting: (0..size).collect(),
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
            let (rank, input) = match (busy, begin) {
                (Some(rank), false) => {
                    let link = &mut self.links[rank];
                    let at = if order == Order::Fifo { 0 } else { rng.below(link.len()) };
                    let (segment, payload) = link.remove(at).expect("the link is not empty");
                    let from = self.layout.world_size().previous(Rank(rank as u32));
                    (rank, Input::Received { from, segment, payload })
                }
                (_, true) => (self.waiting.remove(rng.below(self.waiting.len())), Input::Start),
                (None, false) => return,
            };
            self.sessions[rank].handle(input).expect("correct peers violate nothing");
            self.drain(rank);
        }
    }

    pub(super) fn drain(&mut self, rank: usize) {
        let layout = &self.layout;
        while let Some(output) = self.sessions[rank].poll() {
            assert!(!self.done[rank], "{output:?} after the operation was done");
            let buffer = &mut self.buffers[rank];
            match output {
                Output::Send { to, segment } => {
                    assert_eq!(to, layout.world_size().next(Rank(rank as u32)), "a ring sends to the next rank only");
                    if segment.phase == Phase::ReduceScatter && segment.chunk.0 as usize == rank {
                        let bound = self.buckets_done[rank] + self.in_flight;
                        assert!(segment.bucket < bound, "bucket {} began beyond the bound {bound}", segment.bucket);
                    }
                    self.links[to.0 as usize].push_back((segment, buffer.read(layout, &segment)));
                }
                Output::Accumulate { segment, payload } => buffer.accumulate(layout, &segment, payload),
                Output::Divide { segment } => {
                    let owner = reduce_scatter::owner(segment.chunk, layout.world_size());
                    assert_eq!(owner.0 as usize, rank, "only a chunk's owner divides it");
                    buffer.divide(layout, &segment);
                }
                Output::Store { segment, payload } => buffer.store(layout, &segment, payload),
                Output::BucketDone(_) => self.buckets_done[rank] += 1,
                Output::Done => {
                    assert!(self.sessions[rank].is_done(), "the machine says that it is done");
                    self.done[rank] = true;
                }
            }
        }
    }

    pub(super) fn assert_done(&self) {
        assert!(self.done.iter().all(|done| *done), "not all ranks are done: {:?}", self.done);
        assert!(self.buckets_done.iter().all(|done| *done == self.layout.buckets()), "{:?}", self.buckets_done);
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
