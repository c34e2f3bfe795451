//! Writes checkpoints in a thread of its own, so that steps don't wait for the disk. The only one that writes to the store
//! while a node runs.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use starling_engine::LAST_TRIES;
use starling_run::{CheckpointError, CheckpointStore, CheckpointSummary, ReplicatedState};
use starling_topology::{Mark, Proof, Root};
use tokio::sync::mpsc;

use crate::error::NodeError;
use crate::observe::repeats::Repeats;
use crate::observe::report::{Observer, Report};
use crate::start::host;
use crate::store::contacts_file::{Contacts, ContactsFile};
use crate::store::mark_file::MarkFile;

/// Things to do that wait for the disk: one state, the last state, and what the event loop asks.
const MAX_WAITING: usize = 32;
/// Checkpoints that the event loop has yet to hear of.
const MAX_TOLD: usize = 4;
/// A disk that is slower than this, in bytes per second, is taken for one that hangs.
const SLOWEST_DISK: u64 = 8 << 20;
/// What a disk that hung before gets to come back.
const LAST_CHANCE: Duration = Duration::from_millis(200);
/// How long it takes at most until the state after the last step is tried again.
const LAST_PAUSE: Duration = Duration::from_secs(1);
/// How often the event loop is told of the last state, if it has no room for that.
const LAST_TELLINGS: u32 = 100;
/// For how long an update waits for a state that is written: as a disk of so many bytes per second takes, and no longer than this, as all wait for it.
/// A slower disk costs memory instead: of what is not written, the update makes a copy.
const WAITED_BYTES: u64 = 256 << 20;
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// How often somebody who waits for the thread looks.
const LOOK: Duration = Duration::from_millis(5);

enum Task {
    Save(ReplicatedState),
    /// Save the state after the last step; say then whether it is on disk.
    Keep(ReplicatedState, SyncSender<bool>),
    Sign(Proof),
    Note(Contacts),
    /// Put aside what the newest root does not admit.
    PutAside,
    End(Option<ReplicatedState>),
}

/// The trainer's end: a thread that saves what it is handed, one state at a time.
pub(crate) struct CheckpointWriter {
    tasks: SyncSender<Task>,
    /// Whether a state waits or is being written.
    busy: Arc<AtomicBool>,
    thread: JoinHandle<Result<(), CheckpointError>>,
    /// What the disk gets before it is taken for one that hangs.
    limit: Duration,
    /// Where states are saved.
    place: PathBuf,
    /// The step of the newest state that was handed over.
    step: u64,
    /// Its vectors, which the trainer shares, and how many held each of them then.
    vectors: Vec<(Weak<Vec<f32>>, usize)>,
    /// Whether the disk did not answer in time.
    hangs: bool,
    /// Whether it did not take the state after the last step.
    is_lost: bool,
}

/// The event loop's end.
pub(crate) struct WriterHandle {
    tasks: SyncSender<Task>,
    /// For telling it what counts.
    store: CheckpointStore,
    /// Checkpoints that are on disk, verified.
    pub(crate) saved: mpsc::Receiver<CheckpointSummary>,
}

impl CheckpointWriter {
    /// Writes states of at most `state_bytes`. A disk that does not answer for `stall`, and what so many bytes take on the
    /// slowest disk there is, hangs.
    pub(crate) fn start(
        store: CheckpointStore,
        (contacts, marks): (ContactsFile, MarkFile),
        observer: Arc<dyn Observer>,
        (stall, state_bytes): (Duration, u64),
    ) -> Result<(Self, WriterHandle), NodeError> {
        let (tasks, queue) = sync_channel(MAX_WAITING);
        let (told, saved) = mpsc::channel(MAX_TOLD);
        let busy = Arc::new(AtomicBool::new(false));
        let (limit, place) = (stall + Duration::from_secs(state_bytes / SLOWEST_DISK), store.directory().to_owned());
        let pause = LAST_PAUSE.min(limit / (2 * LAST_TRIES));
        let (unsaved, unnoted) = (Repeats::default(), Repeats::default());
        let (kept, is_busy) = (store.clone(), busy.clone());
        let writer = Writer { store: kept, contacts, marks, busy: is_busy, told, observer, pause, unsaved, unnoted };
        let thread = host::thread("saver", move || writer.run(&queue)).map_err(NodeError::Thread)?;
        let checkpoint_writer = Self {
            tasks: tasks.clone(),
            busy,
            thread,
            limit,
            place,
            step: 0,
            vectors: Vec::new(),
            hangs: false,
            is_lost: false,
        };
        Ok((checkpoint_writer, WriterHandle { tasks, store, saved }))
    }

