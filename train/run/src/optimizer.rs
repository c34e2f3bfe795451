//! The update of the parameters, on flat vectors, bit for bit the same on every machine.
//!
//! All members hold the same averaged gradient and must reach the same parameters. So the update runs on the CPU, whatever
//! device computed the gradients, and uses only the operations that IEEE 754 defines to the last bit: addition,
//! subtraction, multiplication, division and square root, without fused multiply-add (Rust never contracts) and without
//! a math library (powers come from repeated multiplication). Each element is on its own, so the compiler may vectorize.

use std::sync::Arc;

use crate::spec::OptimizerSpec;

/// An optimizer's state beside the parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct Optimizer {
    spec: OptimizerSpec,
    /// Vectors as long as the parameters: momentum's velocity; AdamW's first and second moment. Copies of the state share them.
    moments: Vec<Arc<Vec<f32>>>,
    /// AdamW's `beta1^t` and `beta2^t`.
    scalars: Vec<f64>,
}

impl Optimizer {
    /// The optimizer before the first step, for `parameters` parameters.
    pub fn new(spec: OptimizerSpec, parameters: usize) -> Self {
        let moments = std::iter::repeat_with(|| Arc::new(vec![0.0; parameters])).take(spec.moments()).collect();
        Self { spec, moments, scalars: vec![1.0; spec.scalars()] }
    }

    /// The optimizer with the given state.
    ///
    /// # Panics
    /// If the state has not the number of vectors and scalars of `spec`.
    pub fn restore(spec: OptimizerSpec, moments: Vec<Arc<Vec<f32>>>, scalars: Vec<f64>) -> Self {
        assert_eq!(
            (moments.len(), scalars.len()),
            (spec.moments(), spec.scalars()),
            "the state is of another optimizer"
        );
        Self { spec, moments, scalars }
    }

    /// The vectors it keeps.
    pub fn moments(&self) -> &[Arc<Vec<f32>>] {
        &self.moments
    }

    /// The scalars it keeps.
    pub fn scalars(&self) -> &[f64] {
        &self.scalars
    }

    /// Updates `parameters` by one step along `gradients` times `scale`. A factor of 1 changes no bit, and the product is
    /// part of the one pass over the vectors in any case.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn step(&mut self, parameters: &mut [f32], gradients: &[f32], scale: f32) {
        assert_eq!(parameters.len(), gradients.len(), "one gradient per parameter");
        let update = self.next(scale);
        let mut moments: Vec<&mut Vec<f32>> = self.moments.iter_mut().map(Arc::make_mut).collect();
        update.run(parameters, gradients, &mut moments);
        self.advance();
    }

    /// The next step, along gradients times `scale`. After it, [`Self::advance`].
    pub(crate) fn next(&self, scale: f32) -> Update {
        match self.spec {
            OptimizerSpec::Sgd { learning_rate, weight_decay } => {
                Update::Sgd(Sgd { scale, learning_rate, weight_decay })
            }
            OptimizerSpec::Momentum { learning_rate, momentum, nesterov, weight_decay } => {
                Update::Momentum(Momentum { scale, learning_rate, momentum, nesterov, weight_decay })
            }
            OptimizerSpec::AdamW { learning_rate, beta1, beta2, epsilon, weight_decay } => {
                let powers = self.powers();
                Update::AdamW(AdamW {
                    scale,
                    beta1,
                    rest1: 1.0 - beta1,
                    beta2,
                    rest2: 1.0 - beta2,
                    step_size: (f64::from(learning_rate) / (1.0 - powers[0])) as f32,
                    unbias2: (1.0 / (1.0 - powers[1])) as f32,
                    epsilon,
                    keep: 1.0 - learning_rate * weight_decay,
                })
            }
        }
    }

    /// The step is taken: on to the one after it.
    pub(crate) fn advance(&mut self) {
        self.scalars = self.powers();
    }

    /// Exchanges its vectors for those that were computed elsewhere. What copies of the state still share stays with them, and
    /// an empty vector comes in its place.
    pub(crate) fn exchange(&mut self, moments: &mut [Vec<f32>]) {
        self.moments.iter_mut().zip(moments).for_each(|(ours, theirs)| exchange(ours, theirs));
    }

    /// The scalars after the next step.
    fn powers(&self) -> Vec<f64> {
        match self.spec {
            OptimizerSpec::AdamW { beta1, beta2, .. } => {
                vec![self.scalars[0] * f64::from(beta1), self.scalars[1] * f64::from(beta2)]
            }
            OptimizerSpec::Sgd { .. } | OptimizerSpec::Momentum { .. } => Vec::new(),
        }
    }
}

