//! The best model so far, by the held-out loss that members agree on, in a run that ends early.
//!
//! It is part of the replicated state: its values are the state's last moment, what is known of it the last scalars. So whoever joins
//! or comes back counts on from where the others are. Scalars lie within 0 and 1; these are whole numbers, as binary fractions that are
//! exact.

use std::sync::Arc;

use crate::manifest::early_stop::EarlyStopPolicy;

/// What whole numbers of 32 bits, and steps, are divided by.
const WORD: f64 = 4_294_967_296.0;
const STEP: f64 = 9_007_199_254_740_992.0;

/// What an evaluation came to: the same on all members.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct JudgedReport {
    /// The state after this step was evaluated.
    pub step: u64,
    /// The mean held-out loss, over the members' samples of the step after it.
    pub loss: f32,
    /// The best state so far is the one after this step; with what loss.
    pub best_step: u64,
    /// The loss of that.
    pub best_loss: f32,
    /// How many evaluations in a row were no better.
    pub without: u32,
    /// Whether the run ends with the step that this was reduced in.
    pub is_over: bool,
}

/// The best model of a run so far.
#[derive(Debug, Clone)]
pub(crate) struct Best {
    terms: EarlyStopPolicy,
    /// Its parameters; zeros before the first evaluation.
    values: Arc<Vec<f32>>,
    /// The step after which it was the model; 0 before the first evaluation.
    step: u64,
    loss: f32,
    without: u32,
}

impl Best {
    /// How many scalars of a state are of it.
    pub(crate) const SCALARS: usize = 3;

    /// Before the first evaluation, of a model of so many parameters.
    pub(crate) fn new(terms: EarlyStopPolicy, parameters: usize) -> Self {
        Self { terms, values: Arc::new(vec![0.0; parameters]), step: 0, loss: 0.0, without: 0 }
    }

    /// From a state's last moment and scalars; `None` if no state has such ones. The numbers may be a stranger's.
    pub(crate) fn restore(terms: EarlyStopPolicy, values: Arc<Vec<f32>>, scalars: &[f64]) -> Option<Self> {
        let &[step, loss, without] = scalars else { return None };
        let whole = |share: f64, of: f64| {
            let number = share * of;
            ((0.0..of).contains(&number) && number.fract() == 0.0).then_some(number as u64)
        };
        let word = |share| whole(share, WORD).and_then(|number| u32::try_from(number).ok());
        let (step, loss, without) = (whole(step, STEP)?, f32::from_bits(word(loss)?), word(without)?);
        let is_due = step == 0 || terms.is_due(step);
        let is_possible = loss.is_finite() && without <= terms.patience && (step > 0 || without == 0) && is_due;
        is_possible.then_some(Self { terms, values, step, loss, without })
    }

    /// What it has in a state, after what the optimizer has.
    pub(crate) fn scalars(&self) -> [f64; Self::SCALARS] {
        [self.step as f64 / STEP, f64::from(self.loss.to_bits()) / WORD, f64::from(self.without) / WORD]
    }

    /// Its values, `[parameters]`; shared with whoever has them.
    pub(crate) fn values(&self) -> &Arc<Vec<f32>> {
        &self.values
    }

    /// The step after which it was the model, and its held-out loss; `None` before the first evaluation.
    pub(crate) fn found(&self) -> Option<(u64, f32)> {
        (self.step > 0).then_some((self.step, self.loss))
    }

    /// Whether the run has ended: the evaluations that it waits for were no better.
    pub(crate) fn is_over(&self) -> bool {
        self.without >= self.terms.patience
    }

    /// Whether the state after `step` is evaluated. Once the run has ended, none is.
    pub(crate) fn is_due(&self, step: u64) -> bool {
        self.terms.is_due(step) && !self.is_over()
    }

    /// Takes in the held-out loss of the state after `step`, whose `model` is kept if it is the best.
    pub(crate) fn judge(&mut self, step: u64, loss: f32, model: impl FnOnce() -> Arc<Vec<f32>>) -> JudgedReport {
        if self.step == 0 || loss < self.loss {
            (self.step, self.loss, self.without, self.values) = (step, loss, 0, model());
        } else {
            self.without += 1;
        }
        let Self { step: best_step, loss: best_loss, without, .. } = *self;
        JudgedReport { step, loss, best_step, best_loss, without, is_over: self.is_over() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: EarlyStopPolicy = EarlyStopPolicy { patience: 2, every: 10 };

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
        assert_eq!((best.found(), best.values().as_slice()), (Some((30, 1.5)), &[1.5; 3][..]));
        assert!(!best.is_due(60), "it is over");
    }

    #[test]
    fn it_comes_back_from_a_state_to_the_bit() {
        let mut best = Best::new(TERMS, 3);
        for (step, loss) in [(10, -1.0e-42), (20, 0.1)] {
            let _ = judged(&mut best, step, loss);
            let back = Best::restore(TERMS, best.values().clone(), &best.scalars()).expect("a state's");
            assert_eq!((back.found(), back.without), (best.found(), best.without));
            assert!(best.scalars().iter().all(|scalar| (0.0..=1.0).contains(scalar)));
        }
        let far = Best { step: (1 << 53) - 2, loss: f32::MIN, ..best.clone() };
        let back = Best::restore(TERMS, far.values.clone(), &far.scalars()).expect("a state's");
        assert_eq!(back.found(), far.found());
    }

    #[test]
    fn scalars_that_no_state_has_are_refused() {
        let word = |number: u32| f64::from(number) / WORD;
        let good = [10.0 / STEP, word(1.0_f32.to_bits()), word(1)];
        let restored = |scalars: &[f64]| Best::restore(TERMS, Arc::default(), scalars);
        assert!(restored(&good).is_some());
        for bad in [
            [1.0, good[1], good[2]],
            [0.5 / STEP, good[1], good[2]],
            [0.0, good[1], good[2]],
            [11.0 / STEP, good[1], good[2]],
            [good[0], word(f32::NAN.to_bits()), good[2]],
            [good[0], 1.0, good[2]],
            [good[0], 1e-30, good[2]],
            [good[0], good[1], word(3)],
        ] {
            assert!(restored(&bad).is_none(), "{bad:?}");
        }
        assert!(restored(&good[..2]).is_none());
    }
}
