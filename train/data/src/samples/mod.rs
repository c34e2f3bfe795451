//! Samples as a model takes them.

pub(crate) mod labels;
pub(crate) mod raw;
pub(crate) mod split;

use std::fmt;
use std::sync::Arc;

use crate::error::DataError;
use crate::text::Words;

/// Samples that are ready for training: one row of features and one label each, in memory, or windows of a text.
#[derive(Clone, Default)]
pub struct SampleSet {
    features: usize,
    held: Held,
}

/// What they are held as.
#[derive(Clone)]
enum Held {
    /// `[samples, features]`, scaled, and of each its label.
    Rows { values: Vec<f32>, labels: Vec<u32> },
    /// The text, and which windows of it are the samples.
    Windows { text: Arc<Words>, numbers: WindowNumbers },
}

/// Which windows of a text are the samples, ascending. A list of all would take as much memory as a small text.
#[derive(Clone)]
pub(crate) enum WindowNumbers {
    /// These.
    Listed(Arc<[u32]>),
    /// Of so many all but these.
    Others(u32, Arc<[u32]>),
}

impl WindowNumbers {
    fn len(&self) -> usize {
        match self {
            Self::Listed(numbers) => numbers.len(),
            Self::Others(total, others) => *total as usize - others.len(),
        }
    }

    /// The number of the sample at this place.
    fn get(&self, at: u32) -> u32 {
        match self {
            Self::Listed(numbers) => numbers[at as usize],
            Self::Others(_, others) => {
                // Before each of the others lie as many as its number is, less those of them that come before it.
                let (mut low, mut high) = (0, others.len());
                while low < high {
                    let middle = low + (high - low) / 2;
                    match others[middle] - middle as u32 <= at {
                        true => low = middle + 1,
                        false => high = middle,
                    }
                }
                at + low as u32
            }
        }
    }
}

impl Default for Held {
    fn default() -> Self {
        Self::Rows { values: Vec::new(), labels: Vec::new() }
    }
}

impl SampleSet {
    /// Samples of `features` features each.
    ///
    /// # Panics
    /// If there are not `features` values for each label.
    pub fn new(features: usize, values: Vec<f32>, labels: Vec<u32>) -> Self {
        assert_eq!(values.len(), features * labels.len(), "each label needs one row of values");
        Self { features, held: Held::Rows { values, labels } }
    }

    /// The windows of these numbers, of so many tokens each, one after another. Behind each is a token of the text.
    pub(crate) fn of_text(text: Arc<Words>, context: usize, numbers: WindowNumbers) -> Self {
        Self { features: context, held: Held::Windows { text, numbers } }
    }

    /// How many samples there are.
    pub fn len(&self) -> usize {
        match &self.held {
            Held::Rows { labels, .. } => labels.len(),
            Held::Windows { numbers, .. } => numbers.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many features a sample has: of a window, how many tokens, without the one behind it.
    pub fn features(&self) -> usize {
        self.features
    }

    /// The features of sample `at`.
    ///
    /// # Panics
    /// If there is no such sample, or it is a window of a text.
    pub fn row(&self, at: usize) -> &[f32] {
        match &self.held {
            Held::Rows { values, .. } => &values[at * self.features..(at + 1) * self.features],
            Held::Windows { .. } => panic!("a text has no rows of features; take its windows"),
        }
    }

    /// All labels: one index into the class names each. None of a text.
    pub fn labels(&self) -> &[u32] {
        match &self.held {
            Held::Rows { labels, .. } => labels,
            Held::Windows { .. } => &[],
        }
    }

    /// The rows of `indices`, one after another.
    ///
    /// # Panics
    /// If an index is out of range, or they are windows of a text.
    pub fn gather(&self, indices: &[u32]) -> Vec<f32> {
        let mut rows = Vec::with_capacity(indices.len() * self.features);
        for index in indices {
            rows.extend_from_slice(self.row(*index as usize));
        }
        rows
    }

    /// The windows of `indices`, one after another, each with the token behind it: `[indices, features + 1]`. A token of a text that was
    /// not prepared is a byte.
    ///
    /// # Errors
    /// If the files of a text that was prepared can't be read, or have changed.
    ///
    /// # Panics
    /// If an index is out of range, or they are no text.
    pub fn windows(&self, indices: &[u32]) -> Result<Vec<u32>, DataError> {
        let Held::Windows { text, numbers } = &self.held else { panic!("only a text has windows; take its rows") };
        let mut windows = Vec::with_capacity(indices.len() * (self.features + 1));
        for index in indices {
            assert!((*index as usize) < numbers.len(), "there is no window {index} of {}", numbers.len());
            let start = u64::from(numbers.get(*index)) * self.features as u64;
            text.read(start, self.features + 1, &mut windows)?;
        }
        Ok(windows)
    }
}

impl fmt::Debug for SampleSet {
    /// Sizes only: the values may be gigabytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SampleSet").field("len", &self.len()).field("features", &self.features).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_that_are_not_listed_are_all_others() {
        for others in [&[][..], &[0], &[6], &[0, 1, 2, 5], &[3, 4], &[0, 2, 4, 6], &[1, 2, 3, 4, 5, 6]] {
            let numbers = WindowNumbers::Others(7, others.into());
            let left: Vec<u32> = (0..7).filter(|number| !others.contains(number)).collect();
            let found: Vec<u32> = (0..numbers.len() as u32).map(|at| numbers.get(at)).collect();
            assert_eq!(found, left, "{others:?}");
        }
    }
}
