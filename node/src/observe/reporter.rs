//! Shows reports in a thread of its own: whoever prints may be stopped by a full pipe, and nobody else may be.

use std::future::Future;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use tokio_util::sync::CancellationToken;

use crate::error::NodeError;
use crate::observe::limits::Limits;
use crate::observe::report::{Observer, Report, Summary};
use crate::start::host;

/// Reports that wait to be shown; more are dropped, because nobody is looking.
const MAX_WAITING: usize = 256;
/// Steps that wait for their view to be told.
const MAX_EARLY: u32 = 16;
/// How long whoever can't come back yet waits at first, and at most: each time twice as long.
const COMES_BACK_AFTER: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(60));
/// How often it tries, for about an hour.
const MAX_TRIES: u32 = 64;
/// How long the last reports may take to be shown.
const FLUSH_LIMIT: Duration = Duration::from_secs(2);

/// How a life ended.
pub(crate) enum Lived {
    /// For good.
    Ended(Box<Summary>),
    /// The run has gone on without it: it comes back to it, as a process that was killed and started again.
    ComesBack {
        /// Whether it tries again where it finds nobody: not if it was never there, or the run is over.
        persists: bool,
    },
}

/// Prepares, and then lives on until its end, which it tells itself; `prepare` is told whether it has lived before. Nothing of it
/// ever waits for `observer`. Whoever cancels `stop` during the preparation ends it at once: nobody knows of us yet, so there is
/// nobody to tell.
pub(crate) async fn shown<Prepared, Preparation, Life>(
    observer: Arc<dyn Observer>,
    stop: &CancellationToken,
    prepare: impl Fn(Arc<dyn Observer>, bool) -> Preparation,
    live: impl Fn(Prepared, Arc<dyn Observer>) -> Life,
) -> Result<Summary, NodeError>
where
    Preparation: Future<Output = Result<Prepared, NodeError>>,
    Life: Future<Output = Result<Lived, NodeError>>,
{
    let reporter = Reporter::start(observer)?;
    let (mut comes_back, mut tries) = (false, MAX_TRIES);
    let lived = loop {
        let prepared = tokio::select! {
            () = stop.cancelled() => {
                reporter.report(&Report::Stopped);
                break Ok(Summary::before_the_start());
            }
            prepared = prepare(reporter.clone(), comes_back) => prepared,
        };
        match prepared {
            Ok(prepared) => match live(prepared, reporter.clone()).await {
                Ok(Lived::Ended(summary)) => break Ok(*summary),
                Ok(Lived::ComesBack { persists }) => {
                    (comes_back, tries) = (true, if persists { 0 } else { MAX_TRIES });
                }
                Err(error) => break Err(error),
            },
            // Nobody starts it again: it was there already, and its user may sleep.
            Err(error) if error.may_pass() && tries < MAX_TRIES => {
                let (first, longest) = COMES_BACK_AFTER;
                let after = first.saturating_mul(1 << tries.min(8)).min(longest);
                tries += 1;
                let message = format!("{error}. This machine was there, and tries again in {after:?}");
                reporter.report(&Report::Warning { message });
                if tokio::time::timeout(after, stop.cancelled()).await.is_ok() {
                    break Err(error); // It took part, and is not where it should be.
                }
            }
            Err(error) => break Err(error),
        }
    };
    // Showing may block for a moment.
    let _ = tokio::task::spawn_blocking(move || reporter.finish()).await;
    lived
}

/// An observer that never blocks, in front of one that may.
pub(crate) struct Reporter {
    queue: Mutex<Option<SyncSender<(SystemTime, Report)>>>,
    flushed: Mutex<Receiver<()>>,
}

impl Reporter {
    pub(crate) fn start(observer: Arc<dyn Observer>) -> Result<Arc<Self>, NodeError> {
        let (queue, reports) = sync_channel::<(SystemTime, Report)>(MAX_WAITING);
        let (done, flushed) = sync_channel(1);
        let show = move || {
            let (mut order, mut limits) = (Order::default(), Limits::default());
            for (at, report) in reports {
                order.take(at, report, |at, report| {
                    observer.report_at(at, report);
                    limits.hear(report).iter().for_each(|limit| observer.report_at(at, limit));
                });
            }
            // Nobody waits any more if showing took too long.
            let _ = done.send(());
        };
        host::thread("reporter", show).map_err(NodeError::Thread)?;
        Ok(Arc::new(Self { queue: Mutex::new(Some(queue)), flushed: Mutex::new(flushed) }))
    }