/// Exchanges a vector that copies of the state may share for one that is nobody else's.
pub(crate) fn exchange(shared: &mut Arc<Vec<f32>>, own: &mut Vec<f32>) {
    let old = std::mem::replace(shared, Arc::new(std::mem::take(own)));
    *own = Arc::into_inner(old).unwrap_or_default();
}

/// What one step does to each element, whichever are updated first.
#[derive(Debug)]
pub(crate) enum Update {
    Sgd(Sgd),
    Momentum(Momentum),
    AdamW(AdamW),
}

impl Update {
    /// Updates `parameters` and their `moments`, which may be longer.
    pub(crate) fn run<M: AsMut<[f32]>>(&self, parameters: &mut [f32], gradients: &[f32], moments: &mut [M]) {
        let length = parameters.len();
        match (self, moments) {
            (Self::Sgd(update), []) => update.step(parameters, gradients),
            (Self::Momentum(update), [velocity]) => {
                update.step(parameters, gradients, &mut velocity.as_mut()[..length])
            }
            (Self::AdamW(update), [first, second]) => {
                update.step(parameters, gradients, &mut first.as_mut()[..length], &mut second.as_mut()[..length]);
            }
            _ => unreachable!("invariant: an optimizer has its own number of moments"),
        }
    }
}

/// SGD's constants.
#[derive(Debug)]
pub(crate) struct Sgd {
    /// What gradients are multiplied by first.
    scale: f32,
    learning_rate: f32,
    weight_decay: f32,
}

impl Sgd {
    /// `p -= lr * (g + wd * p)`.
    fn step(&self, parameters: &mut [f32], gradients: &[f32]) {
        for (parameter, gradient) in parameters.iter_mut().zip(gradients) {
            *parameter -= self.learning_rate * (self.scale * gradient + self.weight_decay * *parameter);
        }
    }
}

/// Momentum's constants.
#[derive(Debug)]
pub(crate) struct Momentum {
    /// What gradients are multiplied by first.
    scale: f32,
    learning_rate: f32,
    momentum: f32,
    nesterov: bool,
    weight_decay: f32,
}

impl Momentum {
    /// `v = mu * v + g`, then `p -= lr * v`, or with Nesterov `p -= lr * (g + mu * v)`; `g` includes weight decay
    /// (Sutskever et al. 2013, in PyTorch's form without dampening).
    fn step(&self, parameters: &mut [f32], gradients: &[f32], velocity: &mut [f32]) {
        for ((parameter, gradient), velocity) in parameters.iter_mut().zip(gradients).zip(velocity) {
            let gradient = self.scale * gradient + self.weight_decay * *parameter;
            *velocity = self.momentum * *velocity + gradient;
            let direction = if self.nesterov { gradient + self.momentum * *velocity } else { *velocity };
            *parameter -= self.learning_rate * direction;
        }
    }
}

/// AdamW's constants of one step (Loshchilov, Hutter: "Decoupled Weight Decay Regularization", 2019, algorithm 2).
#[derive(Debug)]
pub(crate) struct AdamW {
    /// What gradients are multiplied by first.
    scale: f32,
    beta1: f32,
    rest1: f32,
    beta2: f32,
    rest2: f32,
    /// `lr / (1 - beta1^t)`.
    step_size: f32,
    /// `1 / (1 - beta2^t)`.
    unbias2: f32,
    epsilon: f32,
    /// `1 - lr * wd`.
    keep: f32,
}

