//! A demo while it runs: a bar per peer, lines, or JSON.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::Plan;
use crate::output::{self, Console, Narrator, Style, format};
use crate::report::Report;

/// How often progress is worth a line.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Shows what the peers report.
pub(super) enum Board {
    /// A bar per peer, on stderr.
    Bars(Vec<ProgressBar>),
    /// What the first peer sees, as lines.
    Lines { narrator: Narrator, progress: Option<Instant> },
    /// Every report, with the number of its peer.
    Json,
}

impl Board {
    pub(super) fn new(style: Style, console: &Console, plan: &Plan) -> Self {
        match style {
            Style::Json => Self::Json,
            Style::Plain => Self::Lines { narrator: Narrator::new(), progress: None },
            Style::Terminal => {
                let style = ProgressStyle::with_template("{prefix} {bar:30} {pos:>5}/{len}  {msg}")
                    .expect("invariant: the template is valid");
                let bar = |index| {
                    let bar = console.bars().add(ProgressBar::new(plan.steps)).with_style(style.clone());
                    bar.set_prefix(format!("peer {index}"));
                    bar.set_message("starting");
                    bar
                };
                Self::Bars((0..plan.started()).map(bar).collect())
            }
        }
    }

    /// Shows what peer `index` reports.
    pub(super) fn show(&mut self, index: usize, report: &Report) {
        match self {
            Self::Bars(bars) => show_on(&bars[index], report),
            Self::Lines { narrator, progress } => {
                if index > 0 {
                    return;
                }
                if matches!(report, Report::Progress { .. }) {
                    if progress.is_some_and(|last| last.elapsed() < PROGRESS_INTERVAL) {
                        return;
                    }
                    *progress = Some(Instant::now());
                }
                // How to join is not for the user here: the demo does it.
                if !matches!(report, Report::Listening { .. } | Report::Finished(_)) {
                    narrator.lines(report).iter().for_each(|line| output::print_line(line));
                }
            }
            Self::Json => {
                let mut value = json!(report);
                value["peer_index"] = json!(index);
                output::print_line(&value.to_string());
            }
        }
    }
}

impl Drop for Board {
    /// The table takes the bars' place.
    fn drop(&mut self) {
        if let Self::Bars(bars) = self {
            bars.iter().for_each(ProgressBar::finish_and_clear);
        }
    }
}

fn show_on(bar: &ProgressBar, report: &Report) {
    match report {
        Report::Started { device, .. } => bar.set_message(format!("on {device}")),
        Report::Waiting { present, needed } => bar.set_message(format!("{present} of {needed} peers are here")),
        Report::View { rank, .. } => bar.set_message(format!("rank {rank}")),
        Report::Progress { step, loss, samples_per_s, .. } => {
            bar.set_position(*step);
            bar.set_message(format!("loss {loss:.4}  {}", format::rate(*samples_per_s)));
        }
        Report::Finished(summary) => {
            bar.set_position(summary.steps);
            bar.set_message(format!("accuracy {}", format::percent(summary.accuracy)));
        }
        Report::Syncing { bytes, of, .. } => {
            bar.set_message(format!("state: {} of {}", format::bytes(*bytes), format::bytes(*of)));
        }
        Report::Paused { present, needed } => bar.set_message(format!("paused: {present} of {needed} answer")),
        Report::WarmingUp { .. }
        | Report::Downloading { .. }
        | Report::Data(_)
        | Report::Listening { .. }
        | Report::Connecting { .. }
        | Report::Asking { .. }
        | Report::Answered { .. }
        | Report::Returning { .. }
        | Report::BegunFrom { .. }
        | Report::Awaiting { .. }
        | Report::Invitation { .. }
        | Report::Stopped
        | Report::Suspected { .. }
        | Report::Evicted { .. }
        | Report::Synced { .. }
        | Report::Joining { .. }
        | Report::JoinerLost { .. }
        | Report::Turned { .. }
        | Report::Linked(_)
        | Report::Measured { .. }
        | Report::Evaluated { .. }
        | Report::Saved { .. }
        | Report::Stable { .. }
        | Report::Keeping { .. }
        | Report::Fetching { .. }
        | Report::Fetched { .. }
        | Report::Warning { .. } => {}
    }
}
