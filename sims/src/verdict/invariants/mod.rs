//! What must hold in every run, at every instant. One file per invariant; each says what it guards. Those
//! that need a whole world are judged in [`world`](crate::world) and [`machine`](crate::hardware::machine).

mod leaves;
mod states;
mod steps;
mod votes;

use std::fmt;

pub use leaves::leaf_counts_once::LeafCountsOnce;
pub use leaves::leaf_goes_on::{Candidate, LeafGoesOn};
pub use leaves::leaf_is_no_member::LeafIsNoMember;
pub use leaves::leaf_state::LeafState;
pub use states::bitwise_agreement::BitwiseAgreement;
pub use states::end_is_kept::EndIsKept;
pub use states::last_checkpoint::LastCheckpoint;
pub use states::nothing_undone::NothingUndone;
pub use states::own_branch::OwnBranch;
pub use states::stable_survives::StableSurvives;
pub use states::verified_checkpoints::VerifiedCheckpoints;
pub use states::what_most_name::WhatMostName;
pub use steps::bounded_queues::BoundedQueues;
pub use steps::every_sample_once::EverySampleOnce;
pub use steps::exactly_once::ExactlyOnce;
pub use steps::nothing_dropped::{NothingDropped, Settled};
pub use steps::progress::Progressing;
pub use steps::starved_shares::StarvedShares;
pub use votes::damped_links::DampedLinks;
pub use votes::led_away::LedAway;
pub use votes::monotonic_generation::MonotonicGeneration;
pub use votes::no_split_brain::NoSplitBrain;
pub use votes::one_decision::OneDecision;
pub use votes::twin_told::TwinTold;
pub use votes::votes_given::VotesGiven;

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
    /// Who lacks data is done without for a while.
    pub starved_shares: StarvedShares,
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
    /// Links that fail again and again are used no more for a while.
    pub damped_links: DampedLinks,
    /// Who has its disk follows nobody who has not.
    pub led_away: LedAway,
    /// Nobody goes back behind what most have on disk.
    pub stable_survives: StableSurvives,
    /// Two processes with one identity are told of.
    pub twin_told: TwinTold,
    /// A newcomer votes once it has contributed, and not before.
    pub votes_given: VotesGiven,
    /// What leaves compute counts once.
    pub leaf_counts_once: LeafCountsOnce,
    /// Leaves hold the members' state.
    pub leaf_state: LeafState,
    /// Leaves are in no view.
    pub leaf_is_no_member: LeafIsNoMember,
    /// Leaves go on where they could.
    pub leaf_goes_on: LeafGoesOn,
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
