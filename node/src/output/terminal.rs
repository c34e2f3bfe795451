//! Reports on a terminal: a bar for the steps, and lines above it.

use std::sync::Mutex;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::{Console, Narrator, format, print_line};
use crate::report::{Observer, Report};

/// How often the bar's spinner and clock move by themselves.
const TICK: Duration = Duration::from_millis(200);

/// A progress bar on stderr; the summary at the end goes to stdout.
#[derive(Debug)]
pub struct Terminal {
    console: Console,
    bar: ProgressBar,
    narrator: Mutex<Narrator>,
}

impl Terminal {
    /// Shows a bar on `console`.
    pub fn new(console: Console) -> Self {
        let bar = console.bars().add(ProgressBar::no_length());
        bar.set_style(waiting_style());
        bar.set_message("starting");
        bar.enable_steady_tick(TICK);
        Self { console, bar, narrator: Mutex::new(Narrator::new()) }
    }

    fn lines(&self, report: &Report) -> Vec<String> {
        // A lock poisoned by a panic elsewhere still guards sound data.
        self.narrator.lock().unwrap_or_else(std::sync::PoisonError::into_inner).lines(report)
    }

    fn say(&self, report: &Report) {
        for line in self.lines(report) {
            self.console.line(&line);
        }
    }
}

impl Observer for Terminal {
    fn report(&self, report: &Report) {
        match report {
            Report::WarmingUp { .. }
            | Report::Downloading { .. }
            | Report::Waiting { .. }
            | Report::Syncing { .. }
            | Report::Fetching { .. }
            | Report::Paused { .. }
            | Report::Awaiting { .. } => self.bar.set_message(self.lines(report).join(" ")),
            Report::Progress { step, steps, loss, samples_per_s, .. } => {
                if self.bar.length() != Some(*steps) {
                    self.bar.set_style(stepping_style());
                    self.bar.set_length(*steps);
                    // A run that goes on from a checkpoint did not take those steps just now.
                    self.bar.set_position(*step);
                    self.bar.reset_eta();
                }
                self.bar.set_position(*step);
                self.bar.set_message(format!("loss {loss:.4}  {}", format::rate(*samples_per_s)));
            }
            Report::Finished(_) | Report::Stopped => {
                self.bar.finish_and_clear();
                self.lines(report).iter().for_each(|line| print_line(line));
            }
            Report::Started { .. }
            | Report::Data(_)
            | Report::Listening { .. }
            | Report::Connecting { .. }
            | Report::Asking { .. }
            | Report::Answered { .. }
            | Report::Returning { .. }
            | Report::BegunFrom { .. }
            | Report::Invitation { .. }
            | Report::Joining { .. }
            | Report::JoinerLost { .. }
            | Report::Turned { .. }
            | Report::View { .. }
            | Report::Suspected { .. }
            | Report::Evicted { .. }
            | Report::Synced { .. }
            | Report::Linked(_)
            | Report::Measured { .. }
            | Report::Evaluated { .. }
            | Report::Saved { .. }
            | Report::Stable { .. }
            | Report::Keeping { .. }
            | Report::Fetched { .. }
            | Report::Warning { .. } => self.say(report),
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
    ProgressStyle::with_template("{bar:30} step {pos}/{len}  {msg}  {eta} left")
        .expect("invariant: the template is valid")
}
