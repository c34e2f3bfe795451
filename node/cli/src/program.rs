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
    Ok(Arc::new(starling_train::Models::new(loaded.device()?)))
}

#[cfg(not(feature = "train"))]
pub(crate) fn program(_: &Loaded) -> Result<Arc<dyn Program>, CommandError> {
    Err(CommandError::TrainsNothing)
}

/// The models that it trains, as a user may write them.
#[cfg(feature = "train")]
pub(crate) fn models() -> Vec<&'static str> {
    static NAMES: std::sync::LazyLock<Vec<String>> =
        std::sync::LazyLock::new(|| starling_train::network::models::names().collect());
    NAMES.iter().map(String::as_str).collect()
}

#[cfg(not(feature = "train"))]
pub(crate) fn models() -> Vec<&'static str> {
    Vec::new()
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
    Ok(starling_train::write_safetensors(to, state, &manifest.listed(), manifest, preprocessing)?)
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
