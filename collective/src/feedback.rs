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
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Dropped(Vec<f32>);

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
        assert_eq!(dropped.0.len(), residual.len(), "an operation and its feedback are over the same elements");
        Arc::into_inner(std::mem::replace(residual, Arc::new(dropped.0))).unwrap_or_default()
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
        memory.clear();
        memory.resize(elements, 0.0);
        Self(memory)
    }

    /// Books by how much sums were more than those that have replaced them, each to be multiplied by `scale`.
    pub(crate) fn book(&mut self, range: Range<usize>, scale: f32) -> impl Sink {
        Combine(&mut self.0[range], move |dropped, lost| dropped + lost * scale)
    }
}
