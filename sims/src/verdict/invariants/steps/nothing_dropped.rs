//! Part of promise P2, exact with lossy codecs too: what a codec drops of a step's sums is not lost. All that the members
//! brought, with what they had to make up for, is in the result or is left for them to make up for; and what is left of one
//! step is what they have to make up for in the next, however often that is tried.

use std::collections::BTreeMap;

use starling_topology::{PeerId, ViewId};

use crate::steps::state::ResultRecord;
use crate::verdict::invariants::Broken;

const NAME: &str = "nothing_dropped";

/// Numbers are rounded to 24 bits whenever they are added, in a world of dozens of members; the finest codec drops more than
/// a thousandth part.
const TOLERANCE: f64 = 1e-5;

/// Members of one view are a step apart at most.
const REMEMBERED: usize = 4;

/// What one member brought to a step, and was left with once it had applied it.
#[derive(Debug)]
pub struct Settled {
    /// The view in which it had contributed.
    pub view: ViewId,
    /// What that was.
    pub brought: Vec<f32>,
    /// What of it made up for earlier steps.
    pub made_up: Vec<f32>,
    /// What it has to make up for.
    pub left: Vec<f32>,
}

/// Remembers the newest steps of which not all members have told.
#[derive(Debug, Default)]
pub struct NothingDropped {
    steps: BTreeMap<(u64, ViewId), Step>,
    /// What each had left to make up for after which step.
    left: BTreeMap<PeerId, (u64, Vec<f32>)>,
}

#[derive(Debug, Default)]
struct Step {
    told: usize,
    /// What was brought, less what was left.
    brought: Vec<f64>,
    /// How large the numbers were.
    size: Vec<f64>,
}

impl NothingDropped {
    /// A process of `peer` begins, or has loaded a state: it has nothing to make up for.
    pub fn begins_anew(&mut self, peer: PeerId) {
        self.left.remove(&peer);
    }

    /// `peer` has applied `record`, the mean of sums that were divided by `divisor`.
    ///
    /// # Errors
    /// If it has made up for something else than it had to, or if it is the last of those who contributed, and something is
    /// missing.
    pub fn settled(
        &mut self,
        peer: PeerId,
        settled: &Settled,
        record: &ResultRecord,
        divisor: f32,
    ) -> Result<(), Broken> {
        let Settled { view, brought, made_up, left } = settled;
        if let Some((step, before)) = self.left.insert(peer, (record.step, left.clone()))
            && step + 1 == record.step
            && before != *made_up
        {
            let seen = format!("{peer:?} had {before:?} to make up for after step {step}, and made up for {made_up:?}");
            return Err(Broken::new(NAME, seen));
        }
        let step = self.steps.entry((record.step, *view)).or_default();
        step.told += 1;
        step.brought.resize(brought.len(), 0.0);
        step.size.resize(brought.len(), 0.0);
        for (index, (brought, left)) in brought.iter().zip(left).enumerate() {
            step.brought[index] += f64::from(*brought) - f64::from(*left);
            step.size[index] += f64::from(brought.abs()) + f64::from(left.abs());
        }
        // Who has no state yet passes sums on, and makes up for nothing.
        let all_have_state = record.speeds().iter().all(|speed| *speed > 0);
        let is_whole = all_have_state && step.told == record.members.len();
        let missing = |(index, mean): (usize, &f32)| {
            let sum = f64::from(*mean) * f64::from(divisor);
            (step.brought[index] - sum).abs() > TOLERANCE * (step.size[index] + sum.abs())
        };
        let wrong = is_whole.then(|| record.mean.iter().enumerate().position(missing)).flatten();
        let held = match wrong {
            None => Ok(()),
            Some(index) => {
                let (brought, mean, number) = (step.brought[index], record.mean[index], record.step);
                let seen =
                    format!("{brought} was brought to element {index} of step {number} for good, whose mean is {mean}");
                Err(Broken::new(NAME, seen))
            }
        };
        while self.steps.len() > REMEMBERED {
            self.steps.pop_first();
        }
        held
    }
}

#[cfg(test)]
mod tests {
    use starling_topology::{PeerId, Rank};

    use super::*;
    use crate::steps::contribution::{Cell, Contributions};

    const PEERS: [PeerId; 2] = [PeerId([1; 32]), PeerId([2; 32])];

    fn record(step: u64, speeds: [u32; 2]) -> ResultRecord {
        let cell = Cell { bucket: 0, chunk: Rank(0), segment: 0 };
        let made = Contributions { counts: vec![1, 1], divided: 1, sum: 3, speeds: speeds.to_vec() };
        ResultRecord {
            step,
            lineage: starling_topology::Lineage::NONE,
            after: starling_topology::Lineage::NONE,
            members: PEERS.to_vec(),
            cells: vec![(cell, made)],
            mean: vec![2.5],
        }
    }

    fn settled(brought: f32, made_up: f32, left: f32) -> Settled {
        Settled { view: ViewId([1; 32]), brought: vec![brought], made_up: vec![made_up], left: vec![left] }
    }

    #[test]
    fn what_is_neither_in_the_result_nor_left_is_missed() {
        for (left, speeds, holds) in
            [(0.25, [1, 1], true), (0.0, [1, 1], false), (0.3, [1, 1], false), (0.0, [1, 0], true)]
        {
            let mut invariant = NothingDropped::default();
            let record = record(4, speeds);
            let first = invariant.settled(PEERS[0], &settled(3.0, 0.0, 0.0), &record, 2.0);
            assert_eq!(first, Ok(()), "the other has not told yet");
            let held = invariant.settled(PEERS[1], &settled(2.25, 0.0, left), &record, 2.0);
            assert_eq!(held.is_ok(), holds, "{held:?}");
        }
    }

    #[test]
    fn what_was_left_is_what_is_made_up_for() {
        for (made_up, anew, holds) in [(0.5, false, true), (0.0, false, false), (0.0, true, true)] {
            let mut invariant = NothingDropped::default();
            let held = invariant.settled(PEERS[0], &settled(3.0, 0.0, 0.5), &record(4, [1, 1]), 2.0);
            assert_eq!(held, Ok(()));
            if anew {
                invariant.begins_anew(PEERS[0]);
            }
            let held = invariant.settled(PEERS[0], &settled(3.0, made_up, 0.5), &record(5, [1, 1]), 2.0);
            assert_eq!(held.is_ok(), holds, "{held:?}");
        }
    }
}
