//! What a run is, and what its members hold.
//!
//! A [`Manifest`] says what all members share; a [`ReplicatedState`] is what they hold alike after each step, which
//! [`ResultRecord`]s lead from one to the next; a [`StateSnapshot`] hands it to others, a [`CheckpointStore`] keeps it on
//! disk, and an audit proves what was done. The update is computed here, on the CPU, so that all members of a run hold the
//! same bits: a [`Training`] is what one member makes of results. What computes gradients is a [`Learner`], which a
//! [`Program`] opens.
//!
//! This crate names no tensor, device, socket or task: where gradients come from and how they are averaged is not its
//! concern. Who computes which samples is the concern of [`starling_topology::Ledger`], which the replicated state holds.
//!
//! Start reading at [`manifest`], then [`state`] (what members hold alike), then [`optimizer`](training::optimizer).

pub mod audit;
pub mod checkpoint;
pub mod data;
pub mod error;
#[cfg(feature = "fuzz")]
pub mod fuzzed;
pub mod manifest;
pub mod panics;
pub mod program;
pub mod sharing;
pub mod state;
pub mod training;

pub use audit::{AuditError, AuditHeader, AuditRecord, AuditReport, AuditWriter};
pub use checkpoint::{
    CheckpointError, CheckpointFolder, CheckpointInfo, CheckpointStore, Head, Recovered, Signature, Signed, Verdict,
};
pub use data::{DataDescription, DataOptions, DataSummary, Delimiter, Kind, Preprocessing, Scales};
pub use error::Error;
pub use manifest::balance::{Balance, BalanceError};
pub use manifest::early_stop::{EarlyStop, MAX_PATIENCE};
pub use manifest::schedule::{Decay, Schedule};
pub use manifest::schema::Schema;
pub use manifest::spec::{Augment, ClassWeights, LayoutSpec, Leaf, Loss, ModelOptions, ModelSpec, RunSpec};
pub use manifest::tag::Tag;
pub use manifest::{CLIP, Difference, MAX_STALL_MS, Manifest, ManifestError, WIRE_VERSION};
pub use program::learner::{Beyond, DataNotes, Evaluation, Learner, Replicated};
pub use program::{Program, Workload};
pub use sharing::{DataManifest, Download, SharedData, SharedFile, SharingError};
pub use state::record::{RecordError, ResultRecord};
pub use state::snapshot::{Assembly, SnapshotError, SnapshotManifest, StateSnapshot};
pub use state::{ReplicatedState, StateError};
pub use training::best::Judgement;
pub use training::buffer::{BufferLayout, Reduced};
pub use training::buffer_learner::{Applied, BufferLearner};
pub use training::call::{Agreed, Call};
pub use training::gradient::Gradient;
pub use training::optimizer::{Optimizer, OptimizerSpec, OptimizerState, StepFactors, Unfit};
pub use training::staged_update::StagedUpdate;
pub use training::{StepReport, Training};
