//! What a member goes on from whose process was killed.

use std::cmp::Reverse;
use std::path::PathBuf;

use starling_topology::{Digest, Root};

use super::{CheckpointError, CheckpointStore, CheckpointSummary};
use crate::state::ReplicatedState;
use crate::state::snapshot::SnapshotManifest;

/// What a directory of checkpoints has to go on from.
#[derive(Debug)]
pub struct RecoveryResult {
    /// The checkpoint's name and its state; `None` if no checkpoint is intact.
    pub found: Option<(Digest, ReplicatedState)>,
    /// What is wrong with those that would have come before it.
    pub damaged: Vec<CheckpointError>,
}

impl CheckpointStore {
    /// Reads the last checkpoint that is intact, and of equal steps the one that a quorum has signed
    /// ([`starling_topology::heads::retention::CheckpointRecord::precedence`]). Every byte is hashed before it is looked at. What is damaged is
    /// passed over, and what `root`, which is in the member's record, does not admit; without a record, what was put aside.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn recover(&self, root: Option<&Root>) -> Result<RecoveryResult, CheckpointError> {
        // The record is written before its member votes, the list some time later.
        let found = if root.is_some() { self.scan()? } else { self.usable()? };
        let unlisted = if root.is_some() { None } else { self.listed().err() };
        let mut recovered = self.recover_of(found, root, |info| self.held_as(info).precedence())?;
        recovered.damaged.splice(0..0, unlisted);
        Ok(recovered)
    }

    /// As [`Self::recover`], of whatever branch, also of one that was left: for a user who wants to go on from what there is. What
    /// a quorum has signed comes first: a branch that has nothing of the kind was one machine's.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn recover_whatever(&self) -> Result<RecoveryResult, CheckpointError> {
        self.recover_of(self.scan()?, None, |info| Reverse((self.is_stable(info), info.step)))
    }

    fn recover_of<Order: Ord>(
        &self,
        found: Vec<(u64, Digest, PathBuf)>,
        root: Option<&Root>,
        order: impl Fn(&CheckpointSummary) -> Order,
    ) -> Result<RecoveryResult, CheckpointError> {
        let (mut candidates, mut damaged) = (Vec::new(), Vec::new());
        for (step, id, path) in found.into_iter().rev() {
            match self.read_manifest(&path, step, id) {
                Ok((info, _)) if root.is_some_and(|root| !root.admits(info.step, info.lineage)) => {}
                Ok(candidate) => candidates.push(candidate),
                Err(error) => damaged.push(error),
            }
        }
        candidates.sort_by_cached_key(|(info, _): &(CheckpointSummary, SnapshotManifest)| order(info));
        for (info, manifest) in candidates {
            match self.read_state(&manifest, &info.path) {
                Ok(state) => return Ok(RecoveryResult { found: Some((info.id, state)), damaged }),
                Err(error) => damaged.push(error),
            }
        }
        Ok(RecoveryResult { found: None, damaged })
    }
}
