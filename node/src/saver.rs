//! Writes checkpoints in a thread of its own, so that steps don't wait for the disk. The only one that writes to the store
//! while a node runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use starling_run::{CheckpointError, CheckpointInfo, CheckpointStore, ReplicatedState};
use starling_topology::{Digest, Proof};
use tokio::sync::mpsc;

use crate::contacts_file::{Contacts, ContactsFile};
use crate::error::NodeError;
use crate::report::{Observer, Report};

/// Things to do that wait for the disk: one state, the last state, and what the event loop asks.
const MAX_WAITING: usize = 32;
/// Checkpoints that the event loop has yet to hear of.
const MAX_TOLD: usize = 4;

enum Task {
    Save(ReplicatedState),
    /// Save the state after the last step; say when it is on disk.
    Keep(ReplicatedState, SyncSender<()>),
    Sign(Proof),
    Note(Contacts),
    /// Mark what is there, but `kept`, as no longer the run's; say when that is on disk.
    Abandon {
        kept: Option<Digest>,
        done: Option<SyncSender<()>>,
    },
    End(Option<ReplicatedState>),
}

/// The trainer's end: a thread that saves what it is handed, one state at a time.
pub(crate) struct Saver {
    tasks: SyncSender<Task>,
    /// Whether a state waits or is being written.
    busy: Arc<AtomicBool>,
    stride: Stride,
    thread: JoinHandle<Result<(), CheckpointError>>,
}

/// Which occasions to save a state are taken: each, or where the disk falls behind, each second, fourth, and so on. Members
/// whose disks differ so still save the same steps, at the rate of the slowest; else none of them might become stable.
#[derive(Debug, Default)]
struct Stride {
    doublings: u32,
    /// How often in a row the disk was ready.
    ready: u32,
}

impl Stride {
    /// Every 2^6th occasion at the least.
    const MAX_DOUBLINGS: u32 = 6;
    /// A finer stride is tried after so many occasions at which the disk was ready.
    const PATIENCE: u32 = 8;

    fn takes(&mut self, occasion: u64, is_busy: bool) -> bool {
        if !occasion.is_multiple_of(1 << self.doublings) {
            return false;
        }
        if is_busy {
            self.doublings = (self.doublings + 1).min(Self::MAX_DOUBLINGS);
            self.ready = 0;
            return false;
        }
        self.ready += 1;
        if self.ready > Self::PATIENCE {
            self.doublings = self.doublings.saturating_sub(1);
            self.ready = 0;
        }
        true
    }
}

/// The event loop's end.
pub(crate) struct Desk {
    tasks: SyncSender<Task>,
    /// Checkpoints that are on disk, verified.
    pub(crate) saved: mpsc::Receiver<CheckpointInfo>,
}

impl Saver {
    pub(crate) fn start(
        store: CheckpointStore,
        contacts: ContactsFile,
        observer: Arc<dyn Observer>,
    ) -> Result<(Self, Desk), NodeError> {
        let (tasks, queue) = sync_channel(MAX_WAITING);
        let (told, saved) = mpsc::channel(MAX_TOLD);
        let busy = Arc::new(AtomicBool::new(false));
        let writer = Writer { store, contacts, busy: busy.clone(), told, observer };
        let thread = std::thread::Builder::new()
            .name("saver".into())
            .spawn(move || writer.run(&queue))
            .map_err(NodeError::Thread)?;
        Ok((Self { tasks: tasks.clone(), busy, stride: Stride::default(), thread }, Desk { tasks, saved }))
    }

    /// Saves the state at its `occasion`, counted from 1, if the disk keeps up; else leaves it to a later one. An occasion
    /// of its own is 0. Copies the state only if it is saved.
    pub(crate) fn offer(&mut self, occasion: u64, state: impl FnOnce() -> ReplicatedState) {
        if self.stride.takes(occasion, self.busy.load(Ordering::Acquire)) {
            self.busy.store(true, Ordering::Release);
            // The send fails only if the thread has ended; `finish` tells why.
            let _ = self.tasks.send(Task::Save(state()));
        }
    }

    /// Saves the state after the last step, however busy the disk is: those who hear of that step may go for good. On disk
    /// when this returns, or the user knows why it is not.
    pub(crate) fn keep(&self, state: ReplicatedState) {
        let (done, kept) = sync_channel(1);
        // Either fails only if the thread has ended; `finish` tells why.
        let _ = self.tasks.send(Task::Keep(state, done));
        let _ = kept.recv();
    }

    /// Another state than what led to the checkpoints is about to be taken: a run that starts again must not go on from
    /// them. On disk when this returns.
    pub(crate) fn abandon(&self) {
        let (done, marked) = sync_channel(1);
        // Either fails only if the thread has ended; `finish` tells why.
        let _ = self.tasks.send(Task::Abandon { kept: None, done: Some(done) });
        let _ = marked.recv();
    }

