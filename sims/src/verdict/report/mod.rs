//! What came out: of one run and of many, as text and as a [`picture`], and what an [`oracle`] says that a run must come to.

pub mod leaf_totals;
pub mod oracle;
pub mod picture;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::hardware::network::Seat;
use crate::scenario::{SMALL, Scenario, Setup};
use crate::sweep::coverage::Coverage;
use crate::verdict::invariants::Broken;
use crate::verdict::report::leaf_totals::LeafTotals;
use crate::verdict::report::picture::Mark;

/// Why a run can't go on, by design.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Deserted {
    /// Too few of its last members are left to decide anything, and no fork is allowed.
    NoQuorum,
    /// The last member has left in order, with the state.
    LastLeft,
    /// A quorum has left in order, or has lost what it had signed with those who did, and what it should have saved since is with nobody
    /// who is left; no fork is allowed.
    MostLeft,
    /// Nobody who is left or comes back has a state to go on from: their disks have lost it, or never had it.
    NoState,
}

/// One simulated run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outcome {
    /// Its seed.
    pub seed: u64,
    /// What it was about, with the number of its peers.
    pub setup: Setup,
    /// How many events happened.
    pub events: u64,
    /// How many messages were delivered.
    pub deliveries: u64,
    /// How much time passed in it.
    pub simulated: Duration,
    /// The highest committed step.
    pub steps: u64,
    /// How many views there were.
    pub views: u64,
    /// How many of them came for a better plan alone.
    pub replans: u64,
    /// How many of them took a star, as no ring led around links that were down, or as links failed again and again.
    pub stars: u64,
    /// In how many of them links failed again and again.
    pub unsteady: u64,
    /// How many shares members gave back, as the data of them was on its way.
    pub given_back: u64,
    /// Whether those who took its steps stopped, as too many in a row had no samples.
    pub out_of_data: bool,
    /// How many of the faults happened.
    pub faults: u64,
    /// In which phases they struck members.
    pub coverage: Coverage,
    /// How many peers completed the run.
    pub completed: u64,
    /// Segments of older views, and of dropped steps, that were dropped.
    pub stale: u64,
    /// The longest that a peer's queue ever was.
    pub longest_queue: usize,
    /// The longest that nothing went on although it could, by what had disturbed the run last.
    pub longest_stalls: BTreeMap<&'static str, Duration>,
    /// What leaves did.
    pub leaves: LeafTotals,
    /// The invariants that did not hold.
    pub broken: Vec<Broken>,
    /// Why it could not go on, if it could not and nobody is to blame.
    pub deserted: Option<Deserted>,
    /// Whether a hostile peer broke something, and two signatures of its own name it.
    pub convicted: bool,
    /// If the run hung: who was still running.
    pub stuck: Option<Vec<Seat>>,
    /// All that happened, if that was asked for.
    pub trace: String,
    /// What a picture shows, if that was asked for.
    pub marks: Vec<Mark>,
}

impl Outcome {
    /// Whether everything held.
    pub fn is_good(&self) -> bool {
        self.broken.is_empty() && self.stuck.is_none()
    }

    /// What to call the failure, if it is one: the first invariant that did not hold.
    pub fn failure(&self) -> Option<&'static str> {
        let hung = self.stuck.is_some().then_some("progress");
        self.broken.first().map(|broken| broken.invariant).or(hung)
    }
}

/// Many simulated runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Summary {
    /// How many runs.
    pub runs: u64,
    /// How many runs the scenario and small world had that were tried least often together.
    pub least_per_pair: u64,
    /// Invariants that did not hold, over all runs.
    pub violations: u64,
    /// Runs that hung.
    pub hangs: u64,
    /// Runs that could not go on, by design.
    pub deserted: u64,
    /// Why, and how many each.
    pub deserted_by: BTreeMap<Deserted, u64>,
    /// Runs in which something was broken by a peer that two signatures of its own name.
    pub convicted: u64,
    /// Events, over all runs.
    pub events: u64,
    /// Events per second of real time; zero until somebody with a clock says it.
    pub events_per_s: f64,
    /// Simulated hours, over all runs.
    pub sim_hours: f64,
    /// Committed steps, over all runs.
    pub steps: u64,
    /// Views, over all runs.
    pub views: u64,
    /// Those of them that came for a better plan alone.
    pub replans: u64,
    /// Those of them that took a star, as no ring led around links that were down, or as links failed again and again.
    pub stars: u64,
    /// Those of them in which links failed again and again.
    pub unsteady: u64,
    /// Shares that members gave back, as the data of them was on its way, over all runs.
    pub given_back: u64,
    /// Runs that stopped, as too many steps in a row had no samples.
    pub out_of_data: u64,
    /// Faults that happened, over all runs.
    pub faults: u64,
    /// The longest that any run stood still after its faults were over, in seconds.
    pub longest_stall_s: f64,
    /// The same by what had disturbed the run last: a fault that struck or was over, a process that started, all that was healed.
    pub longest_stall_by: BTreeMap<&'static str, f64>,
    /// How many pairs of a fault and a phase in which it struck a member were seen.
    pub phases_struck: usize,
    /// The pairs that never were.
    pub phases_missed: Vec<String>,
    /// What leaves did, over all runs.
    pub leaves: LeafTotals,
    /// What machines came to that were started, and how often.
    pub ways: BTreeMap<&'static str, u64>,
    /// All of them, and how often.
    #[serde(skip)]
    pub coverage: Coverage,
    #[serde(skip)]
    pairs: BTreeMap<(Scenario, u32), u64>,
}

impl Summary {
    /// Takes in one run.
    pub fn add(&mut self, outcome: &Outcome) {
        self.runs += 1;
        if let Some(peers) = outcome.setup.peers {
            *self.pairs.entry((outcome.setup.scenario, peers)).or_default() += 1;
        }
        self.violations += outcome.broken.len() as u64;
        self.hangs += u64::from(outcome.stuck.is_some());
        if let Some(cause) = outcome.deserted.filter(|_| outcome.is_good()) {
            self.deserted += 1;
            *self.deserted_by.entry(cause).or_default() += 1;
        }
        self.convicted += u64::from(outcome.convicted);
        self.events += outcome.events;
        self.sim_hours += outcome.simulated.as_secs_f64() / 3_600.0;
        self.steps += outcome.steps;
        self.views += outcome.views;
        self.replans += outcome.replans;
        self.stars += outcome.stars;
        self.unsteady += outcome.unsteady;
        self.given_back += outcome.given_back;
        self.out_of_data += u64::from(outcome.out_of_data);
        self.faults += outcome.faults;
        self.leaves.add(&outcome.leaves);
        self.coverage.add(&outcome.coverage);
        for (cause, longest) in &outcome.longest_stalls {
            let by = self.longest_stall_by.entry(cause).or_default();
            *by = by.max(longest.as_secs_f64());
            self.longest_stall_s = self.longest_stall_s.max(*by);
        }
    }

    /// The sums that are taken once all runs are there.
    pub fn finish(&mut self) {
        (self.phases_struck, self.phases_missed) = (self.coverage.seen(), self.coverage.missing());
        self.ways = self.coverage.ways().clone();
        let small = Scenario::ALL.into_iter().flat_map(|scenario| SMALL.map(|peers| (scenario, peers)));
        self.least_per_pair = small.map(|pair| self.pairs.get(&pair).copied().unwrap_or(0)).min().unwrap_or(0);
    }

    /// Whether everything held in all runs.
    pub fn is_good(&self) -> bool {
        self.violations == 0 && self.hangs == 0
    }
}
