//! What members make of the held-out loss that they agree on: the best model so far, in a run that may end early, and how often its learning rate
//! has fallen because that loss had not, in one whose schedule goes by it.
//!
//! It is part of the replicated state: the model's values are the state's last moment, what is known of it scalars. So whoever joins
//! or comes back counts on from where the others are. Scalars lie within 0 and 1; these are whole numbers, as binary fractions that are
//! exact.

use std::sync::Arc;

use crate::manifest::Manifest;
use crate::manifest::evaluation::EvaluationSpec;
use crate::training::scalar::{of_word, whole, word};

/// What steps are divided by.
const STEP: f64 = 9_007_199_254_740_992.0;
/// What stands in a state for a loss that is no number: states have finite ones alone, and none is worse.
const NONE: f32 = f32::MAX;

/// What an evaluation came to: the same on all members.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct JudgedReport {
    /// The state after this step was evaluated.
    pub step: u64,
    /// The mean held-out loss; no number where somebody came to none, which is worse than any.
    pub loss: f32,
    /// The best state so far is the one after this step; with what loss.
    pub best_step: u64,
    /// The loss of that; no number if none came to one.
    pub best_loss: f32,
    /// How many evaluations in a row were no better.
    pub without: u32,
    /// How often the learning rate falls for it in all, from the next step on.
    pub falls: u32,
    /// Whether the run ends with the step that this was reduced in.
    pub is_over: bool,
}

/// By what members judge a held-out loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Terms {
    /// After how many steps, again and again, it is found out.
    every: u64,
    /// After how many evaluations that are no better the run ends; 0: it does not go by them.
    patience: u32,
    /// After how many evaluations that are no better the learning rate falls; `None`: it does not go by them.
    fall: Option<u32>,
}

impl Terms {
    /// Those of a run; `None` if nothing goes by its held-out loss.
    pub(crate) fn of(manifest: &Manifest) -> Option<Self> {
        let EvaluationSpec { every, patience, .. } = *manifest.evaluation.as_ref()?;
        let fall = manifest.schedule.decay.evaluations();
        (patience > 0 || fall.is_some()).then_some(Self { every, patience, fall })
    }

    /// Whether the best model is kept.
    pub(crate) fn keeps_model(self) -> bool {
        self.patience > 0
    }
}

/// The best model of a run so far.
#[derive(Debug, Clone)]
pub(crate) struct Best {
    terms: Terms,
    /// Its parameters; zeros before the first evaluation, and none if it is not kept.
    values: Arc<Vec<f32>>,
    /// The step after which it was the model; 0 before the first evaluation.
    step: u64,
    loss: f32,
    /// Evaluations that were no better: since then, and since the learning rate has fallen.
    without: u32,
    since_fall: u32,
    falls: u32,
}

impl Best {
    /// How many scalars of a state are of it.
    pub(crate) const SCALARS: usize = 5;

    /// Before the first evaluation, of a model of so many parameters.
    pub(crate) fn new(terms: Terms, parameters: usize) -> Self {
        let kept = if terms.keeps_model() { parameters } else { 0 };
        Self { terms, values: Arc::new(vec![0.0; kept]), step: 0, loss: 0.0, without: 0, since_fall: 0, falls: 0 }
    }

    /// From a state's last moment, if the model is kept, and scalars; `None` if no state has such ones. The numbers may be a stranger's.
    pub(crate) fn restore(terms: Terms, values: Arc<Vec<f32>>, scalars: &[f64]) -> Option<Self> {
        let &[step, loss, without, since_fall, falls] = scalars else { return None };
        let (step, loss) = (whole(step, STEP)?, f32::from_bits(word(loss)?));
        let [without, since_fall, falls] = [word(without)?, word(since_fall)?, word(falls)?];
        let is_due = step.is_multiple_of(terms.every);
        let has_begun = step > 0 || (without, since_fall, falls) == (0, 0, 0);
        let fits = match terms.fall {
            Some(fall) => since_fall < fall,
            None => (since_fall, falls) == (0, 0),
        };
        let goes_on = !terms.keeps_model() || without <= terms.patience;
        let is_possible = loss.is_finite() && goes_on && has_begun && fits && is_due;
        is_possible.then_some(Self { terms, values, step, loss, without, since_fall, falls })
    }

