//! Reports as lines on stdout, for files and pipes.

use std::sync::{Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use starling::{Observer, Report};

use super::{Detail, Narrator, Throttle, clock, print_line};

/// Prints what happens, each line with its time, and progress ever more rarely.
#[derive(Debug)]
pub struct Plain {
    state: Mutex<State>,
    began: Instant,
}

#[derive(Debug)]
struct State {
    narrator: Narrator,
    /// Of lines about steps.
    steps: Throttle,
    /// Of lines about downloads.
    downloads: Throttle,
    /// Of lines about the last evaluation.
    evaluation: Throttle,
}

impl Plain {
    /// Nothing is printed yet.
    pub fn new(detail: Detail) -> Self {
        let (steps, downloads, evaluation) = (Throttle::default(), Throttle::default(), Throttle::default());
        let state = State { narrator: Narrator::new(detail), steps, downloads, evaluation };
        Self { state: Mutex::new(state), began: Instant::now() }
    }
}

impl State {
    /// Whether a report is worth lines, besides those that are ever.
    fn admits(&mut self, now: std::time::Duration, report: &Report) -> bool {
        match report {
            Report::Progress { step, steps, .. } => self.steps.admits(now, *step, *steps) || step == steps,
            Report::Syncing { bytes, of, .. }
            | Report::Fetching { bytes, of, .. }
            | Report::Downloading { bytes, of } => self.downloads.admits(now, *bytes, *of) || bytes == of,
            // Most are over before there is something to tell.
            Report::Evaluating { samples, of, .. } => *samples > 0 && self.evaluation.admits(now, *samples, *of),
            Report::View { .. } => {
                // Whoever reads of a new view wants to know that steps go on.
                self.steps.reset();
                true
            }
            _ => true,
        }
    }
}

impl Observer for Plain {
    fn report(&self, report: &Report) {
        self.report_at(SystemTime::now(), report);
    }

    fn report_at(&self, at: SystemTime, report: &Report) {
        // A lock poisoned by a panic elsewhere still guards sound data.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = state.admits(self.began.elapsed(), report);
        let lines = state.narrator.lines(report);
        if is_due {
            let time = clock::of_day(at);
            lines.iter().filter(|line| !line.text.is_empty()).for_each(|line| print_line(&line.in_file(&time)));
        }
    }
}
