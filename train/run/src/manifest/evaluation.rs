//! When members evaluate held-out samples together, what they tell each other of them, and when a run ends by that before its last step.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::data::DataDescription;
use crate::manifest::schedule::Schedule;
use crate::manifest::spec::{ModelSpec, RunSpec};

/// The most evaluations without an improvement that a run may wait for.
pub const MAX_PATIENCE: u32 = 1_000_000;
/// The most steps from one evaluation to the next.
const MAX_EVERY: u64 = 999_999_999_999;
/// The same where something goes by evaluations, and nobody says how many.
const USUAL_EVERY: u64 = 100;
/// The most numbers that are measured besides the loss: each travels with each step.
const MAX_MEASURES: usize = 64;
/// The longest name of one, in bytes.
const MAX_MEASURE_NAME: usize = 64;

/// Members evaluate the state after every so many steps, each a part of the held-out samples, and tell what that comes to with the gradient of the
/// next step: so all of them know the same figures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvaluationSpec {
    /// Steps from one evaluation to the next.
    pub every: u64,
    /// How many evaluations in a row may be no better than the best one before the run ends. 0: it takes all steps.
    pub patience: u32,
    /// How many samples are held out. They are shared out by that.
    pub held_out: u32,
    /// What is measured besides the loss, by name, in the order in which it is told.
    #[serde(deserialize_with = "starling_topology::message::bounded::list::<_, _, MAX_MEASURES>")]
    pub measures: Vec<String>,
}

impl EvaluationSpec {
    /// What a founder says of it; `None` if nobody evaluates before the end. What follows from the task is left open.
    pub(crate) fn of(spec: &RunSpec) -> Option<Self> {
        let goes_by_it = spec.early_stop > 0 || spec.schedule.decay.evaluations().is_some();
        let every = if spec.evaluate_every == 0 && goes_by_it { USUAL_EVERY } else { spec.evaluate_every };
        (every > 0).then(|| Self { every, patience: spec.early_stop, held_out: 0, measures: Vec::new() })
    }

    /// How many figures a member tells of its part: the loss, and each measure.
    pub(crate) fn figures(&self) -> usize {
        1 + self.measures.len()
    }

    /// Whether the state after `step` is evaluated.
    pub fn is_due(&self, step: u64) -> bool {
        step > 0 && step.is_multiple_of(self.every)
    }

    /// Checks it for a run of `model` over `data`. The numbers and names may be a stranger's.
    ///
    /// # Errors
    /// What is wrong and what to do, as a sentence.
    pub(crate) fn check(&self, model: &ModelSpec, data: &DataDescription) -> Result<(), String> {
        let Self { every, patience, ref measures, .. } = *self;
        if patience > MAX_PATIENCE {
            return Err(format!("it waits for {patience} evaluations, but 0 to {MAX_PATIENCE} are possible"));
        }
        if !(1..=MAX_EVERY).contains(&every) {
            return Err(format!("it is after every {every} steps, but 1 to {MAX_EVERY} are possible"));
        }
        if *model == ModelSpec::Raw {
            return Err("buffers have no held-out samples that could be evaluated".to_owned());
        }
        check_measures(measures)?;
        // How many samples a program holds out, only the program knows, and how many a column does, who reads it.
        let may_be_some = data.held_out > 0 || data.split_by.is_some() || data.held_out_last.is_some();
        if !may_be_some && !data.is_of_program() {
            return Err(
                "it is of held-out samples, and none are held out; hold some out, or have nobody evaluate before \
                        the end: no interval, all steps, and a schedule that goes by steps alone"
                    .to_owned(),
            );
        }
        Ok(())
    }
}

/// Checks what is measured besides the loss.
///
/// # Errors
/// What is wrong, as a sentence that repeats nothing of it: it may come from another machine, and end on a terminal.
fn check_measures(names: &[String]) -> Result<(), String> {
    let is_in_name =
        |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || ['-', '_', '.'].contains(&letter);
    let is_name =
        |name: &String| (1..=MAX_MEASURE_NAME).contains(&name.len()) && name != "loss" && name.chars().all(is_in_name);
    let distinct: BTreeSet<&String> = names.iter().collect();
    if names.len() > MAX_MEASURES || distinct.len() < names.len() || !names.iter().all(is_name) {
        return Err(format!(
            "what is measured are at most {MAX_MEASURES} different names besides `loss`, of 1 to {MAX_MEASURE_NAME} lower-case \
             letters, digits, `-`, `_` and `.`, and these are not"
        ));
    }
    Ok(())
}

