//! What an optimizer keeps from step to step, and how a step is taken: as a whole, or not at all.

use std::ops::Range;
use std::sync::Arc;

use starling_collective::codec::kernel;
use thiserror::Error;

use super::{GroupLayout, GroupUpdate, OptimizerSpec, StepFactors, average};

/// Elements that are updated at a time: with their moments they fit the second-level cache, and are many enough to be
/// written past the caches.
pub(crate) const BLOCK: usize = 1 << 13;

/// A step after which a number of the state would not be finite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("number {at} of the {what} would not be finite")]
pub struct StepError {
    /// `mean gradient`, if it is not finite itself, `next parameters` or `next optimizer moments`.
    pub what: &'static str,
    /// The position of the parameter.
    pub at: usize,
}

/// An optimizer's state beside the parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct OptimizerState {
    spec: OptimizerSpec,
    groups: GroupLayout,
    /// Vectors as long as the parameters. Copies of the state share them.
    moments: Vec<Arc<Vec<f32>>>,
    scalars: Vec<f64>,
    /// The largest magnitude among the parameters and moments after its newest step; infinite if it has taken none.
    pub(super) largest: f32,
}

impl OptimizerState {
    /// The optimizer before the first step, for `parameters` parameters.
    pub fn new(spec: OptimizerSpec, parameters: usize) -> Self {
        let moments = std::iter::repeat_with(|| Arc::new(vec![0.0; parameters])).take(spec.moments()).collect();
        let (groups, scalars) = (GroupLayout::default(), vec![1.0; spec.scalars()]);
        Self { spec, groups, moments, scalars, largest: f32::INFINITY }
    }

    /// The same, which updates the parameters of groups in their own ways.
    #[must_use]
    pub fn with_groups(self, groups: GroupLayout) -> Self {
        Self { groups, ..self }
    }

    /// The optimizer with the given state.
    ///
    /// # Panics
    /// If the state has not the number of vectors and scalars of `spec`.
    pub fn restore(spec: OptimizerSpec, moments: Vec<Arc<Vec<f32>>>, scalars: Vec<f64>) -> Self {
        assert_eq!(
            (moments.len(), scalars.len()),
            (spec.moments(), spec.scalars()),
            "the state is of another optimizer"
        );
        Self { spec, groups: GroupLayout::default(), moments, scalars, largest: f32::INFINITY }
    }

    /// Which parameters it updates in which way.
    pub(crate) fn groups(&self) -> &GroupLayout {
        &self.groups
    }

    /// The vectors it keeps.
    pub fn moments(&self) -> &[Arc<Vec<f32>>] {
        &self.moments
    }

    /// The scalars it keeps.
    pub fn scalars(&self) -> &[f64] {
        &self.scalars
    }

    /// The moving average of the parameters, `[parameters]`, if one is kept and a step has been taken.
    pub fn average(&self) -> Option<Vec<f32>> {
        averaged(self.spec, &self.moments, &self.scalars)
    }

