//! Samples as a model takes them.

pub(crate) mod labels;
pub(crate) mod numbers;
pub(crate) mod pixels;
pub(crate) mod placed;
pub(crate) mod raw;
pub(crate) mod split;
pub(crate) mod standards;

use std::fmt;
use std::sync::Arc;

use starling_run::data::ArrivalTracker;

use crate::error::DataError;
use crate::text::Words;
use crate::text::arrivals::TokenArrivals;
use numbers::SampleNumbers;
use placed::PlacedRows;

/// Samples that are ready for training: one row of features and one label each, in memory or in the files that they are read from, or windows
/// of a text.
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
    /// The table or the images, which of them are the samples, and how many of these each class has.
    Placed { rows: Arc<PlacedRows>, numbers: SampleNumbers, counts: Vec<u64> },
    /// The text, and which windows of it are the samples.
    Windows { text: Arc<Words>, numbers: SampleNumbers },
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
    pub(crate) fn of_text(text: Arc<Words>, context: usize, numbers: SampleNumbers) -> Self {
        Self { features: context, held: Held::Windows { text, numbers } }
    }

    /// The rows of these numbers, of which each class has so many.
    pub(crate) fn placed(rows: Arc<PlacedRows>, numbers: SampleNumbers, counts: Vec<u64>) -> Self {
        Self { features: rows.width(), held: Held::Placed { rows, numbers, counts } }
    }

    /// How many samples there are.
    pub fn len(&self) -> usize {
        match &self.held {
            Held::Rows { labels, .. } => labels.len(),
            Held::Placed { numbers, .. } | Held::Windows { numbers, .. } => numbers.len(),
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

    /// Whether all are in memory, as rows: [`Self::row`] and [`Self::labels`] are for such alone.
    pub fn are_held(&self) -> bool {
        matches!(self.held, Held::Rows { .. })
    }

    /// How many bytes one of them takes once it is read, if that is from a file, each time that it is asked for; `None` if they are in memory.
    pub fn bytes_read(&self) -> Option<u64> {
        let values = self.features as u64 + 1;
        match &self.held {
            Held::Placed { .. } => Some(4 * values),
            Held::Windows { text, .. } if matches!(**text, Words::Tokens(_)) => Some(4 * values),
            Held::Rows { .. } | Held::Windows { .. } => None,
        }
    }

    /// Whether all samples can be read.
    pub(crate) fn is_whole(&self) -> bool {
        match &self.held {
            Held::Windows { text, .. } => text.is_whole(),
            Held::Rows { .. } | Held::Placed { .. } => true,
        }
    }

    /// Whether sample `at` can be read.
    pub(crate) fn is_here(&self, at: u32) -> bool {
        match &self.held {
            Held::Windows { text, numbers } => {
                let start = u64::from(numbers.get(at)) * self.features as u64;
                text.are_here(start..start + self.features as u64 + 1)
            }
            Held::Rows { .. } | Held::Placed { .. } => true,
        }
    }

    /// Of a text that was prepared: its files.
    pub(crate) fn arrivals(&self) -> Option<Arc<dyn ArrivalTracker>> {
        let Held::Windows { text, numbers } = &self.held else { return None };
        let arrivals = TokenArrivals::new(text, self.features as u32, numbers)?;
        Some(Arc::new(arrivals))
    }

    /// The features of sample `at`.
    ///
    /// # Panics
    /// If there is no such sample, or it is not [held](Self::are_held).
    pub fn row(&self, at: usize) -> &[f32] {
        match &self.held {
            Held::Rows { values, .. } => &values[at * self.features..(at + 1) * self.features],
            Held::Placed { .. } | Held::Windows { .. } => panic!("its samples are not in memory; read them"),
        }
    }

    /// All labels: one index into the class names each. None of a text.
    ///
    /// # Panics
    /// If they stay in their files.
    pub fn labels(&self) -> &[u32] {
        match &self.held {
            Held::Rows { labels, .. } => labels,
            Held::Placed { .. } => panic!("its samples are not in memory; read them"),
            Held::Windows { .. } => &[],
        }
    }

    /// How many samples each of so many classes has. None of a text has any.
    pub fn class_counts(&self, classes: usize) -> Vec<u64> {
        let mut all = vec![0; classes];
        match &self.held {
            Held::Rows { labels, .. } => labels.iter().for_each(|label| all[*label as usize] += 1),
            Held::Placed { counts, .. } => all.copy_from_slice(counts),
            Held::Windows { .. } => {}
        }
        all
    }

    /// The features of `indices`, one sample after another, `[indices, features]`, and the labels of these: an index into the class names
    /// each.
    ///
    /// # Errors
    /// If the files of data that is larger than memory can't be read, or have changed.
    ///
    /// # Panics
    /// If an index is out of range, or they are windows of a text.
    pub fn read(&self, indices: &[u32]) -> Result<(Vec<f32>, Vec<u32>), DataError> {
        match &self.held {
            Held::Rows { labels, .. } => {
                let mut rows = Vec::with_capacity(indices.len() * self.features);
                indices.iter().for_each(|index| rows.extend_from_slice(self.row(*index as usize)));
                Ok((rows, indices.iter().map(|index| labels[*index as usize]).collect()))
            }
            Held::Placed { rows, numbers, .. } => {
                let number = |index: &u32| {
                    assert!((*index as usize) < numbers.len(), "there is no sample {index} of {}", numbers.len());
                    numbers.get(*index)
                };
                rows.read(&indices.iter().map(number).collect::<Vec<_>>())
            }
            Held::Windows { .. } => panic!("a text has no rows of features; take its windows"),
        }
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
