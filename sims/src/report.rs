//! What came out.

use std::time::Duration;

use serde::Serialize;
use starling_topology::PeerId;

use crate::invariants::Broken;

/// One simulated run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Its seed.
    pub seed: u64,
    /// How many events happened.
    pub events: u64,
    /// How much time passed in it.
    pub simulated: Duration,
    /// The highest committed step.
    pub steps: u64,
    /// Segments of older views, and of dropped steps, that were dropped.
    pub stale: u64,
    /// The longest that a peer's queue of early segments ever was.
    pub longest_queue: usize,
    /// The invariants that did not hold.
    pub broken: Vec<Broken>,
    /// If the run hung: who was still running.
    pub stuck: Option<Vec<PeerId>>,
    /// All that happened, if that was asked for.
    pub trace: String,
}

impl Outcome {
    /// Whether everything held.
    pub fn is_good(&self) -> bool {
        self.broken.is_empty() && self.stuck.is_none()
    }
}

/// Many simulated runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Summary {
    /// How many runs.
    pub seeds: u64,
    /// Invariants that did not hold, over all runs.
    pub violations: u64,
    /// Runs that hung.
    pub hangs: u64,
    /// Events, over all runs.
    pub events: u64,
    /// Events per second of real time; zero until somebody with a clock says it.
    pub events_per_s: f64,
    /// Simulated seconds, over all runs.
    pub sim_seconds: f64,
}

impl Summary {
    /// Takes in one run.
    pub fn add(&mut self, outcome: &Outcome) {
        self.seeds += 1;
        self.violations += outcome.broken.len() as u64;
        self.hangs += u64::from(outcome.stuck.is_some());
        self.events += outcome.events;
        self.sim_seconds += outcome.simulated.as_secs_f64();
    }

    /// Whether everything held in all runs.
    pub fn is_good(&self) -> bool {
        self.violations == 0 && self.hangs == 0
    }
}
