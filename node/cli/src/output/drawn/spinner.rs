//! What shows on a terminal that something goes on of which nobody knows how long it takes.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::output::Console;

/// How often it moves.
const TICK: Duration = Duration::from_millis(200);

/// Moves on stderr, beside the time that has gone by, until it is dropped.
#[derive(Debug)]
pub struct Spinner(ProgressBar);

impl Spinner {
    /// Beside `what` goes on.
    pub fn start(console: &Console, what: &'static str) -> Self {
        let bar = console.bars().add(ProgressBar::no_length());
        let style = ProgressStyle::with_template("{spinner} {msg}, {elapsed}");
        bar.set_style(style.expect("invariant: the template is valid"));
        bar.set_message(what);
        bar.enable_steady_tick(TICK);
        Self(bar)
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
