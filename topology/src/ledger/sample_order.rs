//! The sample order of one epoch.

use std::ops::Range;

use super::block_order::BlockOrder;
use super::permutation::Permutation;
use super::shuffle_policy::ShufflePolicy;
use super::split_mix::SplitMix64Generator;

/// A seeded permutation of a run's training samples. It is computed where it is asked for, so that a set of any size takes no memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SampleOrder {
    samples: u32,
    kind: OrderKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum OrderKind {
    Full(Permutation),
    Blocks(BlockOrder),
}

impl SampleOrder {
    /// The order of `samples` samples in `epoch`.
    pub fn draw(seed: u64, samples: u32, epoch: u64, shuffle: ShufflePolicy) -> Self {
        let kind = match shuffle {
            ShufflePolicy::Full => {
                let mut generator = SplitMix64Generator::for_purpose("starling sample order", seed, epoch);
                OrderKind::Full(Permutation::draw(&mut generator, samples))
            }
            ShufflePolicy::Blocks { rows, blocks } => {
                OrderKind::Blocks(BlockOrder::draw(seed, samples, epoch, rows, blocks))
            }
        };
        Self { samples, kind }
    }

    /// The samples at the given positions.
    ///
    /// # Panics
    /// If a position is not below the number of samples.
    pub fn indices(&self, ranges: &[Range<u32>]) -> Vec<u32> {
        let are_in = ranges.iter().all(|range| range.is_empty() || range.end <= self.samples);
        assert!(are_in, "a position is one of a sample");
        match &self.kind {
            OrderKind::Full(permutation) => {
                let mut indices: Vec<u32> = ranges.iter().cloned().flatten().collect();
                permutation.apply(&mut indices);
                indices
            }
            OrderKind::Blocks(order) => order.indices(ranges),
        }
    }

