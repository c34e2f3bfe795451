//! Lion: the sign of a momentum.

use super::{Optimizer, SettingSpec, StateSize, StepInput, Update, are_safe, own};

/// Chen et al.: "Symbolic Discovery of Optimization Algorithms", 2023, algorithm 2:
/// `p -= lr * (sign(b1 * m + (1 - b1) * g) + wd * p)`, then `m = b2 * m + (1 - b2) * g`. The sign of 0 is 0.
#[derive(Debug)]
pub(super) struct Lion;

impl Optimizer for Lion {
    fn settings(&self) -> &'static [SettingSpec] {
        const {
            &[
                SettingSpec::LEARNING_RATE.or(0.0003),
                SettingSpec::BETA1,
                SettingSpec::BETA2.or(0.99),
                SettingSpec::WEIGHT_DECAY,
            ]
        }
    }

    /// The momentum.
    fn shape(&self) -> StateSize {
        StateSize { moments: 1, scalars: 0 }
    }

    fn begin(&self, context: &StepInput<'_>) -> Box<dyn Update> {
        let [learning_rate, beta1, beta2, weight_decay] = context.values();
        let keep = 1.0 - learning_rate * weight_decay;
        Box::new(Step {
            scale: context.scale,
            learning_rate,
            beta1,
            rest1: 1.0 - beta1,
            beta2,
            rest2: 1.0 - beta2,
            keep,
        })
    }
}

#[derive(Debug)]
struct Step {
    scale: f32,
    learning_rate: f32,
    beta1: f32,
    rest1: f32,
    beta2: f32,
    rest2: f32,
    /// `1 - lr * wd`.
    keep: f32,
}

impl Update for Step {
    fn run(&self, parameters: &mut [f32], gradients: &[f32], moments: &mut [&mut [f32]]) {
        let [momentum] = own(moments);
        for ((parameter, gradient), momentum) in parameters.iter_mut().zip(gradients).zip(momentum.iter_mut()) {
            let gradient = self.scale * gradient;
            let direction = self.beta1 * *momentum + self.rest1 * gradient;
            // What is no number has no sign, but leaves its mark on the momentum.
            let sign = f32::from(i8::from(direction > 0.0) - i8::from(direction < 0.0));
            *parameter = *parameter * self.keep - self.learning_rate * sign;
            *momentum = self.beta2 * *momentum + self.rest2 * gradient;
        }
    }

    fn is_safe(&self, state: f64, gradient: f64) -> bool {
        let gradient = f64::from(self.scale.abs()) * gradient;
        let next = |keep: f32, rest: f32| f64::from(keep.abs()) * state + f64::from(rest) * gradient;
        let parameter = f64::from(self.keep.abs()) * state + f64::from(self.learning_rate);
        are_safe(&[gradient, next(self.beta1, self.rest1), next(self.beta2, self.rest2), parameter])
    }
}

#[cfg(test)]
mod tests {
    use crate::training::optimizer::OptimizerSpec;
    use crate::training::optimizer::tests::{bits, first, follows, value};

    #[test]
    fn it_follows_the_textbook() {
        let plain = OptimizerSpec::named("lion").expect("it is in the list").with("learning_rate", 0.01);
        let other = [("beta1", 0.75), ("beta2", 0.5), ("weight_decay", 0.3)];
        let other = other.into_iter().fold(plain, |spec, (name, value)| spec.with(name, value));
        for (spec, pinned) in [
            (plain, [0x3f05_1eb8, 0xbfa0_0000, 0x4001_47ae, 0xbe00_0000]),
            (other, [0x3eee_5247, 0xbf9d_d9cf, 0x3ffd_6fa6, 0xbe0f_b01b]),
        ] {
            let names = ["learning_rate", "beta1", "beta2", "weight_decay"];
            let [lr, b1, b2, wd] = names.map(|name| value(spec, name));
            // As the paper's algorithm 2.
            follows(spec, |this, g, _| {
                this.p -= lr * wd * this.p;
                let direction: f64 = b1 * this.m + (1.0 - b1) * g;
                this.p -= lr * direction.signum();
                this.m = b2 * this.m + (1.0 - b2) * g;
            });
            // The same loop written in another language, rounding each operation to f32, gave these bits.
            assert_eq!(bits(spec), pinned);
        }
        // A step has length lr, and none without a gradient.
        for (gradient, expected) in [(250.0, 0.99), (-0.004, 1.01), (0.0, 1.0)] {
            assert_eq!(first(plain, 1.0, gradient), expected);
        }
    }
}
