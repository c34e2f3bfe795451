//! States that joiners download: cut into chunks once, handed out from memory, dropped when nobody needs them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use starling_engine::{SnapshotStatus, UNLIMITED_AFTER};
use starling_run::{ReplicatedState, ResultRecord, StateSnapshot};
use starling_topology::{Digest, Generation};
use tokio::sync::watch;

use crate::net::rate_limiter::RateLimiter;
use crate::start::host::thread;

type HeldSnapshots = starling_engine::SnapshotStore<Arc<StateSnapshot>>;

/// The snapshots of this member.
#[derive(Debug)]
pub(crate) struct Snapshots {
    kept: Mutex<HeldSnapshots>,
    pace: Arc<RateLimiter>,
    /// The last step of the run that this member has applied.
    reached: watch::Sender<u64>,
}

impl Snapshots {
    /// None yet. They are handed out at `pace`, but for joiners that would not arrive at all.
    pub(crate) fn new(pace: Arc<RateLimiter>) -> Arc<Self> {
        Arc::new(Self { kept: Mutex::default(), pace, reached: watch::Sender::new(0) })
    }

    /// Lets the event loop's machines say which are needed.
    pub(crate) fn act<T>(&self, act: impl FnOnce(&mut HeldSnapshots) -> T) -> T {
        act(&mut self.lock())
    }

    /// The run has gone on to `step`.
    pub(crate) fn reach(&self, step: u64) {
        self.reached.send_replace(step);
    }

    /// Takes a state that was expected. Cuts it on a thread of its own: the caller has steps to run.
    pub(crate) fn take(self: &Arc<Self>, state: ReplicatedState) {
        let snapshots = self.clone();
        let cut = move || {
            let step = state.step;
            let snapshot = Arc::new(StateSnapshot::of(state));
            snapshots.lock().put(step, snapshot);
        };
        if let Err(error) = thread("snapshot", cut) {
            tracing::warn!(%error, "no thread for a snapshot; joiners load the state elsewhere");
            self.lock().clear();
        }
    }

    /// The step of this result is applied here.
    pub(crate) fn applied(&self, result: &ResultRecord) {
        self.reach(result.step);
        self.lock().applied(result);
    }

    /// The snapshot of the state after `step`, for a joiner that entered with the view of `generation`.
    pub(crate) fn after(&self, generation: Generation, step: u64) -> SnapshotStatus<Arc<StateSnapshot>> {
        self.lock().after(generation, step)
    }

    /// The snapshot with the manifest `id`.
    pub(crate) fn with_id(&self, id: Digest) -> Option<Arc<StateSnapshot>> {
        self.lock().iter().find(|snapshot| snapshot.id() == id).cloned()
    }

    /// Waits until so many more bytes of the snapshot after `step` may go out.
    pub(crate) async fn wait_for_room(&self, step: u64, bytes: usize) {
        let mut reached = self.reached.subscribe();
        tokio::select! {
            biased;
            () = self.pace.wait_for_room(bytes) => {}
            _ = reached.wait_for(|reached| *reached >= step.saturating_add(UNLIMITED_AFTER)) => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, HeldSnapshots> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_joiner_that_the_run_is_about_to_lose_gets_its_state_at_once() {
        let snapshots = Snapshots::new(RateLimiter::new(1));
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
