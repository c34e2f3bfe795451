//! What happens to a run besides training: drawn from its seed, before it begins.

mod arriving;
mod byzantine;
mod flapping;
mod leaf;
mod losses;
mod newcomers;
mod outage;
mod star;
mod users;

use std::collections::BTreeSet;
use std::time::Duration;

use starling_topology::Quorum;

use crate::hardware::network::Seat;
use crate::hardware::network::rng::Rng;
use crate::hostile::leaf::LeafAttack;
use crate::hostile::{Attack, Hostility};
use crate::steps::message::Lane;
use crate::sweep::fault::{Copied, Crash, DiskFate, Fault, Kind, Queue, When};

/// A kind of run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Scenario {
    /// Nothing happens.
    Steady,
    /// Half of the peers join while the others train.
    Join,
    /// Some peers leave in order.
    Leave,
    /// Processes and machines die, alone and together, and come back.
    Crash,
    /// Processes stop for a while, or run slow.
    Pause,
    /// Links break, stall and split the run.
    Partition,
    /// Peers join, leave and die all the time.
    Churn,
    /// Machines die, and their disks lose, tear, flip and fill.
    Disk,
    /// Most join in one go, all die while the state is on its way, and the newcomers come back first.
    Outage,
    /// Disks of members, or their keys, are copied to other machines and started there, while the first ones run, stop, or are cut
    /// off or down.
    Twin,
    /// Most join one after the other, and those who voted first leave or die, while votes are given.
    Newcomers,
    /// No ring leads around links that are down; hubs die, come back, and lose links.
    Star,
    /// Links fail, heal and fail again.
    Flapping,
    /// Most join with a part of the data, of which the rest is on its way, and those who have all of it leave or die.
    Arriving,
    /// Some of all of these, on top of each other.
    Mixed,
    /// Fewer than a third of the members are hostile, and a few of the others die, stop or are cut off.
    Byzantine,
    /// Peers that can be no members take part through those, and die, freeze, are slow, cut off or hostile, while members die.
    Leaf,
}

impl Scenario {
    /// All in which every peer is honest.
    pub const ALL: [Self; 15] = [
        Self::Steady,
        Self::Join,
        Self::Leave,
        Self::Crash,
        Self::Pause,
        Self::Partition,
        Self::Churn,
        Self::Disk,
        Self::Outage,
        Self::Twin,
        Self::Newcomers,
        Self::Star,
        Self::Flapping,
        Self::Arriving,
        Self::Mixed,
    ];
}

/// What one simulation is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setup {
    /// How many peers there will be; `None`: the seed says it.
    pub peers: Option<u32>,
    /// The last step.
    pub steps: u64,
    /// What happens to them.
    pub scenario: Scenario,
    /// What hostile members do; `None`: the seed says it.
    pub attack: Option<Attack>,
    /// Which members of a view decide; `None`: majorities, and in byzantine runs what the seed says.
    pub quorum: Option<Quorum>,
}

impl Setup {
    /// What a search tries with one seed: every scenario in small worlds of each size, and one of them in a world whose size
    /// is drawn, from 1 to 64 peers, each order of magnitude as often as the others. One run in twenty is a long one. With one seed
    /// of four, two thirds decide in all of them.
    pub fn search(seed: u64) -> impl Iterator<Item = Self> {
        let mut rng = Rng::new(seed ^ 0x5ea2_c4ed);
        let small = Scenario::ALL.into_iter().flat_map(|scenario| SMALL.map(|peers| (scenario, peers)));
        let drawn = rng.pick(&Scenario::ALL).unwrap_or(Scenario::Mixed);
        let least = 1 << rng.between(0, 5);
        let peers = u32::try_from(rng.between(least, 2 * least)).unwrap_or(1);
        small.chain([(drawn, peers)]).map(move |(scenario, peers)| {
            let steps = if rng.one_in(20) { rng.between(25, 400) } else { Self::default().steps };
            let quorum = (seed % 4 == 3).then_some(Quorum::TwoThirds);
            Self { peers: Some(peers), steps, scenario, attack: None, quorum }
        })
    }
}

impl Default for Setup {
    fn default() -> Self {
        Self { peers: None, steps: 24, scenario: Scenario::Mixed, attack: None, quorum: None }
    }
}

