//! The update of the parameters, on flat vectors, bit for bit the same on every machine.
//!
//! All members hold the same averaged gradient and must reach the same parameters. So the update runs on the CPU, whatever
//! device computed the gradients, and uses only the operations that IEEE 754 defines to the last bit: addition,
//! subtraction, multiplication, division and square root, without fused multiply-add (Rust never contracts) and without
//! the platform's math library (powers come from repeated multiplication). Each element is on its own, so the compiler may
//! vectorize, and any range of them may be updated before the others.
//!
//! One file holds one [`Optimizer`]: its settings with their bounds, what it keeps, and its kernel. [`REGISTRY`] lists them
//! by name, and whatever takes, writes or reads a name goes by that list: a new optimizer is a file and a line there.

mod adagrad;
mod adam;
mod amsgrad;
mod average;
mod clip;
mod factors;
mod groups;
mod lion;
mod momentum;
mod rmsprop;
mod setting;
mod sgd;
mod spec;
mod state;

use std::fmt;

pub use clip::ClipKind;
pub use factors::StepFactors;
pub use groups::{GroupLayout, GroupSpec, GroupUpdate};
pub use setting::SettingSpec;
pub use spec::OptimizerSpec;
pub(crate) use state::{BLOCK, averaged, exchange};
pub use state::{OptimizerState, StepError};

/// An optimizer and what it is called.
#[derive(Debug)]
pub struct OptimizerEntry {
    /// Its name in manifests, configurations and flags.
    pub name: &'static str,
    /// What it does.
    pub optimizer: &'static dyn Optimizer,
}

/// All optimizers. An order that is shown, and nothing else: runs know them by name.
pub const REGISTRY: &[OptimizerEntry] = &[
    OptimizerEntry { name: "sgd", optimizer: &sgd::Sgd },
    OptimizerEntry { name: "momentum", optimizer: &momentum::Momentum { nesterov: false } },
    OptimizerEntry { name: "nesterov", optimizer: &momentum::Momentum { nesterov: true } },
    OptimizerEntry { name: "adam", optimizer: &adam::Adam { decoupled: false } },
    OptimizerEntry { name: "adamw", optimizer: &adam::Adam { decoupled: true } },
    OptimizerEntry { name: "amsgrad", optimizer: &amsgrad::AmsGrad },
    OptimizerEntry { name: "rmsprop", optimizer: &rmsprop::RmsProp },
    OptimizerEntry { name: "adagrad", optimizer: &adagrad::Adagrad },
    OptimizerEntry { name: "lion", optimizer: &lion::Lion },
];

/// The names of all optimizers, in the order of [`REGISTRY`].
pub const NAMES: [&str; REGISTRY.len()] = {
    let mut names = [""; REGISTRY.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = REGISTRY[at].name;
        at += 1;
    }
    names
};

/// The optimizer called `name`.
pub fn find(name: &str) -> Option<&'static OptimizerEntry> {
    REGISTRY.iter().find(|row| row.name == name)
}

/// A way to go from a gradient to the next parameters. It holds nothing: settings come from the manifest, what is kept from
/// step to step is in the [`OptimizerState`].
pub trait Optimizer: fmt::Debug + Sync {
    /// Its settings: the learning rate first, at most [`Self::MAX_SETTINGS`](OptimizerSpec::MAX_SETTINGS) in all.
    fn settings(&self) -> &'static [SettingSpec];

    /// What it keeps beside the parameters. All of it is replicated, so it is as much for each run of its own.
    fn shape(&self) -> StateSize;

    /// What the scalars become by one more step, with these values of the settings. They begin with 1.
    fn advance(&self, _values: &[f32], scalars: &[f64]) -> Vec<f64> {
        scalars.to_vec()
    }

    /// What a step does to each element, whichever are updated first.
    fn begin(&self, context: &StepInput<'_>) -> Box<dyn Update>;
}

/// How much an optimizer keeps from step to step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateSize {
    /// How many vectors, each as long as the parameters. They begin with zeros.
    pub moments: usize,
    /// How many numbers, each a power of a share that is kept: 1 before the first step, then less, never below 0.
    pub scalars: usize,
}

/// What a step's constants follow from.
#[derive(Debug)]
pub struct StepInput<'a> {
    /// The settings' values, in the order of [`Optimizer::settings`]; the learning rate is the step's own, after its schedule.
    values: &'a [f32],
    /// What gradients are multiplied by first.
    pub scale: f32,
    /// The scalars as [`Optimizer::advance`] makes them for this step.
    pub scalars: &'a [f64],
}

impl StepInput<'_> {
    /// The settings' values, in order.
    ///
    /// # Panics
    /// If there are not as many: an optimizer knows how many it has.
    pub fn values<const N: usize>(&self) -> [f32; N] {
        self.values.try_into().expect("invariant: an optimizer has its own number of settings")
    }
}

/// What one step does to each element.
pub trait Update: fmt::Debug + Send + Sync {
    /// Updates some `parameters` and their `moments` along their `gradients`, in place; all have one length.
    ///
    /// # Panics
    /// If `moments` are not as many as the optimizer keeps.
    fn run(&self, parameters: &mut [f32], gradients: &[f32], moments: &mut [&mut [f32]]);

    /// Whether no number of the state or on the way to it can leave the finite ones, if no parameter and moment before it is
    /// larger than `state`, no gradient larger than `gradient`, and no second moment negative: one that a step has made is not.
    fn is_safe(&self, state: f64, gradient: f64) -> bool;
}

/// No number that is surely not larger than this before it is rounded becomes infinite.
const SAFE: f64 = 1e38;

/// Whether none of these bounds, of which one may be no number, is too large.
fn are_safe(bounds: &[f64]) -> bool {
    bounds.iter().all(|bound| *bound <= SAFE)
}

/// The only moments of an optimizer that keeps `N`.
fn own<'a, 'b, const N: usize>(moments: &'a mut [&'b mut [f32]]) -> &'a mut [&'b mut [f32]; N] {
    moments.try_into().expect("invariant: an optimizer has its own number of moments")
}

#[cfg(test)]
mod tests;