    /// What it has in a state, after what the optimizer has.
    pub(crate) fn scalars(&self) -> [f64; Self::SCALARS] {
        let [loss, without, since_fall, falls] =
            [self.loss.to_bits(), self.without, self.since_fall, self.falls].map(of_word);
        [self.step as f64 / STEP, loss, without, since_fall, falls]
    }

    /// Its values, `[parameters]`; shared with whoever has them. `None` if they are not kept.
    pub(crate) fn values(&self) -> Option<&Arc<Vec<f32>>> {
        Some(&self.values).filter(|_| self.terms.keeps_model())
    }

    /// How often the learning rate has fallen.
    pub(crate) fn falls(&self) -> u32 {
        self.falls
    }

    /// The step after which it was the model, and its held-out loss, which is no number if none came to one; `None` before the first evaluation.
    pub(crate) fn found(&self) -> Option<(u64, f32)> {
        (self.step > 0).then(|| (self.step, shown(self.loss)))
    }

    /// Whether the run has ended: the evaluations that it waits for were no better.
    pub(crate) fn is_over(&self) -> bool {
        self.terms.keeps_model() && self.without >= self.terms.patience
    }

    /// Takes in the held-out loss of the state after `step`, which may be no number, and whose `model` is kept if it is the best.
    pub(crate) fn judge(&mut self, step: u64, loss: f32, model: impl FnOnce() -> Arc<Vec<f32>>) -> JudgedReport {
        let loss = if loss.is_finite() { loss } else { NONE };
        if self.step == 0 || loss < self.loss {
            (self.step, self.loss, self.without, self.since_fall) = (step, loss, 0, 0);
            if self.terms.keeps_model() {
                self.values = model();
            }
        } else {
            self.without = self.without.saturating_add(1);
            self.since_fall += u32::from(self.terms.fall.is_some());
            if Some(self.since_fall) == self.terms.fall {
                (self.since_fall, self.falls) = (0, self.falls.saturating_add(1));
            }
        }
        let Self { step: best_step, loss: best_loss, without, falls, .. } = *self;
        let [loss, best_loss] = [loss, best_loss].map(shown);
        JudgedReport { step, loss, best_step, best_loss, without, falls, is_over: self.is_over() }
    }
}

