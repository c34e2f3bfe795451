//! Plain stochastic gradient descent.

use super::{Optimizer, SettingSpec, StateSize, StepInput, Update, are_safe, own};

/// `p -= lr * (g + wd * p)` (Robbins, Monro 1951).
#[derive(Debug)]
pub(super) struct Sgd;

impl Optimizer for Sgd {
    fn settings(&self) -> &'static [SettingSpec] {
        const { &[SettingSpec::LEARNING_RATE, SettingSpec::WEIGHT_DECAY] }
    }

    fn shape(&self) -> StateSize {
        StateSize { moments: 0, scalars: 0 }
    }

    fn begin(&self, context: &StepInput<'_>) -> Box<dyn Update> {
        let [learning_rate, weight_decay] = context.values();
        Box::new(Step { scale: context.scale, learning_rate, weight_decay })
    }
}

#[derive(Debug)]
struct Step {
    scale: f32,
    learning_rate: f32,
    weight_decay: f32,
}

impl Update for Step {
    fn run(&self, parameters: &mut [f32], gradients: &[f32], moments: &mut [&mut [f32]]) {
        let [] = own(moments);
        for (parameter, gradient) in parameters.iter_mut().zip(gradients) {
            *parameter -= self.learning_rate * (self.scale * gradient + self.weight_decay * *parameter);
        }
    }

    fn is_safe(&self, state: f64, gradient: f64) -> bool {
        let factors = [self.scale, self.learning_rate, self.weight_decay];
        let [scale, rate, decay] = factors.map(|factor| f64::from(factor.abs()));
        let gradient = scale * gradient + decay * state;
        are_safe(&[gradient, state + rate * gradient])
    }
}

#[cfg(test)]
mod tests {
    use crate::training::optimizer::OptimizerSpec;
    use crate::training::optimizer::tests::{fingerprint, first, follows, value};

    #[test]
    fn it_follows_the_textbook() {
        let plain = OptimizerSpec::sgd(0.1);
        let decaying = OptimizerSpec::sgd(0.05).with("weight_decay", 0.01);
        for (spec, pinned) in [(plain, "a4a42c92a070dfa1"), (decaying, "e6a4ee43e68f7e79")] {
            let [lr, wd] = ["learning_rate", "weight_decay"].map(|name| value(spec, name));
            follows(spec, |this, g, _| this.p -= lr * (g + wd * this.p));
            // The same loop written in another language, rounding each operation to f32, gave these bits.
            assert_eq!(fingerprint(spec), pinned);
        }
        assert_eq!(first(OptimizerSpec::sgd(0.5), 2.0, 3.0), 0.5);
        assert_eq!(first(OptimizerSpec::sgd(0.5).with("weight_decay", 0.5), 2.0, 3.0), 0.0);
    }
}
