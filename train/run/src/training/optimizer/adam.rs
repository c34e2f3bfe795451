//! Adam, with weight decay as a part of the gradient or decoupled from it.

use super::{Optimizer, SettingSpec, StateSize, StepInput, Update, are_safe, own};

/// Kingma, Ba: "Adam: A Method for Stochastic Optimization", 2015, algorithm 1, with the penalty `wd * p` added to the
/// gradient; or Loshchilov, Hutter: "Decoupled Weight Decay Regularization", 2019, algorithm 2.
#[derive(Debug)]
pub(super) struct Adam {
    /// Whether weight decay is decoupled from the gradient, as AdamW's.
    pub(super) decoupled: bool,
}

impl Optimizer for Adam {
    fn settings(&self) -> &'static [SettingSpec] {
        const {
            &[
                SettingSpec::LEARNING_RATE.or(0.003),
                SettingSpec::BETA1,
                SettingSpec::BETA2,
                SettingSpec::EPSILON,
                SettingSpec::WEIGHT_DECAY,
            ]
        }
    }

    /// First and second moment; `beta1^t` and `beta2^t`.
    fn shape(&self) -> StateSize {
        StateSize { moments: 2, scalars: 2 }
    }

    fn advance(&self, values: &[f32], scalars: &[f64]) -> Vec<f64> {
        // The learning rate comes first, then the betas.
        scalars.iter().zip(&values[1..3]).map(|(power, beta)| power * f64::from(*beta)).collect()
    }

    fn begin(&self, context: &StepInput<'_>) -> Box<dyn Update> {
        Box::new(self.step(context))
    }
}

impl Adam {
    /// The constants of a step.
    pub(super) fn step(&self, context: &StepInput<'_>) -> Step {
        let [learning_rate, beta1, beta2, epsilon, weight_decay] = context.values();
        let powers = context.scalars;
        Step {
            scale: context.scale,
            beta1,
            rest1: 1.0 - beta1,
            beta2,
            rest2: 1.0 - beta2,
            step_size: (f64::from(learning_rate) / (1.0 - powers[0])) as f32,
            unbias2: (1.0 / (1.0 - powers[1])) as f32,
            epsilon,
            penalty: if self.decoupled { None } else { Some(weight_decay) },
            keep: if self.decoupled { 1.0 - learning_rate * weight_decay } else { 1.0 },
        }
    }
}

#[derive(Debug)]
pub(super) struct Step {
    pub(super) scale: f32,
    pub(super) beta1: f32,
    pub(super) rest1: f32,
    pub(super) beta2: f32,
    pub(super) rest2: f32,
    /// `lr / (1 - beta1^t)`.
    pub(super) step_size: f32,
    /// `1 / (1 - beta2^t)`.
    pub(super) unbias2: f32,
    pub(super) epsilon: f32,
    /// `wd`, if it is part of the gradient.
    pub(super) penalty: Option<f32>,
    /// `1 - lr * wd`, if it is not.
    pub(super) keep: f32,
}

impl Update for Step {
    fn run(&self, parameters: &mut [f32], gradients: &[f32], moments: &mut [&mut [f32]]) {
        let [first, second] = own(moments);
        let moments = first.iter_mut().zip(second.iter_mut());
        for ((parameter, gradient), (first, second)) in parameters.iter_mut().zip(gradients).zip(moments) {
            let gradient = match self.penalty {
                Some(decay) => self.scale * gradient + decay * *parameter,
                None => self.scale * gradient,
            };
            *first = self.beta1 * *first + self.rest1 * gradient;
            *second = self.beta2 * *second + self.rest2 * (gradient * gradient);
            let scale = (*second * self.unbias2).sqrt() + self.epsilon;
            *parameter = *parameter * self.keep - self.step_size * *first / scale;
        }
    }