impl AdamW {
    fn step(&self, parameters: &mut [f32], gradients: &[f32], first: &mut [f32], second: &mut [f32]) {
        for (((parameter, gradient), first), second) in parameters.iter_mut().zip(gradients).zip(first).zip(second) {
            let gradient = self.scale * gradient;
            *first = self.beta1 * *first + self.rest1 * gradient;
            *second = self.beta2 * *second + self.rest2 * (gradient * gradient);
            let scale = (*second * self.unbias2).sqrt() + self.epsilon;
            *parameter = *parameter * self.keep - self.step_size * *first / scale;
        }
    }
}

#[cfg(test)]
mod tests {
    use starling_topology::Generator;

    use super::*;

    const PARAMETERS: usize = 1003;
    const STEPS: usize = 40;

    fn specs() -> [OptimizerSpec; 6] {
        [
            OptimizerSpec::sgd(0.1),
            OptimizerSpec::Sgd { learning_rate: 0.05, weight_decay: 0.01 },
            OptimizerSpec::momentum(0.05),
            OptimizerSpec::Momentum { learning_rate: 0.02, momentum: 0.8, nesterov: true, weight_decay: 0.1 },
            OptimizerSpec::adam_w(1e-2),
            OptimizerSpec::AdamW { learning_rate: 0.1, beta1: 0.5, beta2: 0.9, epsilon: 1e-3, weight_decay: 0.3 },
        ]
    }

    fn numbers(seed: u64, limit: f64) -> Vec<f32> {
        let mut generator = Generator::new(seed);
        (0..PARAMETERS).map(|_| crate::initial::symmetric(&mut generator, limit)).collect()
    }

    /// The textbook, one parameter at a time, in f64, with the powers computed by `powi`.
    fn reference(spec: OptimizerSpec, start: &[f32], gradients: &[Vec<f32>]) -> Vec<f64> {
        let one = |at: usize| {
            let (mut p, mut m, mut v) = (f64::from(start[at]), 0.0, 0.0);
            for (t, gradients) in (1_i32..).zip(gradients) {
                let g = f64::from(gradients[at]);
                match spec {
                    OptimizerSpec::Sgd { learning_rate, weight_decay } => {
                        p -= f64::from(learning_rate) * (g + f64::from(weight_decay) * p);
                    }
                    OptimizerSpec::Momentum { learning_rate, momentum, nesterov, weight_decay } => {
                        let (lr, mu) = (f64::from(learning_rate), f64::from(momentum));
                        let g = g + f64::from(weight_decay) * p;
                        m = mu * m + g;
                        p -= lr * if nesterov { g + mu * m } else { m };
                    }
                    OptimizerSpec::AdamW { learning_rate, beta1, beta2, epsilon, weight_decay } => {
                        let (lr, b1, b2) = (f64::from(learning_rate), f64::from(beta1), f64::from(beta2));
                        p -= lr * f64::from(weight_decay) * p;
                        m = b1 * m + (1.0 - b1) * g;
                        v = b2 * v + (1.0 - b2) * g * g;
                        let (unbiased_m, unbiased_v) = (m / (1.0 - b1.powi(t)), v / (1.0 - b2.powi(t)));
                        p -= lr * unbiased_m / (unbiased_v.sqrt() + f64::from(epsilon));
                    }
                }
            }
            p
        };
        (0..start.len()).map(one).collect()
    }

    #[test]
    fn optimizers_follow_the_textbook() {
        for spec in specs() {
            let start = numbers(1, 1.0);
            let gradients: Vec<_> = (0..STEPS as u64).map(|step| numbers(100 + step, 2.0)).collect();
            let mut parameters = start.clone();
            let mut optimizer = Optimizer::new(spec, PARAMETERS);
            for gradients in &gradients {
                optimizer.step(&mut parameters, gradients, 1.0);
            }
            for (at, (ours, theirs)) in parameters.iter().zip(reference(spec, &start, &gradients)).enumerate() {
                let difference = (f64::from(*ours) - theirs).abs();
                assert!(difference < 2e-5, "{spec:?}, parameter {at}: {ours} instead of {theirs}");
            }
        }
    }

