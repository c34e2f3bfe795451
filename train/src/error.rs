//! What can go wrong in training.

use burn::tensor::ExecutionError;
use starling_run::Difference;
use starling_topology::Digest;
use thiserror::Error;

use crate::data::DataError;
use crate::device::DeviceError;

/// An error of this crate.
#[derive(Debug, Error)]
pub enum Error {
    /// What the run holds cannot be used.
    #[error(transparent)]
    Run(#[from] starling_run::Error),
    /// The data cannot be used.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The device cannot be used.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The run's members bring buffers of their own.
    #[error(
        "the run trains no model: its members bring {elements} numbers each and take their mean; join it with a program that calls `Swarm::join`"
    )]
    NoModel {
        /// How many numbers a buffer has.
        elements: u64,
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
    /// A step before the first assignment.
    #[error("no samples are assigned yet; begin the run, or load a state, before the first step")]
    NotBegun,
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