    /// The samples of each window of an order by blocks, from that of this position on, block by block: positions of a window are of no other
    /// samples. `None` of one in which any sample may come at any time.
    pub fn windows_from(&self, position: u32) -> Option<impl ExactSizeIterator<Item = Vec<Range<u32>>> + '_> {
        match &self.kind {
            OrderKind::Full(_) => None,
            OrderKind::Blocks(order) => Some(order.windows_from(position)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    fn drawn(seed: u64, samples: u32, asked: Range<u32>) -> Vec<u32> {
        SampleOrder::draw(seed, samples, 1, ShufflePolicy::Full).indices(std::slice::from_ref(&asked))
    }

    fn all(order: &SampleOrder) -> Vec<u32> {
        order.indices(std::slice::from_ref(&(0..order.samples)))
    }

    fn in_blocks(seed: u64, samples: u32, rows: u32, blocks: u32) -> Vec<u32> {
        all(&SampleOrder::draw(seed, samples, 1, ShufflePolicy::Blocks { rows, blocks }))
    }

    #[test]
    fn an_order_by_blocks_has_each_sample_once_and_those_of_a_window_together() {
        for (samples, rows, window) in [(1, 8, 2), (7, 8, 2), (8, 8, 1), (100, 8, 3), (1_000, 7, 4), (50, 1, 1)] {
            for seed in 0..20 {
                let order = in_blocks(seed, samples, rows, window);
                let mut sorted = order.clone();
                sorted.sort_unstable();
                assert_eq!(sorted, (0..samples).collect::<Vec<_>>());
                // In turn, as many blocks as a window has, each of them whole.
                let mut rest = &order[..];
                while !rest.is_empty() {
                    let of_window: BTreeSet<u32> = {
                        let mut found = BTreeSet::new();
                        for index in rest {
                            if found.len() == window as usize && !found.contains(&(index / rows)) {
                                break;
                            }
                            found.insert(index / rows);
                        }
                        found
                    };
                    let len: u32 = of_window.iter().map(|block| rows.min(samples - block * rows)).sum();
                    let (taken, behind) = rest.split_at(len as usize);
                    assert!(taken.iter().all(|index| of_window.contains(&(index / rows))), "{samples} {rows} {window}");
                    rest = behind;
                }
            }
        }
        assert_ne!(in_blocks(1, 100, 8, 3), in_blocks(2, 100, 8, 3));
        // Whatever part is asked for, it is that of the whole.
        let order = SampleOrder::draw(3, 1_000, 2, ShufflePolicy::Blocks { rows: 7, blocks: 4 });
        let (whole, asked) = (all(&order), [3..3, 5..90, 700..1_000]);
        let expected: Vec<u32> =
            asked.iter().flat_map(|range| &whole[range.start as usize..range.end as usize]).copied().collect();
        assert_eq!(order.indices(&asked), expected);
    }

    #[test]
    fn windows_are_told_without_their_samples() {
        for (samples, rows, window) in [(1, 8, 2), (7, 8, 2), (100, 8, 3), (1_000, 7, 4), (50, 1, 1), (64, 8, 100)] {
            let order = SampleOrder::draw(4, samples, 2, ShufflePolicy::Blocks { rows, blocks: window });
            let whole = all(&order);
            let windows: Vec<_> = order.windows_from(0).expect("by blocks").collect();
            let mut at = 0;
            for told in &windows {
                assert!(told.len() <= window as usize && told.iter().all(|block| block.start % rows == 0));
                let told: BTreeSet<u32> = told.iter().cloned().flatten().collect();
                let found: BTreeSet<u32> = whole[at..at + told.len()].iter().copied().collect();
                assert_eq!(told, found, "{samples} {rows} {window}");
                // From any position within it.
                for position in [at, at + told.len() - 1] {
                    let from = order.windows_from(position as u32).expect("by blocks").next().expect("a window");
                    assert_eq!(from.into_iter().flatten().collect::<BTreeSet<_>>(), found);
                }
                at += told.len();
            }
            assert_eq!(at, samples as usize);
            assert_eq!(order.windows_from(samples).expect("by blocks").count(), 0);
        }
        assert!(SampleOrder::draw(4, 100, 2, ShufflePolicy::Full).windows_from(0).is_none());
    }

    /// A block that is shorter than the others comes as early as they, and a window that has all blocks has their samples in any order.
    #[test]
    fn a_short_block_comes_as_early_as_others() {
        let (samples, seeds) = (10, 4_000);
        for window in [1, 2, 9] {
            let mut counts = vec![[0_u32; 10]; 10];
            for seed in 0..seeds {
                for (position, index) in in_blocks(seed, samples, 4, window).into_iter().enumerate() {
                    counts[position][index as usize] += 1;
                }
            }
            // Three blocks of 4, 4 and 2: the short one begins an epoch as often as another.
            let first_is_short: u32 = counts[0][8..].iter().sum();
            let expected = if window == 1 {
                1.0 / 3.0
            } else if window == 2 {
                2.0 / 3.0 * (2.0 / 6.0)
            } else {
                0.2
            };
            let found = f64::from(first_is_short) / seeds as f64;
            assert!((found - expected).abs() < 0.03, "{window}: {found} instead of {expected}");
            let is_anywhere = counts.iter().flatten().all(|count| *count > 0);
            assert!(is_anywhere || window < 3, "{window}: {counts:?}");
        }
    }

    #[test]
    fn orders_of_the_largest_sets_are_computed() {
        let most = u32::MAX;
        for (rows, blocks) in [(1, 1), (1, 1 << 16), (1 << 24, 1), (1 << 24, 1 << 16), (8192, 16)] {
            let order = SampleOrder::draw(1, most, 0, ShufflePolicy::Blocks { rows, blocks });
            let found = order.indices(&[0..100, 2_000_000_000..2_000_000_100, most - 100..most]);
            assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), 300);
            assert!(found.iter().all(|index| *index < most));
        }
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
