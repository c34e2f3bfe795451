//! What a member goes on from whose process was killed.

use std::path::PathBuf;

use starling_topology::{Digest, Root};

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
    /// Every byte is hashed before it is looked at. What is damaged is passed over, and what `root`, which is in the member's
    /// record, does not admit; without a record, what was put aside.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn recover(&self, root: Option<&Root>) -> Result<Recovered, CheckpointError> {
        self.recover_by(root, |info| self.is_stable(info))
    }

    /// As [`Self::recover`], but the last one that is intact, stable or not: for a member that was alone in its view, or left
    /// in order, so that what it had saved is what the run had come to.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn recover_newest(&self, root: Option<&Root>) -> Result<Recovered, CheckpointError> {
        self.recover_by(root, |_| false)
    }

    /// As [`Self::recover`], of whatever branch, also of one that was left: for a user who wants to go on from what there is.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn recover_whatever(&self) -> Result<Recovered, CheckpointError> {
        let found = self.scan()?;
        self.recover_of(found, None, |info| self.is_stable(info))
    }

    fn recover_by(
        &self,
        root: Option<&Root>,
        comes_first: impl Fn(&CheckpointInfo) -> bool,
    ) -> Result<Recovered, CheckpointError> {
        // The record is written before its member votes, the list some time later.
        let found = if root.is_some() { self.scan()? } else { self.usable()? };
        let unlisted = if root.is_some() { None } else { self.listed().err() };
        let mut recovered = self.recover_of(found, root, comes_first)?;
        recovered.damaged.splice(0..0, unlisted);
        Ok(recovered)
    }

    fn recover_of(
        &self,
        found: Vec<(u64, Digest, PathBuf)>,
        root: Option<&Root>,
        comes_first: impl Fn(&CheckpointInfo) -> bool,
    ) -> Result<Recovered, CheckpointError> {
        let (mut candidates, mut damaged) = (Vec::new(), Vec::new());
        for (step, id, path) in found.into_iter().rev() {
            match self.read_manifest(&path, step, id) {
                Ok((info, _)) if root.is_some_and(|root| !root.admits(info.step, info.lineage)) => {}
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
