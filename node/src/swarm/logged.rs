//! A swarm's own observer.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::report::{Links, Observer, Report};

/// Tells what happens to whoever listens to the program's logs, and keeps the newest links, and since when they are there.
#[derive(Default)]
pub(super) struct Logged(Mutex<(Links, Option<Instant>)>);

impl Logged {
    pub(super) fn links(&self) -> Links {
        self.newest().0.clone()
    }

    /// For how long there have been links; `None` before there are any.
    pub(super) fn linked_for(&self) -> Option<Duration> {
        self.newest().1.map(|since| since.elapsed())
    }

    fn newest(&self) -> MutexGuard<'_, (Links, Option<Instant>)> {
        // A lock poisoned by a panic elsewhere still guards sound data.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Logged {
    fn report(&self, report: &Report) {
        match report {
            Report::Warning { message } => tracing::warn!("{message}"),
            Report::Linked(links) => {
                *self.newest() = (links.clone(), Some(Instant::now()));
            }
            other => tracing::info!(report = ?other),
        }
    }
}
