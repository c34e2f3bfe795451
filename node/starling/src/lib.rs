//! Trains a Burn module on as many machines as come, exactly as one machine would.
#![cfg_attr(feature = "burn", doc = include_str!("guide.md"))]
#![cfg_attr(
    not(feature = "burn"),
    doc = "Built without Burn: [`Swarm`] takes the mean of buffers, and [`checkpoints`] lists what is on disk. The feature `burn` brings tasks, and the guide."
)]

#[cfg(feature = "dataset")]
mod burn_dataset;
mod checkpoint;
#[cfg(feature = "burn")]
pub mod export;
#[cfg(feature = "burn")]
mod member;
#[cfg(feature = "burn")]
mod run;

#[cfg(feature = "burn")]
pub use burn;
pub use serde_json;

#[cfg(feature = "dataset")]
pub use burn_dataset::BurnDataset;
pub use checkpoint::{Checkpoint, checkpoints};
#[cfg(feature = "burn")]
pub use checkpoint::{export, trained};
#[cfg(feature = "burn")]
pub use member::{LeaveHandle, Member};
#[cfg(feature = "burn")]
pub use run::Run;

#[doc(inline)]
pub use starling_node::{
    BroadcastResult, BufferSpec, ExpectedSettings, FoundOptions, JoinOptions, LeafPaceReport, Limit, LinkCost,
    LinkSummary, MeasuredLink, MemberPaceReport, NodeError as Error, Observer, Outcome, ReduceReport, ReduceResult,
    Report, ResumePolicy, RunLimit, ScatterResult, Settings, Summary, Swarm, SwarmError, Target, Ticket, Transport,
    TransportPolicy,
};
pub use starling_run::manifest::schedule;
pub use starling_run::state::initial;
pub use starling_run::training::optimizer;
#[doc(inline)]
pub use starling_run::{
    AugmentPolicy, BalancePolicy, ClassWeightPolicy, DecayKind, DecaySpec, LayoutSpec, LossKind, ModelOptions,
    ModelSpec, OptimizerSpec, Precision, RenameSpec, RunSpec, Schedule, Schema,
};
#[cfg(feature = "burn")]
#[doc(inline)]
pub use starling_train::{
    ComputeSpec, Cut, DeviceSpec, DrawSeed, MeasureError, SampleSummary, Task, fingerprint, in_f32, like, normalize,
};

/// Data as the command line reads it: the built-in digits, tables and images.
#[cfg(feature = "burn")]
pub mod data {
    #[doc(inline)]
    pub use starling_run::data::LabelScale;
    #[doc(inline)]
    pub use starling_run::data::columns::{Column, ColumnKind};
    #[doc(inline)]
    pub use starling_run::{DataDescription, FeatureScale, PreprocessingSpec, TokenizerSpec};
    #[doc(inline)]
    pub use starling_train::{
        ClassSummary, DataError, DataOptions, DataSummary, Dataset, SampleSet, TableColumn, Tokenizer,
    };
}

/// What an [`Error`] holds, for programs that look into it. What a task did is within
/// [`RunError::Program`](errors::RunError::Program), as an `errors::TaskError`: `error.downcast_ref::<TaskError>()`.
pub mod errors {
    #[doc(inline)]
    pub use starling_node::AdmissionError;
    #[doc(inline)]
    pub use starling_node::credentials::ticket::TicketError;
    #[doc(inline)]
    pub use starling_run::{AuditError, CheckpointError, Difference, Error as RunError, ManifestError};
    #[doc(inline)]
    pub use starling_topology::RefusalReason;
    #[cfg(feature = "burn")]
    #[doc(inline)]
    pub use starling_train::{DeviceError, Error as TaskError, ModelError};
}

/// What the fields of [`Settings`], [`FoundOptions`], [`JoinOptions`], [`RunSpec`] and [`Report`] are made of.
pub mod parts {
    pub use libp2p::Multiaddr;
    #[doc(inline)]
    pub use starling_collective::Codec;
    #[doc(inline)]
    pub use starling_node::credentials::invitation::InvitationKey;
    #[doc(inline)]
    pub use starling_node::credentials::name::Name;
    #[doc(inline)]
    pub use starling_node::observe::report::{JsonObserver, MissingState, ObserverSet, ReturnKind, WaitReason};
    #[doc(inline)]
    pub use starling_node::settings::keys::{Key, Value};
    #[doc(inline)]
    pub use starling_run::data::ClassSummary;
    #[doc(inline)]
    pub use starling_run::manifest::schema::Entry;
    #[doc(inline)]
    pub use starling_run::{CallHeader, CallKind, DataDescription, DataSummary, Delimiter, LeafSpec, Manifest};
    #[doc(inline)]
    pub use starling_topology::plan::PlanPolicy;
    #[doc(inline)]
    pub use starling_topology::{Contact, Digest, Lineage, PeerId, Quorum, RunId, ShufflePolicy, SplitMix64Generator};
}