/// A loss as it is told.
fn shown(loss: f32) -> f32 {
    if loss == NONE { f32::NAN } else { loss }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: Terms = Terms { every: 10, patience: 2, fall: None };
    const FALLING: Terms = Terms { every: 10, patience: 0, fall: Some(2) };

    fn judged(best: &mut Best, step: u64, loss: f32) -> (u64, u32, bool) {
        let JudgedReport { best_step, without, is_over, .. } = best.judge(step, loss, || Arc::new(vec![loss; 3]));
        (best_step, without, is_over)
    }

    #[test]
    fn it_counts_evaluations_that_are_no_better() {
        let mut best = Best::new(TERMS, 3);
        assert_eq!(best.found(), None);
        let losses = [(10, 2.0), (20, 2.0), (30, 1.5), (40, 1.75), (50, f32::MAX)];
        let seen: Vec<_> = losses.map(|(step, loss)| judged(&mut best, step, loss)).to_vec();
        assert_eq!(seen, [(10, 0, false), (10, 1, false), (30, 0, false), (30, 1, false), (30, 2, true)]);
        assert_eq!((best.found(), best.values()), (Some((30, 1.5)), Some(&Arc::new(vec![1.5; 3]))));
        assert!(best.is_over());
    }

    /// So a state always has a loss that it may have, and nobody is told of one that is none.
    #[test]
    fn no_number_is_worse_than_any_and_told_as_none() {
        let mut best = Best::new(TERMS, 3);
        let mut judge = |step, loss| best.judge(step, loss, || Arc::new(vec![0.0; 3]));
        let first = judge(10, f32::NAN);
        assert!((first.best_step, first.without) == (10, 0) && first.loss.is_nan() && first.best_loss.is_nan());
        let better = judge(20, 1e30);
        assert_eq!((better.best_step, better.loss, better.best_loss), (20, 1e30, 1e30));
        let worse = judge(30, f32::INFINITY);
        assert!((worse.best_step, worse.without, worse.best_loss) == (20, 1, 1e30) && worse.loss.is_nan());
        let mut none = Best::new(TERMS, 3);
        let _ = none.judge(10, f32::NAN, || Arc::new(vec![0.0; 3]));
        let back = Best::restore(TERMS, none.values.clone(), &none.scalars()).expect("a state's");
        assert!(back.found().is_some_and(|(step, loss)| step == 10 && loss.is_nan()));
    }

    #[test]
    fn a_rate_falls_each_time_that_the_loss_has_not() {
        let mut best = Best::new(FALLING, 3);
        let losses = [2.0, 2.0, 1.5, 1.75, 1.75, 1.75, 1.75, 1.0, 2.0, 2.0];
        let falls: Vec<u32> = (1..).zip(losses).map(|(at, loss)| judged_falls(&mut best, at * 10, loss)).collect();
        assert_eq!(falls, [0, 0, 0, 0, 1, 1, 2, 2, 2, 3]);
        assert_eq!((best.values(), best.is_over()), (None, false), "it takes all steps");
        let back = Best::restore(FALLING, Arc::default(), &best.scalars()).expect("a state's");
        assert_eq!((back.falls, back.since_fall, back.found()), (3, 0, Some((80, 1.0))));
        let mut bad = best.scalars();
        bad[3] = of_word(2);
        assert!(Best::restore(FALLING, Arc::default(), &bad).is_none(), "it would have fallen");
        assert!(Best::restore(TERMS, Arc::default(), &best.scalars()).is_none(), "it goes by steps alone");
    }

    fn judged_falls(best: &mut Best, step: u64, loss: f32) -> u32 {
        best.judge(step, loss, || unreachable!("no model is kept")).falls
    }

    #[test]
    fn it_comes_back_from_a_state_to_the_bit() {
        let mut best = Best::new(TERMS, 3);
        for (step, loss) in [(10, -1.0e-42), (20, 0.1)] {
            let _ = judged(&mut best, step, loss);
            let back = Best::restore(TERMS, best.values.clone(), &best.scalars()).expect("a state's");
            assert_eq!((back.found(), back.without), (best.found(), best.without));
            assert!(best.scalars().iter().all(|scalar| (0.0..=1.0).contains(scalar)));
        }
        let far = Best { step: (1 << 53) - 2, loss: f32::MIN, ..best.clone() };
        let back = Best::restore(TERMS, far.values.clone(), &far.scalars()).expect("a state's");
        assert_eq!(back.found(), far.found());
    }

    #[test]
    fn scalars_that_no_state_has_are_refused() {
        let word = of_word;
        let good = [10.0 / STEP, word(1.0_f32.to_bits()), word(1), 0.0, 0.0];
        let restored = |scalars: &[f64]| Best::restore(TERMS, Arc::default(), scalars);
        assert!(restored(&good).is_some());
        for bad in [
            [1.0, good[1], good[2], 0.0, 0.0],
            [0.5 / STEP, good[1], good[2], 0.0, 0.0],
            [0.0, good[1], good[2], 0.0, 0.0],
            [11.0 / STEP, good[1], good[2], 0.0, 0.0],
            [good[0], word(f32::NAN.to_bits()), good[2], 0.0, 0.0],
            [good[0], 1.0, good[2], 0.0, 0.0],
            [good[0], 1e-30, good[2], 0.0, 0.0],
            [good[0], good[1], word(3), 0.0, 0.0],
            [good[0], good[1], good[2], word(1), 0.0],
            [good[0], good[1], good[2], 0.0, word(1)],
        ] {
            assert!(restored(&bad).is_none(), "{bad:?}");
        }
        assert!(restored(&good[..4]).is_none());
    }
}
