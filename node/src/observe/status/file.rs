//! Keeping the status file current without making the node wait for the disk.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use super::{Phase, Process, Status};
use crate::observe::clock;
use crate::observe::report::{Observer, Report};
use crate::start::host;

/// How often news that can wait is written.
const INTERVAL: Duration = Duration::from_millis(500);
/// What the last write may take.
const LAST_WRITE: Duration = Duration::from_secs(2);

/// Writes what it is told to the status file, on a thread of its own: about twice a second, sooner for what matters.
#[derive(Debug)]
pub struct StatusFile {
    shared: Arc<Shared>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    data_dir: PathBuf,
    slot: Mutex<Slot>,
    changed: Condvar,
}

/// The newest status: later ones replace those not yet written.
#[derive(Debug)]
struct Slot {
    status: Status,
    is_new: bool,
    is_urgent: bool,
    is_closed: bool,
}

impl StatusFile {
    /// For the node of this process. Nothing is written before the first report.
    pub fn new(data_dir: &Path) -> Self {
        let status = Status { process: Process::this(), began: clock::utc(SystemTime::now()), ..Status::default() };
        let slot = Slot { status, is_new: false, is_urgent: false, is_closed: false };
        let shared =
            Arc::new(Shared { data_dir: data_dir.to_owned(), slot: Mutex::new(slot), changed: Condvar::new() });
        let for_writer = Arc::clone(&shared);
        let writer = std::thread::spawn(move || for_writer.write_until_closed());
        Self { shared, writer: Mutex::new(Some(writer)) }
    }

    /// Notes that the node failed.
    pub fn fail(&self, error: &str) {
        let mut slot = self.shared.lock();
        slot.status.phase = Phase::Failed;
        slot.status.error = Some(error.to_owned());
        (slot.is_new, slot.is_urgent) = (true, true);
    }

    /// Writes what is left. Reports that come later are not written.
    pub fn close(&self) {
        self.shared.lock().is_closed = true;
        self.shared.changed.notify_one();
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A disk that hangs is told of elsewhere.
        let ended = writer.and_then(|writer| host::join_until(writer, Instant::now() + LAST_WRITE));
        if let Some(Err(_)) = ended {
            tracing::error!("the thread that writes the status file panicked");
        }
    }
}

impl Observer for StatusFile {
    fn report(&self, report: &Report) {
        let mut slot = self.shared.lock();
        let is_urgent = slot.status.update(report);
        slot.is_new = true;
        slot.is_urgent |= is_urgent;
        self.shared.changed.notify_one();
    }
}

impl Drop for StatusFile {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Slot> {
        // A lock poisoned by a panic elsewhere still guards sound data.
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_until_closed(&self) {
        let mut written: Option<Instant> = None;
        let mut slot = self.lock();
        loop {
            slot = self
                .changed
                .wait_while(slot, |slot| !slot.is_new && !slot.is_closed)
                .unwrap_or_else(PoisonError::into_inner);
            let pause = written.map_or(Duration::ZERO, |written| INTERVAL.saturating_sub(written.elapsed()));
            (slot, _) = self
                .changed
                .wait_timeout_while(slot, pause, |slot| !slot.is_urgent && !slot.is_closed)
                .unwrap_or_else(PoisonError::into_inner);
            if !slot.is_new {
                return;
            }
            (slot.is_new, slot.is_urgent) = (false, false);
            slot.status.updated_unix_ms = unix_ms();
            let status = slot.status.clone();
            drop(slot);
            if let Err(error) = status.write(&self.data_dir) {
                tracing::warn!(%error, "can't keep the status file current; `starling status` will be behind");
            }
            written = Some(Instant::now());
            slot = self.lock();
        }
    }
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