    /// Whether an earlier state is still on its way to the disk.
    pub(crate) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire)
    }

    /// Saves the state, however busy the disk is.
    pub(crate) fn save(&mut self, state: ReplicatedState) {
        self.step = state.step;
        let vectors = std::iter::once(&state.parameters).chain(&state.moments);
        self.vectors = vectors.map(|vector| (Arc::downgrade(vector), Arc::strong_count(vector))).collect();
        // Before it is handed over: the thread may be done with it at once.
        self.busy.store(true, Ordering::Release);
        // It fails if the thread has ended, as `finish` tells, or notes have filled the queue: then a later one is saved.
        if self.tasks.try_send(Task::Save(state)).is_err() {
            self.busy.store(false, Ordering::Release);
        }
    }

    /// Waits until the thread has given up the vectors of the state that it writes, which an update would have to copy, for a while. They are given up
    /// as they are written, which the disk need not be through with.
    pub(crate) fn wait_for_vectors(&mut self) {
        let vectors = std::mem::take(&mut self.vectors);
        let bytes: u64 = vectors.iter().filter_map(|(vector, _)| Some(4 * vector.upgrade()?.len() as u64)).sum();
        let until = Instant::now() + LONGEST_WAIT.min(Duration::from_millis(bytes * 1000 / WAITED_BYTES));
        let is_held = |(vector, holders): &(Weak<Vec<f32>>, usize)| vector.strong_count() >= *holders;
        while self.is_busy() && vectors.iter().any(is_held) && Instant::now() < until {
            std::thread::sleep(LOOK);
        }
    }

    /// Saves the state after the last step, however busy the disk is: those who hear of that step may go for good. On disk
    /// when this returns true; else the user knows why it is not, or the disk hangs: nobody can wait for that.
    pub(crate) fn keep(&mut self, state: ReplicatedState) -> bool {
        let (done, kept) = sync_channel(1);
        self.step = state.step;
        let until = Instant::now() + self.limit;
        let is_taken = self.hand_over(Task::Keep(state, done), until);
        // Who has ended does not hang; `finish` tells why.
        let left = until.saturating_duration_since(Instant::now());
        let kept = kept.recv_timeout(left);
        self.hangs = !is_taken || kept == Err(RecvTimeoutError::Timeout);
        self.is_lost = kept == Ok(false);
        kept == Ok(true)
    }

    /// Waits for room in the queue. Whether there was, or nobody takes anything any more.
    fn hand_over(&self, mut task: Task, until: Instant) -> bool {
        loop {
            match self.tasks.try_send(task) {
                Ok(()) | Err(TrySendError::Disconnected(_)) => return true,
                Err(TrySendError::Full(back)) if Instant::now() < until => task = back,
                Err(TrySendError::Full(_)) => return false,
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Saves the last state, if any, and waits until everything is on disk, or the disk has not answered for so long that
    /// it hangs: then the process ends under the thread.
    pub(crate) fn finish(self, last: Option<ReplicatedState>) -> Result<(), NodeError> {
        let step = last.as_ref().map_or(self.step, |state| state.step);
        let is_lost = self.is_lost && last.is_none();
        let until = Instant::now() + if self.hangs { LAST_CHANCE } else { self.limit };
        // Of a thread that has ended, the error comes from the join.
        let is_taken = self.hand_over(Task::End(last), until);
        let Some(ended) = is_taken.then(|| host::join_until(self.thread, until)).flatten() else {
            return Err(NodeError::Unsaved { step, place: self.place, limit: self.limit });
        };
        let outcome = ended.map_err(|_| NodeError::Stopped("checkpoint thread"))?;
        outcome.map_err(|source| if is_lost { NodeError::NotKept { step, source } } else { source.into() })
    }
}

impl WriterHandle {
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
    /// that are still to come are not saved. If there is no room for that task, the next save does it.
    pub(crate) fn root_in(&self, root: Root) {
        if self.store.root_in(root) {
            self.ask(Task::PutAside);
        }
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
    marks: MarkFile,
    busy: Arc<AtomicBool>,
    told: mpsc::Sender<CheckpointSummary>,
    observer: Arc<dyn Observer>,
    /// How long it waits before it tries the last state again.
    pause: Duration,
    /// States that could not be saved.
    unsaved: Repeats,
    /// Those that could not be noted.
    unnoted: Repeats,
}

impl Writer {
    /// Does what comes. The outcome is that of the last state.
    fn run(&self, tasks: &Receiver<Task>) -> Result<(), CheckpointError> {
        let mut outcome = Ok(());
        for task in tasks {
            match task {
                Task::Save(state) => {
                    match self.save(state, 1) {
                        // It was on its way when its branch was left, and nobody misses it. The last one is another matter.
                        Err(CheckpointError::OtherBranch { .. }) => {}
                        saved => outcome = saved,
                    }
                    self.busy.store(false, Ordering::Release);
                }
                Task::Keep(state, done) => {
                    outcome = self.save_last(state);
                    // Nobody may be waiting.
                    let _ = done.send(outcome.is_ok());
                }
                Task::Sign(proof) => self.sign(&proof),
                Task::Note(contacts) => {
                    if let Err(error) = self.contacts.store(&contacts) {
                        tracing::warn!(%error, "who else is in the run can't be kept for when this process is gone");
                    }
                }
                Task::PutAside => self.put_aside(),
                Task::End(None) => break,
                Task::End(Some(state)) => return self.save_last(state),
            }
        }
        outcome
    }

    /// This process goes by the root, and one that starts again by its record: a list that can't be written is told to those who
    /// look at the folder.
    fn put_aside(&self) {
        let lost = self.store.put_aside();
        for step in lost.iter().flatten() {
            let place = self.store.directory().display();
            let message = format!(
                "the checkpoint of step {step}, which a quorum had signed, is of a branch that those who go on have left; it stays in {place}, and \
                 `starling checkpoint ls` shows it"
            );
            self.observer.report(&Report::Warning { message });
        }
        self.warn("checkpoints of a branch that was left can't be put aside", lost.map(drop));
    }

    /// The event loop is told as often as that.
    fn save(&self, state: ReplicatedState, tellings: u32) -> Result<(), CheckpointError> {
        let step = state.step;
        // A full disk must not end the run: the user is told, and the next state is tried again.
        let saved = self.store.save_and_tidy(state);
        match &saved {
            Ok((info, _)) => {
                self.observer.report(&Report::Saved { step, digest: info.digest.to_string() });
                let count = self.unsaved.succeed();
                if count > 0 {
                    let message = format!("the checkpoint of step {step} is saved; before it, it failed {count} times");
                    self.observer.report(&Report::Warning { message });
                }
            }
            Err(error) => {
                // Of a branch that was left is a state once, and says nothing of the disk.
                let is_left = matches!(error, CheckpointError::OtherBranch { .. });
                let due = if is_left { Some(1) } else { self.unsaved.fail() };
                if let Some(count) = due {
                    let message = format!("no checkpoint of step {step}: {error}{}", in_row(count));
                    self.observer.report(&Report::Warning { message });
                }
            }
        }
        let (info, untidy) = saved?;
        self.warn("what is not needed any more can't be removed", untidy.map_or(Ok(()), Err));
        if !self.note_saved(&info) {
            return Ok(()); // It is there to go on from, and nobody signs it.
        }
        // An event loop that lags, or has ended, can do without: the next one follows.
        for _ in 1..tellings {
            match self.told.try_send(info.clone()) {
                Ok(()) => return Ok(()),
                Err(_) => std::thread::sleep(LOOK),
            }
        }
        let _ = self.told.try_send(info);
        Ok(())
    }

    /// Notes outside of the checkpoints that this one is there, before anybody signs it. Whether it may be signed.
    fn note_saved(&self, info: &CheckpointSummary) -> bool {
        let (root, saved) = (self.store.root().unwrap_or_default(), Mark { step: info.step, lineage: info.lineage });
        // Its branch may have been left meanwhile: what is noted of the one that goes on must stay.
        if self.store.root().is_some_and(|root| !root.admits(saved.step, saved.lineage)) {
            return false;
        }
        let Err(error) = self.marks.note(saved, &root) else {
            self.unnoted.succeed();
            return true;
        };
        if let Some(count) = self.unnoted.fail() {
            let (step, count) = (saved.step, in_row(count));
            let message = format!("the checkpoint of step {step} is not signed, as it can't be noted: {error}{count}");
            self.observer.report(&Report::Warning { message });
        }
        false
    }

    /// There is no later state to save in the place of the last one, so it is tried again.
    fn save_last(&self, state: ReplicatedState) -> Result<(), CheckpointError> {
        for _ in 1..LAST_TRIES {
            match self.save(state.clone(), LAST_TELLINGS) {
                Err(error) if error.may_pass() => std::thread::sleep(self.pause),
                saved => return saved,
            }
        }
        self.save(state, LAST_TELLINGS)
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

/// What is said of failures before this one.
fn in_row(count: u64) -> String {
    if count > 1 { format!(" ({count} times in a row by now)") } else { String::new() }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use starling_topology::{Ledger, Lineage, PeerId, RunId};

    use super::*;

    /// Nobody gets on who tells it anything, as if what it tells were written to a disk that hangs.
    struct Hanging(Mutex<Receiver<()>>);

    impl Observer for Hanging {
        fn report(&self, _report: &Report) {
            let _ended = self.0.lock().expect("no panic").recv();
        }
    }

    fn state(step: u64) -> ReplicatedState {
        let (mut ledger, members) = (Ledger::new(1, 8, 8), [PeerId([1; 32])]);
        ledger.assign(&members);
        (1..=step).for_each(|step| drop(ledger.commit(step, &members, &[1])));
        let (parameters, moments, scalars) = (vec![1.0; 4].into(), Vec::new(), Vec::new());
        ReplicatedState {
            run: RunId([1; 32]),
            step,
            lineage: Lineage::NONE,
            parameters,
            frozen: Arc::default(),
            moments,
            scalars,
            ledger,
        }
    }

    fn files(dir: &std::path::Path) -> (ContactsFile, MarkFile) {
        let run = RunId([1; 32]);
        (ContactsFile::new(dir, run), MarkFile::new(&dir.join("notes"), run, PeerId([1; 32])))
    }

    #[test]
    fn a_checkpoint_that_can_not_be_noted_is_kept_and_not_signed() {
        for is_noted in [true, false] {
            let folder = tempfile::tempdir().expect("a folder");
            let store = CheckpointStore::open(folder.path(), 2).expect("a store");
            if !is_noted {
                std::fs::write(folder.path().join("notes"), b"in the way").expect("written");
            }
            let patience = (Duration::from_secs(60), 0);
            let started = CheckpointWriter::start(store.clone(), files(folder.path()), Arc::new(Deaf), patience);
            let (mut checkpoint_writer, mut writer_handle) = started.expect("a thread");
            assert!(checkpoint_writer.keep(state(2)), "it is on disk");
            assert_eq!(writer_handle.saved.try_recv().is_ok(), is_noted);
            checkpoint_writer.finish(None).expect("it is saved");
            assert_eq!(store.steps().expect("read"), [2]);
        }
    }

    struct Deaf;

    impl Observer for Deaf {
        fn report(&self, _report: &Report) {}
    }

    #[test]
    fn a_last_state_that_the_record_does_not_admit_is_not_said_to_be_saved() {
        let root = Root { step: 5, ..Root::default() };
        for keeps in [false, true] {
            let folder = tempfile::tempdir().expect("a folder");
            let store = CheckpointStore::open(folder.path(), 2).expect("a store");
            let contacts = files(folder.path());
            let patience = (Duration::from_secs(60), 0);
            let (mut checkpoint_writer, writer_handle) =
                CheckpointWriter::start(store.clone(), contacts, Arc::new(Deaf), patience).expect("a thread");
            writer_handle.root_in(root);
            // On its way when its branch was left.
            checkpoint_writer.save(state(4));
            checkpoint_writer.save(state(6));
            let last = if keeps {
                assert!(!checkpoint_writer.keep(state(4)));
                None
            } else {
                Some(state(4))
            };
            let error = checkpoint_writer.finish(last).expect_err("it is of another branch").to_string();
            assert!(error.contains("the state after step 4 is not of the branch"), "{error}");
            assert_eq!(store.steps().expect("read"), [6]);
        }
    }

    #[test]
    fn a_last_state_that_the_disk_does_not_take_is_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = CheckpointStore::open(folder.path(), 2).expect("a store");
        let contacts = files(folder.path());
        let patience = (Duration::from_secs(60), 0);
        let (mut checkpoint_writer, _desk) =
            CheckpointWriter::start(store, contacts, Arc::new(Deaf), patience).expect("a thread");
        assert!(checkpoint_writer.keep(state(2)));
        // What is not there takes nothing.
        std::fs::remove_dir_all(folder.path()).expect("removed");
        assert!(!checkpoint_writer.keep(state(3)));
        let error = checkpoint_writer.finish(None).expect_err("it is not saved");
        assert!(matches!(error, NodeError::NotKept { step: 3, .. }), "{error}");
        assert!(error.to_string().contains("keeps its place"), "{error}");
    }

    #[test]
    fn a_last_state_that_failed_once_is_tried_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = CheckpointStore::open(folder.path(), 2).expect("a store");
        let contacts = files(folder.path());
        /// Mends the disk once it has heard that it does not take the state.
        struct Mends(PathBuf);
        impl Observer for Mends {
            fn report(&self, report: &Report) {
                if matches!(report, Report::Warning { .. }) {
                    std::fs::create_dir_all(self.0.join("chunks")).expect("made");
                }
            }
        }
        let observer = Arc::new(Mends(folder.path().to_owned()));
        let patience = (Duration::from_secs(3), 0);
        let (mut checkpoint_writer, _desk) =
            CheckpointWriter::start(store.clone(), contacts, observer, patience).expect("a thread");
        std::fs::remove_dir_all(folder.path()).expect("removed");
        assert!(checkpoint_writer.keep(state(3)));
        checkpoint_writer.finish(None).expect("it is saved");
        assert_eq!(store.steps().expect("read"), [3]);
    }

    #[test]
    fn nobody_waits_for_a_disk_that_hangs_longer_than_the_limit() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = CheckpointStore::open(folder.path(), 2).expect("a store");
        let contacts = files(folder.path());
        let (release, hangs) = sync_channel(0);
        let observer = Arc::new(Hanging(Mutex::new(hangs)));
        let patience = (Duration::from_millis(50), 0);
        let (mut checkpoint_writer, writer_handle) =
            CheckpointWriter::start(store, contacts, observer, patience).expect("a thread");
        checkpoint_writer.save(state(1));
        for _ in 0..2 * MAX_WAITING {
            checkpoint_writer.save(state(2));
            writer_handle.note(Contacts::default());
        }
        assert!(!checkpoint_writer.keep(state(3)));
        let error = checkpoint_writer.finish(None).expect_err("it hangs");
        assert!(matches!(error, NodeError::Unsaved { step: 3, .. }), "{error}");
        let place = folder.path().display().to_string();
        assert!(
            error.to_string().contains(&place) && error.to_string().contains("after step 3 is not saved"),
            "{error}"
        );
        drop(release);
    }

    #[test]
    fn a_fast_disk_is_ready_for_the_next_state() {
        // In memory, where the system has that: 600 files that are synced take minutes on a disk.
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder");
        let store = CheckpointStore::open(folder.path(), 2).expect("a store");
        let contacts = files(folder.path());
        let patience = (Duration::from_secs(60), 0);
        let (mut checkpoint_writer, mut handle) =
            CheckpointWriter::start(store, contacts, Arc::new(Deaf), patience).expect("a thread");
        for step in 1..=300 {
            checkpoint_writer.save(state(step));
            // Whatever is told to the thread after it comes after it.
            let (done, kept) = sync_channel(1);
            assert!(
                checkpoint_writer.hand_over(Task::Keep(state(step), done), Instant::now() + checkpoint_writer.limit)
            );
            assert_eq!(kept.recv_timeout(checkpoint_writer.limit), Ok(true));
            assert!(!checkpoint_writer.is_busy(), "after step {step}");
            // The last state waits for an event loop that does not listen.
            while handle.saved.try_recv().is_ok() {}
        }
        checkpoint_writer.finish(None).expect("saved");
    }

    #[test]
    fn a_slow_disk_is_waited_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = CheckpointStore::open(folder.path(), 4).expect("a store");
        let contacts = files(folder.path());
        let (release, hangs) = sync_channel(0);
        let observer = Arc::new(Hanging(Mutex::new(hangs)));
        let patience = (Duration::ZERO, 600 * SLOWEST_DISK);
        let (mut checkpoint_writer, _desk) =
            CheckpointWriter::start(store.clone(), contacts, observer, patience).expect("a thread");
        checkpoint_writer.save(state(1));
        let released = std::thread::spawn(move || [(); 3].map(|()| release.send(())));
        assert!(checkpoint_writer.keep(state(2)));
        checkpoint_writer.finish(Some(state(3))).expect("saved");
        assert_eq!(store.steps().expect("read"), [1, 2, 3]);
        assert!(released.join().expect("no panic").iter().all(Result::is_ok));
    }
}
