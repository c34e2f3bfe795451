//! Trains a Burn module on as many machines as come, exactly as one machine would.
#![doc = include_str!("guide.md")]

mod checkpoint;
#[cfg(feature = "train")]
mod member;
#[cfg(feature = "train")]
mod run;

#[cfg(feature = "train")]
pub use burn;
pub use serde_json;

pub use checkpoint::{Checkpoint, checkpoints};
#[cfg(feature = "train")]
pub use checkpoint::{export, trained};
#[cfg(feature = "train")]
pub use member::{Leave, Member};
#[cfg(feature = "train")]
pub use run::Run;

pub use starling_node::{
    Buffers, DataPlane, Expectations, Founding, Joining, Limit, LinkCost, Links, Mean, MeasuredLink,
    NodeError as Error, Observer, Outcome, Pace, Received, Reduced, Report, Resume, Scattered, Settings, Summary,
    Swarm, SwarmError, Target, Ticket, Transport,
};
pub use starling_run::{
    Balance, Decay, LayoutSpec, ModelSpec, OptimizerSpec, RunSpec, Schedule, Schema, initial, optimizer, schedule,
};
#[cfg(feature = "train")]
pub use starling_train::{Cut, DeviceChoice, Task, TaskData, fingerprint};

/// Data as the command line reads it: the built-in digits, tables and images.
#[cfg(feature = "train")]
pub mod data {
    pub use starling_train::{ClassCount, DataError, DataOptions, DataSummary, Dataset, LabelColumn, Samples};
}

/// What the fields of [`Settings`], [`Founding`], [`Joining`], [`RunSpec`] and [`Report`] are made of.
pub mod parts {
    pub use libp2p::Multiaddr;
    pub use starling_collective::Codec;
    pub use starling_node::invitation::Grant;
    pub use starling_node::name::Name;
    pub use starling_node::report::{Json, Tee, WaitsFor, WayBack};
    pub use starling_run::{DataSummary, Delimiter, Manifest};
    pub use starling_topology::plan::Wish;
    pub use starling_topology::{Contact, Digest, Lineage, PeerId, Quorum, RunId};
}
