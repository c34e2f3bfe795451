//! The update of the parameters, on flat vectors, bit for bit the same on every machine.
//!
//! All members hold the same averaged gradient and must reach the same parameters. So the update runs on the CPU, whatever
//! device computed the gradients, and uses only the operations that IEEE 754 defines to the last bit: addition,
//! subtraction, multiplication, division and square root, without fused multiply-add (Rust never contracts) and without
//! a math library (powers come from repeated multiplication). Each element is on its own, so the compiler may vectorize.

use std::ops::Range;
use std::sync::Arc;

use starling_collective::kernel;
use thiserror::Error;

use crate::spec::OptimizerSpec;

/// Elements that are updated at a time: with their moments they fit the second-level cache, and are many enough to be
/// written past the caches.
pub(crate) const BLOCK: usize = 1 << 13;

/// No number that is surely not larger than this before it is rounded becomes infinite.
const SAFE: f64 = 1e38;

/// A step after which a number of the state would not be finite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("number {at} of the {what} would not be finite")]
pub struct Unfit {
    /// `mean gradient`, if it is not finite itself, `next parameters` or `next optimizer moments`.
    pub what: &'static str,
    /// The position of the parameter.
    pub at: usize,
}

/// An optimizer's state beside the parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct Optimizer {
    spec: OptimizerSpec,
    /// Vectors as long as the parameters: momentum's velocity; AdamW's first and second moment. Copies of the state share them.
    moments: Vec<Arc<Vec<f32>>>,
    /// AdamW's `beta1^t` and `beta2^t`.
    scalars: Vec<f64>,
    /// The largest magnitude among the parameters and moments after its newest step; infinite if it has taken none.
    largest: f32,
}

impl Optimizer {
    /// The optimizer before the first step, for `parameters` parameters.
    pub fn new(spec: OptimizerSpec, parameters: usize) -> Self {
        let moments = std::iter::repeat_with(|| Arc::new(vec![0.0; parameters])).take(spec.moments()).collect();
        Self { spec, moments, scalars: vec![1.0; spec.scalars()], largest: f32::INFINITY }
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
        Self { spec, moments, scalars, largest: f32::INFINITY }
    }

    /// The vectors it keeps.
    pub fn moments(&self) -> &[Arc<Vec<f32>>] {
        &self.moments
    }

    /// The scalars it keeps.
    pub fn scalars(&self) -> &[f64] {
        &self.scalars
    }

