//! What this build trains, and how it writes that down.

use std::path::Path;
use std::sync::Arc;

use starling_run::Program;

use crate::cli::WhichFlags;
use crate::commands::CommandError;
use crate::config::Loaded;

/// The command line's models, on the device that the configuration names.
///
/// # Errors
/// [`CommandError::TrainsNothing`] without the feature `train`; [`CommandError::Config`] if the device is none.
#[cfg(feature = "train")]
pub(crate) fn program(loaded: &Loaded) -> Result<Arc<dyn Program>, CommandError> {
    Ok(Arc::new(starling_train::ModelProgram::new(loaded.compute()?)))
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

/// Writes the model of a checkpoint in a data directory. Returns its run and step, and whether it says how its data is scaled.
///
/// # Errors
/// [`CommandError::TrainsNothing`] without the feature `train`; [`CommandError::Node`] if there is no such checkpoint, or nothing can
/// be written there.
#[cfg(feature = "train")]
pub(crate) fn export_model(
    data_dir: &Path,
    which: &WhichFlags,
    to: &Path,
) -> Result<(String, u64, bool), CommandError> {
    crate::commands::remove_export_when_told(to).map_err(CommandError::io("listen for signals"))?;
    let exported = which.of(data_dir).export(to)?;
    Ok((exported.run, exported.step, exported.has_preprocessing))
}

#[cfg(not(feature = "train"))]
pub(crate) fn export_model(_: &Path, _: &WhichFlags, _: &Path) -> Result<(String, u64, bool), CommandError> {
    Err(CommandError::TrainsNothing)
}
