//! Part of promise P2, exact with lossy codecs too: what a codec drops of a step's sums is not lost. All that the members
//! brought, with what they had to make up for, is in the result or is left for them to make up for.

use std::collections::BTreeMap;

use starling_topology::ViewId;

use super::Broken;
use crate::state::ResultRecord;

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
    /// What it has to make up for.
    pub left: Vec<f32>,
}

/// Remembers the newest steps of which not all members have told.
#[derive(Debug, Default)]
pub struct NothingDropped {
    steps: BTreeMap<(u64, ViewId), Step>,
    checked: u64,
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
    /// A member has applied `record`, the mean of sums that were divided by `divisor`.
    ///
    /// # Errors
    /// If it is the last of those who contributed, and something is missing.
    pub fn settled(&mut self, settled: &Settled, record: &ResultRecord, divisor: f32) -> Result<(), Broken> {
        let Settled { view, brought, left } = settled;
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
        self.checked += u64::from(is_whole);
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

    /// Steps that all who contributed have told of.
    pub fn checked(&self) -> u64 {
        self.checked
    }
}

#[cfg(test)]
mod tests {
    use starling_topology::{PeerId, Rank};

    use super::*;
    use crate::contribution::{Cell, Contributions};

    #[test]
    fn what_is_neither_in_the_result_nor_left_is_missed() {
        let record = |speeds: &[u32]| {
            let cell = Cell { bucket: 0, chunk: Rank(0), segment: 0 };
            let made = Contributions { counts: vec![1, 1], divided: 1, sum: 3, speeds: speeds.to_vec() };
            let members = vec![PeerId([1; 32]), PeerId([2; 32])];
            ResultRecord { step: 4, members, cells: vec![(cell, made)], mean: vec![2.5] }
        };
        let settled = |brought, left| Settled { view: ViewId([1; 32]), brought: vec![brought], left: vec![left] };
        for (left, speeds, holds) in
            [(0.25, [1, 1], true), (0.0, [1, 1], false), (0.3, [1, 1], false), (0.0, [1, 0], true)]
        {
            let mut invariant = NothingDropped::default();
            assert_eq!(
                invariant.settled(&settled(3.0, 0.0), &record(&speeds), 2.0),
                Ok(()),
                "the other has not told yet"
            );
            let held = invariant.settled(&settled(2.25, left), &record(&speeds), 2.0);
            assert_eq!(held.is_ok(), holds, "{held:?}");
            assert_eq!(invariant.checked(), u64::from(speeds[1] > 0));
        }
    }
}
