//! What the trainer thread is told, and what the reducer may do.

use std::sync::Arc;

use starling_run::{ReplicatedState, ResultRecord};
use starling_topology::{Generation, ViewId};
use tokio::sync::mpsc;

use super::{Members, Part};
use crate::reducer::Operation;

/// Which steps may be committed, and in which view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gate {
    /// `None` outside of any view.
    pub(crate) view: Option<ViewId>,
    /// `None`: every step. `Some(step)`: only steps up to this one.
    pub(crate) last: Option<u64>,
}

impl Gate {
    /// Whether `step` may be committed.
    pub(crate) fn admits(&self, step: u64) -> bool {
        self.last.is_none_or(|last| step <= last)
    }
}

/// A view in which steps may run.
#[derive(Debug, Clone)]
pub(crate) struct Turn {
    /// Counts from 1.
    pub(crate) number: u64,
    pub(crate) generation: Generation,
    pub(crate) view: ViewId,
    pub(crate) members: Members,
    /// The reducer's queue; `None` in a view of one.
    pub(crate) operations: Option<mpsc::Sender<Operation>>,
}

/// Where the trainer thread stands.
#[derive(Debug, Default)]
pub(crate) struct At {
    /// The last step applied.
    pub(crate) step: u64,
    /// Whether the gradient of the next one is at hand.
    pub(crate) prepared: bool,
    /// The number of the turn in which it was contributed last.
    pub(crate) contributed: u64,
    /// The number of the turn whose members the first step was assigned to.
    pub(crate) begun: u64,
    /// Whether the samples of the step after it were loaded.
    pub(crate) loaded: bool,
    /// The number of the turn in which it was told that no step is left.
    pub(crate) finished: u64,
}

/// What the trainer thread is to do.
#[derive(Debug)]
pub(crate) enum Next {
    /// Save, evaluate if asked to, and end.
    Stop { evaluate: bool },
    /// Replace the state.
    Load(Box<ReplicatedState>),
    /// The state is the right one, and all results after it are applied.
    Synced,
    /// Assign the first step to these members, who may be others than before.
    Begin { members: Members },
    /// Hand out the state, before it changes.
    Snapshot,
    /// Take the step whose result this is. It was reduced here in the turn of this number and is finite, or has yet to be
    /// looked at.
    Apply { record: Arc<ResultRecord>, reduced_in: Option<u64> },
    /// Say that the last step is applied: once in each view.
    Finished,
    /// Compute the gradient of the next step.
    Compute,
    /// Hand the gradient to this view's reducer.
    Contribute(Turn),
    /// Load the samples of the step after the one that these members reduce: there is nothing else to do.
    LoadAhead { members: Members },
    /// Begin the update with this part of the result.
    Draft(Part),
}
