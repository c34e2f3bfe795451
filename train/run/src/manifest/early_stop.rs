//! When members evaluate together, and when a run ends before its last step: once its held-out loss has not fallen for a while.

use serde::{Deserialize, Serialize};

use crate::data::DataDescription;
use crate::manifest::schedule::Schedule;
use crate::manifest::spec::ModelSpec;

/// The most evaluations without an improvement that a run may wait for.
pub const MAX_PATIENCE: u32 = 1_000_000;
/// The most steps from one evaluation to the next.
const MAX_EVERY: u64 = 999_999_999_999;

/// Members evaluate the state after every so many steps, and tell the held-out loss with the gradient of the next step: so all of them
/// go by the same figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EarlyStopPolicy {
    /// How many evaluations in a row may be no better than the best one before the run ends. 0: it takes all steps.
    pub patience: u32,
    /// Steps from one evaluation to the next.
    pub every: u64,
}

impl Default for EarlyStopPolicy {
    /// None, of evaluations after each hundred steps.
    fn default() -> Self {
        Self { patience: 0, every: 100 }
    }
}

impl EarlyStopPolicy {
    /// What a manifest says of it: nothing if neither this nor the `schedule` waits for an evaluation.
    pub(crate) fn in_manifest(self, schedule: &Schedule) -> Option<Self> {
        (self.patience > 0 || schedule.decay.evaluations().is_some()).then_some(self)
    }

    /// Whether the state after `step` is evaluated.
    pub fn is_due(self, step: u64) -> bool {
        step > 0 && step.is_multiple_of(self.every)
    }

    /// Checks it for a run of `model` over `data` by this `schedule`. The numbers may be a stranger's.
    ///
    /// # Errors
    /// What is wrong and what to do, as a sentence.
    pub(crate) fn check(self, schedule: &Schedule, model: &ModelSpec, data: &DataDescription) -> Result<(), String> {
        let Self { patience, every } = self;
        if patience > MAX_PATIENCE || self.in_manifest(schedule).is_none() {
            return Err(format!("it waits for {patience} evaluations, but 1 to {MAX_PATIENCE} are possible"));
        }
        if !(1..=MAX_EVERY).contains(&every) {
            return Err(format!("it evaluates every {every} steps, but 1 to {MAX_EVERY} are possible"));
        }
        if *model == ModelSpec::Raw {
            return Err("buffers have no held-out loss that could stop falling".to_owned());
        }
        // How many samples a program holds out, only the program knows, and how many a column does, who reads it.
        let may_be_some = data.held_out > 0 || data.split_by.is_some() || data.held_out_last.is_some();
        if !may_be_some && !data.is_of_program() {
            return Err(
                "it goes by the loss over held-out samples, and none are held out; hold some out, or take all steps, and a schedule that \
                 goes by steps alone"
                    .to_owned(),
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::digits;

    #[test]
    fn what_can_not_be_is_refused_with_what_to_do() {
        let (steps, loss) =
            (Schedule::default(), Schedule { decay: "plateau:0.5,2".parse().expect("one"), ..Schedule::default() });
        let check =
            |patience, every| EarlyStopPolicy { patience, every }.check(&steps, &ModelSpec::default(), &digits());
        assert_eq!(EarlyStopPolicy { patience: 0, every: 1 }.check(&loss, &ModelSpec::default(), &digits()), Ok(()));
        assert_eq!([check(1, 1), check(MAX_PATIENCE, MAX_EVERY)], [Ok(()), Ok(())]);
        for (patience, every, reason) in [
            (0, 1, "1 to 1000000"),
            (u32::MAX, 1, "1 to 1000000"),
            (1, 0, "every 0 steps"),
            (1, u64::MAX, "every 1844"),
        ] {
            let error = check(patience, every).expect_err("not possible");
            assert!(error.contains(reason), "{error}");
        }
        let stop = EarlyStopPolicy { patience: 3, every: 10 };
        let none = DataDescription { held_out: 0, ..digits() };
        let of_a_file = DataDescription { held_out_last: Some(9), ..none.clone() };
        assert_eq!(stop.check(&steps, &ModelSpec::default(), &of_a_file), Ok(()));
        assert!(
            stop.check(&steps, &ModelSpec::default(), &none).expect_err("nothing held out").contains("hold some out")
        );
        assert!(
            stop.check(&steps, &ModelSpec::Raw, &DataDescription::none()).expect_err("no loss").contains("buffers")
        );
        assert_eq!([0, 5, 10, 20].map(|step| stop.is_due(step)), [false, false, true, true]);
    }
}
