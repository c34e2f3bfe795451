//! What lossy codecs have dropped, to be made up for in the next step.

use std::ops::Range;
use std::sync::Arc;

/// One member's error feedback (F. Seide et al., "1-bit stochastic gradient descent and its application to data-parallel
/// distributed training of speech DNNs", 2014): what rounding took from a step's sums is added to the next contribution.
///
/// Each rounding of a sum is booked by the rank that did it, wherever it was on the sum's way, so over all ranks nothing
/// is lost. An operation books in a [`Dropped`] of its own, and this changes only when the step commits: a step that is
/// reduced again, or never, adds the same residual again.
#[derive(Debug, Clone, PartialEq)]
pub struct Feedback {
    /// Shared with whoever fills contributions.
    residual: Arc<Vec<f32>>,
}

/// What one operation has dropped so far, one value per element.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Dropped(Vec<f32>);

impl Feedback {
    /// Nothing dropped yet, for a buffer of which codecs shorten `elements` elements.
    pub fn new(elements: usize) -> Self {
        Self { residual: Arc::new(vec![0.0; elements]) }
    }

    /// Adds to a contribution what committed steps have dropped.
    ///
    /// # Panics
    /// If the contribution is shorter than the residual.
    pub fn add_to(&self, contribution: &mut [f32]) {
        let (contribution, _) = contribution.split_at_mut(self.residual.len());
        contribution.iter_mut().zip(self.residual.iter()).for_each(|(value, residual)| *value += residual);
    }

    /// The step is committed: what it dropped is to be made up for, what it made up for is forgotten. Returns that memory,
    /// if nobody else has it.
    ///
    /// # Panics
    /// If the operation was over another number of elements.
    pub fn commit(&mut self, dropped: Dropped) -> Vec<f32> {
        assert_eq!(dropped.0.len(), self.residual.len(), "an operation and its feedback are over the same elements");
        Arc::into_inner(std::mem::replace(&mut self.residual, Arc::new(dropped.0))).unwrap_or_default()
    }

    /// A step is committed, and what it dropped here is not known: what it made up for is forgotten.
    pub fn forget(&mut self) {
        match Arc::get_mut(&mut self.residual) {
            Some(residual) => residual.fill(0.0),
            None => *self = Self::new(self.residual.len()),
        }
    }

    /// What committed steps have left to make up for, one value per element.
    pub fn residual(&self) -> &Arc<Vec<f32>> {
        &self.residual
    }
}

impl Dropped {
    /// Nothing yet, for an operation in which codecs shorten `elements` elements. Takes over `memory`.
    pub fn new(elements: usize, mut memory: Vec<f32>) -> Self {
        memory.clear();
        memory.resize(elements, 0.0);
        Self(memory)
    }

    /// Books that sums were replaced by others: `exact` by `rounded`, each to be multiplied by `scale`.
    pub(crate) fn book(&mut self, range: Range<usize>, exact: &[f32], rounded: &[f32], scale: f32) {
        for ((dropped, exact), rounded) in self.0[range].iter_mut().zip(exact).zip(rounded) {
            *dropped += (exact - rounded) * scale;
        }
    }
}