/// Checks that somebody evaluates if a schedule goes by it.
///
/// # Errors
/// If nobody does, as a sentence.
pub(crate) fn check_schedule(evaluation: Option<&EvaluationSpec>, schedule: &Schedule) -> Result<(), String> {
    match evaluation {
        None if schedule.decay.evaluations().is_some() => {
            Err("it goes by the held-out loss, and nobody evaluates".to_owned())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::digits;

    #[test]
    fn who_goes_by_evaluations_has_some() {
        let plateau = Schedule { decay: "plateau:0.5,2".parse().expect("one"), ..Schedule::default() };
        let every = |evaluate_every, early_stop, schedule: &Schedule| {
            let spec = RunSpec { evaluate_every, early_stop, schedule: schedule.clone(), ..RunSpec::default() };
            EvaluationSpec::of(&spec).map(|evaluation| (evaluation.every, evaluation.patience))
        };
        let steps = Schedule::default();
        assert_eq!([every(0, 0, &steps), every(7, 0, &steps)], [None, Some((7, 0))]);
        assert_eq!([every(0, 3, &steps), every(7, 3, &steps)], [Some((100, 3)), Some((7, 3))]);
        assert_eq!([every(0, 0, &plateau), every(7, 0, &plateau)], [Some((100, 0)), Some((7, 0))]);
        assert!(check_schedule(None, &plateau).is_err() && check_schedule(None, &steps).is_ok());
    }

    #[test]
    fn what_can_not_be_is_refused_with_what_to_do() {
        let of = |patience, every| EvaluationSpec { every, patience, held_out: 9, measures: Vec::new() };
        let check = |patience, every| of(patience, every).check(&ModelSpec::default(), &digits());
        assert_eq!([check(0, 1), check(MAX_PATIENCE, MAX_EVERY)], [Ok(()), Ok(())]);
        for (patience, every, reason) in
            [(u32::MAX, 1, "0 to 1000000"), (1, 0, "every 0 steps"), (1, u64::MAX, "every 1844")]
        {
            let error = check(patience, every).expect_err("not possible");
            assert!(error.contains(reason), "{error}");
        }
        let stop = of(3, 10);
        let none = DataDescription { held_out: 0, ..digits() };
        let of_a_file = DataDescription { held_out_last: Some(9), ..none.clone() };
        assert_eq!(stop.check(&ModelSpec::default(), &of_a_file), Ok(()));
        assert!(stop.check(&ModelSpec::default(), &none).expect_err("nothing held out").contains("hold some out"));
        assert!(stop.check(&ModelSpec::Raw, &DataDescription::none()).expect_err("no loss").contains("buffers"));
        assert_eq!([0, 5, 10, 20].map(|step| stop.is_due(step)), [false, false, true, true]);
    }

    #[test]
    fn names_of_measures_can_be_shown() {
        let check = |names: &[&str]| {
            let measures = names.iter().map(|name| (*name).to_owned()).collect();
            let spec = EvaluationSpec { every: 1, patience: 0, held_out: 9, measures };
            spec.check(&ModelSpec::default(), &digits())
        };
        assert_eq!([check(&[]), check(&["accuracy", "top_5_accuracy"])], [Ok(()), Ok(())]);
        let many: Vec<String> = (0..=MAX_MEASURES).map(|at| format!("m{at}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(check(&many[1..]), Ok(()));
        for names in [&["loss"][..], &["a", "a"], &[""], &["\u{1b}[2J"], &["Big"], &[&"x".repeat(65)], &many] {
            let error = check(names).expect_err("not possible");
            assert!(error.contains("at most 64 different names") && !error.contains('\u{1b}'), "{error}");
        }
    }
}