/// How a run begins, and what comes after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// How many peers there will be.
    pub peers: usize,
    /// How many of them are there from the start, and waited for.
    pub founders: usize,
    /// A view with fewer members stands still.
    pub min_members: usize,
    /// What their kernels do with a peer that does not answer.
    pub patience: Duration,
    /// Which members of a view decide.
    pub quorum: Quorum,
    /// When a side without quorum goes on.
    pub fork_after: Option<Duration>,
    /// Whether the last step waits until all faults are over and all are members again.
    pub gated: bool,
    /// Whether donors mistake what they have now and then, serve rotten chunks, or don't answer.
    pub rots: bool,
    /// How many more steps there are than were asked for.
    pub more_steps: u64,
    /// Whether data may be on its way to members.
    pub arrives: bool,
    /// How many micro-batches a batch has; 0: samples are dealt one by one, which they are unless a test says so.
    pub micro_batches: u32,
    /// How often peers measure their links, if they do: then views are replanned besides.
    pub measures: Option<Duration>,
    /// Whether their clocks run at different rates, up to two in a hundred apart from the world's.
    pub drifts: bool,
    /// Whether users have machines go on alone now and then.
    pub words: bool,
    /// How many machines keep stable checkpoints and take part in nothing.
    pub keepers: usize,
    /// What happens.
    pub faults: Vec<Fault>,
    /// Who is hostile.
    pub hostility: Hostility,
    /// How many leaves there are, behind the keepers.
    pub leaves: usize,
    /// Those of them that are hostile, and how.
    pub hostile_leaves: Vec<(Seat, LeafAttack)>,
}

/// Worlds in which a search tries every scenario.
pub const SMALL: [u32; 4] = [2, 3, 4, 5];
/// How many runs a search tries with one seed.
pub const SEARCHED: u64 = (Scenario::ALL.len() * SMALL.len()) as u64 + 1;

const MAX_STALL: Duration = Duration::from_secs(10);
/// Longer than anybody waits for a disk.
const FOR_EVER: Duration = Duration::from_secs(600);

impl Plan {
    /// Draws what happens in `setup`.
    pub fn draw(rng: &mut Rng, setup: &Setup) -> Self {
        let quorum = setup.quorum.unwrap_or_default();
        if setup.scenario == Scenario::Byzantine {
            return Self::draw_byzantine(rng, setup);
        }
        let drawn = rng.between(3, if setup.scenario == Scenario::Leaf { 6 } else { 8 });
        let peers = setup.peers.map_or(drawn, u64::from).max(1);
        let founders = match setup.scenario {
            Scenario::Steady | Scenario::Leave | Scenario::Crash | Scenario::Pause | Scenario::Partition => peers,
            Scenario::Join => peers.div_ceil(2),
            Scenario::Outage | Scenario::Newcomers | Scenario::Arriving => rng.between(1, peers.div_ceil(2).min(3)),
            Scenario::Disk | Scenario::Twin | Scenario::Star | Scenario::Flapping | Scenario::Leaf => peers,
            Scenario::Churn => (peers * 3).div_ceil(4),
            Scenario::Mixed | Scenario::Byzantine => rng.between(1, peers),
        };
        let size = |number: u64| usize::try_from(number).expect("invariant: there are few peers");
        let plan = Self {
            peers: size(peers),
            founders: size(founders),
            min_members: 1,
            patience: rng.micros(3_000_000, 25_000_000),
            quorum,
            fork_after: [None, Some(MAX_STALL * 3), Some(MAX_STALL * 12)][size(rng.between(0, 2))],
            gated: rng.one_in(2),
            rots: rng.one_in(6),
            more_steps: 0,
            arrives: false,
            micro_batches: 0,
            measures: None,
            drifts: false,
            words: false,
            keepers: 0,
            faults: Vec::new(),
            hostility: Hostility::default(),
            leaves: 0,
            hostile_leaves: Vec::new(),
        };
        let fork_after = plan.fork_after.filter(|_| quorum == Quorum::Majority);
        let plan = Self { fork_after, ..plan };
        let mut draft = Draft { rng, plan, steps: setup.steps.max(2), moment: (1, Duration::ZERO) };
        draft.draw(setup.scenario);
        draft.need();
        // Last, so that a seed's faults are the same whether links are measured or not.
        draft.plan.measures = draft.rng.one_in(2).then(|| draft.rng.spread(200_000, 10_000_000));
        draft.plan.drifts = draft.rng.one_in(4);
        draft.besides(setup.scenario);
        draft.users(setup.scenario);
        // Of a copy, so that what is drawn in the run is the same with it.
        let another = draft.rng.clone().one_in(4) && setup.scenario != Scenario::Byzantine;
        draft.plan.keepers += usize::from(another);
        draft.losses(setup.scenario);
        if setup.scenario == Scenario::Leaf {
            draft.leaves_of_a_run();
        }
        draft.plan
    }
}

