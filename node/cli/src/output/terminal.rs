//! Reports on a terminal: a bar for the steps, and lines above it.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use indicatif::{ProgressBar, ProgressStyle};
use starling::{Observer, Report};

use super::{Console, Detail, Gauge, Line, Narrator, clock, print_line, short_figures};

/// How often the spinner moves by itself.
const TICK: Duration = Duration::from_millis(200);

/// A progress bar on stderr; the summary at the end goes to stdout.
#[derive(Debug)]
pub struct Terminal {
    console: Console,
    bar: ProgressBar,
    gauge: Gauge,
    narrator: Mutex<Narrator>,
}

impl Terminal {
    /// Shows a bar on `console`.
    pub fn new(console: Console, detail: Detail) -> Self {
        let bar = console.bars().add(ProgressBar::no_length());
        bar.set_style(waiting_style());
        bar.set_message("starting");
        bar.enable_steady_tick(TICK);
        Self { console, bar, gauge: Gauge::of_locale(), narrator: Mutex::new(Narrator::new(detail)) }
    }

    fn lines(&self, report: &Report) -> Vec<Line> {
        // A lock poisoned by a panic elsewhere still guards sound data.
        self.narrator.lock().unwrap_or_else(PoisonError::into_inner).lines(report)
    }

    /// Shows what the peer is at instead of the bar.
    fn wait(&self, report: &Report) {
        self.bar.set_style(waiting_style());
        self.bar.set_message(self.lines(report).iter().map(|line| line.text.as_str()).collect::<Vec<_>>().join(" "));
    }
}

impl Observer for Terminal {
    fn report(&self, report: &Report) {
        self.report_at(SystemTime::now(), report);
    }

    fn report_at(&self, at: SystemTime, report: &Report) {
        match report {
            Report::WarmingUp { .. }
            | Report::Downloading { .. }
            | Report::Waiting { .. }
            | Report::Syncing { .. }
            | Report::Fetching { .. }
            | Report::Awaiting { .. }
            | Report::Evaluating { .. }
            | Report::Paused { .. } => self.wait(report),
            Report::Progress { step, steps, .. } => {
                // It keeps what later lines need.
                self.lines(report);
                let line = self.gauge.render(self.console.width(), "", (*step, *steps), &short_figures(report));
                self.bar.set_style(stepping_style());
                self.bar.set_message(line);
            }
            Report::Finished(_) | Report::Stopped => {
                self.bar.finish_and_clear();
                self.lines(report).iter().for_each(|line| print_line(&line.text));
            }
            _ => {
                let time = clock::of_day(at);
                self.lines(report).iter().for_each(|line| self.console.line(&line.on_terminal(&time)));
            }
        }
    }
}

impl Drop for Terminal {
    /// A run that ends early must not leave half a bar behind.
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn waiting_style() -> ProgressStyle {
    ProgressStyle::with_template("{spinner} {wide_msg}").expect("invariant: the template is valid")
}

fn stepping_style() -> ProgressStyle {
    ProgressStyle::with_template("{wide_msg}").expect("invariant: the template is valid")
}