    fn is_safe(&self, state: f64, gradient: f64) -> bool {
        let Self { scale, beta1, rest1, beta2, rest2, step_size, unbias2, epsilon, penalty, keep } = *self;
        let gradient = f64::from(scale.abs()) * gradient + f64::from(penalty.unwrap_or(0.0)) * state;
        let first = f64::from(beta1) * state + f64::from(rest1) * gradient;
        let second = f64::from(beta2) * state + f64::from(rest2) * (gradient * gradient);
        let direction = f64::from(step_size.abs()) * first;
        let parameter = f64::from(keep.abs()) * state + direction / f64::from(epsilon);
        are_safe(&[gradient * gradient, f64::from(unbias2.abs()) * second, second + direction, parameter])
    }
}

#[cfg(test)]
mod tests {
    use crate::training::optimizer::OptimizerSpec;
    use crate::training::optimizer::tests::{bits, fingerprint, first, follows, value};

    #[test]
    fn adamw_follows_the_textbook() {
        let other = [("beta1", 0.5), ("beta2", 0.9), ("epsilon", 1e-3), ("weight_decay", 0.3)];
        let other = other.into_iter().fold(OptimizerSpec::adam_w(0.1), |spec, (name, value)| spec.with(name, value));
        for (spec, pinned) in [(OptimizerSpec::adam_w(1e-2), "9b3470c2ef2b7e7b"), (other, "1a12ac2b85dac1e0")] {
            let names = ["learning_rate", "beta1", "beta2", "epsilon", "weight_decay"];
            let [lr, b1, b2, epsilon, wd] = names.map(|name| value(spec, name));
            follows(spec, |this, g, t| {
                this.p -= lr * wd * this.p;
                this.m = b1 * this.m + (1.0 - b1) * g;
                this.v = b2 * this.v + (1.0 - b2) * g * g;
                let (m, v) = (this.m / (1.0 - b1.powi(t)), this.v / (1.0 - b2.powi(t)));
                this.p -= lr * m / (v.sqrt() + epsilon);
            });
            // The same loop written in another language, rounding each operation to f32, gave these bits.
            assert_eq!(fingerprint(spec), pinned);
        }
        // The first step has length lr, whatever the gradient, after the decay of lr * wd.
        for (gradient, expected) in [(250.0, 1.0 - 0.001 - 0.1), (-0.004, 1.0 - 0.001 + 0.1), (0.0, 1.0 - 0.001)] {
            let found: f32 = first(OptimizerSpec::adam_w(0.1), 1.0, gradient);
            assert!((found - expected).abs() < 1e-6, "{found} instead of {expected}");
        }
    }

    #[test]
    fn adam_follows_the_textbook() {
        let plain = OptimizerSpec::named("adam").expect("it is in the list").with("learning_rate", 0.1);
        let other = [("beta1", 0.5), ("beta2", 0.9), ("epsilon", 1e-3), ("weight_decay", 0.3)];
        let other = other.into_iter().fold(plain, |spec, (name, value)| spec.with(name, value));
        for (spec, pinned) in [
            (plain, [0x3f16_7b12, 0xbf9f_49a4, 0x400f_9e17, 0xbef6_4ccd]),
            (other, [0x3e91_271d, 0xbf36_7911, 0x3f9e_0bc3, 0xbdae_2c95]),
        ] {
            let names = ["learning_rate", "beta1", "beta2", "epsilon", "weight_decay"];
            let [lr, b1, b2, epsilon, wd] = names.map(|name| value(spec, name));
            // As `torch.optim.Adam` documents it.
            follows(spec, |this, g, t| {
                let g = g + wd * this.p;
                this.m = b1 * this.m + (1.0 - b1) * g;
                this.v = b2 * this.v + (1.0 - b2) * g * g;
                let (m, v) = (this.m / (1.0 - b1.powi(t)), this.v / (1.0 - b2.powi(t)));
                this.p -= lr * m / (v.sqrt() + epsilon);
            });
            // The same loop written in another language, rounding each operation to f32, gave these bits.
            assert_eq!(bits(spec), pinned);
        }
        // The first step has length lr, whatever the gradient.
        for (gradient, expected) in [(250.0, 0.9), (-0.004, 1.1), (0.0, 1.0)] {
            let found: f32 = first(plain, 1.0, gradient);
            assert!((found - expected).abs() < 1e-6, "{found} instead of {expected}");
        }
    }
}
