//! Checkpoints that somebody is about to fetch: they stay for a while, although newer ones are there.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use starling_topology::Digest;

use super::{CheckpointError, CheckpointStore};

/// Checkpoints that are kept for others besides those that are kept anyway. A run that saves in a hurry has a new one for
/// each who asks; whoever has lost one asks for a newer one.
const MAX_PINNED: usize = 2;

/// What a store's clones share.
#[derive(Debug, Clone, Default)]
pub(super) struct Pins {
    /// Those asked for last at the end.
    pinned: Arc<Mutex<Vec<(Digest, Instant)>>>,
}

/// The pins, while nothing is pinned or removed.
pub(super) struct Locked<'a>(MutexGuard<'a, Vec<(Digest, Instant)>>);

impl Pins {
    pub(super) fn lock(&self) -> Locked<'_> {
        // A list of names is sound whoever panicked.
        Locked(self.pinned.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Locked<'_> {
    pub(super) fn has(&self, id: Digest) -> bool {
        let now = Instant::now();
        self.0.iter().any(|(pinned, until)| *pinned == id && *until > now)
    }

    fn add(&mut self, id: Digest, until: Instant) {
        self.0.retain(|(pinned, _)| *pinned != id);
        self.0.push((id, until));
        if self.0.len() > MAX_PINNED {
            self.0.remove(0);
        }
    }
}

impl CheckpointStore {
    /// Keeps the checkpoint with this name for `time` from now, although it may be beyond those that are kept. Of several,
    /// the two that were pinned last. False if it is not here, or not any more.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn pin(&self, id: Digest, time: Duration) -> Result<bool, CheckpointError> {
        // While this is held, nothing is removed.
        let mut pins = self.pins.lock();
        let is_here = self.scan()?.iter().any(|(_, other, _)| *other == id);
        if is_here {
            let now = Instant::now();
            pins.add(id, now.checked_add(time).unwrap_or(now));
        }
        Ok(is_here)
    }
}
