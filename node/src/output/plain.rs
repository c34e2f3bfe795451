//! Reports as lines on stdout, for files and pipes.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::{Narrator, print_line};
use crate::report::{Observer, Report};

/// How often progress is worth a line.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Prints what happens, and progress about once a second.
#[derive(Debug)]
pub struct Plain {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    narrator: Narrator,
    /// When the last line about progress was printed.
    progress: Option<Instant>,
}

impl Plain {
    /// Nothing is printed yet.
    pub fn new() -> Self {
        Self { state: Mutex::new(State { narrator: Narrator::new(), progress: None }) }
    }
}

impl Default for Plain {
    fn default() -> Self {
        Self::new()
    }
}

impl Observer for Plain {
    fn report(&self, report: &Report) {
        // A lock poisoned by a panic elsewhere still guards sound data.
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Report::Progress { step, steps, .. } = report {
            let is_due = state.progress.is_none_or(|last| last.elapsed() >= PROGRESS_INTERVAL);
            if !is_due && step != steps {
                return;
            }
            state.progress = Some(Instant::now());
        }
        for line in state.narrator.lines(report) {
            print_line(&line);
        }
    }
}
