//! Scaled samples with their labels.

use std::fmt;

/// Samples in memory, ready for training: one row of features and one label each.
#[derive(Clone, Default)]
pub struct Samples {
    features: usize,
    values: Vec<f32>,
    labels: Vec<u32>,
}

impl Samples {
    /// Samples of `features` features each.
    ///
    /// # Panics
    /// If there are not `features` values for each label.
    pub fn new(features: usize, values: Vec<f32>, labels: Vec<u32>) -> Self {
        assert_eq!(values.len(), features * labels.len(), "each label needs one row of values");
        Self { features, values, labels }
    }

    /// How many samples there are.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// How many features a sample has.
    pub fn features(&self) -> usize {
        self.features
    }

    /// The features of sample `at`.
    ///
    /// # Panics
    /// If there is no such sample.
    pub fn row(&self, at: usize) -> &[f32] {
        &self.values[at * self.features..(at + 1) * self.features]
    }

    /// All labels: one index into the class names each.
    pub fn labels(&self) -> &[u32] {
        &self.labels
    }

    /// The rows of `indices`, one after another.
    ///
    /// # Panics
    /// If an index is out of range.
    pub fn gather(&self, indices: &[u32]) -> Vec<f32> {
        let mut rows = Vec::with_capacity(indices.len() * self.features);
        for index in indices {
            rows.extend_from_slice(self.row(*index as usize));
        }
        rows
    }
}

impl fmt::Debug for Samples {
    /// Sizes only: the values may be gigabytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Samples").field("len", &self.len()).field("features", &self.features).finish_non_exhaustive()
    }
}
