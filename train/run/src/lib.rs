//! What a run is, and what its members hold.
//!
//! A [`Manifest`] says what all members share; a [`ReplicatedState`] is what they hold alike after each step, which
//! [`ResultRecord`]s lead from one to the next; a [`StateSnapshot`] hands it to others, a [`CheckpointStore`] keeps it on
//! disk, and an audit proves what was done. The update is computed here, on the CPU, so that all members of a run hold the
//! same bits: a [`TrainingState`] is what one member makes of results. What computes gradients is a [`Learner`], which a
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
    CheckpointError, CheckpointFolder, CheckpointStore, CheckpointSummary, Head, RecoveryResult, Signature, SignedHead,
    VerificationReport,
};
pub use data::{
    DataDescription, DataOptions, DataSummary, Delimiter, FeatureScale, Kind, PreprocessingSpec, TokenizerSpec,
};
pub use error::Error;
pub use manifest::balance::{BalanceError, BalancePolicy};
pub use manifest::call_header::CallHeader;
pub use manifest::evaluation::{EvaluationSpec, MAX_PATIENCE};
pub use manifest::precision::Precision;
pub use manifest::schedule::{DecayKind, DecaySpec, Schedule};
pub use manifest::schema::{LeafKind, Schema};
pub use manifest::spec::{
    AugmentPolicy, ClassWeightPolicy, ConstantKind, ConstantSpec, LayoutSpec, LeafSpec, LossKind, ModelOptions,
    ModelSpec, RunSpec,
};
pub use manifest::{CLIP, Difference, MAX_STALL_MS, Manifest, ManifestError, WIRE_VERSION};
pub use program::learner::{ContributionError, DataRecord, EvaluationReport, Learner, StateReplica, check_probe};
pub use program::rename::RenameSpec;
pub use program::{InitialOrigin, Program, Workload};
pub use sharing::{DataManifest, Download, SharedDataset, SharedFile, SharingError};
pub use state::record::{RecordError, ResultRecord};
pub use state::snapshot::{PartialSnapshot, SnapshotError, SnapshotManifest, StateSnapshot};
pub use state::{ReplicatedState, StateError};
pub use training::best::JudgedReport;
pub use training::buffer::{BufferLayout, ReducedSize};
pub use training::buffer_learner::{BufferLearner, BufferStepReport};
pub use training::call::{CallDecision, CallKind};
pub use training::gradient::Gradient;
pub use training::held_out::{HeldOutReport, UnevaluatedReport};
pub use training::optimizer::{GroupSpec, Optimizer, OptimizerSpec, OptimizerState, StepError, StepFactors};
pub use training::staged_update::StagedUpdate;
pub use training::{StepReport, TrainingState};
