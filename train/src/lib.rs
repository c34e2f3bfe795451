//! Models in training, on Burn.
//!
//! A [`Task`] is what is trained: a module, its batches, its loss. A [`Replica`] of it turns samples into gradients, and is the
//! [`Learner`](starling_run::Learner) that the runtime drives. The command line's [`models`] are tasks on a [`Dataset`]; a user's
//! own is another. Forward and backward passes run on Burn, on the CPU or
//! any GPU that wgpu reaches; the update is that of [`starling_run`].
//!
//! This crate deliberately knows nothing of sockets and tasks: how gradients are averaged is not its concern.
//!
//! Start reading at [`task`], then [`replica`].

pub mod classification;
pub mod cut;
pub mod device;
pub mod error;
mod evaluation;
pub mod export;
mod flatten;
mod loader;
pub mod models;
pub mod network;
mod panics;
pub mod program;
pub mod replica;
pub mod schema;
pub mod task;
pub mod tasks;

pub use classification::Classification;
pub use cut::Cut;
pub use device::{DeviceChoice, DeviceError, OpenDevice};
pub use error::Error;
pub use export::write_safetensors;
pub use network::{Layers, Network};
pub use program::{Models, Trainer, found};
pub use replica::Replica;
pub use starling_data::{ClassCount, DataError, DataOptions, DataSummary, Dataset, LabelColumn, Samples};
pub use task::{Task, TaskData, fingerprint};
pub use tasks::TaskProgram;
