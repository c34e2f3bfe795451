//! Which samples a member computes in a step: a pure function of the run, the step and the ring.
//!
//! ```text
//!   epoch 0: a seeded permutation of all training samples
//!   | step 1: batch B | step 2: batch B | ... | last step: the rest |   epoch 1: another permutation | ...
//!     rank 0 | rank 1 | rank 2          contiguous slices whose sizes differ by at most one
//! ```
//!
//! Steps count from 1. An epoch visits each sample exactly once, whatever the world size; the last batch of an epoch is
//! smaller if the batch size does not divide the number of samples.

use std::ops::Range;

use starling_topology::{Rank, WorldSize};

use crate::generator::Generator;

/// The samples that `rank` computes in `step`, as indices into the training samples.
///
/// Draws the epoch's permutation anew at each call; a [`Ledger`] keeps it.
///
/// # Panics
/// If `samples`, `batch_size` or `step` is zero, or `rank` is outside of `world`.
pub fn slice(seed: u64, samples: u32, batch_size: u32, step: u64, world: WorldSize, rank: Rank) -> Vec<u32> {
    Ledger::new(seed, samples, batch_size).slice(step, world, rank).to_vec()
}

/// The part of a batch of `len` samples that `rank` computes.
///
/// # Panics
/// If `rank` is outside of `world`.
pub fn share(len: usize, world: WorldSize, rank: Rank) -> Range<usize> {
    assert!(rank.0 < world.get(), "rank {} is outside of a world of {}", rank.0, world.get());
    let (world, rank) = (world.get() as usize, rank.0 as usize);
    let (base, larger) = (len / world, len % world);
    let start = rank * base + rank.min(larger);
    start..start + base + usize::from(rank < larger)
}

/// The sample order of a run, with the current epoch's permutation at hand.
#[derive(Debug, Clone)]
pub struct Ledger {
    seed: u64,
    samples: u32,
    batch_size: u32,
    /// The epoch whose permutation `order` is, once one was asked for.
    epoch: Option<u64>,
    order: Vec<u32>,
}

impl Ledger {
    /// The ledger of a run over `samples` training samples.
    ///
    /// # Panics
    /// If `samples` or `batch_size` is zero.
    pub fn new(seed: u64, samples: u32, batch_size: u32) -> Self {
        assert!(samples > 0, "a ledger needs samples");
        assert!(batch_size > 0, "a batch has at least one sample");
        Self { seed, samples, batch_size, epoch: None, order: Vec::new() }
    }

    /// How many steps one epoch takes.
    pub fn steps_per_epoch(&self) -> u64 {
        u64::from(self.samples.div_ceil(self.batch_size))
    }

    /// The epoch that `step` belongs to: 0 for the first pass over the data.
    ///
    /// # Panics
    /// If `step` is zero: steps count from 1.
    pub fn epoch(&self, step: u64) -> u64 {
        assert!(step > 0, "steps count from 1");
        (step - 1) / self.steps_per_epoch()
    }

    /// How many samples the batch of `step` has, over all members.
    ///
    /// # Panics
    /// If `step` is zero.
    pub fn batch_len(&self, step: u64) -> usize {
        self.batch_range(step).len()
    }

    /// The samples that `rank` computes in `step`.
    ///
    /// # Panics
    /// If `step` is zero, or `rank` is outside of `world`.
    pub fn slice(&mut self, step: u64, world: WorldSize, rank: Rank) -> &[u32] {
        let epoch = self.epoch(step);
        if self.epoch != Some(epoch) {
            self.order = Generator::for_purpose("starling sample order", self.seed, epoch).permutation(self.samples);
            self.epoch = Some(epoch);
        }
        let batch = &self.order[self.batch_range(step)];
        &batch[share(batch.len(), world, rank)]
    }

