//! States that joiners download: cut into chunks once, handed out from memory, dropped when nobody needs them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use starling_run::{ReplicatedState, StateSnapshot};
use starling_topology::{Digest, Generation};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::exchange::MIN_KEPT;
use crate::pace::Pace;

/// Snapshots kept at a time. A joiner whose snapshot makes room for newer ones joins again.
const MAX_SNAPSHOTS: usize = 3;
/// So many steps after a snapshot, it is handed out without a limit. A joiner keeps the results of all steps since, and
/// in a fast run a slow download would never end: before it did, there would be no room for more of them.
const UNLIMITED_AFTER: u64 = MIN_KEPT as u64 / 2;

/// What is there of a step's state.
#[derive(Debug)]
pub(crate) enum Found {
    /// It will not come.
    Nothing,
    /// It is on its way.
    Later,
    /// All of it.
    Here(Arc<StateSnapshot>),
}

/// The snapshots of this member.
#[derive(Debug)]
pub(crate) struct Snapshots {
    /// By step; `None` while a snapshot is being made.
    kept: Mutex<BTreeMap<u64, Option<Arc<StateSnapshot>>>>,
    pace: Arc<Pace>,
    /// The newest view in which this member knows which snapshots are needed.
    entered: AtomicU64,
    /// The last step of the run that this member has applied.
    reached: watch::Sender<u64>,
}

impl Snapshots {
    /// None yet. They are handed out at `pace`, but for joiners that would not arrive at all.
    pub(crate) fn new(pace: Arc<Pace>) -> Arc<Self> {
        Arc::new(Self { kept: Mutex::default(), pace, entered: AtomicU64::new(0), reached: watch::Sender::new(0) })
    }

    /// What joiners of this view need was said by [`Self::expect`] or [`Self::clear`].
    pub(crate) fn enter(&self, generation: Generation) {
        self.entered.store(generation.0, Ordering::Release);
    }

    /// The run has gone on to `step`.
    pub(crate) fn reach(&self, step: u64) {
        self.reached.send_replace(step);
    }

    /// The state after `step` will be handed in.
    pub(crate) fn expect(&self, step: u64) {
        let mut kept = self.lock();
        kept.entry(step).or_default();
        while kept.len() > MAX_SNAPSHOTS {
            kept.pop_first();
        }
    }

    /// Takes a state that was expected. Cuts it on a thread of its own: the caller has steps to run.
    pub(crate) fn take(self: &Arc<Self>, state: ReplicatedState) {
        let snapshots = self.clone();
        let cut = move || {
            let step = state.step;
            let snapshot = Arc::new(StateSnapshot::of(state));
            // Nobody may want it any more.
            if let Some(slot) = snapshots.lock().get_mut(&step) {
                *slot = Some(snapshot);
            }
        };
        if let Err(error) = std::thread::Builder::new().name("snapshot".into()).spawn(cut) {
            tracing::warn!(%error, "no thread for a snapshot; joiners load the state elsewhere");
            self.clear();
        }
    }

    /// Nobody needs any.
    pub(crate) fn clear(&self) {
        self.lock().clear();
    }

    /// Nobody needs those of earlier steps. One of `step` may have been asked for since.
    pub(crate) fn clear_before(&self, step: u64) {
        self.lock().retain(|kept, _| *kept >= step);
    }

    /// The snapshot of the state after `step`, for a joiner that entered with the view of `generation`.
    pub(crate) fn after(&self, generation: Generation, step: u64) -> Found {
        match self.lock().get(&step) {
            // The joiner is there already, and this member is not.
            None if generation.0 > self.entered.load(Ordering::Acquire) => Found::Later,
            None => Found::Nothing,
            Some(None) => Found::Later,
            Some(Some(snapshot)) => Found::Here(snapshot.clone()),
        }
    }

    /// The snapshot with the manifest `id`.
    pub(crate) fn with_id(&self, id: Digest) -> Option<Arc<StateSnapshot>> {
        self.lock().values().flatten().find(|snapshot| snapshot.id() == id).cloned()
    }

    /// Waits until so many more bytes of the snapshot after `step` may go out.
    pub(crate) async fn wait_for_room(&self, step: u64, bytes: usize) {
        if let Some(at) = self.pace.reserve(Instant::now(), bytes) {
            let mut reached = self.reached.subscribe();
            tokio::select! {
                () = sleep_until(at) => {}
                _ = reached.wait_for(|reached| *reached >= step + UNLIMITED_AFTER) => {}
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Option<Arc<StateSnapshot>>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_make_room_and_what_nobody_expects_is_dropped() {
        let snapshots = Snapshots::new(Pace::new(0));
        (1..=4).for_each(|step| snapshots.expect(step));
        let after = |step| snapshots.after(Generation(2), step);
        assert!(matches!(after(1), Found::Later), "this member does not know yet what joiners of that view need");
        snapshots.enter(Generation(2));
        assert!(matches!(after(1), Found::Nothing));
        snapshots.clear_before(4);
        assert!(matches!(after(3), Found::Nothing));
        assert!(matches!(after(4), Found::Later));
        snapshots.clear();
        assert!(matches!(after(4), Found::Nothing));
    }

    #[tokio::test]
    async fn a_joiner_that_the_run_is_about_to_lose_gets_its_state_at_once() {
        let snapshots = Snapshots::new(Pace::new(1));
        snapshots.wait_for_room(7, 1 << 20).await;
        let waiting = tokio::spawn({
            let snapshots = snapshots.clone();
            async move { snapshots.wait_for_room(7, 1).await }
        });
        tokio::task::yield_now().await;
        snapshots.reach(7 + UNLIMITED_AFTER - 1);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished(), "a byte a second: this takes days");
        snapshots.reach(7 + UNLIMITED_AFTER);
        waiting.await.expect("no panic");
        snapshots.wait_for_room(7, 1 << 20).await;
    }
}
