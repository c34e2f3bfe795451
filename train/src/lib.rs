//! Models in training, on Burn.
//!
//! A [`Task`] is what is trained: a module, its batches, its loss. A [`Replica`] of it turns samples into gradients, and is the
//! [`Learner`](starling_run::Learner) that the runtime drives. The command line's [`models`](network::models) are tasks on a [`Dataset`]; a user's
//! own is another. Trained models are [exported](export), and read back to predict. Forward and backward passes run on Burn, on the CPU or
//! any GPU that wgpu reaches; the update is that of [`starling_run`].
//!
//! This crate deliberately knows nothing of sockets and tasks: how gradients are averaged is not its concern.
//!
//! Start reading at [`task`], then [`replica`].

pub mod device;
pub mod error;
pub mod export;
pub mod network;
mod panics;
pub mod program;
pub mod replica;
pub mod task;

pub use device::{ComputeSpec, DeviceError, DeviceSpec, OpenDevice};
pub use error::Error;
pub use export::{Export, Model, ModelError};
pub use network::cut::Cut;
pub use network::numbers::{Normalization, in_f32, like, normalize};
pub use network::{LayerSpec, Network};
pub use program::{ClassifierReplica, ModelProgram, found};
pub use replica::Replica;
pub use starling_data::stream;
pub use starling_data::tokens;
pub use starling_data::{
    ClassSummary, DataError, DataOptions, DataSummary, Dataset, SampleSet, TableColumn, Tokenizer,
};
pub use task::classification::ClassificationTask;
pub use task::tasks::TaskProgram;
pub use task::{DrawSeed, MeasureError, SampleSummary, Task, fingerprint};
