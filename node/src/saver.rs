//! Writes checkpoints in a thread of its own, so that steps don't wait for the disk. The only one that writes to the store
//! while a node runs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use starling_run::{CheckpointError, CheckpointInfo, CheckpointStore, ReplicatedState};
use starling_topology::{Proof, Root};
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
    /// Put aside what the newest root does not admit.
    PutAside,
    End(Option<ReplicatedState>),
}

/// The trainer's end: a thread that saves what it is handed, one state at a time.
pub(crate) struct Saver {
    tasks: SyncSender<Task>,
    /// Whether a state waits or is being written.
    busy: Arc<AtomicBool>,
    thread: JoinHandle<Result<(), CheckpointError>>,
}

/// The event loop's end.
pub(crate) struct Desk {
    tasks: SyncSender<Task>,
    root: Arc<Mutex<Option<Root>>>,
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
        let root = Arc::default();
        let writer = Writer { store, contacts, busy: busy.clone(), root: Arc::clone(&root), told, observer };
        let thread = std::thread::Builder::new()
            .name("saver".into())
            .spawn(move || writer.run(&queue))
            .map_err(NodeError::Thread)?;
        Ok((Self { tasks: tasks.clone(), busy, thread }, Desk { tasks, root, saved }))
    }

    /// Whether an earlier state is still on its way to the disk.
    pub(crate) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire)
    }

    /// Saves the state, however busy the disk is.
    pub(crate) fn save(&self, state: ReplicatedState) {
        self.busy.store(true, Ordering::Release);
        // The send fails only if the thread has ended; `finish` tells why.
        let _ = self.tasks.send(Task::Save(state));
    }

    /// Saves the state after the last step, however busy the disk is: those who hear of that step may go for good. On disk
    /// when this returns, or the user knows why it is not.
    pub(crate) fn keep(&self, state: ReplicatedState) {
        let (done, kept) = sync_channel(1);
        // Either fails only if the thread has ended; `finish` tells why.
        let _ = self.tasks.send(Task::Keep(state, done));
        let _ = kept.recv();
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

    /// From here on, checkpoints that `root` does not admit are not the run's: those that are there are put aside, and states
    /// that are still to come are not saved.
    pub(crate) fn root_in(&self, root: Root) {
        let before = lock(&self.root).replace(root);
        if before != Some(root) {
            self.ask(Task::PutAside);
        }
    }

    fn ask(&self, task: Task) {
        if self.tasks.try_send(task).is_err() {
            tracing::warn!("the disk is so slow that a note on a checkpoint is left out");
        }
    }
}

fn lock(root: &Mutex<Option<Root>>) -> MutexGuard<'_, Option<Root>> {
    // A value that is replaced whole is sound whoever panicked.
    root.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread's own data.
struct Writer {
    store: CheckpointStore,
    contacts: ContactsFile,
    busy: Arc<AtomicBool>,
    root: Arc<Mutex<Option<Root>>>,
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
                Task::PutAside => self.put_aside(),
                Task::End(None) => break,
                Task::End(Some(state)) => return self.save(state),
            }
        }
        outcome
    }

    /// The member's record says the same, and a process that starts again goes by that: a list that can't be written is told
    /// to those who look at the folder.
    fn put_aside(&self) {
        if let Some(root) = *lock(&self.root) {
            self.warn("checkpoints of a branch that was left can't be put aside", self.store.put_aside(&root));
        }
    }

    fn save(&self, state: ReplicatedState) -> Result<(), CheckpointError> {
        let step = state.step;
        if lock(&self.root).is_some_and(|root| !root.admits(step, state.lineage)) {
            return Ok(()); // It was on its way when its branch was left.
        }
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
