//! What lossy codecs have dropped, to be made up for in the next step.

use std::ops::Range;
use std::sync::Arc;

use starling_topology::ViewId;

use crate::session::sink::{Combine, Sink};

/// One member's error feedback (F. Seide et al., "1-bit stochastic gradient descent and its application to data-parallel
/// distributed training of speech DNNs", 2014): what rounding took from a step's sums is added to the next contribution.
///
/// Each rounding of a sum is booked by the rank that did it, wherever it was on the sum's way, so over all ranks nothing
/// is lost. An operation books in a [`OperationResidual`] of its own, and this changes only when the step commits: a step that is
/// reduced again, or never, adds the same residual again.
#[derive(Debug, Clone, PartialEq)]
pub struct FeedbackState {
    residual: Residual,
}

/// What committed steps have left to make up for, one value per element: shared with whoever fills contributions.
#[derive(Debug, Clone, PartialEq)]
pub struct Residual(Arc<Vec<f32>>);

/// What one operation has dropped so far, one value per element.
#[derive(Debug, Clone, PartialEq)]
pub struct OperationResidual {
    values: Vec<f32>,
    /// From this position on they are those of this operation, which begins at the end. Before it they are whatever was in the
    /// memory: to make it zeros at once would keep the operation waiting.
    from: usize,
}

/// What the newest operation dropped here, until it is known whether its step is committed.
///
/// An operation that did not complete here may have completed elsewhere. Then this member had sent all that it ever would of
/// it, and so had dropped all that it ever would.
#[derive(Debug, Default)]
pub struct PendingResidual {
    /// The operation that began last.
    operation: Option<(ViewId, u64)>,
    dropped: Option<OperationResidual>,
}

impl PendingResidual {
    /// The operation of `step` begins in `view`: what an earlier one dropped is of no interest any more.
    pub fn begin(&mut self, view: ViewId, step: u64) {
        *self = Self { operation: Some((view, step)), dropped: None };
    }

    /// The operation of `step` in `view` is over here, complete or not, and has dropped this. Too late, if another one has
    /// begun since.
    pub fn end(&mut self, view: ViewId, step: u64, dropped: Option<OperationResidual>) {
        if self.operation == Some((view, step)) {
            self.dropped = dropped;
        }
    }

    /// `step` is committed: what it dropped here, for [`FeedbackState::settle`].
    pub fn take(&mut self, step: u64) -> Option<OperationResidual> {
        self.dropped.take_if(|_| self.operation.is_some_and(|(_, of)| of == step))
    }
}

impl FeedbackState {
    /// Nothing dropped yet, for a buffer of which codecs shorten `elements` elements.
    pub fn new(elements: usize) -> Self {
        Self { residual: Residual::new(vec![0.0; elements]) }
    }

    /// Nothing booked yet, for an operation over the same elements. Takes over `memory`.
    pub fn dropped(&self, memory: Vec<f32>) -> OperationResidual {
        OperationResidual::new(self.residual.0.len(), memory)
    }

    /// A step is committed: what it dropped is to be made up for, as far as that is known; what it made up for is forgotten.
    /// Returns that memory, if nobody else has it.
    ///
    /// # Panics
    /// If the operation was over another number of elements.
    pub fn settle(&mut self, dropped: Option<OperationResidual>) -> Vec<f32> {
        let Some(dropped) = dropped else {
            self.forget();
            return Vec::new();
        };
        let Residual(residual) = &mut self.residual;
        assert_eq!(dropped.values.len(), residual.len(), "an operation and its feedback are over the same elements");
        Arc::into_inner(std::mem::replace(residual, Arc::new(dropped.values()))).unwrap_or_default()
    }

    /// Another state takes the place of the one whose steps dropped something.
    pub fn forget(&mut self) {
        let Residual(residual) = &mut self.residual;
        match Arc::get_mut(residual) {
            Some(residual) => residual.fill(0.0),
            None => *self = Self::new(residual.len()),
        }
    }