    /// Updates `parameters`, which may be the first of those that it keeps moments for, by one step along `gradients`, if all numbers of the state stay finite. A factor of 1 changes no
    /// bit, and the product is part of the one pass over the vectors in any case.
    ///
    /// Most often the largest numbers before it show that none can leave the finite ones. Where they don't, the step is tried
    /// out first, block by block.
    ///
    /// # Errors
    /// [`StepError`], if a number would not be finite; nothing has changed then. It depends on nothing but the state, the
    /// gradients and the factors, so that all members come to the same.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn step(&mut self, parameters: &mut [f32], gradients: &[f32], factors: StepFactors) -> Result<(), StepError> {
        assert_eq!(parameters.len(), gradients.len(), "one gradient per parameter");
        let update = self.next(factors);
        if !update.is_safe(self.largest.into(), kernel::magnitude(gradients).into()) {
            self.try_out(&update, parameters, gradients)?;
        }
        let mut moments: Vec<&mut Vec<f32>> = self.moments.iter_mut().map(Arc::make_mut).collect();
        let mut largest = 0_f32;
        let blocks = parameters.chunks_mut(BLOCK).zip(gradients.chunks(BLOCK));
        for (index, (parameters, gradients)) in blocks.enumerate() {
            let block = index * BLOCK..index * BLOCK + gradients.len();
            let mut moments: Vec<&mut [f32]> = moments.iter_mut().map(|moment| &mut moment[block.clone()]).collect();
            update.run(block.start, parameters, gradients, &mut moments);
            // While they are in the cache.
            let magnitudes = moments.iter().map(|moment| kernel::magnitude(moment));
            largest = magnitudes.fold(largest.max(kernel::magnitude(parameters)), f32::max);
        }
        assert!(largest.is_finite(), "invariant: what is written was shown to be finite");
        self.largest = largest;
        self.advance();
        Ok(())
    }

    fn try_out(&self, update: &GroupUpdate, parameters: &[f32], gradients: &[f32]) -> Result<(), StepError> {
        let mut found = Ok(());
        self.beside(update, parameters, 0..gradients.len(), gradients, |range, parameters, moments| {
            if found.is_err() {
                return;
            }
            let first = |numbers: &[f32]| kernel::first_non_finite(numbers);
            let moment = moments.iter().find_map(|moment| first(&moment[..range.len()]));
            let place = moment.map(|at| ("next optimizer moments", at));
            if let Some((what, at)) = place.or_else(|| first(parameters).map(|at| ("next parameters", at))) {
                let at = range.start + at;
                found = Err(StepError { what: if gradients[at].is_finite() { what } else { "mean gradient" }, at });
            }
        });
        found
    }

    /// Hands over what `update` makes of the elements of `range`, block by block: their positions, and their parameters and
    /// moments, which may be longer. The state stays as it is.
    pub(crate) fn beside(
        &self,
        update: &GroupUpdate,
        parameters: &[f32],
        range: Range<usize>,
        gradients: &[f32],
        mut take: impl FnMut(Range<usize>, &[f32], &[Vec<f32>]),
    ) {
        let mut updated = vec![0.0; BLOCK.min(range.len())];
        let mut moments = vec![updated.clone(); self.moments.len()];
        for (index, gradients) in gradients.chunks(BLOCK).enumerate() {
            let at = range.start + index * BLOCK;
            let block = at..at + gradients.len();
            let updated = &mut updated[..gradients.len()];
            updated.copy_from_slice(&parameters[block.clone()]);
            for (moment, committed) in moments.iter_mut().zip(&self.moments) {
                moment[..gradients.len()].copy_from_slice(&committed[block.clone()]);
            }
            let mut slices: Vec<&mut [f32]> = moments.iter_mut().map(|moment| &mut moment[..gradients.len()]).collect();
            update.run(at, updated, gradients, &mut slices);
            take(block, updated, &moments);
        }
    }

    /// The next step. After it, [`Self::advance`].
    pub(crate) fn next(&self, factors: StepFactors) -> GroupUpdate {
        self.groups.begin(&self.spec, factors, &self.advanced())
    }

    /// The step is taken: on to the one after it.
    pub(crate) fn advance(&mut self) {
        self.scalars = self.advanced();
    }

    /// Exchanges its vectors for those that were computed elsewhere; `largest` is the largest magnitude among them and the
    /// parameters. What copies of the state still share stays with them, and an empty vector comes in its place.
    pub(crate) fn exchange(&mut self, moments: &mut [Vec<f32>], largest: f32) {
        self.largest = largest;
        self.moments.iter_mut().zip(moments).for_each(|(ours, theirs)| exchange(ours, theirs));
    }

    /// The scalars after the next step.
    fn advanced(&self) -> Vec<f64> {
        self.spec.advance(&self.scalars)
    }
}

/// The moving average in what an optimizer keeps, if there is one.
pub(crate) fn averaged(spec: OptimizerSpec, moments: &[Arc<Vec<f32>>], scalars: &[f64]) -> Option<Vec<f32>> {
    if !spec.averages() {
        return None;
    }
    average::average(moments.last()?, *scalars.last()?)
}

/// Exchanges a vector that copies of the state may share for one that is nobody else's.
pub(crate) fn exchange(shared: &mut Arc<Vec<f32>>, own: &mut Vec<f32>) {
    let old = std::mem::replace(shared, Arc::new(std::mem::take(own)));
    *own = Arc::into_inner(old).unwrap_or_default();
}
