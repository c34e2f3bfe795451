//! The simulator's payload: not numbers, but who they came from.

use std::ops::Range;

use starling_collective::{Layout, Phase, SegmentId};
use starling_topology::{PeerId, Rank, WorldSize};

use crate::hardware::network::rng::Rng;

/// What was added into a segment, and how often the sum was divided. An all-reduce over these is a proof: it is right if
/// and only if every count ends as one and the sum is that of the gradients that the ledger asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Contributions {
    /// How often each rank was added.
    pub counts: Vec<u32>,
    /// Divisions.
    pub divided: u32,
    /// The sum, modulo 2^64, of what stands for each rank's gradient (see [`gradient`]); 0 for one that brings none.
    pub sum: u64,
    /// In the cell that carries the speed slots, one per member in their sorted order; else empty.
    pub speeds: Vec<u32>,
}

impl Contributions {
    /// What `rank` brings: `gradient`, and, in the cell for it, the members' speeds as far as it knows them: its own.
    pub fn of(rank: Rank, world: WorldSize, gradient: u64, speeds: Vec<u32>) -> Self {
        let counts = world.ranks().map(|other| u32::from(other == rank)).collect();
        Self { counts, divided: 0, sum: gradient, speeds }
    }

    /// Adds another rank's sum.
    pub fn accumulate(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        for (mine, theirs) in self.speeds.iter_mut().zip(&other.speeds) {
            *mine += theirs;
        }
        self.divided += other.divided;
        self.sum = self.sum.wrapping_add(other.sum);
    }
}

/// A number that stands for the gradient of `peer` over these positions of its share in `step`: another peer, step or share has
/// another one. It is the sum of one number for each position, so that parts of a share add up to it, whoever computes them; no
/// positions have no gradient: zero.
pub fn gradient(peer: PeerId, step: u64, share: &[Range<u32>]) -> u64 {
    let seed = name(peer, step, &[]);
    let of = |position: u32| Rng::new(seed ^ (u64::from(position) << 32 | u64::from(position))).bits();
    share.iter().flat_map(Clone::clone).map(of).fold(0, u64::wrapping_add)
}

/// What the numbers of the gradient of `peer` over all of its share in `step` are drawn from, whoever has computed which part; 0 of none.
pub fn name_of_numbers(peer: PeerId, step: u64, share: &[Range<u32>]) -> u64 {
    if share.is_empty() { 0 } else { name(peer, step, share) }
}

fn name(peer: PeerId, step: u64, share: &[Range<u32>]) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&peer.0).update(&step.to_le_bytes());
    for range in share {
        hasher.update(&range.start.to_le_bytes()).update(&range.end.to_le_bytes());
    }
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    u64::from_le_bytes(bytes)
}

/// The numbers of which `gradient` is what they are known by: of very different sizes, so that another order of addition, or
/// another rounding, would show. None is so large that a codec cuts it off.
pub fn numbers(gradient: u64, elements: usize) -> Vec<f32> {
    if gradient == 0 {
        return vec![0.0; elements];
    }
    let mut rng = Rng::new(gradient);
    let mut number = || {
        let digits = i32::try_from(rng.between(0, 2_000)).expect("invariant: drawn small") - 1_000;
        digits as f32 * [1e-4, 1e-2, 1.0, 30.0][usize::try_from(rng.between(0, 3)).unwrap_or_default()] / 7.0
    };
    (0..elements).map(|_| number()).collect()
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
    /// All cells of `layout`, in order. The first one carries the speed slots.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_gradient_is_another_number() {
        let of = |name: u8, step, end: u32| gradient(PeerId([name; 32]), step, &[0..end, 7..9]);
        for other in [of(2, 3, 4), of(1, 4, 4), of(1, 3, 5)] {
            assert_ne!(of(1, 3, 4), other);
        }
        assert_eq!(gradient(PeerId([1; 32]), 3, &[]), 0);
    }

    #[test]
    fn parts_of_a_share_add_up_to_it() {
        let of = |ranges: &[Range<u32>]| gradient(PeerId([1; 32]), 3, ranges);
        let parts = of(&[0..1, 3..4]).wrapping_add(of(&[1..3, 7..9]));
        assert_eq!(of(&[0..4, 7..9]), parts);
        assert_ne!(of(&[0..4, 7..9]), parts.wrapping_add(of(&[7..8, 8..8])), "and none counts twice");
    }
}
