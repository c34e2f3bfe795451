//! Gradient descent with momentum, heavy-ball or Nesterov's.

use super::{Optimizer, SettingSpec, StateSize, StepInput, Update, are_safe, own};

/// `v = mu * v + g`, then `p -= lr * v`, or with Nesterov `p -= lr * (g + mu * v)`; `g` includes weight decay
/// (Sutskever et al. 2013, in PyTorch's form without dampening).
#[derive(Debug)]
pub(super) struct Momentum {
    /// Whether to look ahead along the velocity.
    pub(super) nesterov: bool,
}

impl Optimizer for Momentum {
    fn settings(&self) -> &'static [SettingSpec] {
        const { &[SettingSpec::LEARNING_RATE.or(0.05), SettingSpec::MOMENTUM, SettingSpec::WEIGHT_DECAY] }
    }

    fn shape(&self) -> StateSize {
        StateSize { moments: 1, scalars: 0 }
    }

    fn begin(&self, context: &StepInput<'_>) -> Box<dyn Update> {
        let [learning_rate, momentum, weight_decay] = context.values();
        let nesterov = self.nesterov;
        Box::new(Step { scale: context.scale, learning_rate, momentum, nesterov, weight_decay })
    }
}

#[derive(Debug)]
struct Step {
    scale: f32,
    learning_rate: f32,
    momentum: f32,
    nesterov: bool,
    weight_decay: f32,
}

impl Update for Step {
    fn run(&self, parameters: &mut [f32], gradients: &[f32], moments: &mut [&mut [f32]]) {
        let [velocity] = own(moments);
        for ((parameter, gradient), velocity) in parameters.iter_mut().zip(gradients).zip(velocity.iter_mut()) {
            let gradient = self.scale * gradient + self.weight_decay * *parameter;
            *velocity = self.momentum * *velocity + gradient;
            let direction = if self.nesterov { gradient + self.momentum * *velocity } else { *velocity };
            *parameter -= self.learning_rate * direction;
        }
    }

    fn is_safe(&self, state: f64, gradient: f64) -> bool {
        let factors = [self.scale, self.learning_rate, self.momentum, self.weight_decay];
        let [scale, rate, momentum, decay] = factors.map(|factor| f64::from(factor.abs()));
        let gradient = scale * gradient + decay * state;
        let velocity = momentum * state + gradient;
        let direction = gradient + (1.0 + momentum) * velocity;
        are_safe(&[gradient, velocity, direction, state + rate * direction])
    }
}

#[cfg(test)]
mod tests {
    use crate::training::optimizer::OptimizerSpec;
    use crate::training::optimizer::tests::{fingerprint, first, follows, value};

    #[test]
    fn it_follows_the_textbook() {
        let nesterov = OptimizerSpec::named("nesterov").expect("it is in the list");
        let other = nesterov.with("learning_rate", 0.02).with("momentum", 0.8).with("weight_decay", 0.1);
        for (spec, pinned) in [(OptimizerSpec::momentum(0.05), "e0ef0d62540eae76"), (other, "441fa16d98b9edfa")] {
            let [lr, mu, wd] = ["learning_rate", "momentum", "weight_decay"].map(|name| value(spec, name));
            follows(spec, |this, g, _| {
                let g = g + wd * this.p;
                this.m = mu * this.m + g;
                this.p -= lr * if spec.name() == "nesterov" { g + mu * this.m } else { this.m };
            });
            // The same loop written in another language, rounding each operation to f32, gave these bits.
            assert_eq!(fingerprint(spec), pinned);
        }
        assert_eq!(first(OptimizerSpec::momentum(0.5), 2.0, 3.0), 0.5);
        // Nesterov looks ahead: (1 + mu) * g.
        assert_eq!(first(nesterov.with("learning_rate", 0.5).with("momentum", 0.5), 2.0, 3.0), -0.25);
    }
}
