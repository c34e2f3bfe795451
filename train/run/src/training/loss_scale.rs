//! What the loss is multiplied by before backward, so that gradients in f16 neither vanish nor overflow: the same on all members.
//!
//! It is a power of two, so that it changes no digit. Where a member's gradient overflows, the member gives its share up, as all see in the step's
//! result: the scale is halved, and the samples come first in the next step. After many steps without that it is doubled (Micikevicius et al.:
//! "Mixed Precision Training", 2018). It is part of the replicated state, as two scalars.

use super::scalar;

/// The scale of a run's first step.
const FIRST: u32 = 16;
/// The largest.
const MOST: u32 = 24;
/// So many steps in a row without an overflow until it is doubled.
const PATIENCE: u32 = 2_000;

/// The scale of the next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LossScale {
    /// Of two.
    exponent: u32,
    /// Steps since it changed.
    since: u32,
}

impl LossScale {
    /// How many scalars of a state are of it.
    pub(crate) const SCALARS: usize = 2;

    /// Before the first step.
    pub(crate) fn new() -> Self {
        Self { exponent: FIRST, since: 0 }
    }

    /// From a state's scalars; `None` if no state has such ones. The numbers may be a stranger's.
    pub(crate) fn restore(scalars: &[f64]) -> Option<Self> {
        let &[exponent, since] = scalars else { return None };
        let below = |share: f64, bound: u32| scalar::word(share).filter(|number| *number < bound);
        Some(Self { exponent: below(exponent, MOST + 1)?, since: below(since, PATIENCE)? })
    }

    /// What it has in a state.
    pub(crate) fn scalars(self) -> [f64; Self::SCALARS] {
        [self.exponent, self.since].map(scalar::of_word)
    }

    /// The scale, a power of two from 1 on.
    pub(crate) fn factor(self) -> f32 {
        (1_u32 << self.exponent) as f32
    }

    /// Takes in whether a member gave its share of a step up. Says whether that may have been for the scale, which is halved then.
    pub(crate) fn follow(&mut self, gave_up: bool) -> bool {
        match (gave_up, self.exponent) {
            // As small as it gets, it is not to blame.
            (true, 0) => {
                self.since = 0;
                false
            }
            (true, exponent) => {
                *self = Self { exponent: exponent - 1, since: 0 };
                true
            }
            (false, MOST) => false,
            (false, exponent) => {
                *self = match self.since + 1 {
                    PATIENCE => Self { exponent: exponent + 1, since: 0 },
                    since => Self { exponent, since },
                };
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overflow_halves_it_and_peace_doubles_it() {
        let mut scale = LossScale::new();
        assert_eq!(scale.factor(), 65_536.0);
        assert!(scale.follow(true));
        assert_eq!(scale.factor(), 32_768.0);
        for _ in 0..PATIENCE {
            assert!(!scale.follow(false));
        }
        assert_eq!((scale.factor(), scale.since), (65_536.0, 0));
        for _ in 0..FIRST {
            assert!(scale.follow(true));
        }
        assert_eq!((scale.factor(), scale.follow(true)), (1.0, false), "it can't be to blame");
        (0..100 * PATIENCE).for_each(|_| assert!(!scale.follow(false)));
        assert_eq!(scale.factor(), 16_777_216.0);
    }

    #[test]
    fn it_comes_back_from_a_state() {
        let mut scale = LossScale::new();
        for gave_up in [true, false, false, true, false] {
            let _ = scale.follow(gave_up);
            assert_eq!(LossScale::restore(&scale.scalars()), Some(scale));
        }
        let [exponent, since] = scale.scalars();
        for bad in [
            &[exponent][..],
            &[1.0, since],
            &[exponent, 1.0],
            &[scalar::of_word(25), since],
            &[exponent, 0.5 * scalar::of_word(1)],
        ] {
            assert_eq!(LossScale::restore(bad), None, "{bad:?}");
        }
        assert_eq!(LossScale::restore(&[f64::NAN, since]), None);
    }
}
