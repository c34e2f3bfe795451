//! What lossy codecs have dropped, to be made up for in the next step.

use std::ops::Range;

/// One member's error feedback (F. Seide et al., "1-bit stochastic gradient descent and its application to data-parallel
/// distributed training of speech DNNs", 2014): what rounding took from a step's sums is added to the next contribution.
///
/// Each rounding of a sum is booked by the rank that did it, wherever it was on the sum's way, so over all ranks nothing
/// is lost. What is booked during a step counts only once the step commits: a step that is reduced again, or never, adds
/// the same residual again.
#[derive(Debug, Clone, PartialEq)]
pub struct Feedback {
    /// What the committed steps have left to make up for.
    residual: Vec<f32>,
    /// What the step under way has dropped so far.
    dropped: Vec<f32>,
}

impl Feedback {
    /// Nothing dropped yet, for a buffer of `elements` elements.
    pub fn new(elements: usize) -> Self {
        Self { residual: vec![0.0; elements], dropped: vec![0.0; elements] }
    }

    /// Begins a step, or the same step again: adds to a contribution what earlier steps dropped.
    ///
    /// # Panics
    /// If the contribution is not as long as the buffer.
    pub fn begin(&mut self, contribution: &mut [f32]) {
        assert_eq!(contribution.len(), self.residual.len(), "a feedback is as long as the buffer");
        self.dropped.fill(0.0);
        contribution.iter_mut().zip(&self.residual).for_each(|(value, residual)| *value += residual);
    }

    /// The step is committed: what it dropped is to be made up for, what it made up for is forgotten.
    pub fn commit(&mut self) {
        std::mem::swap(&mut self.residual, &mut self.dropped);
        self.dropped.fill(0.0);
    }

    /// What committed steps have left to make up for, one value per element.
    pub fn residual(&self) -> &[f32] {
        &self.residual
    }

    /// Books that sums were replaced by others: `exact` by `rounded`, each to be multiplied by `scale`.
    pub(crate) fn book(&mut self, range: Range<usize>, exact: &[f32], rounded: &[f32], scale: f32) {
        for ((dropped, exact), rounded) in self.dropped[range].iter_mut().zip(exact).zip(rounded) {
            *dropped += (exact - rounded) * scale;
        }
    }
}
