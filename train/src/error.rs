//! What can go wrong in training.

use burn::tensor::ExecutionError;
use starling_topology::{Digest, RunId};
use thiserror::Error;

use crate::audit::AuditError;
use crate::checkpoint::CheckpointError;
use crate::data::DataError;
use crate::device::DeviceError;
use crate::manifest::{Difference, ManifestError};
use crate::record::RecordError;
use crate::sharing::SharingError;
use crate::snapshot::SnapshotError;
use crate::state::StateError;

/// An error of this crate.
#[derive(Debug, Error)]
pub enum Error {
    /// The data cannot be used.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The manifest cannot be used.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The device cannot be used.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Bytes are not a replicated state.
    #[error(transparent)]
    State(#[from] StateError),
    /// A checkpoint cannot be written or read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The run's members bring buffers of their own.
    #[error(
        "the run trains no model: its members bring {elements} numbers each and take their mean; join it with a program that calls `Swarm::join`"
    )]
    NoModel {
        /// How many numbers a buffer has.
        elements: u64,
    },
    /// The run trains a model.
    #[error("the run trains {model}; join it with `starling join`, or found one of your own with `Swarm::found`")]
    HasModel {
        /// The model.
        model: String,
    },
    /// The data here is not the run's.
    #[error("the data on this machine is not the run's: {}; use the files the run was founded with", list(differences))]
    OtherData {
        /// What differs: "ours" is the run's.
        differences: Vec<Difference>,
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
    /// A state of another run.
    #[error("the state belongs to run {theirs}, but this is run {ours}")]
    OtherRun {
        /// The trainer's run.
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
    /// A number that is not finite.
    #[error(
        "step {step}: the {what} of `{path}` is {value}, not a finite number; lower the learning rate, or check the data for extreme values"
    )]
    NotFinite {
        /// The step being computed.
        step: u64,
        /// `gradient`, `mean gradient` or `parameter`.
        what: &'static str,
        /// The parameter's path, `loss`, or `speed`.
        path: String,
        /// The number.
        value: f32,
    },
    /// A result that no view of this run can have reduced.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A result of another step than the next one.
    #[error("the result is of step {found}, but step {expected} is the next one to apply")]
    OtherStep {
        /// The step that is pending.
        expected: u64,
        /// The result's step.
        found: u64,
    },
    /// A step before the first assignment.
    #[error("no samples are assigned yet; begin the run, or load a state, before the first step")]
    NotBegun,
    /// An audit file cannot be written or read, or proves that something went wrong.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// A snapshot cannot be put together.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// A data set cannot be shared or put together.
    #[error(transparent)]
    Sharing(#[from] SharingError),
    /// The device failed in the middle of a computation.
    #[error("the device `{device}` failed to compute step {step}: {source}")]
    Execution {
        /// The device.
        device: String,
        /// The step.
        step: u64,
        /// What the device says.
        source: ExecutionError,
    },
    /// A model file cannot be written.
    #[error("cannot write the model to `{}`: {reason}", path.display())]
    Export {
        /// The file.
        path: std::path::PathBuf,
        /// Why not.
        reason: String,
    },
}

fn list(differences: &[Difference]) -> String {
    let differences: Vec<String> = differences
        .iter()
        .map(|difference| format!("{} is {}, the run has {}", difference.field, difference.theirs, difference.ours))
        .collect();
    differences.join("; ")
}