    /// What committed steps have left to make up for.
    pub fn residual(&self) -> &Residual {
        &self.residual
    }
}

impl Residual {
    /// These values, one per element.
    pub fn new(values: Vec<f32>) -> Self {
        Self(Arc::new(values))
    }

    /// Adds to the part of a contribution that begins at `start` what committed steps have dropped there. Elements that no
    /// codec shortens are behind all others, and stay as they are.
    pub fn add_to(&self, start: usize, part: &mut [f32]) {
        let residual = self.0.get(start..).unwrap_or_default();
        part.iter_mut().zip(residual).for_each(|(value, residual)| *value += residual);
    }

    /// One value per element.
    pub fn values(&self) -> &[f32] {
        &self.0
    }
}

impl OperationResidual {
    /// Nothing yet, for an operation in which codecs shorten `elements` elements. Takes over `memory`.
    pub fn new(elements: usize, mut memory: Vec<f32>) -> Self {
        if memory.len() != elements {
            memory = vec![0.0; elements];
        }
        Self { values: memory, from: elements }
    }

    /// Books by how much sums were more than those that have replaced them, each to be multiplied by `scale`.
    pub(crate) fn book(&mut self, range: Range<usize>, scale: f32) -> impl Sink {
        self.begin(range.start);
        Combine(&mut self.values[range], move |dropped, lost| dropped + lost * scale)
    }

    /// Nothing has been dropped yet of what is there from `start` on, but for what was booked.
    fn begin(&mut self, start: usize) {
        if start < self.from {
            self.values[start..self.from].fill(0.0);
            self.from = start;
        }
    }

    fn values(mut self) -> Vec<f32> {
        self.begin(0);
        self.values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_in_the_memory_is_not_booked() {
        let mut feedback = FeedbackState::new(6);
        let memory = vec![9.0; 6];
        let mut dropped = feedback.dropped(memory);
        let mut book = |range: Range<usize>, scale: f32| {
            let lost = range.clone().map(|at| at as f32 + 0.5);
            let mut sink = dropped.book(range, scale);
            sink.take(lost);
            sink.finish();
        };
        // Not in order, one twice, one never.
        book(4..6, 1.0);
        book(1..2, 1.0);
        book(2..4, 2.0);
        book(1..2, 1.0);
        feedback.settle(Some(dropped));
        assert_eq!(feedback.residual().values(), [0.0, 3.0, 5.0, 7.0, 4.5, 5.5]);
        let memory = feedback.settle(Some(OperationResidual::new(6, vec![9.0; 6])));
        assert_eq!(feedback.residual().values(), [0.0; 6]);
        assert_eq!(memory.len(), 6, "it is there for the next operation");
    }

    #[test]
    fn what_counts_is_what_the_last_try_of_a_committed_step_dropped() {
        let dropped = |elements| Some(OperationResidual::new(elements, Vec::new()));
        let views = [ViewId([1; 32]), ViewId([2; 32])];
        let mut booked = PendingResidual::default();
        booked.begin(views[0], 1);
        booked.end(views[0], 1, dropped(1));
        assert_eq!((booked.take(2), booked.take(1), booked.take(1)), (None, dropped(1), None), "of that step, once");
        booked.begin(views[0], 2);
        booked.end(views[0], 2, dropped(2));
        booked.begin(views[1], 2);
        booked.end(views[0], 2, dropped(3));
        assert_eq!(booked.take(2), None, "the first try tells it too late");
        booked.end(views[1], 2, dropped(4));
        assert_eq!(booked.take(2), dropped(4));
        let mut feedback = FeedbackState::new(1);
        let mut lost = OperationResidual::new(1, Vec::new());
        lost.values[0] = 3.0;
        lost.from = 0;
        feedback.settle(Some(lost));
        assert_eq!(feedback.residual().values(), [3.0]);
        feedback.settle(None);
        assert_eq!(feedback.residual().values(), [0.0], "what the step made up for is gone, whatever it dropped");
    }
}
