//! What can go wrong with what a run holds.

use starling_topology::RunId;
use thiserror::Error;

use crate::checkpoint::CheckpointError;
use crate::manifest::ManifestError;
use crate::record::RecordError;
use crate::sharing::SharingError;
use crate::state::StateError;

/// An error of this crate.
#[derive(Debug, Error)]
pub enum Error {
    /// The manifest cannot be used.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// Bytes are not a replicated state.
    #[error(transparent)]
    State(#[from] StateError),
    /// A checkpoint cannot be written or read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A result that no view of this run can have reduced.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A data set cannot be shared or put together.
    #[error(transparent)]
    Sharing(#[from] SharingError),
    /// The run trains a model.
    #[error("the run trains {model}; join it with `starling join`, or found one of your own with `Swarm::found`")]
    HasModel {
        /// The model.
        model: String,
    },
    /// A state of another run.
    #[error("the state belongs to run {theirs}, but this is run {ours}")]
    OtherRun {
        /// The run here.
        ours: RunId,
        /// The state's run.
        theirs: RunId,
    },
    /// A state that does not fit this run's model or optimizer.
    #[error("the state of step {step} does not fit the run: it has {found}, expected {expected}")]
    OtherShape {
        /// The state's step.
        step: u64,
        /// What the run's states have.
        expected: String,
        /// What this one has.
        found: String,
    },
    /// A result of another step than the next one.
    #[error("the result is of step {found}, but step {expected} is the next one to apply")]
    OtherStep {
        /// The step that is pending.
        expected: u64,
        /// The result's step.
        found: u64,
    },
}
