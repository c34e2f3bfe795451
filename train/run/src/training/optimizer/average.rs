//! A moving average of the parameters, which any optimizer's steps may be followed by. The model that is evaluated and exported is the
//! average then; what is trained stays as it is.

use super::{SettingSpec, Update, are_safe};

impl SettingSpec {
    /// The share of the average that is kept in a step. 0: there is no average. With more than this, what a step adds would be lost where
    /// it is rounded: at the bound, the average of what does not change is off by 0.1 %.
    pub const AVERAGE: Self = Self { name: "ema", default: 0.0, least: 0.0, most: 0.9999 };
}

/// A step of an optimizer, and of the average of the parameters after it (Polyak, Juditsky: "Acceleration of Stochastic Approximation by
/// Averaging", 1992, with the exponential weights of Adam): `a = d * a + (1 - d) * p`. It begins with zeros, so that `a / (1 - d^t)` is
/// the average after `t` steps. The average is the last moment, `d^t` the last scalar.
#[derive(Debug)]
pub(super) struct Averaging {
    pub(super) step: Box<dyn Update>,
    pub(super) decay: f32,
}

impl Update for Averaging {
    fn run(&self, parameters: &mut [f32], gradients: &[f32], moments: &mut [&mut [f32]]) {
        let (average, moments) = moments.split_last_mut().expect("invariant: the average is the last moment");
        self.step.run(parameters, gradients, moments);
        let rest = 1.0 - self.decay;
        for (average, parameter) in average.iter_mut().zip(parameters.iter()) {
            *average = self.decay * *average + rest * *parameter;
        }
    }

    /// An average is no larger than the largest of what it is of.
    fn is_safe(&self, state: f64, gradient: f64) -> bool {
        are_safe(&[state]) && self.step.is_safe(state, gradient)
    }
}

/// The average that a state keeps as `moment`, where `power` is `d^t`; `None` before the first step, or if the state is no sound one.
pub(super) fn average(moment: &[f32], power: f64) -> Option<Vec<f32>> {
    let weight = 1.0 - power;
    let average: Vec<f32> = moment.iter().map(|number| (f64::from(*number) / weight) as f32).collect();
    (weight > 0.0 && average.iter().all(|number| number.is_finite())).then_some(average)
}

#[cfg(test)]
mod tests {
    use crate::training::optimizer::{NAMES, OptimizerSpec, OptimizerState, StepFactors};

    const WHOLE: StepFactors = StepFactors { gradient: 1.0, learning_rate: 1.0 };

    #[test]
    fn the_average_follows_the_parameters_and_changes_none() {
        for name in NAMES {
            let plain = OptimizerSpec::named(name).expect("it is in the list");
            let spec = plain.with("ema", 0.75);
            assert_eq!((spec.moments(), spec.scalars()), (plain.moments() + 1, plain.scalars() + 1));
            let (mut ours, mut theirs) = ([1.0_f32, -2.0, 0.5], [1.0_f32, -2.0, 0.5]);
            let (mut averaged, mut alone) = (OptimizerState::new(spec, 3), OptimizerState::new(plain, 3));
            assert_eq!(averaged.average(), None, "there is nothing yet to be averaged");
            let (mut sums, mut weight) = ([0.0_f64; 3], 0.0);
            for step in 0..20_u8 {
                let gradients = [0.5, -1.0, f32::from(step % 3) - 1.0];
                averaged.step(&mut ours, &gradients, WHOLE).expect("finite");
                alone.step(&mut theirs, &gradients, WHOLE).expect("finite");
                assert_eq!(ours, theirs, "{name}: what is trained knows nothing of the average");
                weight = 0.75 * weight + 0.25;
                for ((sum, parameter), average) in sums.iter_mut().zip(ours).zip(averaged.average().expect("a step")) {
                    *sum = 0.75 * *sum + 0.25 * f64::from(parameter);
                    assert!((*sum / weight - f64::from(average)).abs() < 1e-5, "{name}, step {step}: {average}");
                }
            }
            assert_eq!(alone.average(), None);
        }
    }

    #[test]
    fn what_does_not_change_is_its_own_average() {
        let still = OptimizerSpec::sgd(0.1).with("ema", 0.9999);
        let mut parameters: Vec<f32> = (1..=64).map(|number| 1.0 / number as f32).collect();
        let (expected, gradients) = (parameters.clone(), vec![0.0; 64]);
        let mut optimizer = OptimizerState::new(still, 64);
        for _ in 0..200_000 {
            optimizer.step(&mut parameters, &gradients, WHOLE).expect("finite");
        }
        for (average, expected) in optimizer.average().expect("many steps").iter().zip(expected) {
            assert!((average / expected - 1.0).abs() < 2e-3, "{average} instead of {expected}");
        }
    }

    #[test]
    fn one_that_is_none_leaves_the_manifest_as_it_was() {
        let plain = OptimizerSpec::adam_w(0.1);
        let write = |spec: OptimizerSpec| postcard::to_allocvec(&spec).expect("bytes");
        assert_eq!(write(plain.with("ema", 0.0)), write(plain));
        let averaged = write(plain.with("ema", 0.999));
        assert!(String::from_utf8_lossy(&averaged).contains("\"ema\":0.999,"), "{averaged:?}");
        let read: OptimizerSpec = postcard::from_bytes(&averaged).expect("what was written");
        assert_eq!((read.check(), read), (Ok(()), plain.with("ema", 0.999)));
        assert!(plain.with("ema", 1.0).check().expect_err("it never forgets").contains("ema is 1"));
    }
}
