//! What a run computes.
//!
//! A [`Manifest`] says what all members share; a [`Dataset`] is what they train on; a [`Trainer`] turns samples into
//! gradients and averaged gradients into the next [`ReplicatedState`], which [`CheckpointStore`] keeps on disk. Forward
//! and backward passes run on Burn, on the CPU or any GPU that wgpu reaches; the update runs on the CPU, so that all
//! members of a run hold the same bits.
//!
//! This crate deliberately knows nothing of sockets and tasks: how gradients are averaged is not its concern. Who
//! computes which samples is the concern of [`starling_topology::Ledger`], which the replicated state holds.
//!
//! Start reading at [`manifest`], then [`state`] (what members hold alike), then [`trainer`].

pub mod audit;
pub mod averager;
pub mod balance;
mod batch;
mod bytes;
pub mod checkpoint;
pub mod contribution;
pub mod data;
pub mod device;
mod draft;
pub mod error;
pub mod evaluation;
pub mod export;
mod flatten;
pub mod gradient;
mod hint;
pub mod initial;
pub mod manifest;
pub mod network;
pub mod optimizer;
pub mod record;
pub mod schema;
pub mod sharing;
pub mod snapshot;
pub mod spec;
pub mod state;
pub mod trainer;

pub use audit::{AuditError, AuditHeader, AuditRecord, AuditReport, AuditWriter};
pub use averager::{Averaged, Averager};
pub use balance::{Balance, BalanceError};
pub use checkpoint::{
    CheckpointError, CheckpointFolder, CheckpointInfo, CheckpointStore, Head, Recovered, Signature, Signed, Verdict,
};
pub use data::{
    ClassCount, DIGITS, DataDescription, DataError, DataOptions, DataSummary, Dataset, Delimiter, LabelColumn,
    Preprocessing, Samples, Scales,
};
pub use device::{DeviceChoice, DeviceError, OpenDevice};
pub use error::Error;
pub use evaluation::Evaluation;
pub use export::{check_export_place, write_safetensors};
pub use gradient::Gradient;
pub use manifest::{Difference, MAX_STALL_MS, Manifest, ManifestError, WIRE_VERSION};
pub use network::Network;
pub use optimizer::Optimizer;
pub use record::{RecordError, ResultRecord};
pub use schema::Schema;
pub use sharing::{DataManifest, Download, SharedData, SharedFile, SharingError};
pub use snapshot::{Assembly, SnapshotError, SnapshotManifest, StateSnapshot};
pub use spec::{LayoutSpec, ModelSpec, OptimizerSpec, RunSpec};
pub use state::{ReplicatedState, StateError};
pub use trainer::{StepReport, Trainer};
