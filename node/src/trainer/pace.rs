//! Committed steps as figures for people.

use std::time::{Duration, Instant};

use starling_train::StepReport;

use crate::report::Report;

/// How often progress is told.
const REPORT_INTERVAL: Duration = Duration::from_millis(250);

/// What happened since the last report.
pub(super) struct Pace {
    since: Instant,
    samples: u64,
    waiting: Duration,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self { since: Instant::now(), samples: 0, waiting: Duration::ZERO }
    }

    /// Counts a step for which this member waited so long.
    pub(super) fn count(&mut self, samples: u64, waited: Duration) {
        self.samples += samples;
        self.waiting += waited;
    }

    pub(super) fn is_due(&self) -> bool {
        self.since.elapsed() >= REPORT_INTERVAL
    }

    /// The figures; counting begins anew.
    pub(super) fn take(&mut self, report: &StepReport, steps: u64) -> Report {
        let seconds = self.since.elapsed().as_secs_f64().max(f64::EPSILON);
        let progress = Report::Progress {
            step: report.step,
            steps,
            epoch: report.epoch,
            loss: report.loss,
            samples_per_s: self.samples as f64 / seconds,
            waiting_share: (self.waiting.as_secs_f64() / seconds).min(1.0),
        };
        *self = Self::new();
        progress
    }
}
