//! A member's samples of a step, and their way to the device.

use std::ops::Range;

use burn::tensor::{Device, Int, Tensor, TensorData};
use starling_topology::ledger::UNMEASURED;
use starling_topology::{Ledger, Order, PeerId};

use crate::data::Samples;

/// Samples on a device.
#[derive(Debug, Clone)]
pub(crate) struct Batch {
    /// `[samples, features]`.
    pub(crate) rows: Tensor<2>,
    /// `[samples]`.
    pub(crate) labels: Tensor<1, Int>,
}

impl Batch {
    /// Copies the samples of `indices` to `device`.
    pub(crate) fn new(samples: &Samples, indices: &[u32], device: &Device) -> Self {
        let rows = TensorData::new(samples.gather(indices), [indices.len(), samples.features()]);
        let labels: Vec<i64> = indices.iter().map(|index| i64::from(samples.labels()[*index as usize])).collect();
        let labels = TensorData::new(labels, [indices.len()]);
        Self { rows: Tensor::from_data(rows, device), labels: Tensor::from_data(labels, device) }
    }
}

/// Loads a member's share of each step, the next one before its turn if there is time.
#[derive(Debug)]
pub(crate) struct Loader {
    device: Device,
    /// The sample order of the epoch last loaded from.
    order: Option<Order>,
    /// What was loaded before its turn: the epoch, the share, and its samples.
    ahead: Option<(u64, Vec<Range<u32>>, Batch)>,
}

impl Loader {
    pub(crate) fn new(device: Device) -> Self {
        Self { device, order: None, ahead: None }
    }

    /// The share of `me` of the ledger's pending step.
    pub(crate) fn load(&mut self, samples: &Samples, ledger: &Ledger, me: PeerId) -> Batch {
        let share = ledger.share_of(me);
        match self.ahead.take().filter(|(epoch, ranges, _)| *epoch == ledger.epoch() && ranges == share) {
            Some((.., batch)) => batch,
            None => self.gather(samples, ledger, share),
        }
    }

    /// Loads what will be the share of `me` of the step after the pending one if `members` commit that, and nobody's speed
    /// says that shares should change. If it comes to be another share, this was in vain.
    pub(crate) fn load_ahead(&mut self, samples: &Samples, ledger: &Ledger, members: &[PeerId], me: PeerId) {
        let mut next = ledger.clone();
        next.commit(ledger.step(), members, &vec![UNMEASURED; members.len()]);
        let share = next.share_of(me).to_vec();
        if !share.is_empty() {
            self.ahead = Some((next.epoch(), share.clone(), self.gather(samples, &next, &share)));
        }
    }

    fn gather(&mut self, samples: &Samples, ledger: &Ledger, share: &[Range<u32>]) -> Batch {
        if self.order.as_ref().is_none_or(|order| order.epoch() != ledger.epoch()) {
            self.order = Some(ledger.order());
        }
        let order = self.order.as_ref().expect("invariant: it was just drawn");
        Batch::new(samples, &order.indices(share), &self.device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{DataOptions, Dataset};

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
        let (mut loader, mut plain) = (Loader::new(Device::flex()), Loader::new(Device::flex()));
        let mut in_vain = 0;
        for step in 1..=40 {
            let expected = plain.load(samples, &ledger, me);
            assert_eq!(numbers(&loader.load(samples, &ledger, me)), numbers(&expected), "step {step}");
            loader.load_ahead(samples, &ledger, &members, me);
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
