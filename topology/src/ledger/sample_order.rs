//! The sample order of one epoch.

use std::ops::Range;

use crate::ledger::split_mix::SplitMix64Generator;

/// A seeded permutation of a run's training samples: four bytes for each of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SampleOrder {
    epoch: u64,
    samples: Vec<u32>,
}

impl SampleOrder {
    /// The order of `samples` samples in `epoch`.
    pub fn draw(seed: u64, samples: u32, epoch: u64) -> Self {
        Self {
            epoch,
            samples: SplitMix64Generator::for_purpose("starling sample order", seed, epoch).permutation(samples),
        }
    }

    /// The epoch.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The samples at the given positions.
    ///
    /// # Panics
    /// If a position is not below the number of samples.
    pub fn indices(&self, ranges: &[Range<u32>]) -> Vec<u32> {
        ranges.iter().flat_map(|range| &self.samples[range.start as usize..range.end as usize]).copied().collect()
    }
}
