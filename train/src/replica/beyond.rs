//! Numbers that no contribution may have: they stay here.

use std::collections::BTreeMap;

use starling_collective::codec::kernel;
use starling_run::ContributionError;

use super::Replica;
use crate::task::Task;

/// For tests, in the environment: by what the gradient of a step that is computed here is multiplied, as `step:factor` with
/// commas between them; of `step+:factor`, from that step on; of `step:factor!`, whatever comes of it is contributed.
const FACTORS: &str = "STARLING_TEST_GRADIENT_FACTORS";

impl<T: Task> Replica<T> {
    /// The first number of the pieces, which begin at `start`, that can't be contributed by a member with `weight` samples.
    pub(super) fn find_beyond(&self, start: usize, pieces: &[&[f32]], weight: u64) -> Option<ContributionError> {
        if self.factors.is_blind(self.training.ledger().step()) {
            return None;
        }
        let most = self.training.manifest().bound;
        let mut at = start;
        for piece in pieces {
            if kernel::magnitude(piece) > most {
                let is_beyond = |value: &f32| value.is_nan() || value.abs() > most;
                let found = piece.iter().position(is_beyond).unwrap_or_default();
                let (schema, trained) = (self.training.schema(), self.training.trained());
                let what = match at + found {
                    place if place < trained => format!("gradient of `{}`", schema.path_at(place)),
                    place if place == trained => "loss".to_owned(),
                    place if place > trained + self.training.manifest().running() => "mean weight".to_owned(),
                    place => format!("change of the running `{}`", schema.path_at(place - 1)),
                };
                let (step, value) = (self.training.ledger().step(), piece[found]);
                return Some(ContributionError { step, what, value, most, samples: weight, is_whole: false });
            }
            at += piece.len();
        }
        None
    }
}

/// What a test has gradients multiplied by.
#[derive(Debug, Default)]
pub(super) struct Factors {
    once: BTreeMap<u64, Factor>,
    from: BTreeMap<u64, Factor>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Factor {
    by: f32,
    /// Nobody looks at what comes of it.
    is_blind: bool,
}

impl Factors {
    /// None, unless a test sets some.
    pub(super) fn from_environment() -> Self {
        Self::read(&std::env::var(FACTORS).unwrap_or_default())
    }

    pub(super) fn read(text: &str) -> Self {
        let mut factors = Self::default();
        for (steps, factor) in text.split(',').filter_map(|entry| entry.trim().split_once(':')) {
            let (number, is_blind) = factor.strip_suffix('!').map_or((factor, false), |number| (number, true));
            let Ok(by) = number.parse() else { continue };
            let (into, step) = match steps.strip_suffix('+') {
                Some(step) => (&mut factors.from, step),
                None => (&mut factors.once, steps),
            };
            step.parse().ok().map(|step| into.insert(step, Factor { by, is_blind }));
        }
        factors
    }

    /// That of `step`.
    pub(super) fn of(&self, step: u64) -> Option<f32> {
        self.find(step).map(|factor| factor.by)
    }

    /// Whether what `step` comes to is contributed, whatever it is.
    pub(super) fn is_blind(&self, step: u64) -> bool {
        self.find(step).is_some_and(|factor| factor.is_blind)
    }

    fn find(&self, step: u64) -> Option<Factor> {
        let from = || self.from.range(..=step).next_back().map(|(_, factor)| *factor);
        self.once.get(&step).copied().or_else(from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_of_a_step_or_of_all_from_one_on() {
        let factors = Factors::read("3:1e30, 7+:2!,x:1,9:-1,5");
        let of = [2, 3, 4, 7, 8, 9, 10].map(|step| factors.of(step));
        assert_eq!(of, [None, Some(1e30), None, Some(2.0), Some(2.0), Some(-1.0), Some(2.0)]);
        assert_eq!([3, 6, 8, 9].map(|step| factors.is_blind(step)), [false, false, true, false]);
        assert_eq!(Factors::read("").of(1), None);
    }
}
