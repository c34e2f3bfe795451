//! Committed steps as figures for people.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use starling_run::StepReport;
use starling_topology::Generation;

use crate::observe::report::Report;

/// How often progress is told.
const REPORT_INTERVAL: Duration = Duration::from_millis(250);
/// The figures are those of the steps of this long: shorter ones jump, longer ones are behind.
const WINDOW: Duration = Duration::from_secs(10);

/// What happened lately.
pub(super) struct ProgressMeter {
    /// When progress was told last.
    told: Instant,
    generation: Generation,
    is_new: bool,
    window: Window,
}

impl ProgressMeter {
    pub(super) fn new() -> Self {
        Self { told: Instant::now(), generation: Generation(0), is_new: false, window: Window::default() }
    }

    /// Steps are those of this view now.
    pub(super) fn enter(&mut self, generation: Generation) {
        self.is_new |= generation != self.generation;
        self.generation = generation;
    }

    /// Counts a step that took so long, and for which this member waited so long, for the others and for its samples.
    pub(super) fn count(&mut self, samples: u64, took: Duration, waited: Duration, loading: Duration) {
        let (waited, loading) = (waited.min(took), loading.min(took));
        self.window.add(Span { steps: 1, samples, took, waited, loading });
    }

    pub(super) fn is_due(&self) -> bool {
        // Of steps that were not taken here there are no figures.
        !self.window.0.is_empty() && (self.is_new || self.told.elapsed() >= REPORT_INTERVAL)
    }

    /// The figures after a step that so many members took, in a run that has skipped so many, the newest loss being this one.
    pub(super) fn take(
        &mut self,
        report: &StepReport,
        loss: f32,
        steps: u64,
        (members, skipped): (usize, u64),
    ) -> Report {
        (self.told, self.is_new) = (Instant::now(), false);
        let Span { steps: taken, samples, took, waited, loading } = self.window.sum();
        let seconds = took.as_secs_f64().max(f64::EPSILON);
        Report::Progress {
            step: report.step,
            generation: self.generation.0,
            steps,
            epoch: report.epoch,
            loss,
            samples_per_s: samples as f64 / seconds,
            waiting_share: waited.as_secs_f64() / seconds,
            data_wait_share: loading.as_secs_f64() / seconds,
            members,
            eta_s: steps.saturating_sub(report.step) as f64 * seconds / (taken.max(1) as f64),
            skipped,
        }
    }
}

/// Some steps, and the time in which they ran.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Span {
    steps: u64,
    samples: u64,
    took: Duration,
    waited: Duration,
    loading: Duration,
}

impl Span {
    fn and(self, other: Self) -> Self {
        Self {
            steps: self.steps + other.steps,
            samples: self.samples + other.samples,
            took: self.took + other.took,
            waited: self.waited + other.waited,
            loading: self.loading + other.loading,
        }
    }
}

/// The newest steps, as far as they took [`WINDOW`] together; at least the last one.
#[derive(Debug, Default)]
struct Window(VecDeque<Span>);

impl Window {
    /// Steps that are short share a span, so that there are few.
    fn add(&mut self, step: Span) {
        match self.0.back_mut() {
            Some(last) if last.took < REPORT_INTERVAL => *last = last.and(step),
            Some(_) | None => self.0.push_back(step),
        }
        let mut total = self.sum().took;
        while let Some(oldest) = self.0.front().filter(|oldest| total.saturating_sub(oldest.took) >= WINDOW) {
            total -= oldest.took;
            self.0.pop_front();
        }
    }

    fn sum(&self) -> Span {
        self.0.iter().copied().fold(Span::default(), Span::and)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(millis: u64, waited: u64) -> Span {
        let [took, waited] = [millis, waited].map(Duration::from_millis);
        Span { steps: 1, samples: 64, took, waited, loading: waited / 2 }
    }

    #[test]
    fn figures_are_those_of_the_last_ten_seconds_of_steps() {
        let mut window = Window::default();
        (0..100_000).for_each(|_| window.add(step(1, 0)));
        let sum = window.sum();
        assert!((10_000..10_500).contains(&sum.steps) && sum.samples == 64 * sum.steps, "{sum:?}");
        assert!(window.0.len() < 50, "{}", window.0.len());
        (0..100).for_each(|_| window.add(step(100, 50)));
        let sum = window.sum();
        assert!((100..400).contains(&sum.steps), "{sum:?}");
        (0..5).for_each(|_| window.add(step(100, 50)));
        let sum = window.sum();
        assert_eq!((sum.waited * 2, sum.loading * 4), (sum.took, sum.took), "the fast ones are forgotten");
    }

    #[test]
    fn a_step_longer_than_the_window_is_a_window() {
        let mut window = Window::default();
        (0..10).for_each(|_| window.add(step(60_000, 1)));
        assert_eq!(window.sum(), step(60_000, 1));
    }
}
