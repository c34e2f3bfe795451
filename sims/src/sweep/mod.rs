//! What is struck where: the [kinds of fault](fault), [planted mistakes](canary) that must be found, which pairs of fault and phase
//! have been met ([`coverage`]), and how a failing run is cut down ([`shrink`]).
//!
//! Here itself is kill-anywhere: a short run with a join, a few steps and a leave, in which peers die at each single message; `blows`
//! has what strikes a member in each phase.

pub mod blows;
pub mod canary;
pub mod coverage;
pub mod fault;
pub mod shrink;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

pub use blows::{Blow, blows};

use crate::hardware::network::Seat;
use crate::scenario::{Scenario, Setup};
use crate::simulation::Simulation;
use crate::sweep::coverage::Coverage;
use crate::sweep::fault::{Crash, DiskFate, Fault, Kind, When};
use crate::verdict::report::Outcome;

/// How long a killed peer stays down: longer than the others need to go on without it.
const DOWN: Duration = Duration::from_secs(2);

/// What a sweep came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Swept {
    /// How many runs.
    pub runs: u64,
    /// The runs that failed: what was killed when, and what was seen.
    pub failures: Vec<String>,
    /// In which phases what has struck.
    pub coverage: Coverage,
}

impl Swept {
    /// Takes in another sweep.
    pub fn add(&mut self, other: Self) {
        self.runs += other.runs;
        self.failures.extend(other.failures);
        self.coverage.add(&other.coverage);
    }

    fn take(&mut self, how: &str, outcome: &Outcome) {
        self.runs += 1;
        self.coverage.add(&outcome.coverage);
        if let Some(failure) = outcome.failure() {
            let seen = outcome.broken.first().map(ToString::to_string).unwrap_or_else(|| failure.to_owned());
            self.failures.push(format!("{how}: {seen}"));
        }
    }
}

/// One run of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kill {
    /// How many peers there are. The last one joins after the second step, the one before it leaves after the fourth.
    pub peers: u32,
    /// Who dies.
    pub victim: Seat,
    /// Who else dies.
    pub other: Option<Seat>,
    /// Before which delivery.
    pub delivery: u64,
}

/// The runs to sweep in a world of `peers`: each peer at each message, and with `pairs` each two at each so many
/// messages.
pub fn kills(peers: u32, pairs: Option<u64>) -> Vec<Kill> {
    let steady = simulation(peers, Vec::new()).run();
    let size = peers as usize;
    let mut kills = Vec::new();
    for delivery in 1..=steady.deliveries {
        for victim in 0..size {
            kills.push(Kill { peers, victim, other: None, delivery });
            let due = pairs.is_some_and(|every| delivery % every == 0);
            let others = (victim + 1..size).filter(|_| due);
            kills.extend(others.map(|other| Kill { peers, victim, other: Some(other), delivery }));
        }
    }
    kills
}

/// Does them all.
pub fn sweep(kills: &[Kill]) -> Swept {
    let mut swept = Swept::default();
    for kill in kills {
        swept.take(&format!("--show {kill}"), &run(kill));
    }
    swept
}

/// Does one of them.
pub fn run(kill: &Kill) -> Outcome {
    prepare(kill).run()
}

/// The run of one of them.
pub fn prepare(kill: &Kill) -> Simulation {
    let crash = Crash { down: DOWN, power: false, fate: DiskFate::Kept, at_record: None };
    let victims = [Some(kill.victim), kill.other];
    let dies = |seat| Fault { when: When::Delivery(kill.delivery), kind: Kind::Crash(seat, crash) };
    simulation(kill.peers, victims.into_iter().flatten().map(dies).collect())
}

impl fmt::Display for Kill {
    /// As the command line takes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { peers, victim, other, delivery } = self;
        write!(f, "{peers}:{delivery}:{victim}")?;
        other.map_or(Ok(()), |other| write!(f, ":{other}"))
    }
}

impl FromStr for Kill {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let numbers: Result<Vec<u64>, _> = text.split(':').map(str::parse).collect();
        let numbers = numbers.map_err(|error| format!("{text:?} has something else than numbers in it: {error}"))?;
        let (peers, delivery, victims) = match numbers[..] {
            [peers, delivery, victim] => (peers, delivery, [Some(victim), None]),
            [peers, delivery, victim, other] => (peers, delivery, [Some(victim), Some(other)]),
            _ => return Err("write PEERS:DELIVERY:VICTIM, or PEERS:DELIVERY:VICTIM:OTHER".into()),
        };
        if !(2..=16).contains(&peers) || victims.into_iter().flatten().any(|victim| victim >= peers) {
            return Err("there are 2 to 16 peers, and the victims are among them".into());
        }
        let seat = |victim: u64| usize::try_from(victim).expect("invariant: it is among a few peers");
        let peers = u32::try_from(peers).expect("invariant: there are few");
        let victim = victims[0].map(seat).expect("invariant: there is one");
        Ok(Self { peers, victim, other: victims[1].map(seat), delivery })
    }
}

fn simulation(peers: u32, deaths: Vec<Fault>) -> Simulation {
    let size = peers as usize;
    let after = |step, kind| Fault { when: When::After { step, delay: Duration::from_micros(500) }, kind };
    let setup = Setup { peers: Some(peers), steps: 7, scenario: Scenario::Steady, ..Setup::default() };
    let mut faults: Vec<Fault> = (1..size - 1).map(|seat| after(0, Kind::Join(seat))).collect();
    faults.push(after(2, Kind::Join(size - 1)));
    if size > 2 {
        faults.push(after(4, Kind::Leave(size - 2)));
    }
    faults.extend(deaths);
    Simulation::new(u64::from(peers), setup).with_faults(faults).replan(|plan| {
        (plan.founders, plan.min_members) = (size - 1, 1);
        (plan.gated, plan.rots) = (true, false);
        plan.fork_after = None;
    })
}
