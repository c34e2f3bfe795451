//! What must hold in every run, at every instant. One file per invariant; each says what it guards.

mod bitwise_agreement;
mod bounded_queues;
mod exactly_once;
mod monotonic_generation;
mod one_view_per_generation;

use std::fmt;

pub use bitwise_agreement::BitwiseAgreement;
pub use bounded_queues::BoundedQueues;
pub use exactly_once::ExactlyOnce;
pub use monotonic_generation::MonotonicGeneration;
pub use one_view_per_generation::OneViewPerGeneration;

/// An invariant that did not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// Its name: the file in `invariants/`, or what else was expected.
    pub invariant: &'static str,
    /// What was seen instead.
    pub seen: String,
}

impl Broken {
    /// `invariant` did not hold: `seen` was seen.
    pub fn new(invariant: &'static str, seen: impl Into<String>) -> Self {
        Self { invariant, seen: seen.into() }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant, self.seen)
    }
}

/// All invariants with what they remember of one run.
#[derive(Debug, Default)]
pub struct Invariants {
    /// Each rank once in each step, each step once.
    pub exactly_once: ExactlyOnce,
    /// One state after each step.
    pub bitwise_agreement: BitwiseAgreement,
    /// One view per generation.
    pub one_view_per_generation: OneViewPerGeneration,
    /// No way back.
    pub monotonic_generation: MonotonicGeneration,
    /// Nothing grows without end.
    pub bounded_queues: BoundedQueues,
}
