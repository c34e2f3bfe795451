//! What lossy codecs have dropped, to be made up for in the next step.

use std::ops::Range;
use std::sync::Arc;

use crate::sink::{Combine, Sink};

/// One member's error feedback (F. Seide et al., "1-bit stochastic gradient descent and its application to data-parallel
/// distributed training of speech DNNs", 2014): what rounding took from a step's sums is added to the next contribution.
///
/// Each rounding of a sum is booked by the rank that did it, wherever it was on the sum's way, so over all ranks nothing
/// is lost. An operation books in a [`Dropped`] of its own, and this changes only when the step commits: a step that is
/// reduced again, or never, adds the same residual again.
#[derive(Debug, Clone, PartialEq)]
pub struct Feedback {
    residual: Residual,
}

/// What committed steps have left to make up for, one value per element: shared with whoever fills contributions.
#[derive(Debug, Clone, PartialEq)]
pub struct Residual(Arc<Vec<f32>>);

/// What one operation has dropped so far, one value per element.
#[derive(Debug, Clone, PartialEq)]
pub struct Dropped {
    values: Vec<f32>,
    /// From this position on they are those of this operation, which begins at the end. Before it they are whatever was in the
    /// memory: to make it zeros at once would keep the operation waiting.
    from: usize,
}

impl Feedback {
    /// Nothing dropped yet, for a buffer of which codecs shorten `elements` elements.
    pub fn new(elements: usize) -> Self {
        Self { residual: Residual::new(vec![0.0; elements]) }
    }

    /// Nothing booked yet, for an operation over the same elements. Takes over `memory`.
    pub fn dropped(&self, memory: Vec<f32>) -> Dropped {
        Dropped::new(self.residual.0.len(), memory)
    }

    /// The step is committed: what it dropped is to be made up for, what it made up for is forgotten. Returns that memory,
    /// if nobody else has it.
    ///
    /// # Panics
    /// If the operation was over another number of elements.
    pub fn commit(&mut self, dropped: Dropped) -> Vec<f32> {
        let Residual(residual) = &mut self.residual;
        assert_eq!(dropped.values.len(), residual.len(), "an operation and its feedback are over the same elements");
        Arc::into_inner(std::mem::replace(residual, Arc::new(dropped.values()))).unwrap_or_default()
    }

    /// A step is committed, and what it dropped here is not known: what it made up for is forgotten.
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

impl Dropped {
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
        let mut feedback = Feedback::new(6);
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
        feedback.commit(dropped);
        assert_eq!(feedback.residual().values(), [0.0, 3.0, 5.0, 7.0, 4.5, 5.5]);
        let memory = feedback.commit(Dropped::new(6, vec![9.0; 6]));
        assert_eq!(feedback.residual().values(), [0.0; 6]);
        assert_eq!(memory.len(), 6, "it is there for the next operation");
    }
}
