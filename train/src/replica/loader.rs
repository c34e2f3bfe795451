//! A member's samples of a step, micro-batch by micro-batch, and when they are loaded.

use std::ops::Range;

use starling_topology::ledger::UNMEASURED;
use starling_topology::{Ledger, PeerId};

use crate::task::DrawSeed;

/// Loads a member's micro-batches, the first one of the next step before its turn if there is time.
#[derive(Debug)]
pub(crate) struct Loader<B> {
    /// What was loaded before its turn: the epoch, the positions, and their samples.
    ahead: Option<(u64, Vec<Range<u32>>, B)>,
}

impl<B> Default for Loader<B> {
    fn default() -> Self {
        Self { ahead: None }
    }
}

impl<B> Loader<B> {
    /// What lies at these positions, a micro-batch of the ledger's pending step. What is not here yet, `read` makes of the samples'
    /// numbers.
    pub(crate) fn load<E>(
        &mut self,
        ledger: &Ledger,
        micro_batch: &[Range<u32>],
        read: impl FnOnce(&[u32], DrawSeed) -> Result<B, E>,
    ) -> Result<B, E> {
        match self.ahead.take().filter(|(epoch, ranges, _)| *epoch == ledger.epoch() && ranges == micro_batch) {
            Some((.., batch)) => Ok(batch),
            None => read(&ledger.indices(micro_batch), draw(ledger, micro_batch)),
        }
    }

    /// Loads what will be the first micro-batch of `me` of the step after the pending one if `members` commit that, and nobody's speed
    /// says that shares should change. If it comes to be another share, this was in vain. What can't be read is tried again in
    /// its turn.
    pub(crate) fn load_ahead<E>(
        &mut self,
        ledger: &Ledger,
        members: &[PeerId],
        me: PeerId,
        read: impl FnOnce(&[u32], DrawSeed) -> Result<B, E>,
    ) {
        let mut next = ledger.clone();
        next.commit(ledger.step(), members, &vec![UNMEASURED; members.len()]);
        if let Some(first) = next.micro_batches_of(me).into_iter().next() {
            let batch = read(&next.indices(&first), draw(&next, &first));
            self.ahead = batch.ok().map(|batch| (next.epoch(), first, batch));
        }
    }
}

/// What is random about a micro-batch of the ledger's pending step.
pub(super) fn draw(ledger: &Ledger, micro_batch: &[Range<u32>]) -> DrawSeed {
    let first = micro_batch.first().map_or(0, |range| range.start);
    DrawSeed::new(ledger.seed(), ledger.epoch(), first)
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;
    use starling_data::{DataOptions, Dataset, SampleSet};

    use super::*;
    use crate::task::classification::Batch;

    const SEED: u64 = 7;

    fn peers(names: &[u8]) -> Vec<PeerId> {
        names.iter().map(|name| PeerId([*name; 32])).collect()
    }

    fn numbers(batch: &Batch) -> Vec<f32> {
        batch.rows.clone().into_data().try_to_vec().expect("f32")
    }

    /// Through several epochs, with members that come and go and one that turns out to be slow: what was loaded ahead is what
    /// would have been loaded otherwise, and whenever nothing has changed it was not in vain.
    #[test]
    fn what_is_loaded_ahead_is_what_is_needed() {
        let dataset = Dataset::load(&DataOptions::default()).expect("the embedded digits");
        let samples = dataset.training();
        let count = u32::try_from(samples.len()).expect("few samples");
        for micro_batch in [0, 8] {
            check(Ledger::new(SEED, count, 96).with_micro_batch(micro_batch), samples);
        }
    }

    fn check(mut ledger: Ledger, samples: &SampleSet) {
        let me = peers(&[2])[0];
        let mut members = peers(&[1, 2, 3]);
        ledger.assign(&members);
        let device = Device::flex();
        let read = |indices: &[u32], _: DrawSeed| {
            samples.read(indices).map(|(rows, labels)| Batch::new(rows, &labels, &device))
        };
        let (mut loader, mut plain) = (Loader::default(), Loader::default());
        let mut in_vain = 0;
        for step in 1..=40 {
            for part in ledger.micro_batches_of(me) {
                let expected = plain.load(&ledger, &part, read).expect("read");
                assert_eq!(
                    numbers(&loader.load(&ledger, &part, read).expect("read")),
                    numbers(&expected),
                    "step {step}"
                );
            }
            loader.load_ahead(&ledger, &members, me, read);
            let speeds: Vec<u32> = match step {
                10 => {
                    members = peers(&[2, 3]);
                    vec![100, 100]
                }
                20 => {
                    members = peers(&[1, 2, 3]);
                    vec![100, 100, 20]
                }
                _ => vec![UNMEASURED; members.len()],
            };
            ledger.commit(step, &members, &speeds);
            let (epoch, first, _) = loader.ahead.as_ref().expect("this member has a share in each step");
            in_vain += u32::from(*epoch != ledger.epoch() || *first != ledger.micro_batches_of(me)[0]);
        }
        assert!(ledger.epoch() >= 2, "the order changes");
        assert!((1..=4).contains(&in_vain), "{in_vain} of 40");
    }
}
