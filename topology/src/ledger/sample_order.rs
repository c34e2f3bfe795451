//! The sample order of one epoch.

use std::ops::Range;

use crate::ledger::split_mix::SplitMix64Generator;

/// Enough that nothing of the order before shows in sets of 2^31 samples; each costs about a nanosecond for each sample asked for.
const ROUNDS: usize = 64;

/// A seeded permutation of a run's training samples. It is computed where it is asked for, so that a set of any size takes no memory.
///
/// This is the swap-or-not shuffle (Hoang, Morris, Rogaway: "An Enciphering Scheme Based on a Card Shuffle", CRYPTO 2012): a round pairs each number with
/// another one, and swaps a pair or not by one bit that both compute from the larger of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SampleOrder {
    samples: u32,
    rounds: [Round; ROUNDS],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Round {
    /// What the two numbers of a pair add up to, modulo the number of samples.
    sum: u32,
    /// What the bits of this round are drawn by.
    key: u32,
}

impl SampleOrder {
    /// The order of `samples` samples in `epoch`.
    pub fn draw(seed: u64, samples: u32, epoch: u64) -> Self {
        let mut generator = SplitMix64Generator::for_purpose("starling sample order", seed, epoch);
        let rounds = std::array::from_fn(|_| Round {
            sum: generator.below(samples.max(1)),
            key: (generator.next_u64() >> 32) as u32,
        });
        Self { samples, rounds }
    }

    /// The samples at the given positions.
    ///
    /// # Panics
    /// If a position is not below the number of samples.
    pub fn indices(&self, ranges: &[Range<u32>]) -> Vec<u32> {
        let mut indices: Vec<u32> = ranges.iter().cloned().flatten().collect();
        assert!(indices.iter().all(|position| *position < self.samples), "a position is one of a sample");
        // All of them round by round, which lets the compiler take several at once.
        for round in &self.rounds {
            for index in &mut indices {
                *index = round.moved(*index, self.samples);
            }
        }
        indices
    }
}

impl Round {
    /// Where `index`, one of `samples`, is after this round.
    fn moved(self, index: u32, samples: u32) -> u32 {
        let difference = self.sum.wrapping_sub(index);
        let other = if index > self.sum { difference.wrapping_add(samples) } else { difference };
        if bit(index.max(other) ^ self.key) { other } else { index }
    }
}

/// One bit of all bits of `number` (the mixing of Wellons' `lowbias32`, public domain, whose top bit its last shift leaves as it is).
fn bit(number: u32) -> bool {
    let mut mixed = number ^ (number >> 16);
    mixed = mixed.wrapping_mul(0x7feb_352d);
    mixed = (mixed ^ (mixed >> 15)).wrapping_mul(0x846c_a68b);
    mixed >> 31 == 1
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn drawn(seed: u64, samples: u32, asked: Range<u32>) -> Vec<u32> {
        SampleOrder::draw(seed, samples, 1).indices(std::slice::from_ref(&asked))
    }

    #[test]
    fn an_order_has_each_sample_once() {
        for samples in [0, 1, 2, 3, 10, 257, 5_000] {
            let mut order = drawn(3, samples, 0..samples);
            order.sort_unstable();
            assert_eq!(order, (0..samples).collect::<Vec<_>>());
        }
    }

    /// All 120 orders of five samples come about equally often: chi-squared with 119 degrees of freedom is below 180 but for 2 of 10,000.
    #[test]
    fn orders_are_drawn_uniformly() {
        let draws = 24_000_u32;
        let mut counts = BTreeMap::<Vec<u32>, u32>::new();
        for seed in 0..u64::from(draws) {
            *counts.entry(drawn(seed, 5, 0..5)).or_default() += 1;
        }
        let expected = f64::from(draws) / 120.0;
        let squares: f64 = counts.values().map(|count| (f64::from(*count) - expected).powi(2) / expected).sum();
        assert_eq!(counts.len(), 120);
        assert!(squares < 180.0, "{squares}");
    }

    /// What lies beside each other in the data does not in the order, nor at the same distance: also of sets beyond a billion.
    #[test]
    fn neighbours_are_parted() {
        for samples in [1_000, 60_000, 3_000_000_000_u32] {
            let order = drawn(5, samples, 0..1_000);
            let near = order.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) <= samples / 1_000).count();
            assert!(near < 12, "{near} of 999 neighbours of {samples} are near each other");
            let early = order.iter().filter(|index| **index < samples / 2).count();
            assert!((400..600).contains(&early) || samples == 1_000, "{early}");
        }
    }

    #[test]
    #[should_panic(expected = "a position is one of a sample")]
    fn positions_are_of_samples() {
        drawn(1, 10, 9..11);
    }
}
