//! What went wrong in computing, as people are told.

use std::time::{Duration, Instant};

use starling_run::training::contribution::describe;
use starling_run::{ContributionError, Learner, StepReport};
use starling_topology::ledger::SkipSummary;

use super::slot_watch::Rewritten;
use crate::credentials::identity::to_libp2p;
use crate::observe::report::{Observer, Report};

/// How often something of one kind is told that may happen in each step.
const INTERVAL: Duration = Duration::from_secs(1);
/// So many of the samples that are left out are named.
const MAX_NAMED: usize = 64;

/// When something was told last.
#[derive(Debug, Default)]
pub(super) struct Mishaps {
    own: Option<Instant>,
    given_up: Option<Instant>,
    dropped: Option<Instant>,
    rewritten: Option<Instant>,
    /// In how many steps that was.
    rewrites: u64,
}

impl Mishaps {
    /// What this member computed can't be contributed.
    pub(super) fn tell_own(&mut self, beyond: &ContributionError, observer: &dyn Observer) {
        if is_due(&mut self.own) {
            observer.report(&Report::Warning { message: beyond.to_string() });
        }
    }

    /// Others were told of this member what it had not said.
    pub(super) fn tell_rewritten(&mut self, step: u64, rewritten: Rewritten, observer: &dyn Observer) {
        self.rewrites += 1;
        if is_due(&mut self.rewritten) {
            let [said, told] = [rewritten.said, rewritten.told].map(describe);
            observer.report(&Report::Rewritten { step, said, told, total: self.rewrites });
        }
    }

    /// What a step came to that `learner` has just taken.
    pub(super) fn tell(&mut self, report: &StepReport, learner: &dyn Learner, observer: &dyn Observer) {
        let StepReport { step, epoch, .. } = *report;
        if let Some(scale) = report.rescaled {
            observer.report(&Report::Rescaled { step, scale });
        }
        if !report.given_up.is_empty() && is_due(&mut self.given_up) {
            for (peer, samples) in &report.given_up {
                observer.report(&Report::GaveUp { step, peer: to_libp2p(*peer).to_string(), samples: *samples });
            }
        }
        if !report.dropped.is_empty() && is_due(&mut self.dropped) {
            let ledger = learner.ledger();
            let mut samples = ledger.order(epoch).indices(&report.dropped);
            let count = u32::try_from(samples.len()).unwrap_or(u32::MAX);
            samples.truncate(MAX_NAMED);
            observer.report(&Report::Dropped { step, epoch, count, samples });
        }
        if let Some(reason) = &report.skipped {
            let SkipSummary { total, in_row } = learner.ledger().skips();
            observer.report(&Report::Skipped { step, reason: reason.clone(), in_row, total });
        }
    }
}

/// Whether it is time to tell it again; from now on it is not.
fn is_due(told: &mut Option<Instant>) -> bool {
    let now = Instant::now();
    let is_due = told.is_none_or(|last| now.duration_since(last) >= INTERVAL);
    if is_due {
        *told = Some(now);
    }
    is_due
}
