//! What can go wrong with what a run holds.

use std::path::PathBuf;

use starling_topology::{Digest, RunId};
use thiserror::Error;

use crate::checkpoint::CheckpointError;
use crate::manifest::ManifestError;
use crate::sharing::SharingError;
use crate::state::StateError;
use crate::state::record::RecordError;

/// An error of this crate.
#[derive(Debug, Error)]
#[non_exhaustive]
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
    /// The model's parameters have other names or shapes than the run's.
    #[error(
        "the model has schema {ours}, but the run was founded with {theirs}; use the release of Starling that founded it"
    )]
    OtherSchema {
        /// Fingerprint of the model built here.
        ours: Digest,
        /// Fingerprint in the manifest.
        theirs: Digest,
    },
    /// The initial parameters drawn here are not the run's.
    #[error(
        "the initial parameters have digest {ours}, but the run was founded with {theirs}; use the release of Starling that founded it"
    )]
    OtherInitial {
        /// Digest of the parameters drawn here.
        ours: Digest,
        /// Digest in the manifest.
        theirs: Digest,
    },
    /// The model is the run's, but what it makes of the data is not.
    #[error(
        "with the run's initial parameters, the loss over its first samples is {ours} here and {theirs} at a member: the model and the data are \
         called and shaped alike, but this program computes another loss, makes other batches or reads other samples; use the program that the \
         members run, in the same version"
    )]
    OtherProbe {
        /// The loss here.
        ours: f32,
        /// The loss at the member that was asked.
        theirs: f32,
    },
    /// The initial parameters are not drawn, and are not here.
    #[error(
        "the run begins with parameters of digest {theirs} that its founder has given, and they are not here; take them from a member"
    )]
    NotGiven {
        /// Digest in the manifest.
        theirs: Digest,
    },
    /// A program that begins with no file.
    #[error("this program's runs begin with values that are drawn, not with those in `{}`", path.display())]
    NoInitialFile {
        /// The file.
        path: PathBuf,
    },
    /// A step before the first assignment.
    #[error("no samples are assigned yet; begin the run, or load a state, before the first step")]
    NotBegun,
    /// A program, or what it computes with, failed.
    #[error(transparent)]
    Program(Box<dyn std::error::Error + Send + Sync>),
    /// A model file cannot be written.
    #[error("cannot write the model to `{}`: {reason}", path.display())]
    Export {
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: String,
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
    /// What a state says of the best model so far can't be.
    #[error(
        "the state of step {step} says of the best model so far what no run comes to: step, held-out loss or number of evaluations; load \
         the state of another member, or an earlier checkpoint"
    )]
    OtherBest {
        /// The state's step.
        step: u64,
    },
    /// What a state says of the scale of the loss can't be.
    #[error(
        "the state of step {step} says of the scale of the loss what no run comes to; load the state of another member, or an earlier \
         checkpoint"
    )]
    OtherScale {
        /// The state's step.
        step: u64,
    },
    /// A state whose frozen parameters are others.
    #[error(
        "the state of step {step} has other frozen parameters than the run began with; load the state of another member, or an earlier \
         checkpoint"
    )]
    OtherFrozen {
        /// The state's step.
        step: u64,
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
