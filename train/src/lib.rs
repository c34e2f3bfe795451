//! Models in training, on Burn.
//!
//! A [`Dataset`] is what the members of a run train on; a [`Trainer`] turns samples into gradients and averaged gradients
//! into the next [`ReplicatedState`](starling_run::ReplicatedState). Forward and backward passes run on Burn, on the CPU or
//! any GPU that wgpu reaches; the update is that of [`starling_run`].
//!
//! This crate deliberately knows nothing of sockets and tasks: how gradients are averaged is not its concern.
//!
//! Start reading at [`found`], then [`trainer`].

mod batch;
pub mod data;
pub mod device;
pub mod error;
pub mod evaluation;
pub mod export;
mod flatten;
mod founding;
pub mod network;
pub mod schema;
pub mod trainer;

pub use data::{ClassCount, DataError, DataOptions, DataSummary, Dataset, LabelColumn, Samples};
pub use device::{DeviceChoice, DeviceError, OpenDevice};
pub use error::Error;
pub use evaluation::Evaluation;
pub use export::{check_export_place, write_safetensors};
pub use founding::found;
pub use network::Network;
pub use trainer::{Beyond, StepReport, Trainer};
