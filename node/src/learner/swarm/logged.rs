//! A swarm's own observer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::observe::report::{LinkSummary, Observer, Report};
use crate::observe::reporter::Reporter;

/// Tells what happens to whoever listens to the program's logs, and to its observer if it has one; keeps the newest links, and since
/// when they are there.
#[derive(Default)]
pub(super) struct Logged {
    newest: Mutex<(LinkSummary, Option<Instant>)>,
    observer: Option<Arc<Reporter>>,
}

impl Logged {
    /// Who tells this observer too, in a thread of its own.
    pub(super) fn telling(observer: Arc<Reporter>) -> Self {
        Self { newest: Mutex::default(), observer: Some(observer) }
    }

    pub(super) fn links(&self) -> LinkSummary {
        self.newest().0.clone()
    }

    /// For how long there have been links; `None` before there are any.
    pub(super) fn linked_for(&self) -> Option<Duration> {
        self.newest().1.map(|since| since.elapsed())
    }

    fn newest(&self) -> MutexGuard<'_, (LinkSummary, Option<Instant>)> {
        // A lock poisoned by a panic elsewhere still guards sound data.
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Logged {
    fn report(&self, report: &Report) {
        if let Some(observer) = &self.observer {
            observer.report(report);
        }
        match report {
            Report::Warning { message } => tracing::warn!("{message}"),
            Report::Linked(links) => {
                *self.newest() = (links.clone(), Some(Instant::now()));
            }
            other => tracing::info!(report = ?other),
        }
    }
}
