//! A member's samples of a step, and when they are loaded.

use std::ops::Range;

use starling_topology::ledger::UNMEASURED;
use starling_topology::{Ledger, PeerId, SampleOrder};

/// Loads a member's share of each step, the next one before its turn if there is time.
#[derive(Debug)]
pub(crate) struct Loader<B> {
    /// The sample order of the epoch last loaded from.
    order: Option<SampleOrder>,
    /// What was loaded before its turn: the epoch, the share, and its samples.
    ahead: Option<(u64, Vec<Range<u32>>, B)>,
}

impl<B> Loader<B> {
    pub(crate) fn new() -> Self {
        Self { order: None, ahead: None }
    }

    /// The share of `me` of the ledger's pending step. What is not here yet, `read` makes of the samples' numbers.
    pub(crate) fn load<E>(
        &mut self,
        ledger: &Ledger,
        me: PeerId,
        read: impl FnOnce(&[u32]) -> Result<B, E>,
    ) -> Result<B, E> {
        let share = ledger.share_of(me);
        match self.ahead.take().filter(|(epoch, ranges, _)| *epoch == ledger.epoch() && ranges == share) {
            Some((.., batch)) => Ok(batch),
            None => read(&self.indices(ledger, share)),
        }
    }

    /// Loads what will be the share of `me` of the step after the pending one if `members` commit that, and nobody's speed
    /// says that shares should change. If it comes to be another share, this was in vain. What can't be read is tried again in
    /// its turn.
    pub(crate) fn load_ahead<E>(
        &mut self,
        ledger: &Ledger,
        members: &[PeerId],
        me: PeerId,
        read: impl FnOnce(&[u32]) -> Result<B, E>,
    ) {
        let mut next = ledger.clone();
        next.commit(ledger.step(), members, &vec![UNMEASURED; members.len()]);
        let share = next.share_of(me).to_vec();
        if !share.is_empty() {
            let batch = read(&self.indices(&next, &share));
            self.ahead = batch.ok().map(|batch| (next.epoch(), share, batch));
        }
    }

    fn indices(&mut self, ledger: &Ledger, share: &[Range<u32>]) -> Vec<u32> {
        if self.order.as_ref().is_none_or(|order| order.epoch() != ledger.epoch()) {
            self.order = Some(ledger.order());
        }
        let order = self.order.as_ref().expect("invariant: it was just drawn");
        order.indices(share)
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;
    use starling_data::{DataOptions, Dataset};

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
        let mut ledger = Ledger::new(SEED, count, 96);
        let me = peers(&[2])[0];
        let mut members = peers(&[1, 2, 3]);
        ledger.assign(&members);
        let device = Device::flex();
        let read = |indices: &[u32]| Ok::<_, ()>(Batch::new(samples, indices, &device));
        let (mut loader, mut plain) = (Loader::new(), Loader::new());
        let mut in_vain = 0;
        for step in 1..=40 {
            let expected = plain.load(&ledger, me, read).expect("read");
            assert_eq!(numbers(&loader.load(&ledger, me, read).expect("read")), numbers(&expected), "step {step}");
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
            let (epoch, share, _) = loader.ahead.as_ref().expect("this member has a share in each step");
            in_vain += u32::from(*epoch != ledger.epoch() || share != ledger.share_of(me));
        }
        assert!(ledger.epoch() >= 2, "the order is drawn anew");
        assert!((1..=4).contains(&in_vain), "{in_vain} of 40");
    }
}
