//! A demo while it runs: a bar per peer, lines, or JSON.

use std::time::{Instant, SystemTime};

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::Plan;
use super::outcome::Figures;
use crate::output::{
    self, Console, Detail, Gauge, Line, Narrator, Style, Throttle, Tone, clock, format, short_figures,
};
use starling::Report;

/// Shows what the peers report, and what the demo does to them.
pub(super) struct Board {
    face: Face,
    console: Console,
    /// What the first peer sees.
    narrator: Narrator,
    /// What was told of the story.
    told: Figures,
    /// Who was killed: what it said before may still arrive.
    killed: Option<usize>,
}

enum Face {
    /// A bar per peer, on stderr, and lines above them.
    Bars(Vec<ProgressBar>, Gauge),
    /// Lines.
    Lines(Throttle, Instant),
    /// Every report, with the number of its peer.
    Json,
    /// Nothing.
    Quiet,
}

impl Board {
    pub(super) fn new(style: Style, console: &Console, plan: &Plan) -> Self {
        let face = match style {
            Style::Json => Face::Json,
            _ if plan.detail == Detail::Errors => Face::Quiet,
            Style::Plain => Face::Lines(Throttle::default(), Instant::now()),
            Style::Terminal => {
                let style = ProgressStyle::with_template("{wide_msg}").expect("invariant: the template is valid");
                let bar = |index| {
                    let bar = console.bars().add(ProgressBar::no_length()).with_style(style.clone());
                    bar.set_message(format!("peer {index} is to start"));
                    bar
                };
                Face::Bars((0..plan.started()).map(bar).collect(), Gauge::of_locale())
            }
        };
        Self {
            face,
            console: console.clone(),
            narrator: Narrator::new(plan.detail),
            told: Figures::default(),
            killed: None,
        }
    }

    /// Shows what peer `index` reports.
    pub(super) fn show(&mut self, index: usize, report: &Report) {
        if let Face::Json = self.face {
            let mut value = json!(report);
            value["peer_index"] = json!(index);
            return output::print_line(&output::timed(SystemTime::now(), value).to_string());
        }
        if let Face::Bars(bars, gauge) = &self.face
            && self.killed != Some(index)
            && let Some(text) = state(index, report, *gauge, self.console.width())
        {
            bars[index].set_message(text);
        }
        if index > 0 {
            return;
        }
        let lines = self.narrator.lines(report);
        let is_worth_it = match (&mut self.face, report) {
            // How to join is not for the user here: the demo does it. The table is the end of all.
            (_, Report::Listening { .. } | Report::Evaluating { .. } | Report::Finished(_)) => false,
            (Face::Lines(throttle, began), Report::Progress { step, steps, .. }) => {
                throttle.admits(began.elapsed(), *step, *steps)
            }
            (Face::Bars(..), Report::Progress { .. } | Report::Started { .. } | Report::Waiting { .. }) => false,
            _ => true,
        };
        if is_worth_it {
            lines.iter().for_each(|line| self.line(line));
        }
    }

    /// Tells what the demo does, or what came of it, in a line of its own.
    pub(super) fn tell(&self, tone: Tone, text: impl Into<String>) {
        self.line(&Line::new(tone, text));
    }

    /// Tells what has become known of the story since this was asked last.
    pub(super) fn follow(&mut self, figures: Figures) {
        let told = std::mem::replace(&mut self.told, figures);
        let news = |before: Option<u64>, now: Option<u64>| now.filter(|_| before.is_none());
        if let Some(ms) = news(told.detect_ms, figures.detect_ms) {
            self.tell(Tone::Bad, format!("the others miss it after {ms} ms"));
        }
        if let Some(ms) = news(told.rering_ms, figures.rering_ms) {
            self.tell(Tone::Good, format!("a new ring without it after {ms} ms"));
        }
        if let Some(ms) = news(told.recovery_ms, figures.recovery_ms) {
            self.tell(Tone::Good, format!("the next step after {ms} ms"));
        }
        if let Some(ms) = news(told.join_ms, figures.join_ms) {
            self.tell(Tone::Good, format!("the new peer is a full member after {ms} ms"));
        }
    }

    fn line(&self, line: &Line) {
        let time = clock::of_day(SystemTime::now());
        match &self.face {
            Face::Bars(..) => self.console.line(&line.on_terminal(&time)),
            Face::Lines(..) if !line.text.is_empty() => output::print_line(&line.in_file(&time)),
            Face::Lines(..) | Face::Json | Face::Quiet => {}
        }
    }

    /// Peer `index` was killed: its bar says so from now on.
    pub(super) fn killed(&mut self, index: usize) {
        self.killed = Some(index);
        if let Face::Bars(bars, _) = &self.face {
            bars[index].abandon_with_message(format!("peer {index} was killed"));
        }
    }
}

impl Drop for Board {
    /// The table takes the bars' place.
    fn drop(&mut self) {
        if let Face::Bars(bars, _) = &self.face {
            bars.iter().for_each(ProgressBar::finish_and_clear);
        }
    }
}

/// What a peer's bar shows after a report; `None` leaves it as it is.
fn state(index: usize, report: &Report, gauge: Gauge, width: usize) -> Option<String> {
    let peer = format!("peer {index} ");
    let text = match report {
        Report::Started { device, .. } => format!("on {device}"),
        Report::Waiting { present, needed } => format!("{present} of {needed} peers are here"),
        Report::View { rank, .. } => format!("rank {rank}"),
        Report::Syncing { bytes, of, .. } => format!("state: {} of {}", format::bytes(*bytes), format::bytes(*of)),
        Report::Paused { present, needed, .. } => format!("paused: {present} of {needed} answer"),
        Report::Progress { step, steps, .. } => {
            return Some(gauge.render(width, &peer, (*step, *steps), &short_figures(report)));
        }
        Report::Finished(summary) => {
            let accuracy = format!("accuracy {}", format::percent(summary.accuracy().unwrap_or_default()));
            return Some(gauge.render(width, &peer, (1, 1), &[format!("step {}", summary.steps), accuracy]));
        }
        _ => return None,
    };
    Some(format!("{peer}{text}"))
}