    /// Waits until everything is shown, or for a short while if that is stuck. Later reports are dropped.
    fn finish(&self) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).take();
        let _ = self.flushed.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(FLUSH_LIMIT);
    }
}

impl Observer for Reporter {
    fn report(&self, report: &Report) {
        if let Some(queue) = self.queue.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            let _ = queue.try_send((SystemTime::now(), report.clone()));
        }
    }
}

/// Views are told by one thread and steps by another. Who watches is to hear of a view before its steps.
#[derive(Debug, Default)]
struct Order {
    /// Of the newest view that was told.
    generation: u64,
    /// The newest step of a view that has yet to be told.
    early: Option<(SystemTime, Report)>,
    /// How many of these came one after the other.
    waiting: u32,
}

impl Order {
    fn take(&mut self, at: SystemTime, report: Report, mut tell: impl FnMut(SystemTime, &Report)) {
        match &report {
            Report::Progress { generation, .. } if *generation > self.generation && self.waiting < MAX_EARLY => {
                (self.early, self.waiting) = (Some((at, report)), self.waiting + 1);
                return;
            }
            // The view was dropped, because nobody was looking.
            Report::Progress { generation, .. } if *generation > self.generation => {
                (self.generation, self.waiting, self.early) = (*generation, 0, None);
            }
            Report::View { generation, .. } => (self.generation, self.waiting) = (*generation, 0),
            Report::Finished(_) => self.early = None,
            _ => {}
        }
        tell(at, &report);
        let is_told =
            |early: &Report| matches!(early, Report::Progress { generation, .. } if *generation <= self.generation);
        if let Some((at, early)) = self.early.take_if(|(_, early)| is_told(early)) {
            tell(at, &early);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Stuck(Mutex<Receiver<()>>);

    impl Observer for Stuck {
        fn report(&self, _: &Report) {
            let _ = self.0.lock().expect("not poisoned").recv();
        }
    }

    struct Kept(Mutex<Vec<Report>>);

    impl Observer for Kept {
        fn report(&self, report: &Report) {
            self.0.lock().expect("not poisoned").push(report.clone());
        }
    }

    fn warning(number: usize) -> Report {
        Report::Warning { message: number.to_string() }
    }

    #[test]
    fn a_view_comes_before_its_steps() {
        let view = |generation| Report::View {
            generation,
            view: String::new(),
            rank: 0,
            members: Vec::new(),
            newcomers: Vec::new(),
            step: 0,
            reason: String::new(),
            promised: 0,
            of: 0,
            took_ms: 0,
            forked: false,
        };
        let step = |step, generation| Report::Progress {
            step,
            generation,
            steps: 9,
            epoch: 0,
            loss: 0.0,
            samples_per_s: 0.0,
            waiting_share: 0.0,
            data_wait_share: 0.0,
            members: 1,
            eta_s: 0.0,
            skipped: 0,
        };
        let (mut order, mut told) = (Order::default(), Vec::new());
        for report in [step(1, 1), step(2, 1), warning(1), view(1), step(3, 1), step(4, 2), view(2)] {
            order.take(SystemTime::UNIX_EPOCH, report, |_, report| told.push(report.clone()));
        }
        assert_eq!(told, [warning(1), view(1), step(2, 1), step(3, 1), view(2), step(4, 2)]);
        told.clear();
        for number in 0..=u64::from(MAX_EARLY) {
            order.take(SystemTime::UNIX_EPOCH, step(number, 5), |_, report| told.push(report.clone()));
        }
        assert_eq!(told, [step(u64::from(MAX_EARLY), 5)], "a view that was dropped is not waited for");
    }

    #[test]
    fn one_who_is_stuck_blocks_nobody() {
        let (unblock, blocked) = sync_channel(0);
        let reporter = Reporter::start(Arc::new(Stuck(Mutex::new(blocked)))).expect("a thread");
        for number in 0..4 * MAX_WAITING {
            reporter.report(&warning(number));
        }
        drop(unblock);
        reporter.finish();
    }

    #[test]
    fn all_that_was_told_is_shown_in_order_before_the_end() {
        let kept = Arc::new(Kept(Mutex::default()));
        let reporter = Reporter::start(kept.clone()).expect("a thread");
        let told: Vec<Report> = (0..100).map(warning).collect();
        told.iter().for_each(|report| reporter.report(report));
        reporter.finish();
        assert_eq!(*kept.0.lock().expect("not poisoned"), told);
    }
}
