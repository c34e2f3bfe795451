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
        self.recover_by(|info| self.is_stable(info))
    }

    /// As [`Self::recover`], but the last one that is intact, stable or not: for a member that was alone in its view, or left
    /// in order, so that what it had saved is what the run had come to.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn recover_newest(&self) -> Result<Recovered, CheckpointError> {
        self.recover_by(|_| false)
    }

    fn recover_by(&self, comes_first: impl Fn(&CheckpointInfo) -> bool) -> Result<Recovered, CheckpointError> {
        let (mut candidates, mut damaged) = (Vec::new(), Vec::from_iter(self.listed().err()));
        for (step, id, path) in self.usable()?.into_iter().rev() {
            match self.read_manifest(&path, step, id) {
                Ok(candidate) => candidates.push(candidate),
                Err(error) => damaged.push(error),
            }
        }
        let is_first = |(info, _): &(CheckpointInfo, SnapshotManifest)| comes_first(info);
        let (first, others): (Vec<_>, Vec<_>) = candidates.into_iter().partition(is_first);
        for (info, manifest) in first.into_iter().chain(others) {
            match self.read_state(&manifest, &info.path) {
                Ok(state) => return Ok(Recovered { found: Some((info.id, state)), damaged }),
                Err(error) => damaged.push(error),
            }
        }
        Ok(Recovered { found: None, damaged })
    }
}