    /// Updates `parameters` by one step along `gradients` times `scale`, if all numbers of the state stay finite. A factor of
    /// 1 changes no bit, and the product is part of the one pass over the vectors in any case.
    ///
    /// Most often the largest numbers before it show that none can leave the finite ones. Where they don't, the step is tried
    /// out first, block by block.
    ///
    /// # Errors
    /// [`Unfit`], if a number would not be finite; nothing has changed then. It depends on nothing but the state, the
    /// gradients and the scale, so that all members come to the same.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn step(&mut self, parameters: &mut [f32], gradients: &[f32], scale: f32) -> Result<(), Unfit> {
        assert_eq!(parameters.len(), gradients.len(), "one gradient per parameter");
        let update = self.next(scale);
        if !update.is_safe(self.largest.into(), kernel::magnitude(gradients).into()) {
            self.try_out(&update, parameters, gradients)?;
        }
        let mut moments: Vec<&mut Vec<f32>> = self.moments.iter_mut().map(Arc::make_mut).collect();
        let mut largest = 0_f32;
        let blocks = parameters.chunks_mut(BLOCK).zip(gradients.chunks(BLOCK));
        for (index, (parameters, gradients)) in blocks.enumerate() {
            let block = index * BLOCK..index * BLOCK + gradients.len();
            let mut moments: Vec<&mut [f32]> = moments.iter_mut().map(|moment| &mut moment[block.clone()]).collect();
            update.run(parameters, gradients, &mut moments);
            // While they are in the cache.
            let magnitudes = moments.iter().map(|moment| kernel::magnitude(moment));
            largest = magnitudes.fold(largest.max(kernel::magnitude(parameters)), f32::max);
        }
        assert!(largest.is_finite(), "invariant: what is written was shown to be finite");
        self.largest = largest;
        self.advance();
        Ok(())
    }

    fn try_out(&self, update: &Update, parameters: &[f32], gradients: &[f32]) -> Result<(), Unfit> {
        let mut found = Ok(());
        self.beside(update, parameters, 0..gradients.len(), gradients, |range, parameters, moments| {
            if found.is_err() {
                return;
            }
            let first = |numbers: &[f32]| kernel::first_non_finite(numbers);
            let moment = moments.iter().find_map(|moment| first(&moment[..range.len()]));
            let place = moment.map(|at| ("next optimizer moments", at));
            if let Some((what, at)) = place.or_else(|| first(parameters).map(|at| ("next parameters", at))) {
                let at = range.start + at;
                found = Err(Unfit { what: if gradients[at].is_finite() { what } else { "mean gradient" }, at });
            }
        });
        found
    }

    /// Hands over what `update` makes of the elements of `range`, block by block: their positions, and their parameters and
    /// moments, which may be longer. The state stays as it is.
    pub(crate) fn beside(
        &self,
        update: &Update,
        parameters: &[f32],
        range: Range<usize>,
        gradients: &[f32],
        mut take: impl FnMut(Range<usize>, &[f32], &[Vec<f32>]),
    ) {
        let mut updated = vec![0.0; BLOCK.min(range.len())];
        let mut moments = vec![updated.clone(); self.moments.len()];
        for (index, gradients) in gradients.chunks(BLOCK).enumerate() {
            let at = range.start + index * BLOCK;
            let block = at..at + gradients.len();
            let updated = &mut updated[..gradients.len()];
            updated.copy_from_slice(&parameters[block.clone()]);
            for (moment, committed) in moments.iter_mut().zip(&self.moments) {
                moment[..gradients.len()].copy_from_slice(&committed[block.clone()]);
            }
            update.run(updated, gradients, &mut moments);
            take(block, updated, &moments);
        }
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

    /// Exchanges its vectors for those that were computed elsewhere; `largest` is the largest magnitude among them and the
    /// parameters. What copies of the state still share stays with them, and an empty vector comes in its place.
    pub(crate) fn exchange(&mut self, moments: &mut [Vec<f32>], largest: f32) {
        self.largest = largest;
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
    /// Whether no number of the state or on the way to it can leave the finite ones, if no parameter and moment before it is
    /// larger than `state`, no gradient larger than `gradient`, and no second moment negative: one that a step has made is not.
    fn is_safe(&self, state: f64, gradient: f64) -> bool {
        let most = match self {
            Self::Sgd(Sgd { scale, learning_rate, weight_decay }) => {
                let [scale, rate, decay] = [scale, learning_rate, weight_decay].map(|factor| f64::from(factor.abs()));
                let gradient = scale * gradient + decay * state;
                [gradient, state + rate * gradient, 0.0, 0.0]
            }
            Self::Momentum(Momentum { scale, learning_rate, momentum, nesterov: _, weight_decay }) => {
                let factors = [scale, learning_rate, momentum, weight_decay];
                let [scale, rate, momentum, decay] = factors.map(|factor| f64::from(factor.abs()));
                let gradient = scale * gradient + decay * state;
                let velocity = momentum * state + gradient;
                let direction = gradient + (1.0 + momentum) * velocity;
                [gradient, velocity, direction, state + rate * direction]
            }
            Self::AdamW(AdamW { scale, beta1, rest1, beta2, rest2, step_size, unbias2, epsilon, keep }) => {
                let gradient = f64::from(scale.abs()) * gradient;
                let first = f64::from(*beta1) * state + f64::from(*rest1) * gradient;
                let second = f64::from(*beta2) * state + f64::from(*rest2) * (gradient * gradient);
                let direction = f64::from(step_size.abs()) * first;
                let parameter = f64::from(keep.abs()) * state + direction / f64::from(*epsilon);
                [gradient * gradient, f64::from(unbias2.abs()) * second, second + direction, parameter]
            }
        };
        most.iter().all(|number| *number <= SAFE)
    }

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
                optimizer.step(&mut parameters, gradients, 1.0).expect("finite");
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
            Optimizer::new(spec, 1).step(&mut parameters, &[gradient], 1.0).expect("finite");
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
                    optimizer.step(&mut parameters, gradients, 1.0).expect("finite");
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
                ours.step(&mut scaled, &gradients, 64.0 / 37.0).expect("finite");
                let gradients: Vec<f32> = gradients.iter().map(|gradient| 64.0 / 37.0 * gradient).collect();
                theirs.step(&mut multiplied, &gradients, 1.0).expect("finite");
            }
            assert_eq!((scaled, ours), (multiplied, theirs));
        }
    }

    /// Whatever the numbers: either all that comes of a step is finite, or nothing has changed. What is said to be safe is.
    #[test]
    fn a_step_leaves_the_finite_numbers_or_the_state_alone() {
        let mut generator = Generator::new(17);
        let (mut taken, mut refused, mut safe) = (0, 0, 0);
        for round in 0..3_000 {
            let spec = specs()[round % specs().len()];
            let mut parameters = numbers(round as u64, 1.0);
            let mut optimizer = Optimizer::new(spec, PARAMETERS);
            for step in 0..4 {
                // From ordinary to far beyond what can be squared, now and then in one element alone.
                let size = 10_f64.powi(generator.below(39) as i32).min(f64::from(f32::MAX));
                let mut gradients = numbers(1_000 + step, if generator.below(2) == 0 { size } else { 1.0 });
                gradients[generator.below(PARAMETERS as u32) as usize] = size as f32;
                if generator.below(50) == 0 {
                    gradients[7] = [f32::NAN, f32::INFINITY][generator.below(2) as usize];
                }
                let scale = [1.0, 64.0][generator.below(2) as usize];
                let before = (parameters.clone(), optimizer.clone());
                let (largest, gradient) = (optimizer.largest.into(), kernel::magnitude(&gradients).into());
                let is_safe = optimizer.next(scale).is_safe(largest, gradient);
                match optimizer.step(&mut parameters, &gradients, scale) {
                    Ok(()) => {
                        let moments = optimizer.moments.iter().map(|moment| moment.as_slice());
                        let all = moments.chain([parameters.as_slice()]).map(kernel::magnitude);
                        assert_eq!(all.fold(0.0, f32::max), optimizer.largest);
                        taken += 1;
                    }
                    Err(Unfit { at, .. }) => {
                        assert_eq!((&parameters, &optimizer), (&before.0, &before.1));
                        let gradient = gradients[at].abs();
                        assert!(!is_safe && (gradient > 1e15 || gradient.is_nan()), "{gradient}");
                        refused += 1;
                    }
                }
                safe += u32::from(is_safe);
            }
        }
        assert!(taken > 1_000 && refused > 500 && safe > 1_000, "{taken}, {refused}, {safe}");
    }

    #[test]
    fn the_bits_are_pinned() {
        // Another compiler, release or processor must come to the same: members may differ in all three. The same loop
        // written in another language, rounding each operation to f32, gave these bits.
        for (spec, expected) in specs().into_iter().zip(PINNED) {
            let mut parameters = numbers(7, 1.0);
            let mut optimizer = Optimizer::new(spec, PARAMETERS);
            for step in 0..STEPS as u64 {
                optimizer.step(&mut parameters, &numbers(200 + step, 1.0), 1.0).expect("finite");
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
