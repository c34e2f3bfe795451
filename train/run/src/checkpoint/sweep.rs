//! Chunks that no checkpoint needs: room on the disk.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use starling_topology::Digest;

use super::{CheckpointError, CheckpointStore, names, remove};
use crate::state::snapshot::{SnapshotManifest, parse_digest};

/// The chunks of checkpoints that are on their way from other peers, whose manifests come last: what a store's clones share. Those
/// of one that never came whole go with the process.
#[derive(Debug, Clone, Default)]
pub(super) struct Arriving(Arc<Mutex<BTreeSet<Digest>>>);

impl Arriving {
    pub(super) fn begin(&self, manifest: &SnapshotManifest) {
        self.lock().extend(&manifest.chunks);
    }

    pub(super) fn end(&self, manifest: &SnapshotManifest) {
        let mut arriving = self.lock();
        for chunk in &manifest.chunks {
            arriving.remove(chunk);
        }
    }

    pub(super) fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<Digest>> {
        // A set of names is sound whoever panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CheckpointStore {
    /// Removes what a save has left that failed, or that was killed: a full disk would stay full. Chunks stay that a manifest
    /// names, and those on their way. Failing, it has removed less; the save's error is the one to tell.
    pub(super) fn sweep(&self) {
        if let Ok(mut needed) = self.named() {
            needed.extend(self.arriving.lock().iter());
            let _ = self.remove_chunks_but(&needed);
        }
    }

    /// The chunks of all manifests.
    ///
    /// # Errors
    /// If one can't be read now, such as with too many files open: it may be whole, and its chunks needed.
    fn named(&self) -> Result<BTreeSet<Digest>, CheckpointError> {
        let mut named = BTreeSet::new();
        for manifest in self.each(|step, id, path| self.read_manifest(path, step, id))? {
            match manifest {
                Ok((_, manifest)) => named.extend(manifest.chunks),
                Err(error @ CheckpointError::Io { .. }) => return Err(error),
                Err(_) => {} // It names nothing any more.
            }
        }
        Ok(named)
    }

    /// Removes all other chunks.
    ///
    /// # Errors
    /// Why one of them is still there.
    pub(super) fn remove_chunks_but(&self, needed: &BTreeSet<Digest>) -> Result<(), CheckpointError> {
        let chunks = self.chunks();
        let surplus = |name: &String| parse_digest(name).is_some_and(|chunk| !needed.contains(&chunk));
        // Each is tried, also when one before it failed.
        let removed: Vec<_> =
            names(&chunks)?.into_iter().filter(surplus).map(|name| remove(&chunks.join(name))).collect();
        removed.into_iter().collect()
    }
}