struct Draft<'a> {
    rng: &'a mut Rng,
    plan: Plan,
    steps: u64,
    /// Faults come in clusters, so that one finds another under way.
    moment: (u64, Duration),
}

impl Draft<'_> {
    fn draw(&mut self, scenario: Scenario) {
        for seat in 1..self.plan.founders {
            let delay = self.rng.micros(1, 300_000);
            self.plan.faults.push(Fault { when: When::After { step: 0, delay }, kind: Kind::Join(seat) });
        }
        if scenario == Scenario::Outage {
            return self.outage();
        }
        for seat in self.plan.founders..self.plan.peers {
            self.at_some_time(Kind::Join(seat));
        }
        let some = |draft: &mut Self, odds| draft.rng.one_in(odds);
        match scenario {
            Scenario::Steady | Scenario::Join | Scenario::Outage | Scenario::Byzantine => {}
            Scenario::Leave => self.leaves(),
            Scenario::Crash => self.crashes(4, false),
            Scenario::Pause => {
                self.pauses();
                self.stretch();
            }
            Scenario::Partition => self.partitions(),
            Scenario::Churn => {
                self.crashes(6, false);
                self.leaves();
            }
            Scenario::Disk => self.crashes(4, true),
            Scenario::Twin => self.twins(),
            Scenario::Newcomers => self.newcomers(),
            Scenario::Star => self.star(),
            Scenario::Flapping => self.flapping(),
            Scenario::Arriving => self.arriving(),
            Scenario::Leaf => self.carriers(),
            Scenario::Mixed => {
                // Which kinds of faults there are at all is drawn too: what happens to everybody all the time hides
                // what would happen else (A. Groce et al., "Swarm testing", 2012).
                if some(self, 2) {
                    let disks = some(self, 3);
                    self.crashes(3, disks);
                }
                if some(self, 3) {
                    self.pauses();
                }
                if some(self, 2) {
                    self.partitions();
                }
                if some(self, 4) {
                    self.leaves();
                }
                if some(self, 12) {
                    self.all_die();
                }
            }
        }
    }

    /// What a machine does to its process besides: drawn last, so that the faults before are the same with it.
    fn besides(&mut self, scenario: Scenario) {
        let (disks, queues, jumps) = match scenario {
            Scenario::Steady
            | Scenario::Join
            | Scenario::Leave
            | Scenario::Outage
            | Scenario::Twin
            | Scenario::Newcomers
            | Scenario::Star
            | Scenario::Flapping
            | Scenario::Arriving
            | Scenario::Leaf
            | Scenario::Byzantine => return,
            Scenario::Crash | Scenario::Churn => (0, 4, 0),
            Scenario::Pause => (0, 4, 2),
            Scenario::Partition => (0, 2, 4),
            Scenario::Disk => (2, 2, 0),
            Scenario::Mixed => (6, 4, 6),
        };
        let some = |draft: &mut Self, odds| odds > 0 && draft.rng.one_in(odds);
        self.plan.keepers = usize::from(some(self, 3));
        // As with other losses of votes: without forks, a view that loses a quorum of them can't go on.
        if some(self, disks) && self.plan.fork_after.is_some() {
            for _ in 0..self.rng.between(1, 2) {
                let (seat, crash) = (self.seat(), Crash { fate: DiskFate::SetBack, ..self.crash(false) });
                self.at_some_time(Kind::Crash(seat, crash));
            }
        }
        if some(self, queues) {
            for _ in 0..self.rng.between(1, 3) {
                let (seat, lasts) = (self.seat(), self.long());
                let queue = if self.rng.one_in(2) { Queue::Control } else { Queue::Saver };
                self.at_some_time(Kind::Full(seat, queue, lasts));
            }
        }
        if some(self, jumps) {
            for _ in 0..self.rng.between(1, 3) {
                let (seat, by) = (self.seat(), self.rng.spread(100_000, 60_000_000));
                self.at_some_time(Kind::Jump(seat, by));
            }
        }
    }

    /// How many members it takes: never more than there will be once all leavers have left.
    fn need(&mut self) {
        let leavers: BTreeSet<Seat> = self.plan.faults.iter().filter_map(|fault| fault.kind.leaver()).collect();
        let most = self.plan.founders.min(self.plan.peers - leavers.len().min(self.plan.peers - 1));
        let few = if self.rng.one_in(2) { 1 } else { self.rng.between(1, most as u64) };
        self.plan.min_members = usize::try_from(few).unwrap_or(1);
    }

    fn leaves(&mut self) {
        let most = self.plan.peers.saturating_sub(1).min(64) as u64;
        for _ in 0..self.rng.between(0, most) {
            let seat = self.seat();
            self.at_some_time(Kind::Leave(seat));
        }
    }

    fn crashes(&mut self, most: u64, disks: bool) {
        for _ in 0..self.rng.between(1, most) + self.more() {
            let (seat, crash) = (self.seat(), self.crash(disks));
            self.at_some_time(Kind::Crash(seat, crash));
            if self.rng.one_in(4) {
                let (seat, crash) = (self.seat(), self.crash(disks));
                self.again(Kind::Crash(seat, crash));
            }
        }
        if disks && self.rng.one_in(2) {
            let (seat, lasts) = (self.seat(), self.long());
            self.at_some_time(Kind::DiskFull(seat, lasts));
        }
        if disks && self.rng.one_in(2) {
            let (seat, mut lasts) = (self.seat(), self.long());
            if self.rng.one_in(4) {
                lasts = FOR_EVER;
            }
            let kind = if self.rng.one_in(2) { Kind::DiskReadOnly(seat, lasts) } else { Kind::DiskHangs(seat, lasts) };
            self.at_some_time(kind);
        }
        if self.rng.one_in(6) {
            self.all_die();
        }
    }

    /// Who is alone has nobody who could tell two of it apart.
    fn twins(&mut self) {
        if self.plan.peers < 2 {
            return;
        }
        // Most members are one alone.
        let most = if self.plan.peers < 5 { 1 } else { 2 };
        for _ in 0..self.rng.between(1, most) {
            self.next_moment();
            let (seat, lasts) = (self.seat(), self.long());
            // Where the first one can't answer, the second one takes part.
            match self.rng.between(0, 5) {
                0 => {}
                1 | 2 => self.again(Kind::Pause(seat, lasts)),
                3 => self.again(Kind::Clog(seat, lasts)),
                4 => self.again(Kind::Partition(vec![seat], lasts)),
                _ => {
                    let crash = self.crash(false);
                    self.again(Kind::Crash(seat, crash));
                }
            }
            let copied = if self.rng.one_in(4) { Copied::Key } else { Copied::Disk };
            let (step, so_far) = self.moment;
            let delay = so_far + self.rng.spread(10, 500_000);
            self.plan.faults.push(Fault { when: When::After { step, delay }, kind: Kind::Twin(seat, copied) });
        }
        match self.rng.between(0, 5) {
            0 => self.crashes(2, false),
            1 => self.pauses(),
            2 => self.partitions(),
            _ => {}
        }
    }

    fn all_die(&mut self) {
        self.next_moment();
        for seat in 0..self.plan.peers.min(16) {
            let crash = Crash { fate: DiskFate::Kept, ..self.crash(false) };
            self.again(Kind::Crash(seat, crash));
        }
    }

    fn crash(&mut self, disks: bool) -> Crash {
        let down = self.long();
        let power = self.rng.one_in(3);
        // Who has lost its votes counts as dead: without forks, a view that loses a quorum of them can't go on.
        let disks = disks && self.plan.fork_after.is_some();
        let fate = match self.rng.between(0, 7) {
            0 if disks => DiskFate::Wiped,
            1 | 2 if disks => DiskFate::Flipped,
            3 if disks => DiskFate::Torn,
            4 if disks => DiskFate::CheckpointsLost,
            _ => DiskFate::Kept,
        };
        let at_record = if self.rng.one_in(4) { Some(self.rng.one_in(2)) } else { None };
        Crash { down, power, fate, at_record }
    }

    fn pauses(&mut self) {
        for _ in 0..self.rng.between(1, 4) + self.more() {
            let (seat, lasts) = (self.seat(), self.long());
            if self.rng.one_in(4) {
                let factor = u32::try_from(self.rng.between(2, 200)).unwrap_or(2);
                self.at_some_time(Kind::Slow(seat, factor, lasts));
            } else {
                self.at_some_time(Kind::Pause(seat, lasts));
            }
        }
    }

    /// Some are gone for longer than a run may stand still.
    fn stretch(&mut self) {
        for fault in &mut self.plan.faults {
            if let Kind::Pause(_, lasts) = &mut fault.kind
                && *lasts > MAX_STALL
            {
                *lasts *= 4;
            }
        }
    }

    fn partitions(&mut self) {
        for _ in 0..self.rng.between(1, 4) + self.more() {
            let (one, other, lasts) = (self.seat(), self.seat(), self.long());
            match self.rng.between(0, 5) {
                0 | 1 if one != other => {
                    let lane = self.rng.pick(&Lane::OF_MEMBERS).unwrap_or(Lane::Ring);
                    self.at_some_time(Kind::Break(one, other, lane));
                }
                2 if one != other => self.at_some_time(Kind::Cut(one, other, lasts)),
                3 => self.swizzle_clog(),
                4 => {
                    let seat = self.seat();
                    self.at_some_time(Kind::Swallow(seat));
                }
                _ => {
                    let side = (0..self.plan.peers).filter(|_| self.rng.one_in(2)).collect();
                    self.at_some_time(Kind::Partition(side, lasts));
                }
            }
        }
    }

    /// Clogs some machines one after the other, and frees them in another order (FoundationDB's "swizzle-clogging").
    fn swizzle_clog(&mut self) {
        self.next_moment();
        for seat in 0..self.plan.peers.min(16) {
            if self.rng.one_in(2) {
                let lasts = self.long();
                self.again(Kind::Clog(seat, lasts));
            }
        }
    }

    /// How many more faults of a kind there are, because the world is large.
    fn more(&self) -> u64 {
        self.plan.peers as u64 / 128
    }

    fn seat(&mut self) -> Seat {
        let last = (self.plan.peers - 1) as u64;
        usize::try_from(self.rng.between(0, last)).unwrap_or(0)
    }

    /// From a millisecond to three times `max_stall`; half of the time too short to be noticed as silence.
    fn long(&mut self) -> Duration {
        if self.rng.one_in(2) { self.rng.spread(1_000, 5_000_000) } else { self.rng.spread(5_000_000, 30_000_000) }
    }

    fn at_some_time(&mut self, kind: Kind) {
        if self.rng.one_in(2) {
            self.next_moment();
        }
        self.again(kind);
    }

    fn next_moment(&mut self) {
        let step = if self.rng.one_in(12) { 0 } else { self.rng.between(1, self.steps - 1) };
        self.moment = (step, Duration::ZERO);
    }

    /// At about the same time as the fault before.
    fn again(&mut self, kind: Kind) {
        let (step, so_far) = self.moment;
        let gap = if self.rng.one_in(4) { self.rng.spread(1_000, 20_000_000) } else { self.rng.spread(10, 200_000) };
        let delay = if self.rng.one_in(2) { gap } else { so_far + gap };
        self.moment.1 = delay;
        self.plan.faults.push(Fault { when: When::After { step, delay }, kind });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_peer_comes_once() {
        for scenario in Scenario::ALL {
            for seed in 0..200 {
                let setup = Setup { peers: Some(1 + (seed % 7) as u32), steps: 10, scenario, ..Setup::default() };
                let plan = Plan::draw(&mut Rng::new(seed), &setup);
                let mut joins: Vec<Seat> = Vec::new();
                joins.extend(plan.faults.iter().filter_map(|fault| match fault.kind {
                    Kind::Join(seat) => Some(seat),
                    _ => None,
                }));
                joins.sort_unstable();
                assert_eq!(joins, (1..plan.peers).collect::<Vec<_>>(), "{scenario:?}, seed {seed}");
                assert!((1..=plan.peers).contains(&plan.founders));
                let seats = plan.faults.iter().filter_map(|fault| fault.kind.seat());
                assert!(seats.into_iter().all(|seat| seat < plan.peers));
            }
        }
    }

    #[test]
    fn a_search_tries_each_scenario_in_each_small_world_and_large_ones_too() {
        let (mut sizes, mut long) = (BTreeSet::new(), 0);
        for seed in 0..100 {
            let all: Vec<Setup> = Setup::search(seed).collect();
            assert_eq!(all.len() as u64, SEARCHED);
            for pair in Scenario::ALL.into_iter().flat_map(|scenario| SMALL.map(|peers| (scenario, Some(peers)))) {
                assert!(all.iter().any(|setup| (setup.scenario, setup.peers) == pair), "seed {seed}");
            }
            sizes.extend(all.iter().filter_map(|setup| setup.peers));
            long += all.iter().filter(|setup| setup.steps > 24).count();
        }
        assert!(sizes.contains(&1) && sizes.last() > Some(&48) && sizes.last() <= Some(&64), "{sizes:?}");
        assert!((120..400).contains(&long), "{long}");
    }

    #[test]
    fn a_seed_draws_one_plan() {
        for seed in 0..20 {
            let draw = |seed| Plan::draw(&mut Rng::new(seed), &Setup::default());
            assert_eq!(draw(seed), draw(seed));
            assert_ne!(draw(seed), draw(seed + 1));
        }
    }
}
