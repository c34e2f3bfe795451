//! AMSGrad: Adam whose second moment never falls.

use super::adam::{self, Adam};
use super::{Optimizer, SettingSpec, StateSize, StepInput, Update, are_safe, own};

/// But for the moment that never falls, it is AdamW.
const ADAM_W: Adam = Adam { decoupled: true };

/// Reddi, Kale, Kumar: "On the Convergence of Adam and Beyond", 2018, algorithm 2, with Adam's corrections for the first steps and
/// decoupled weight decay, as `torch.optim.AdamW` has it: the largest second moment until now takes the place of the present one.
#[derive(Debug)]
pub(super) struct AmsGrad;

impl Optimizer for AmsGrad {
    fn settings(&self) -> &'static [SettingSpec] {
        ADAM_W.settings()
    }

    /// First and second moment, and the largest second one; `beta1^t` and `beta2^t`.
    fn shape(&self) -> StateSize {
        StateSize { moments: 3, scalars: 2 }
    }

    fn advance(&self, values: &[f32], scalars: &[f64]) -> Vec<f64> {
        ADAM_W.advance(values, scalars)
    }

    fn begin(&self, context: &StepInput<'_>) -> Box<dyn Update> {
        Box::new(Step(ADAM_W.step(context)))
    }
}

#[derive(Debug)]
struct Step(adam::Step);

impl Update for Step {
    fn run(&self, parameters: &mut [f32], gradients: &[f32], moments: &mut [&mut [f32]]) {
        let adam::Step { scale, beta1, rest1, beta2, rest2, step_size, unbias2, epsilon, keep, .. } = self.0;
        let [first, second, largest] = own(moments);
        let moments = first.iter_mut().zip(second.iter_mut()).zip(largest.iter_mut());
        for ((parameter, gradient), ((first, second), largest)) in parameters.iter_mut().zip(gradients).zip(moments) {
            let gradient = scale * gradient;
            *first = beta1 * *first + rest1 * gradient;
            *second = beta2 * *second + rest2 * (gradient * gradient);
            // Not `f32::max`, which leaves open which zero it takes.
            *largest = if *second > *largest { *second } else { *largest };
            let root = (*largest * unbias2).sqrt() + epsilon;
            *parameter = *parameter * keep - step_size * *first / root;
        }
    }

    fn is_safe(&self, state: f64, gradient: f64) -> bool {
        let adam::Step { scale, beta1, rest1, beta2, rest2, step_size, unbias2, epsilon, keep, .. } = self.0;
        let gradient = f64::from(scale.abs()) * gradient;
        let first = f64::from(beta1) * state + f64::from(rest1) * gradient;
        let second = f64::from(beta2) * state + f64::from(rest2) * (gradient * gradient);
        let largest = second.max(state);
        let direction = f64::from(step_size.abs()) * first;
        let parameter = f64::from(keep.abs()) * state + direction / f64::from(epsilon);
        are_safe(&[gradient * gradient, f64::from(unbias2.abs()) * largest, largest + direction, parameter])
    }
}

#[cfg(test)]
mod tests {
    use crate::training::optimizer::OptimizerSpec;
    use crate::training::optimizer::tests::{bits, first, follows, value};

    #[test]
    fn it_follows_the_textbook() {
        let plain = OptimizerSpec::named("amsgrad").expect("it is in the list").with("learning_rate", 0.1);
        let other = [("beta1", 0.5), ("beta2", 0.6), ("epsilon", 1e-3), ("weight_decay", 0.3)];
        let other = other.into_iter().fold(plain, |spec, (name, value)| spec.with(name, value));
        for (spec, pinned) in [(plain, PLAIN), (other, OTHER)] {
            let names = ["learning_rate", "beta1", "beta2", "epsilon", "weight_decay"];
            let [lr, b1, b2, epsilon, wd] = names.map(|name| value(spec, name));
            // As `torch.optim.AdamW` documents it with `amsgrad`.
            follows(spec, |this, g, t| {
                this.p -= lr * wd * this.p;
                this.m = b1 * this.m + (1.0 - b1) * g;
                this.v = b2 * this.v + (1.0 - b2) * g * g;
                this.largest = this.largest.max(this.v);
                let (m, v) = (this.m / (1.0 - b1.powi(t)), this.largest / (1.0 - b2.powi(t)));
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

    const PLAIN: [u32; 4] = [0x3f16_78e0, 0xbf9f_4a57, 0x400f_9dc6, 0xbef6_4ccd];
    const OTHER: [u32; 4] = [0x3ec3_48b6, 0xbf80_3539, 0x3fd0_8aad, 0xbe29_029c];
}
