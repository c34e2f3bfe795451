//! What a member goes on from whose process was killed.

use starling_topology::Digest;

use super::{CheckpointError, CheckpointInfo, CheckpointStore};
use crate::snapshot::SnapshotManifest;
use crate::state::ReplicatedState;

/// What a directory of checkpoints has to go on from.
#[derive(Debug)]
pub struct Recovered {
    /// The checkpoint's name and its state; `None` if no checkpoint is intact.
    pub found: Option<(Digest, ReplicatedState)>,
    /// What is wrong with those that would have come before it.
    pub damaged: Vec<CheckpointError>,
}

impl CheckpointStore {
    /// Reads the last stable checkpoint that is intact, because others hold it too; or else the last one that is intact.
    /// Every byte is hashed before it is looked at. What is damaged is passed over, and what was abandoned as well.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn recover(&self) -> Result<Recovered, CheckpointError> {
        let (mut candidates, mut damaged) = (Vec::new(), Vec::new());
        for (step, id, path) in self.usable()?.into_iter().rev() {
            match self.read_manifest(&path, step, id) {
                Ok(candidate) => candidates.push(candidate),
                Err(error) => damaged.push(error),
            }
        }
        let is_stable = |(info, _): &(CheckpointInfo, SnapshotManifest)| self.is_stable(info);
        let (stable, others): (Vec<_>, Vec<_>) = candidates.into_iter().partition(is_stable);
        for (info, manifest) in stable.into_iter().chain(others) {
            match self.read_state(&manifest, &info.path) {
                Ok(state) => return Ok(Recovered { found: Some((info.id, state)), damaged }),
                Err(error) => damaged.push(error),
            }
        }
        Ok(Recovered { found: None, damaged })
    }
}
