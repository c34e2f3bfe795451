//! Writes checkpoints in a thread of its own, so that steps don't wait for the disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use starling_train::{CheckpointStore, ReplicatedState};

use crate::error::NodeError;
use crate::report::{Observer, Report};

/// What the thread is to do.
enum Job {
    Save(ReplicatedState),
    /// Mark what is there as no longer the run's, and say when that is on disk.
    Abandon(SyncSender<()>),
}

/// A thread that saves what it is handed, one state at a time.
pub(crate) struct Saver {
    jobs: SyncSender<Job>,
    /// Whether a state waits or is being written.
    busy: Arc<AtomicBool>,
    thread: JoinHandle<Result<(), starling_train::Error>>,
}

impl Saver {
    pub(crate) fn start(store: CheckpointStore, observer: Arc<dyn Observer>) -> Result<Self, NodeError> {
        let (jobs, queue) = sync_channel(1);
        let busy = Arc::new(AtomicBool::new(false));
        let writing = busy.clone();
        let thread = std::thread::Builder::new()
            .name("saver".into())
            .spawn(move || save_all(&store, &queue, &writing, observer.as_ref()))
            .map_err(NodeError::Thread)?;
        Ok(Self { jobs, busy, thread })
    }

    /// Saves a state if the disk has kept up, else leaves it to the next occasion. Copies it only if it is saved.
    pub(crate) fn offer(&self, state: impl FnOnce() -> ReplicatedState) {
        if !self.busy.swap(true, Ordering::AcqRel) {
            // The send fails only if the thread has ended; `finish` tells why.
            let _ = self.jobs.send(Job::Save(state()));
        }
    }

    /// Another state than what led to the checkpoints is about to be taken: a run that starts again must not go on from
    /// them. On disk when this returns.
    pub(crate) fn abandon(&self) {
        let (done, marked) = sync_channel(1);
        // Either fails only if the thread has ended; `finish` tells why.
        let _ = self.jobs.send(Job::Abandon(done));
        let _ = marked.recv();
    }

    /// Saves the last state, if any, and waits until everything is on disk.
    pub(crate) fn finish(self, last: Option<ReplicatedState>) -> Result<(), NodeError> {
        if let Some(state) = last {
            // The send fails only if the thread has ended; its error comes from the join.
            let _ = self.jobs.send(Job::Save(state));
        }
        drop(self.jobs);
        self.thread.join().map_err(|_| NodeError::Stopped("checkpoint thread"))?.map_err(NodeError::Train)
    }
}

/// Does what comes. The outcome is that of the last state.
fn save_all(
    store: &CheckpointStore,
    jobs: &Receiver<Job>,
    busy: &AtomicBool,
    observer: &dyn Observer,
) -> Result<(), starling_train::Error> {
    let mut outcome = Ok(());
    for job in jobs {
        // A full disk must not end the run: the user is told, and the next state is tried again.
        match job {
            Job::Save(state) => {
                outcome = store.save(&state).map(|_| ()).map_err(starling_train::Error::from);
                busy.store(false, Ordering::Release);
                observer.report(&match &outcome {
                    Ok(()) => Report::Saved { step: state.step, digest: state.digest().to_string() },
                    Err(error) => Report::Warning { message: format!("no checkpoint of step {}: {error}", state.step) },
                });
            }
            Job::Abandon(done) => {
                if let Err(error) = store.abandon() {
                    let message = format!("can't mark old checkpoints ({error}); don't resume from them");
                    observer.report(&Report::Warning { message });
                }
                let _ = done.send(());
            }
        }
    }
    outcome
}
