//! What a data directory holds of runs: checkpoints, and the models in them.

#[cfg(feature = "burn")]
mod trained;

use std::path::{Path, PathBuf};

use starling_node::NodeError;
use starling_node::start::node::CHECKPOINTS;
use starling_run::CheckpointFolder;
use starling_topology::{Digest, RunId};

#[cfg(feature = "burn")]
pub use trained::{export, trained};

/// A checkpoint on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checkpoint {
    /// Of this run.
    pub run: RunId,
    /// After this step.
    pub step: u64,
    /// Digest of the replicated state: equal on all members that stood after that step.
    pub digest: Digest,
    /// Hash of its parameters, moments and scalars alone: equal to that of another run that learned alike.
    pub values: Digest,
    /// Its manifest file.
    pub path: PathBuf,
}

/// The checkpoints of a data directory, run by run, the one that was saved last at the end. A node may be at work there.
///
/// # Errors
/// If the directory can't be read.
pub fn checkpoints(data_dir: &Path) -> Result<Vec<Checkpoint>, NodeError> {
    let mut all = Vec::new();
    for store in CheckpointFolder::new(data_dir.join(CHECKPOINTS)).stores()? {
        let listed = store.list()?.into_iter();
        all.extend(listed.map(|info| Checkpoint {
            run: info.run,
            step: info.step,
            digest: info.digest,
            values: info.values,
            path: info.path,
        }));
    }
    Ok(all)
}