    /// The part of the epoch's permutation that the batch of `step` is.
    fn batch_range(&self, step: u64) -> Range<usize> {
        let position = (step - 1) - self.epoch(step) * self.steps_per_epoch();
        let (samples, batch_size) = (self.samples as usize, self.batch_size as usize);
        let start = usize::try_from(position).expect("invariant: a position is below the sample count") * batch_size;
        start..(start + batch_size).min(samples)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_epoch_visits_each_sample_exactly_once() {
        for samples in [1, 2, 5, 16, 97, 1000] {
            for batch_size in [1, 3, 16, 64, 2000] {
                for world in [1, 2, 3, 7, 16] {
                    check_epochs(samples, batch_size, WorldSize::new(world));
                }
            }
        }
    }

    fn check_epochs(samples: u32, batch_size: u32, world: WorldSize) {
        let mut ledger = Ledger::new(42, samples, batch_size);
        for epoch in 0..2 {
            let mut visits = vec![0; samples as usize];
            for step in epoch * ledger.steps_per_epoch() + 1..=(epoch + 1) * ledger.steps_per_epoch() {
                assert_eq!(ledger.epoch(step), epoch);
                for rank in world.ranks() {
                    for sample in ledger.slice(step, world, rank) {
                        visits[*sample as usize] += 1;
                    }
                }
            }
            assert!(visits.iter().all(|visits| *visits == 1), "n={samples} B={batch_size} world={world:?}: {visits:?}");
        }
    }

    #[test]
    fn slices_partition_the_batch_in_order_and_differ_by_at_most_one() {
        for len in 0..50 {
            for world in 1..=9 {
                let world = WorldSize::new(world);
                let shares: Vec<_> = world.ranks().map(|rank| share(len, world, rank)).collect();
                let mut next = 0;
                for share in &shares {
                    assert_eq!(share.start, next, "shares of {len} over {world:?} leave a gap or overlap");
                    next = share.end;
                }
                assert_eq!(next, len);
                let lens: Vec<_> = shares.iter().map(Range::len).collect();
                assert!(lens.iter().max().zip(lens.iter().min()).is_some_and(|(max, min)| max - min <= 1), "{lens:?}");
            }
        }
    }

    #[test]
    fn the_batch_does_not_depend_on_the_world() {
        let mut ledger = Ledger::new(9, 103, 10);
        for step in [1, 5, 11, 12, 40] {
            let whole = ledger.slice(step, WorldSize::new(1), Rank(0)).to_vec();
            for world in 2..12 {
                let world = WorldSize::new(world);
                let joined: Vec<u32> =
                    world.ranks().flat_map(|rank| ledger.slice(step, world, rank).to_vec()).collect();
                assert_eq!(joined, whole);
            }
        }
    }

    #[test]
    fn the_last_batch_of_an_epoch_is_the_rest() {
        let ledger = Ledger::new(0, 103, 10);
        assert_eq!(ledger.steps_per_epoch(), 11);
        assert_eq!(
            (1..=12).map(|step| ledger.batch_len(step)).collect::<Vec<_>>(),
            [10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 3, 10]
        );
    }

    #[test]
    fn epochs_and_seeds_have_their_own_order_and_it_never_changes() {
        let order = |seed, step| slice(seed, 20, 20, step, WorldSize::new(1), Rank(0));
        assert_ne!(order(1, 1), order(1, 2));
        assert_ne!(order(1, 1), order(2, 1));
        // A cached epoch must not leak into another one.
        let mut ledger = Ledger::new(1, 20, 20);
        let (second, first) = (
            ledger.slice(2, WorldSize::new(1), Rank(0)).to_vec(),
            ledger.slice(1, WorldSize::new(1), Rank(0)).to_vec(),
        );
        assert_eq!((first, second), (order(1, 1), order(1, 2)));
        // Pinned: members on different versions of Starling must agree.
        assert_eq!(slice(1, 10, 10, 1, WorldSize::new(1), Rank(0)), PINNED_ORDER);
    }

    const PINNED_ORDER: [u32; 10] = [8, 7, 5, 9, 3, 4, 1, 0, 6, 2];
}
