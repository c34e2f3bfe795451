//! The next state, as far as the mean is there that leads to it.
//!
//! A step is committed as a whole, and may yet be reduced again among others: so an update that begins before is written
//! beside the committed state, never over it. Once the step is committed, the two change places.

use std::sync::Arc;

use starling_collective::ValueLimit;
use starling_collective::codec::kernel;

use crate::training::optimizer::{GroupUpdate, OptimizerState, StepFactors, exchange};

/// Parameters and moments after a step that is not committed yet, from the last ones to the first.
#[derive(Debug)]
pub struct StagedUpdate {
    update: GroupUpdate,
    factors: StepFactors,
    /// Where what is computed begins.
    from: usize,
    /// The largest magnitude among all of it.
    largest: f32,
    update_buffers: UpdateWorkspace,
}

/// Room for the numbers of a state, whatever they are.
#[derive(Debug, Default)]
pub struct UpdateWorkspace {
    parameters: Vec<f32>,
    moments: Vec<Vec<f32>>,
}

impl StagedUpdate {
    /// The state after `optimizer`'s next step: nothing of it yet. Of vectors of so many numbers, the first ones are trained; what is behind them
    /// is not written. Takes over the room.
    pub fn new(
        [trained, length]: [usize; 2],
        optimizer: &OptimizerState,
        factors: StepFactors,
        mut update_buffers: UpdateWorkspace,
    ) -> Self {
        update_buffers.moments.resize(optimizer.moments().len(), Vec::new());
        for vector in std::iter::once(&mut update_buffers.parameters).chain(&mut update_buffers.moments) {
            vector.resize(length, 0.0);
        }
        Self { update: optimizer.next(factors), factors, from: trained, largest: 0.0, update_buffers }
    }

    /// Where what is computed begins.
    pub fn from(&self) -> usize {
        self.from
    }

    /// What gradients and the learning rate are multiplied by.
    pub fn factors(&self) -> StepFactors {
        self.factors
    }

    /// Whether all that is computed is finite.
    pub fn is_finite(&self) -> bool {
        self.largest.is_finite()
    }

    /// Computes what comes before: one number for each of `gradients`.
    ///
    /// # Panics
    /// If there are more gradients than elements that are missing.
    pub fn prepend(&mut self, parameters: &[f32], optimizer: &OptimizerState, gradients: &[f32]) {
        let Self { update, from, largest, update_buffers, .. } = self;
        let start = from.checked_sub(gradients.len()).expect("invariant: there is one gradient per parameter");
        optimizer.beside(update, parameters, start..*from, gradients, |range, updated, moments| {
            let mut keep = |into: &mut Vec<f32>, block: &[f32]| {
                let block = &block[..range.len()];
                *largest = largest.max(kernel::magnitude(block));
                // Of what is not finite, nothing will be used.
                let _ = kernel::copy(&mut into[range.clone()], block, None, ValueLimit::FINITE);
            };
            keep(&mut update_buffers.parameters, updated);
            update_buffers.moments.iter_mut().zip(moments).for_each(|(into, block)| keep(into, block));
        });
        *from = start;
    }

    /// The step is committed: what was computed takes the place of the state, once all of it is there. Returns the room that
    /// the state leaves.
    ///
    /// # Panics
    /// If something is missing, or not finite.
    pub fn commit(self, parameters: &mut Arc<Vec<f32>>, optimizer: &mut OptimizerState) -> UpdateWorkspace {
        assert_eq!(self.from, 0, "a state is replaced as a whole");
        assert!(self.is_finite(), "a state is finite");
        let mut update_buffers = self.update_buffers;
        exchange(parameters, &mut update_buffers.parameters);
        optimizer.exchange(&mut update_buffers.moments, self.largest);
        optimizer.advance();
        update_buffers
    }

    /// The step was not committed, or not with this mean.
    pub fn forget(self) -> UpdateWorkspace {
        self.update_buffers
    }
}

#[cfg(test)]
mod tests {
    use starling_topology::SplitMix64Generator;

    use super::*;
    use crate::state::initial::symmetric;
    use crate::training::optimizer::{BLOCK, NAMES, OptimizerSpec};

    const PARAMETERS: usize = 2 * BLOCK + 77;

    /// Whatever the pieces, and whatever the room held before, the bits are those of an update in place.
    #[test]
    fn a_staged_update_becomes_what_one_in_place_leaves() {
        for name in NAMES {
            let spec =
                OptimizerSpec::named(name).expect("it is in the list").with("weight_decay", 0.01).with("ema", 0.5);
            let mut generator = SplitMix64Generator::new(3);
            let mut numbers = || -> Vec<f32> { (0..PARAMETERS).map(|_| symmetric(&mut generator, 1.0)).collect() };
            let mut drafted = (Arc::new(numbers()), OptimizerState::new(spec, PARAMETERS));
            let mut in_place = drafted.clone();
            let (mut update_buffers, half) =
                (UpdateWorkspace::default(), StepFactors { gradient: 0.5, learning_rate: 0.25 });
            for piece in [100, BLOCK - 1, BLOCK + 1, PARAMETERS, 1000] {
                let gradients = numbers();
                in_place.1.step(Arc::make_mut(&mut in_place.0).as_mut_slice(), &gradients, half).expect("finite");
                let mut staged_update = StagedUpdate::new([PARAMETERS; 2], &drafted.1, half, update_buffers);
                for gradients in gradients.rchunks(piece) {
                    staged_update.prepend(&drafted.0, &drafted.1, gradients);
                }
                assert!(staged_update.is_finite());
                update_buffers = staged_update.commit(&mut drafted.0, &mut drafted.1);
                assert_eq!(drafted, in_place, "{spec:?} in pieces of {piece}");
                // One that comes to nothing changes nothing.
                let mut staged_update =
                    StagedUpdate::new([PARAMETERS; 2], &drafted.1, StepFactors::scaled(2.0), update_buffers);
                staged_update.prepend(&drafted.0, &drafted.1, &vec![f32::MAX; piece]);
                assert!(!staged_update.is_finite(), "twice the largest number");
                update_buffers = staged_update.forget();
                assert_eq!(drafted, in_place);
            }
        }
    }
}
