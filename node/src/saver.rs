//! Writes checkpoints in a thread of its own, so that steps don't wait for the disk.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use starling_train::{CheckpointStore, ReplicatedState};

use crate::error::NodeError;
use crate::report::{Observer, Report};

/// A thread that saves what it is handed, one state at a time.
pub(crate) struct Saver {
    states: SyncSender<ReplicatedState>,
    thread: JoinHandle<Result<(), starling_train::Error>>,
}

impl Saver {
    pub(crate) fn start(store: CheckpointStore, observer: Arc<dyn Observer>) -> Result<Self, NodeError> {
        let (states, queue) = sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("saver".into())
            .spawn(move || save_all(store, &queue, observer.as_ref()))
            .map_err(NodeError::Network)?;
        Ok(Self { states, thread })
    }

    /// Saves `state` if the disk has kept up, else leaves it to the next occasion.
    pub(crate) fn offer(&self, state: impl FnOnce() -> ReplicatedState) {
        // A full queue means that an older state still waits: a later one will come.
        let _ = self.states.try_send(state());
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

fn save_all(
    store: CheckpointStore,
    states: &Receiver<ReplicatedState>,
    observer: &dyn Observer,
) -> Result<(), starling_train::Error> {
    let mut outcome = Ok(());
    for state in states {
        // A full disk must not end the run: the user is told, and the next state is tried again.
        outcome = store.save(&state).map(|_| ()).map_err(starling_train::Error::from);
        observer.report(&match &outcome {
            Ok(()) => Report::Saved { step: state.step, digest: state.digest().to_string() },
            Err(error) => Report::Warning { message: format!("no checkpoint of step {}: {error}", state.step) },
        });
    }
    outcome
}
