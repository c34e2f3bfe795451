//! The simulator's payload: not numbers, but who they came from.

use starling_collective::{Layout, Phase, SegmentId};
use starling_topology::{Rank, WorldSize};

/// How often each rank was added into a segment, and how often the sum was divided. An all-reduce over these is a proof:
/// it is right if and only if every count ends as one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contributions {
    /// Contributions by rank.
    pub counts: Vec<u32>,
    /// Divisions.
    pub divided: u32,
}

impl Contributions {
    /// What `rank` brings.
    pub fn of(rank: Rank, world: WorldSize) -> Self {
        Self { counts: world.ranks().map(|other| u32::from(other == rank)).collect(), divided: 0 }
    }

    /// Adds another rank's sum.
    pub fn accumulate(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.divided += other.divided;
    }
}

/// The place of a segment in the flat buffer, in either phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    /// The bucket.
    pub bucket: u32,
    /// The chunk.
    pub chunk: Rank,
    /// The segment within the chunk.
    pub segment: u32,
}

impl Cell {
    /// All cells of `layout`, in order.
    pub fn all(layout: &Layout) -> impl Iterator<Item = Self> + '_ {
        (0..layout.buckets()).flat_map(move |bucket| {
            layout.world_size().ranks().flat_map(move |chunk| {
                (0..layout.segments(bucket, chunk)).map(move |segment| Self { bucket, chunk, segment })
            })
        })
    }

    /// This cell's segment, to ask a layout about it.
    pub fn segment_id(self) -> SegmentId {
        SegmentId { bucket: self.bucket, phase: Phase::ReduceScatter, chunk: self.chunk, segment: self.segment }
    }
}

impl From<SegmentId> for Cell {
    fn from(segment: SegmentId) -> Self {
        Self { bucket: segment.bucket, chunk: segment.chunk, segment: segment.segment }
    }
}