    /// Saves the last state, if any, and waits until everything is on disk.
    pub(crate) fn finish(self, last: Option<ReplicatedState>) -> Result<(), NodeError> {
        // The send fails only if the thread has ended; its error comes from the join.
        let _ = self.tasks.send(Task::End(last));
        self.thread.join().map_err(|_| NodeError::Stopped("checkpoint thread"))?.map_err(NodeError::from)
    }
}

impl Desk {
    /// Writes verified signatures of a quorum beside their checkpoint.
    pub(crate) fn sign(&self, proof: Proof) {
        self.ask(Task::Sign(proof));
    }

    /// Notes who else is in the run and who keeps its checkpoints, to ask them when this machine comes back.
    /// False if there is no room for that now.
    pub(crate) fn note(&self, contacts: Contacts) -> bool {
        self.tasks.try_send(Task::Note(contacts)).is_ok()
    }

    /// The run goes on from `kept`: marks all other checkpoints as no longer the run's.
    pub(crate) fn abandon(&self, kept: Digest) {
        self.ask(Task::Abandon { kept: Some(kept), done: None });
    }

    fn ask(&self, task: Task) {
        if self.tasks.try_send(task).is_err() {
            tracing::warn!("the disk is so slow that a note on a checkpoint is left out");
        }
    }
}

/// The thread's own data.
struct Writer {
    store: CheckpointStore,
    contacts: ContactsFile,
    busy: Arc<AtomicBool>,
    told: mpsc::Sender<CheckpointInfo>,
    observer: Arc<dyn Observer>,
}

impl Writer {
    /// Does what comes. The outcome is that of the last state.
    fn run(&self, tasks: &Receiver<Task>) -> Result<(), CheckpointError> {
        let mut outcome = Ok(());
        for task in tasks {
            match task {
                Task::Save(state) => {
                    outcome = self.save(state);
                    self.busy.store(false, Ordering::Release);
                }
                Task::Keep(state, done) => {
                    outcome = self.save(state);
                    // Nobody may be waiting.
                    let _ = done.send(());
                }
                Task::Sign(proof) => self.sign(&proof),
                Task::Note(contacts) => {
                    if let Err(error) = self.contacts.store(&contacts) {
                        tracing::warn!(%error, "who else is in the run can't be kept for when this process is gone");
                    }
                }
                Task::Abandon { kept, done } => {
                    self.warn("can't mark old checkpoints; don't resume from them", self.store.abandon(kept));
                    // Nobody may be waiting.
                    done.map(|done| done.send(()));
                }
                Task::End(None) => break,
                Task::End(Some(state)) => return self.save(state),
            }
        }
        outcome
    }

    fn save(&self, state: ReplicatedState) -> Result<(), CheckpointError> {
        let step = state.step;
        // A full disk must not end the run: the user is told, and the next state is tried again.
        let saved = self.store.save(state);
        self.observer.report(&match &saved {
            Ok(info) => Report::Saved { step, digest: info.digest.to_string() },
            Err(error) => Report::Warning { message: format!("no checkpoint of step {step}: {error}") },
        });
        let info = saved?;
        // An event loop that lags or has ended can do without: the next one follows.
        let _ = self.told.try_send(info);
        Ok(())
    }

    fn sign(&self, Proof { head, view, signatures }: &Proof) {
        // Each was verified when it came.
        match self.store.sign(head, view, signatures, |_, _, _| true) {
            Ok(signed) => self.observer.report(&Report::Stable {
                step: head.step,
                digest: head.digest.to_string(),
                signers: signed.signatures.len(),
            }),
            // Newer ones have taken its place.
            Err(error @ CheckpointError::NotFound { .. }) => tracing::debug!(%error, "signed too late"),
            Err(error) => self.warn("a checkpoint's signatures can't be kept", Err(error)),
        }
    }

    fn warn(&self, what: &str, result: Result<(), CheckpointError>) {
        if let Err(error) = result {
            self.observer.report(&Report::Warning { message: format!("{what}: {error}") });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The occasions that a member saves, whose disk takes `needs` occasions for each.
    fn saved(needs: u64) -> Vec<u64> {
        let (mut stride, mut until) = (Stride::default(), 0);
        let takes = |occasion: &u64| {
            let taken = stride.takes(*occasion, *occasion < until);
            until = if taken { occasion + needs } else { until };
            taken
        };
        (1..=400).filter(takes).collect()
    }

    #[test]
    fn a_fast_disk_saves_each_time() {
        assert_eq!(saved(1).len(), 400);
    }

    #[test]
    fn members_with_slower_disks_save_steps_that_others_save() {
        let fast = saved(1);
        for needs in 2..=9 {
            let slow = saved(needs);
            assert!(slow.len() >= 400 / (4 * usize::try_from(needs).expect("small")), "{needs}: {slow:?}");
            for other in (2..=9).map(saved).chain([fast.clone()]) {
                let common = slow.iter().filter(|occasion| other.contains(occasion)).count();
                assert!(common >= 8, "{needs}: {slow:?} and {other:?}");
            }
        }
    }
}
