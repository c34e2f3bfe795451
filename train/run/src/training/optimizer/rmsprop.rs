//! RMSprop: a rate for each parameter, by a moving average of its squared gradients.

use super::{Optimizer, SettingSpec, StateSize, StepInput, Update, are_safe, own};

/// Tieleman, Hinton: "Lecture 6.5 - RMSprop", Neural Networks for Machine Learning, 2012, neither centered nor with momentum:
/// `s = beta2 * s + (1 - beta2) * g^2`, then `p -= lr * g / (sqrt(s) + epsilon)`; `g` includes weight decay.
#[derive(Debug)]
pub(super) struct RmsProp;

impl Optimizer for RmsProp {
    fn settings(&self) -> &'static [SettingSpec] {
        const {
            &[
                SettingSpec::LEARNING_RATE.or(0.001),
                SettingSpec::BETA2.or(0.99),
                SettingSpec::EPSILON,
                SettingSpec::WEIGHT_DECAY,
            ]
        }
    }

    /// The average of the squares.
    fn shape(&self) -> StateSize {
        StateSize { moments: 1, scalars: 0 }
    }

    fn begin(&self, context: &StepInput<'_>) -> Box<dyn Update> {
        let [learning_rate, beta2, epsilon, weight_decay] = context.values();
        Box::new(Step { scale: context.scale, learning_rate, beta2, rest2: 1.0 - beta2, epsilon, weight_decay })
    }
}

#[derive(Debug)]
struct Step {
    scale: f32,
    learning_rate: f32,
    beta2: f32,
    rest2: f32,
    epsilon: f32,
    weight_decay: f32,
}

impl Update for Step {
    fn run(&self, parameters: &mut [f32], gradients: &[f32], moments: &mut [&mut [f32]]) {
        let [squares] = own(moments);
        for ((parameter, gradient), squares) in parameters.iter_mut().zip(gradients).zip(squares.iter_mut()) {
            let gradient = self.scale * gradient + self.weight_decay * *parameter;
            *squares = self.beta2 * *squares + self.rest2 * (gradient * gradient);
            *parameter -= self.learning_rate * gradient / (squares.sqrt() + self.epsilon);
        }
    }

    fn is_safe(&self, state: f64, gradient: f64) -> bool {
        let Self { scale, learning_rate, beta2, rest2, epsilon, weight_decay } = *self;
        let gradient = f64::from(scale.abs()) * gradient + f64::from(weight_decay) * state;
        let squares = f64::from(beta2) * state + f64::from(rest2) * (gradient * gradient);
        let direction = f64::from(learning_rate) * gradient;
        are_safe(&[gradient * gradient, squares, direction, state + direction / f64::from(epsilon)])
    }
}

#[cfg(test)]
mod tests {
    use crate::training::optimizer::OptimizerSpec;
    use crate::training::optimizer::tests::{bits, first, follows, value};

    #[test]
    fn it_follows_the_textbook() {
        let plain = OptimizerSpec::named("rmsprop").expect("it is in the list");
        let other = [("learning_rate", 0.1), ("beta2", 0.9), ("epsilon", 1e-3), ("weight_decay", 0.3)];
        let other = other.into_iter().fold(plain, |spec, (name, value)| spec.with(name, value));
        for (spec, pinned) in [(plain, PLAIN), (other, OTHER)] {
            let names = ["learning_rate", "beta2", "epsilon", "weight_decay"];
            let [lr, b2, epsilon, wd] = names.map(|name| value(spec, name));
            // As `torch.optim.RMSprop` documents it; its `alpha` is `beta2`.
            follows(spec, |this, g, _| {
                let g = g + wd * this.p;
                this.v = b2 * this.v + (1.0 - b2) * g * g;
                this.p -= lr * g / (this.v.sqrt() + epsilon);
            });
            // The same loop written in another language, rounding each operation to f32, gave these bits.
            assert_eq!(bits(spec), pinned);
        }
        // The first step has length lr / sqrt(1 - beta2), whatever the gradient; none is divided by nothing.
        for (gradient, expected) in [(250.0, 0.99), (-0.004, 1.01), (0.0, 1.0)] {
            let found: f32 = first(plain, 1.0, gradient);
            assert!((found - expected).abs() < 1e-6, "{found} instead of {expected}");
        }
    }

    const PLAIN: [u32; 4] = [0x3f00_df80, 0xbfa0_c0ee, 0x4000_afca, 0xbe05_f28c];
    const OTHER: [u32; 4] = [0x3e89_b770, 0xbef2_4e75, 0x3f53_4c30, 0x3c9b_57e8];
}
