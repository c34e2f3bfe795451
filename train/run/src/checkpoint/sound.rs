//! Checkpoints all of whose bytes were read and checked by this process, to be handed out without reading them again.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use starling_topology::Digest;

/// As many as are remembered: more than a store keeps.
const MAX_REMEMBERED: usize = 256;

/// What a store's clones share.
#[derive(Debug, Clone, Default)]
pub(super) struct Sound(Arc<Mutex<BTreeSet<Digest>>>);

impl Sound {
    pub(super) fn has(&self, id: Digest) -> bool {
        self.lock().contains(&id)
    }

    pub(super) fn note(&self, id: Digest) {
        let mut known = self.lock();
        if known.len() >= MAX_REMEMBERED {
            known.clear(); // They are read once more.
        }
        known.insert(id);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<Digest>> {
        // A set of names is sound whoever panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
