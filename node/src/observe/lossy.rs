//! In front of an observer that may be stopped by a full pipe: what it has no room for is dropped, and counted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use crate::error::NodeError;
use crate::observe::report::{Observer, Report};
use crate::start::host;

/// Reports that wait to be shown; more are dropped, because nobody is looking.
const MAX_WAITING: usize = 256;
/// How long the last reports may take to be shown.
const FLUSH_LIMIT: Duration = Duration::from_secs(2);

/// An observer that never blocks, in front of one that may: that one has a thread of its own.
pub(crate) struct Lossy {
    queue: Mutex<Option<SyncSender<Waiting>>>,
    /// How many reports were dropped since the last one that was not.
    dropped: Arc<AtomicU64>,
    flushed: Mutex<Receiver<()>>,
}

/// A report that waits to be shown.
struct Waiting {
    at: SystemTime,
    report: Report,
    /// How many were dropped just before it.
    dropped: u64,
}

impl Lossy {
    /// Starts the thread that shows reports to `observer`.
    ///
    /// # Errors
    /// [`NodeError::Thread`] if there is none.
    pub(crate) fn start(observer: Arc<dyn Observer>) -> Result<Arc<Self>, NodeError> {
        let (queue, reports) = sync_channel::<Waiting>(MAX_WAITING);
        let (done, flushed) = sync_channel(1);
        let dropped = Arc::new(AtomicU64::new(0));
        let dropped_last = Arc::clone(&dropped);
        let show = move || {
            for Waiting { at, report, dropped } in reports {
                tell_dropped(observer.as_ref(), dropped);
                observer.report_at(at, &report);
            }
            tell_dropped(observer.as_ref(), dropped_last.swap(0, Ordering::Relaxed));
            // What it leaves on a screen is gone before anybody else writes there.
            drop(observer);
            // Nobody waits any more if showing took too long.
            let _ = done.send(());
        };
        host::thread("observer", show).map_err(NodeError::Thread)?;
        Ok(Arc::new(Self { queue: Mutex::new(Some(queue)), dropped, flushed: Mutex::new(flushed) }))
    }

    /// Waits until everything is shown, or for a short while if that is stuck. Later reports are dropped.
    pub(crate) fn finish(&self) {
        drop(self.queue.lock().unwrap_or_else(PoisonError::into_inner).take());
        let _ = self.flushed.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(FLUSH_LIMIT);
    }
}

fn tell_dropped(observer: &dyn Observer, count: u64) {
    if count > 0 {
        let message = format!("{count} reports are not shown here, since what came before them was not read in time");
        observer.report(&Report::Warning { message });
    }
}

impl Observer for Lossy {
    fn report(&self, report: &Report) {
        self.report_at(SystemTime::now(), report);
    }

    fn report_at(&self, at: SystemTime, report: &Report) {
        let guard = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(queue) = guard.as_ref() else { return };
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        if queue.try_send(Waiting { at, report: report.clone(), dropped }).is_err() {
            self.dropped.store(dropped.saturating_add(1), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keeps what it is told, once it is let through.
    struct Gate {
        entered: SyncSender<()>,
        opened: Mutex<Receiver<()>>,
        told: Mutex<Vec<Report>>,
    }

    impl Gate {
        /// With what opens it when it is dropped, and what tells that somebody stands before it.
        fn closed() -> (Arc<Self>, SyncSender<()>, Receiver<()>) {
            let (entered, has_entered) = sync_channel(1);
            let (open, opened) = sync_channel(0);
            (Arc::new(Self { entered, opened: Mutex::new(opened), told: Mutex::default() }), open, has_entered)
        }
    }

    impl Observer for Gate {
        fn report(&self, report: &Report) {
            let _ = self.entered.try_send(());
            // It returns at once when the other end is gone.
            let _ = self.opened.lock().expect("no panic").recv();
            self.told.lock().expect("no panic").push(report.clone());
        }
    }

    fn warning(number: usize) -> Report {
        Report::Warning { message: number.to_string() }
    }

    #[test]
    fn what_there_is_no_room_for_is_dropped_and_the_count_is_told() {
        let (gate, open, has_entered) = Gate::closed();
        let lossy = Lossy::start(gate.clone()).expect("a thread");
        lossy.report(&warning(0));
        has_entered.recv().expect("it is being shown");
        (1..=MAX_WAITING + 9).for_each(|number| lossy.report(&warning(number)));
        drop(open);
        lossy.finish();
        let told = gate.told.lock().expect("no panic").clone();
        let (last, shown) = told.split_last().expect("some");
        assert_eq!(shown, (0..=MAX_WAITING).map(warning).collect::<Vec<_>>());
        let Report::Warning { message } = last else { panic!("no warning") };
        assert!(message.starts_with("9 reports are not shown"), "{message}");
    }

    #[test]
    fn all_is_shown_in_order_where_there_is_room() {
        let (gate, open, _has_entered) = Gate::closed();
        drop(open);
        let lossy = Lossy::start(gate.clone()).expect("a thread");
        let all: Vec<Report> = (0..MAX_WAITING).map(warning).collect();
        all.iter().for_each(|report| lossy.report(report));
        lossy.finish();
        assert_eq!(*gate.told.lock().expect("no panic"), all);
    }
}
