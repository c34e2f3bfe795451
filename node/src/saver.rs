//! Writes checkpoints in a thread of its own, so that steps don't wait for the disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use starling_train::{CheckpointStore, ReplicatedState};

use crate::error::NodeError;
use crate::report::{Observer, Report};

/// A thread that saves what it is handed, one state at a time.
pub(crate) struct Saver {
    states: SyncSender<ReplicatedState>,
    /// Whether a state waits or is being written.
    busy: Arc<AtomicBool>,
    thread: JoinHandle<Result<(), starling_train::Error>>,
}

impl Saver {
    pub(crate) fn start(store: CheckpointStore, observer: Arc<dyn Observer>) -> Result<Self, NodeError> {
        let (states, queue) = sync_channel(1);
        let busy = Arc::new(AtomicBool::new(false));
        let writing = busy.clone();
        let thread = std::thread::Builder::new()
            .name("saver".into())
            .spawn(move || save_all(&store, &queue, &writing, observer.as_ref()))
            .map_err(NodeError::Thread)?;
        Ok(Self { states, busy, thread })
    }

    /// Saves a state if the disk has kept up, else leaves it to the next occasion. Copies it only if it is saved.
    pub(crate) fn offer(&self, state: impl FnOnce() -> ReplicatedState) {
        if !self.busy.swap(true, Ordering::AcqRel) {
            // The send fails only if the thread has ended; `finish` tells why.
            let _ = self.states.send(state());
        }
    }

    /// Saves the last state, if any, and waits until everything is on disk.
    pub(crate) fn finish(self, last: Option<ReplicatedState>) -> Result<(), NodeError> {
        if let Some(state) = last {
            // The send fails only if the thread has ended; its error comes from the join.
            let _ = self.states.send(state);
        }
        drop(self.states);
        self.thread.join().map_err(|_| NodeError::Stopped("checkpoint thread"))?.map_err(NodeError::Train)
    }
}

/// Saves what comes. The outcome is that of the last state.
fn save_all(
    store: &CheckpointStore,
    states: &Receiver<ReplicatedState>,
    busy: &AtomicBool,
    observer: &dyn Observer,
) -> Result<(), starling_train::Error> {
    let mut outcome = Ok(());
    for state in states {
        // A full disk must not end the run: the user is told, and the next state is tried again.
        outcome = store.save(&state).map(|_| ()).map_err(starling_train::Error::from);
        busy.store(false, Ordering::Release);
        observer.report(&match &outcome {
            Ok(()) => Report::Saved { step: state.step, digest: state.digest().to_string() },
            Err(error) => Report::Warning { message: format!("no checkpoint of step {}: {error}", state.step) },
        });
    }
    outcome
}
