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
//! Start reading at [`manifest`], then [`state`] (what members hold alike), then [`optimizer`].

pub mod audit;
pub mod averager;
pub mod balance;
pub mod buffer;
pub mod bytes;
pub mod call;
pub mod canonical;
pub mod checkpoint;
pub mod contribution;
pub mod data;
pub mod draft;
pub mod error;
pub mod export;
#[cfg(feature = "fuzz")]
pub mod fuzzed;
pub mod gradient;
pub mod hint;
pub mod initial;
pub mod learner;
pub mod manifest;
pub mod optimizer;
pub mod panics;
pub mod program;
pub mod record;
pub mod schedule;
pub mod schema;
pub mod sharing;
pub mod snapshot;
pub mod spec;
pub mod state;
pub mod tag;
pub mod training;
mod values;

pub use audit::{AuditError, AuditHeader, AuditRecord, AuditReport, AuditWriter};
pub use averager::{Averaged, Averager};
pub use balance::{Balance, BalanceError};
pub use buffer::BufferLayout;
pub use call::{Agreed, Call};
pub use checkpoint::{
    CheckpointError, CheckpointFolder, CheckpointInfo, CheckpointStore, Head, Recovered, Signature, Signed, Verdict,
};
pub use data::{DataDescription, DataOptions, DataSummary, Delimiter, Kind, Preprocessing, Scales};
pub use draft::Draft;
pub use error::Error;
pub use gradient::Gradient;
pub use learner::{Beyond, DataNotes, Evaluation, Learner, Replicated};
pub use manifest::{CLIP, Difference, MAX_STALL_MS, Manifest, ManifestError, WIRE_VERSION};
pub use optimizer::{Optimizer, OptimizerSpec, OptimizerState, StepFactors, Unfit};
pub use program::{Program, Workload};
pub use record::{RecordError, ResultRecord};
pub use schedule::{Decay, Schedule};
pub use schema::Schema;
pub use sharing::{DataManifest, Download, SharedData, SharedFile, SharingError};
pub use snapshot::{Assembly, SnapshotError, SnapshotManifest, StateSnapshot};
pub use spec::{LayoutSpec, Leaf, ModelSpec, RunSpec};
pub use state::{ReplicatedState, StateError};
pub use tag::Tag;
pub use training::{StepReport, Training};
