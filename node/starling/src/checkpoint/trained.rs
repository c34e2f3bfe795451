//! The models in checkpoints.

use std::path::Path;

use burn::tensor::Device;
use starling_node::NodeError;
use starling_node::start::node::CHECKPOINTS;
use starling_node::store::manifest_file;
use starling_run::{CheckpointFolder, Manifest, ReplicatedState};
use starling_train::{DeviceSpec, Task, TaskProgram};

use crate::export::ModelLocation;

/// Writes the model after a step, or in the newest checkpoint, of the run that was saved last: to a folder if `to` ends with a
/// slash or is one already, else to a safetensors file. [`ModelLocation::export`] can choose among runs.
///
/// # Errors
/// If there is no such checkpoint, it is damaged, or nothing can be written there.
pub fn export(data_dir: &Path, step: Option<u64>, to: &Path) -> Result<(), NodeError> {
    let place = step.into_iter().fold(ModelLocation::at(data_dir), ModelLocation::after_step);
    place.export(to).map(drop)
}

/// A task's module with the values after a step, or of the newest checkpoint, of the run that was saved last; and the device,
/// without autodiff, that it is on.
///
/// # Errors
/// If there is no such checkpoint, it is damaged, it is another task's, or the device can't be opened.
pub fn trained<T: Task>(
    task: T,
    device: DeviceSpec,
    data_dir: &Path,
    step: Option<u64>,
) -> Result<(T::Module, Device), NodeError> {
    let (manifest, state) = load(data_dir, step)?;
    Ok(TaskProgram::new(task, device).module(&manifest, &state).map_err(starling_run::Error::from)?)
}

fn load(data_dir: &Path, step: Option<u64>) -> Result<(Manifest, ReplicatedState), NodeError> {
    let mut stores = CheckpointFolder::new(data_dir.join(CHECKPOINTS)).stores()?;
    let store = stores.pop().ok_or_else(|| NodeError::NoCheckpoint(data_dir.to_owned()))?;
    let state = store.load(step)?;
    Ok((manifest_file::load(data_dir, state.run)?, state))
}
