//! What must hold in every run, at every instant. One file per invariant; each says what it guards.

mod bitwise_agreement;
mod bounded_queues;
mod end_is_kept;
mod every_sample_once;
mod exactly_once;
mod last_checkpoint;
mod led_away;
mod monotonic_generation;
mod no_split_brain;
mod nothing_dropped;
mod nothing_undone;
mod one_decision;
mod own_branch;
mod progress;
mod stable_survives;
mod twin_told;
mod verified_checkpoints;
mod votes_given;
mod what_most_name;

use std::fmt;

pub use bitwise_agreement::BitwiseAgreement;
pub use bounded_queues::BoundedQueues;
pub use end_is_kept::EndIsKept;
pub use every_sample_once::EverySampleOnce;
pub use exactly_once::ExactlyOnce;
pub use last_checkpoint::LastCheckpoint;
pub use led_away::LedAway;
pub use monotonic_generation::MonotonicGeneration;
pub use no_split_brain::NoSplitBrain;
pub use nothing_dropped::{NothingDropped, Settled};
pub use nothing_undone::NothingUndone;
pub use one_decision::OneDecision;
pub use own_branch::OwnBranch;
pub use progress::Progressing;
pub use stable_survives::StableSurvives;
pub use twin_told::TwinTold;
pub use verified_checkpoints::VerifiedCheckpoints;
pub use votes_given::VotesGiven;
pub use what_most_name::WhatMostName;

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
    /// Each contribution that the ledger asked for once in each step.
    pub exactly_once: ExactlyOnce,
    /// One state after each step of a branch.
    pub bitwise_agreement: BitwiseAgreement,
    /// Each sample once in each epoch.
    pub every_sample_once: EverySampleOnce,
    /// One decree per view.
    pub one_decision: OneDecision,
    /// No way back.
    pub monotonic_generation: MonotonicGeneration,
    /// One branch goes on, unless it says that it is a fork.
    pub no_split_brain: NoSplitBrain,
    /// What a codec drops comes back.
    pub nothing_dropped: NothingDropped,
    /// What a member has committed stays committed.
    pub nothing_undone: NothingUndone,
    /// Nothing grows without end.
    pub bounded_queues: BoundedQueues,
    /// Nothing is loaded unverified.
    pub verified_checkpoints: VerifiedCheckpoints,
    /// A member comes back to the branch that it was on.
    pub own_branch: OwnBranch,
    /// The last good checkpoint is never deleted.
    pub last_checkpoint: LastCheckpoint,
    /// Who has its disk follows nobody who has not.
    pub led_away: LedAway,
    /// Nobody goes back behind what most have on disk.
    pub stable_survives: StableSurvives,
    /// Two processes with one identity are told of.
    pub twin_told: TwinTold,
    /// A newcomer votes once it has contributed, and not before.
    pub votes_given: VotesGiven,
    /// Nobody waits for ever.
    pub progress: Progressing,
}

impl Invariants {
    /// Somebody has written down that it is in the view of `record`.
    pub fn wrote(&mut self, record: &starling_topology::Record) {
        self.stable_survives.wrote(record);
        self.led_away.wrote(record);
    }
}