    #[test]
    fn the_first_step_has_its_closed_form() {
        let check = |spec, parameter: f32, gradient: f32, expected: f32| {
            let mut parameters = [parameter];
            Optimizer::new(spec, 1).step(&mut parameters, &[gradient], 1.0);
            assert!((parameters[0] - expected).abs() < 1e-6, "{spec:?}: {} instead of {expected}", parameters[0]);
        };
        check(OptimizerSpec::sgd(0.5), 2.0, 3.0, 0.5);
        check(OptimizerSpec::Sgd { learning_rate: 0.5, weight_decay: 0.5 }, 2.0, 3.0, 0.0);
        check(OptimizerSpec::momentum(0.5), 2.0, 3.0, 0.5);
        // Nesterov looks ahead: (1 + mu) * g.
        let nesterov = OptimizerSpec::Momentum { learning_rate: 0.5, momentum: 0.5, nesterov: true, weight_decay: 0.0 };
        check(nesterov, 2.0, 3.0, -0.25);
        // AdamW's first step has length lr, whatever the gradient, after the decay of lr * wd.
        check(OptimizerSpec::adam_w(0.1), 1.0, 250.0, 1.0 - 0.001 - 0.1);
        check(OptimizerSpec::adam_w(0.1), 1.0, -0.004, 1.0 - 0.001 + 0.1);
        check(OptimizerSpec::adam_w(0.1), 1.0, 0.0, 1.0 - 0.001);
    }

    #[test]
    fn equal_inputs_give_equal_bits_wherever_an_element_lies() {
        for spec in specs() {
            let run = |parameters: &[f32], gradients: &[f32]| {
                let mut parameters = parameters.to_vec();
                let mut optimizer = Optimizer::new(spec, parameters.len());
                for _ in 0..STEPS {
                    optimizer.step(&mut parameters, gradients, 1.0);
                }
                parameters.iter().map(|parameter| parameter.to_bits()).collect::<Vec<_>>()
            };
            let (parameters, gradients) = (numbers(5, 1.0), numbers(6, 1.0));
            let whole = run(&parameters, &gradients);
            // A shifted start moves elements between the vectorized body and the rest of the loop.
            for shift in [1, 2, 3, 5, 1000] {
                assert_eq!(
                    run(&parameters[shift..], &gradients[shift..]),
                    whole[shift..],
                    "{spec:?} shifted by {shift}"
                );
            }
        }
    }

    #[test]
    fn a_scaled_gradient_is_the_product() {
        for spec in specs() {
            let (mut scaled, mut multiplied) = (numbers(8, 1.0), numbers(8, 1.0));
            let (mut ours, mut theirs) = (Optimizer::new(spec, PARAMETERS), Optimizer::new(spec, PARAMETERS));
            for step in 0..STEPS as u64 {
                let gradients = numbers(300 + step, 1.0);
                ours.step(&mut scaled, &gradients, 64.0 / 37.0);
                let gradients: Vec<f32> = gradients.iter().map(|gradient| 64.0 / 37.0 * gradient).collect();
                theirs.step(&mut multiplied, &gradients, 1.0);
            }
            assert_eq!((scaled, ours), (multiplied, theirs));
        }
    }

    #[test]
    fn the_bits_are_pinned() {
        // Another compiler, release or processor must come to the same: members may differ in all three. The same loop
        // written in another language, rounding each operation to f32, gave these bits.
        for (spec, expected) in specs().into_iter().zip(PINNED) {
            let mut parameters = numbers(7, 1.0);
            let mut optimizer = Optimizer::new(spec, PARAMETERS);
            for step in 0..STEPS as u64 {
                optimizer.step(&mut parameters, &numbers(200 + step, 1.0), 1.0);
            }
            assert_eq!(&crate::initial::digest(&parameters).to_string()[..16], expected, "{spec:?}");
        }
    }

    const PINNED: [&str; 6] = [
        "a4a42c92a070dfa1",
        "e6a4ee43e68f7e79",
        "e0ef0d62540eae76",
        "441fa16d98b9edfa",
        "9b3470c2ef2b7e7b",
        "1a12ac2b85dac1e0",
    ];
}
