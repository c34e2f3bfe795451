//! Strike-anywhere: each kind of fault strikes each member in each phase of a step and of a change of view.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::{DOWN, Swept, simulation};
use crate::hardware::network::Seat;
use crate::simulation::Simulation;
use crate::steps::message::Lane;
use crate::sweep::coverage::{LAST, PHASES, Phase};
use crate::sweep::fault::{Copied, Crash, DiskFate, Fault, Kind, Queue, When};
use crate::verdict::report::Outcome;

/// Longer than anybody waits for one that is silent, or for a disk.
const LONG: Duration = Duration::from_secs(12);
/// In how many ways a run is disturbed besides, so that there are changes of view of every kind.
const UNRESTS: u32 = 5;

/// One fault in one phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blow {
    /// How many peers there are.
    pub peers: u32,
    /// What else happens: nothing; another dies; all die; another is cut off; a link breaks.
    pub unrest: u32,
    /// Whom it strikes.
    pub seat: Seat,
    /// Which fault, by its place.
    pub fault: usize,
    /// In which phase.
    pub phase: Phase,
}

/// All of them in a world of `peers`.
pub fn blows(peers: u32) -> Vec<Blow> {
    let mut all = Vec::new();
    for unrest in 0..UNRESTS {
        for seat in 0..peers as usize {
            for fault in 0..kinds(seat, seat).len() {
                all.extend(PHASES.map(|phase| Blow { peers, unrest, seat, fault, phase }));
            }
        }
    }
    all
}

/// Does them all.
pub fn strike(blows: &[Blow]) -> Swept {
    let mut swept = Swept::default();
    for blow in blows {
        swept.take(&format!("--blow {blow}"), &run(blow));
    }
    swept
}

/// Does one of them.
pub fn run(blow: &Blow) -> Outcome {
    prepare(blow).run()
}

/// The run of one of them.
pub fn prepare(blow: &Blow) -> Simulation {
    let Blow { peers, unrest, seat, fault, phase } = *blow;
    let size = peers as usize;
    let next = (seat + 1) % size;
    let dies = |seat| Kind::Crash(seat, crash(false, None));
    let besides = match unrest {
        0 => Vec::new(),
        1 => vec![dies(next)],
        2 => (0..size).map(dies).collect(),
        3 => vec![Kind::Partition(vec![next], LONG)],
        _ => vec![Kind::Break(seat, next, Lane::Ring)],
    };
    let when = When::After { step: 3, delay: Duration::from_micros(200) };
    let mut faults: Vec<Fault> = besides.into_iter().map(|kind| Fault { when, kind }).collect();
    faults.push(Fault { when: When::Phase(seat, phase), kind: kinds(seat, next)[fault].clone() });
    let few = if unrest == 1 { size - 1 } else { 1 };
    // A last step that is withheld comes when all faults are over.
    let gated = phase != LAST;
    simulation(peers, faults).replan(|plan| (plan.min_members, plan.gated) = (few, gated))
}

/// Every kind, once.
fn kinds(seat: Seat, next: Seat) -> Vec<Kind> {
    vec![
        Kind::Crash(seat, crash(false, None)),
        Kind::Crash(seat, crash(true, None)),
        Kind::Crash(seat, crash(false, Some(false))),
        Kind::Crash(seat, crash(false, Some(true))),
        Kind::Pause(seat, LONG),
        Kind::Slow(seat, 50, LONG),
        Kind::DiskFull(seat, LONG),
        Kind::DiskReadOnly(seat, LONG),
        Kind::DiskHangs(seat, LONG),
        Kind::Cut(seat, next, LONG),
        Kind::Clog(seat, LONG),
        Kind::Partition(vec![seat], LONG),
        Kind::Break(seat, next, Lane::Ring),
        Kind::Break(seat, next, Lane::Control),
        Kind::Swallow(seat),
        Kind::Crash(seat, Crash { fate: DiskFate::SetBack, ..crash(false, None) }),
        Kind::Jump(seat, LONG),
        Kind::Full(seat, Queue::Control, LONG),
        Kind::Full(seat, Queue::Saver, LONG),
        Kind::Twin(seat, Copied::Disk),
    ]
}

fn crash(power: bool, at_record: Option<bool>) -> Crash {
    Crash { down: DOWN, power, fate: DiskFate::Kept, at_record }
}

impl fmt::Display for Blow {
    /// As the command line takes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { peers, unrest, seat, fault, phase } = self;
        write!(f, "{peers}:{unrest}:{seat}:{fault}:{phase}")
    }
}

impl FromStr for Blow {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let peers =
            text.split(':').next().and_then(|peers| peers.parse().ok()).filter(|peers| (2..=16).contains(peers));
        let all = peers.map(blows).unwrap_or_default();
        let found = all.into_iter().find(|blow| blow.to_string() == text);
        found.ok_or_else(|| format!("{text:?} is none: write PEERS:UNREST:SEAT:FAULT:PHASE, as a sweep tells it"))
    }
}
