//! What this build trains, and how it writes that down.

use std::path::Path;
use std::sync::Arc;

use starling_run::{Manifest, Preprocessing, Program, ReplicatedState};

use crate::commands::CommandError;
use crate::config::Loaded;

/// The command line's models, on the device that the configuration names.
///
/// # Errors
/// [`CommandError::TrainsNothing`] without the feature `train`; [`CommandError::Config`] if the device is none.
#[cfg(feature = "train")]
pub(crate) fn program(loaded: &Loaded) -> Result<Arc<dyn Program>, CommandError> {
    Ok(Arc::new(starling_train::Classifiers::new(loaded.device()?)))
}

#[cfg(not(feature = "train"))]
pub(crate) fn program(_: &Loaded) -> Result<Arc<dyn Program>, CommandError> {
    Err(CommandError::TrainsNothing)
}

/// Writes the model of a state as safetensors.
///
/// # Errors
/// [`CommandError::TrainsNothing`] without the feature `train`; [`CommandError::Run`] if the file can't be written.
#[cfg(feature = "train")]
pub(crate) fn write_model(
    to: &Path,
    state: &ReplicatedState,
    manifest: &Manifest,
    preprocessing: Option<&Preprocessing>,
) -> Result<(), CommandError> {
    let schema = starling_train::schema::of(&manifest.model, manifest.data.shape, manifest.data.classes);
    Ok(starling_train::write_safetensors(to, state, &schema, manifest, preprocessing)?)
}

#[cfg(not(feature = "train"))]
pub(crate) fn write_model(
    _: &Path,
    _: &ReplicatedState,
    _: &Manifest,
    _: Option<&Preprocessing>,
) -> Result<(), CommandError> {
    Err(CommandError::TrainsNothing)
}
