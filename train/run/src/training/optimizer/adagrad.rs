//! Adagrad: a rate of its own for each parameter.

use super::{Optimizer, SettingSpec, StateSize, StepInput, Update, are_safe, own};

/// Duchi, Hazan, Singer: "Adaptive Subgradient Methods for Online Learning and Stochastic Optimization", 2011, with diagonal
/// matrices: `s += g^2`, then `p -= lr * g / (sqrt(s) + epsilon)`; `g` includes weight decay.
#[derive(Debug)]
pub(super) struct Adagrad;

impl Optimizer for Adagrad {
    fn settings(&self) -> &'static [SettingSpec] {
        const { &[SettingSpec::LEARNING_RATE.or(0.01), SettingSpec::EPSILON.or(1e-10), SettingSpec::WEIGHT_DECAY] }
    }

    /// The sum of squares.
    fn shape(&self) -> StateSize {
        StateSize { moments: 1, scalars: 0 }
    }

    fn begin(&self, context: &StepInput<'_>) -> Box<dyn Update> {
        let [learning_rate, epsilon, weight_decay] = context.values();
        Box::new(Step { scale: context.scale, learning_rate, epsilon, weight_decay })
    }
}

#[derive(Debug)]
struct Step {
    scale: f32,
    learning_rate: f32,
    epsilon: f32,
    weight_decay: f32,
}

impl Update for Step {
    fn run(&self, parameters: &mut [f32], gradients: &[f32], moments: &mut [&mut [f32]]) {
        let [squares] = own(moments);
        for ((parameter, gradient), squares) in parameters.iter_mut().zip(gradients).zip(squares.iter_mut()) {
            let gradient = self.scale * gradient + self.weight_decay * *parameter;
            *squares += gradient * gradient;
            *parameter -= self.learning_rate * gradient / (squares.sqrt() + self.epsilon);
        }
    }

    fn is_safe(&self, state: f64, gradient: f64) -> bool {
        let Self { scale, learning_rate, epsilon, weight_decay } = *self;
        let gradient = f64::from(scale.abs()) * gradient + f64::from(weight_decay) * state;
        let squares = state + gradient * gradient;
        let direction = f64::from(learning_rate) * gradient;
        are_safe(&[gradient, squares, direction, state + direction / f64::from(epsilon)])
    }
}

#[cfg(test)]
mod tests {
    use crate::training::optimizer::OptimizerSpec;
    use crate::training::optimizer::tests::{bits, first, follows, value};

    #[test]
    fn it_follows_the_textbook() {
        let plain = OptimizerSpec::named("adagrad").expect("it is in the list");
        let other = plain.with("learning_rate", 0.3).with("epsilon", 1e-3).with("weight_decay", 0.1);
        for (spec, pinned) in [
            (plain, [0x3f00_dec6, 0xbfa0_bd91, 0x4000_af7c, 0xbe06_1402]),
            (other, [0x3eed_492e, 0xbf92_bf19, 0x3fe3_3237, 0xbe47_298f]),
        ] {
            let [lr, epsilon, wd] = ["learning_rate", "epsilon", "weight_decay"].map(|name| value(spec, name));
            // As `torch.optim.Adagrad` documents it, without decay of the rate, from sums of 0.
            follows(spec, |this, g, _| {
                let g = g + wd * this.p;
                this.v += g * g;
                this.p -= lr * g / (this.v.sqrt() + epsilon);
            });
            // The same loop written in another language, rounding each operation to f32, gave these bits.
            assert_eq!(bits(spec), pinned);
        }
        // The first step has length lr, whatever the gradient; none is divided by nothing.
        for (gradient, expected) in [(250.0, 0.99), (-0.004, 1.01), (0.0, 1.0)] {
            let found: f32 = first(plain, 1.0, gradient);
            assert!((found - expected).abs() < 1e-6, "{found} instead of {expected}");
        }
    }
}
