//! What the learner is told, and what may be committed.

use std::sync::Arc;

use starling_topology::{Lineage, PeerId, ViewId};

/// The members of a view, sorted.
pub type MemberSet = Arc<[PeerId]>;

/// Which steps may be committed, and in which view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommitGate {
    /// `None` outside of any view.
    pub view: Option<ViewId>,
    /// `None`: every step. `Some(step)`: only steps up to this one.
    pub last: Option<u64>,
}

impl CommitGate {
    /// Whether `step` may be committed.
    pub fn admits(&self, step: u64) -> bool {
        self.last.is_none_or(|last| step <= last)
    }
}

/// A view in which steps may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActiveView {
    /// Counts the views that this member was active in, from 1: a view that it enters again has another number.
    pub number: u64,
    /// That of the steps that it commits: its name and its generation.
    pub lineage: Lineage,
    /// The view before it.
    pub parent: Option<ViewId>,
    /// Its members.
    pub members: MemberSet,
}

impl ActiveView {
    /// Whether its member reduces with nobody.
    pub fn is_alone(&self) -> bool {
        self.members.len() < 2
    }
}

/// Where the learner stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LearnerPosition {
    /// The last step applied.
    pub step: u64,
    /// Whether the gradient of the next one is at hand.
    pub prepared: bool,
    /// The number of the active view in which it was contributed last.
    pub(crate) contributed: u64,
    /// The number of the active view whose members the first step was assigned to.
    pub(crate) begun: u64,
    /// Whether the samples of the step after it were loaded.
    pub(crate) loaded: bool,
    /// The number of the active view in which it was told that no step is left.
    pub(crate) finished: u64,
}

impl LearnerPosition {
    /// Of a learner that has applied `step`, and nothing since.
    pub fn after(step: u64) -> Self {
        Self { step, ..Self::default() }
    }
}

/// What the learner is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Task<R, S> {
    /// Save, evaluate if asked to, and end.
    Stop {
        /// Whether to evaluate.
        evaluate: bool,
    },
    /// Replace the state.
    Load(S),
    /// The state is the right one, and all results after it are applied: save it. [`StepEvent::Synced`](super::StepEvent::Synced) tells the
    /// membership machine.
    Synced,
    /// Assign the first step to these members, who may be others than before. If they are, what was prepared is void.
    Begin {
        /// The members.
        members: MemberSet,
    },
    /// Hand out the state, before it changes.
    Snapshot,
    /// Take the step with this result.
    Apply {
        /// The result.
        result: R,
        /// The number of the active view in which it was reduced here and found finite; `None` if it has yet to be looked at.
        reduced_in: Option<u64>,
    },
    /// Save the state, then say that the last step is applied: once in each view.
    Finished,
    /// Compute the gradient of the next step, and say so in the cursor. Who has leaves puts it together with them, by its
    /// [`CarrierEngine`](crate::CarrierEngine), and says so once it is whole.
    Compute,
    /// Hand the gradient to whoever reduces in this view.
    Contribute(ActiveView),
    /// Load the samples of the step after the one that these members reduce: there is nothing else to do.
    LoadAhead {
        /// The members.
        members: MemberSet,
    },
}
