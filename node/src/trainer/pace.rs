//! Committed steps as figures for people.

use std::time::{Duration, Instant};

use starling_topology::Generation;
use starling_train::StepReport;

use crate::report::Report;

/// How often progress is told.
const REPORT_INTERVAL: Duration = Duration::from_millis(250);

/// What happened since the last report.
pub(super) struct Pace {
    since: Instant,
    samples: u64,
    waiting: Duration,
    generation: Generation,
    is_new: bool,
}

impl Pace {
    pub(super) fn new() -> Self {
        let (samples, waiting, generation) = (0, Duration::ZERO, Generation(0));
        Self { since: Instant::now(), samples, waiting, generation, is_new: false }
    }

    /// Counts a step of a view, for which this member waited so long.
    pub(super) fn count(&mut self, generation: Generation, samples: u64, waited: Duration) {
        self.is_new |= generation != self.generation;
        self.generation = generation;
        self.samples += samples;
        self.waiting += waited;
    }

    pub(super) fn is_due(&self) -> bool {
        self.is_new || self.since.elapsed() >= REPORT_INTERVAL
    }

    /// The figures; counting begins anew.
    pub(super) fn take(&mut self, report: &StepReport, steps: u64) -> Report {
        let seconds = self.since.elapsed().as_secs_f64().max(f64::EPSILON);
        let progress = Report::Progress {
            step: report.step,
            generation: self.generation.0,
            steps,
            epoch: report.epoch,
            loss: report.loss,
            samples_per_s: self.samples as f64 / seconds,
            waiting_share: (self.waiting.as_secs_f64() / seconds).min(1.0),
        };
        *self = Self { generation: self.generation, ..Self::new() };
        progress
    }
}
