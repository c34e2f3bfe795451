//! One simulated run, from its seed to its end. `execute` does what processes want, `inject` what faults are `due`; `stall` judges whether
//! it stands still for nothing, `endings` how it must end. First there are faults; then all is healed, and it must complete.

mod aging;
mod beside;
mod due;
mod endings;
mod execute;
mod hostility;
mod inject;
mod judging;
mod measure;
mod returning;
mod seeking;
mod stall;
mod telling;

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use starling_topology::{
    Ballot, Config, Digest, Generation, Head, PeerId, Record, RunId, Time, Timer, View, ViewId, WorldSize,
};

use crate::hardware::machine::checkpoints;
use crate::hardware::machine::host::Host;
use crate::hardware::network::queue::Queue;
use crate::hardware::network::rng::Rng;
use crate::hardware::network::{Network, Parcel, Seat};
use crate::hostile::Guilt;
use crate::peer::Peer;
use crate::scenario::{Plan, Scenario, Setup};
use crate::simulation::Simulation;
use crate::steps::message::Lane;
use crate::steps::state::{Commits, State};
use crate::steps::workload::{PLANNED, Workload};
use crate::sweep::canary::Sabotage;
use crate::sweep::coverage::Coverage;
use crate::sweep::fault::When;
use crate::verdict::invariants::{Broken, Invariants};
use crate::verdict::report::Outcome;
use crate::verdict::report::leaf_totals::LeafTotals;
use crate::verdict::report::picture::Mark;

use judging::JudgedProposal;
pub use returning::twins::Looking;
use returning::twins::{Dialed, Twins};
use seeking::Errand;

/// The run that all are in.
pub(crate) const RUN: RunId = RunId([7; 32]);
/// By how much steps take longer where links are measured.
const SLOWER: u32 = 24;
/// How often the world looks whether anything goes on.
const LOOK: Duration = Duration::from_secs(1);
/// A run has no more events than this for each of its peers, however long it goes on: a hundred times what they need.
const MAX_EVENTS: u64 = 200_000;

/// Something that will happen.
#[derive(Debug)]
pub enum SimEvent {
    /// A message arrives, sent by that process of its sender.
    Arrives(Parcel, u32),
    /// A connection closes at the first machine's end.
    Closes(Seat, Seat, Lane, u32),
    /// What the first machine has sent over a connection has not been taken at the other end.
    Lost(Seat, Seat, Lane, u32),
    /// A new connection could not be opened.
    Refused(Seat, u32, Seat, Lane),
    /// A sender's kernel looks whether it has waited too long.
    Stalled(Seat, Seat, Lane, u32),
    /// A timer of the machine's clock.
    Expires(Seat, u32, Timer, Time),
    /// An alarm of the driver.
    Rings(Seat, u32, Time),
    /// A gradient is there.
    Computed(Seat, u32, u64),
    /// A record is written.
    Stores(Seat, u32, Rc<Record>),
    /// A checkpoint is written.
    Saved(Seat, u32, Rc<State>),
    /// A process hears that a peer has signed a head.
    Heard(Seat, PeerId, Box<Head>),
    /// A fault of the plan.
    Strikes(usize),
    /// A fault of the plan is over.
    Passes(usize),
    /// A process starts.
    Starts(Seat, u32),
    /// A leaf's process starts.
    StartsLeaf(Seat, u32),
    /// A member dials that leaf.
    DialsBack(Seat, u32, PeerId),
    /// Something that a process has asked others for before it takes part.
    Seeks(Seat, u32, Errand),
    /// Something that a process does to find a twin.
    Twins(Seat, u32, Dialed),
    /// What a keeper fetches from these has come.
    Keeps(Seat, u32, Box<Head>, Vec<PeerId>),
    /// What a keeper has asked these for has come: a view.
    Tells(Seat, u32, ViewId, Vec<PeerId>),
    /// A process has measured its links.
    Measures(Seat, u32),
    /// A process looks how far it is.
    LooksAtItself(Seat, u32),
    /// A hostile peer says something.
    Talks(Seat),
    /// The world looks whether anything goes on.
    Looks,
}

/// Everything there is.
#[derive(Debug)]
pub(crate) struct World {
    seed: u64,
    setup: Setup,
    now: Time,
    rng: Rng,
    /// What links are measured as, and when: a run in which none are goes the same way without it.
    chance: Rng,
    /// When processes look how far they are: each at moments of its own.
    looks: Rng,
    /// Who hears when of what others have signed: a run in which nobody does goes the same way.
    gossip: Rng,
    /// What users say.
    users: Rng,
    /// What leaves do, and when.
    leaves: Rng,
    /// What those did.
    leaf_totals: LeafTotals,
    /// Leaves whose routers let others in.
    routers: BTreeSet<Seat>,
    /// Those of them that are leaves no more.
    opened: BTreeSet<Seat>,
    /// Members that are leaves by now.
    displaced: BTreeSet<Seat>,
    /// On which of a leaf's connections a member hears it, and answers: that on which it attached last.
    leaf_streams: BTreeMap<(Seat, Seat), u32>,
    queue: Queue<SimEvent>,
    network: Network,
    config: Config,
    workload: Rc<Workload>,
    commits: Rc<RefCell<Commits>>,
    early_limit: usize,
    plan: Plan,
    sabotage: Option<Sabotage>,
    /// Faults of the plan that have not come to their time: those that wait for a step.
    ahead: Vec<usize>,
    /// And those that wait for a delivery, the next one last.
    at_delivery: Vec<(u64, usize)>,
    /// And those that wait for a phase.
    at_phase: Vec<usize>,
    /// Faults of the plan that are not over.
    active: usize,
    hosts: Vec<Host>,
    seats: BTreeMap<PeerId, Seat>,
    /// Who has a second machine with its name, and what gets to which of the two.
    twins: Twins,
    invariants: Invariants,
    /// Who has signed what no correct peer signs.
    guilt: Guilt,
    /// Who was found guilty when something did not hold: that run is over.
    convicted: Option<PeerId>,
    broken: Vec<Broken>,
    /// Each view that somebody has entered, to count them, and whether it is of a fork.
    views: BTreeMap<ViewId, bool>,
    /// What was so when that was proposed first which was proposed in each ballot of a view.
    proposed: BTreeMap<(ViewId, Ballot), JudgedProposal>,
    /// What a quorum has decided after each view, once somebody has written it down.
    successors: BTreeMap<ViewId, View>,
    /// Views that somebody is in, for those who ask who their members are.
    known: BTreeMap<ViewId, View>,
    /// What each view followed, forks too.
    parents: BTreeMap<ViewId, ViewId>,
    /// The generations that came for a better plan.
    replans: BTreeSet<Generation>,
    /// The views that took a star for want of a ring, or as links failed again and again.
    stars: BTreeSet<ViewId>,
    /// The views whose links failed again and again.
    unsteady: BTreeSet<ViewId>,
    /// That of the highest generation.
    newest: Option<View>,
    /// The step that it went on from.
    newest_step: u64,
    completed: BTreeMap<Seat, Digest>,
    /// The views that they completed it in.
    final_views: BTreeSet<ViewId>,
    sent_away: BTreeSet<Seat>,
    /// Whether the last step is held back until all are members.
    gated: bool,
    /// Whether a disk has lost something, or has written what it was not told.
    damaged: bool,
    /// Whether a disk was set back behind what its peer had said: no rule about votes holds any more.
    forgotten: bool,
    /// Whose two processes have decided two views after one: those who follow either may never meet again.
    split: Option<PeerId>,
    /// Whether a disk has lost the state after the last step, or had no room for it.
    last_state_lost: bool,
    /// How many are in the run, or will be again.
    running: usize,
    /// Whether those who still run have nobody left to talk to.
    over: bool,
    forked: bool,
    events: u64,
    deliveries: u64,
    faults: u64,
    coverage: Coverage,
    stale: u64,
    trace: Option<String>,
    marks: Option<Vec<Mark>>,
}

impl World {
    pub(crate) fn new(simulation: Simulation) -> Self {
        let setup = simulation.setup();
        let Simulation { seed, plan, sabotage, told, pictured, .. } = simulation;
        let mut rng = Rng::new(seed);
        let twins = Twins::of(&plan, Rng::new(seed ^ 0x0007_1125));
        let network = Network::new(rng.fork(), plan.patience, plan.peers + plan.keepers + plan.leaves + twins.len());
        let mut workload = Workload::draw(&mut rng.fork(), setup.steps + plan.more_steps, &plan);
        if plan.measures.is_some()
            || !plan.hostility.seats.is_empty()
            || matches!(setup.scenario, Scenario::Newcomers | Scenario::Star | Scenario::Arriving | Scenario::Leaf)
        {
            // A view must be some time old before it is replanned, and lies take time, and so do a vote, a star, data and a leaf's way.
            workload.compute_least *= SLOWER;
            workload.compute_most *= SLOWER;
        }
        let size = u32::try_from(plan.peers + plan.leaves).unwrap_or(u32::MAX);
        let config = Config {
            min_members: plan.min_members,
            last_step: workload.steps,
            quorum: plan.quorum,
            fork_after: plan.fork_after,
            checkpoint_every: workload.checkpoint_every,
            reduced: Some((workload.plan, PLANNED)),
            ..Config::default()
        };
        let mut names = rng.fork();
        let (mut ahead, mut at_delivery, mut at_phase) = (Vec::new(), Vec::new(), Vec::new());
        for (index, fault) in plan.faults.iter().enumerate() {
            match fault.when {
                When::After { .. } => ahead.push(index),
                When::Delivery(count) => at_delivery.push((count, index)),
                When::Phase(..) => at_phase.push(index),
            }
        }
        at_delivery.sort_unstable_by_key(|at| Reverse(*at));
        let machines = plan.peers + plan.keepers + plan.leaves;
        let mut hosts: Vec<Host> = (0..machines).map(|seat| Host::draw(&mut names, seat)).collect();
        if seed.is_multiple_of(4) {
            let disks = hosts.iter_mut().skip(1).map(|host| &mut host.disk);
            // What the same command had left, before its founder lost its disk.
            disks.for_each(|disk| checkpoints::leave_from_earlier_attempt(disk, &workload.ledger(), workload.steps));
        }
        aging::copy_disks(&plan.faults, &mut hosts);
        let seats = hosts.iter().enumerate().map(|(seat, host)| (host.name(), seat)).collect();
        twins.add_hosts(&mut hosts);
        if plan.drifts {
            let mut rates = Rng::new(seed ^ 0x000d_21f7);
            hosts.iter_mut().for_each(|host| host.drift = i64::try_from(rates.between(0, 400)).unwrap_or(200) - 200);
        }
        Self {
            seed,
            setup,
            now: Time::ZERO,
            rng,
            chance: Rng::new(seed ^ 0x0005_eed5),
            looks: Rng::new(seed ^ 0x0010_0c75),
            gossip: Rng::new(seed ^ 0x0060_5517),
            users: Rng::new(seed ^ 0x00a5_e125),
            leaves: Rng::new(seed ^ 0x00f0_11a6),
            leaf_totals: LeafTotals::default(),
            leaf_streams: BTreeMap::new(),
            opened: BTreeSet::new(),
            routers: BTreeSet::new(),
            displaced: BTreeSet::new(),
            queue: Queue::new(),
            network,
            config,
            early_limit: workload.early_limit(WorldSize::new(size.max(1))),
            workload: Rc::new(workload),
            commits: Rc::default(),
            ahead,
            at_delivery,
            at_phase,
            coverage: Coverage::default(),
            gated: plan.gated,
            damaged: false,
            forgotten: false,
            split: None,
            last_state_lost: false,
            running: 0,
            over: false,
            plan,
            sabotage,
            active: 0,
            seats,
            twins,
            hosts,
            invariants: Invariants::default(),
            guilt: Guilt::default(),
            convicted: None,
            broken: Vec::new(),
            views: BTreeMap::new(),
            proposed: BTreeMap::new(),
            successors: BTreeMap::new(),
            known: BTreeMap::new(),
            parents: BTreeMap::new(),
            replans: BTreeSet::new(),
            stars: BTreeSet::new(),
            unsteady: BTreeSet::new(),
            newest: None,
            newest_step: 0,
            completed: BTreeMap::new(),
            final_views: BTreeSet::new(),
            sent_away: BTreeSet::new(),
            forked: false,
            events: 0,
            deliveries: 0,
            faults: 0,
            stale: 0,
            trace: told.then(String::new),
            marks: pictured.then(Vec::new),
        }
    }

    pub(crate) fn run(mut self) -> Outcome {
        self.tell(|world| format!("{:?}, {:?}", world.workload, world.config));
        self.turn_hostile();
        self.start_keepers();
        let leaves: Vec<PeerId> = self.leaf_seats().map(|seat| self.hosts[seat].name()).collect();
        self.invariants.leaf_is_no_member.are_leaves(leaves.into_iter());
        self.start_leaves();
        self.start(0);
        self.bring_up(0);
        self.queue.push(self.now + LOOK, SimEvent::Looks);
        let mut stuck = None;
        while let Some((at, event)) = self.queue.pop() {
            self.now = at;
            self.events += 1;
            self.happen(event);
            if self.events > MAX_EVENTS * self.hosts.len() as u64 {
                self.breaks(Err(Broken::new("progress", format!("there is no end after {} events", self.events))));
            }
            if !self.broken.is_empty() || self.convicted.is_some() || self.is_over() {
                break;
            }
            if let Some(running) = self.hung() {
                self.convicted = self.split;
                stuck = Some(running).filter(|_| self.split.is_none());
                break;
            }
        }
        if stuck.is_none() && self.broken.is_empty() && self.convicted.is_none() {
            self.check_endings();
        }
        self.outcome(stuck)
    }

    fn outcome(mut self, stuck: Option<Vec<Seat>>) -> Outcome {
        if let Some(running) = &stuck {
            self.tell(|_| format!("hung: still running: {running:?}"));
        }
        self.leaf_totals.stood_still(self.invariants.leaf_goes_on.longest());
        self.leaf_totals.parts = self.invariants.leaf_counts_once.by_leaves();
        let deserted = if self.running > 0 && self.completed.is_empty() { self.deserted() } else { None };
        let running: u64 = self.hosts.iter().filter_map(|host| host.peer.as_ref()).map(Peer::stale).sum();
        Outcome {
            seed: self.seed,
            setup: self.setup,
            events: self.events,
            deliveries: self.deliveries,
            simulated: self.now - Time::ZERO,
            steps: self.invariants.progress.highest(),
            views: self.views.len() as u64,
            replans: self.replans.len() as u64,
            stars: self.stars.len() as u64,
            unsteady: self.unsteady.len() as u64,
            given_back: self.invariants.starved_shares.given_back(),
            out_of_data: self.completed.values().any(|digest| self.invariants.starved_shares.ends_with(*digest)),
            faults: self.faults,
            coverage: self.coverage,
            completed: self.completed.len() as u64,
            stale: self.stale + running,
            longest_queue: self.invariants.bounded_queues.longest(),
            longest_stalls: self.invariants.progress.longest().clone(),
            leaves: self.leaf_totals,
            broken: self.broken,
            deserted,
            convicted: self.convicted.is_some(),
            stuck,
            trace: self.trace.unwrap_or_default(),
            marks: self.marks.unwrap_or_default(),
        }
    }

    fn happen(&mut self, event: SimEvent) {
        let seat = match &event {
            SimEvent::Arrives(parcel, _) => Some(parcel.to),
            SimEvent::Closes(seat, ..)
            | SimEvent::Lost(seat, ..)
            | SimEvent::Refused(seat, ..)
            | SimEvent::Expires(seat, ..)
            | SimEvent::Rings(seat, ..)
            | SimEvent::Computed(seat, ..)
            | SimEvent::DialsBack(seat, ..)
            | SimEvent::Stores(seat, ..)
            | SimEvent::LooksAtItself(seat, ..)
            | SimEvent::Saved(seat, ..)
            | SimEvent::Heard(seat, ..) => Some(*seat),
            // A question gets to whom it is for.
            SimEvent::Seeks(_, _, Errand::Asks(_)) => None,
            SimEvent::Twins(_, _, Dialed::At(..)) => None,
            SimEvent::Seeks(seat, ..) | SimEvent::Twins(seat, ..) => Some(*seat),
            SimEvent::Stalled(..)
            | SimEvent::Strikes(_)
            | SimEvent::Passes(_)
            | SimEvent::Starts(..)
            | SimEvent::StartsLeaf(..)
            | SimEvent::Keeps(..)
            | SimEvent::Tells(..)
            | SimEvent::Measures(..)
            | SimEvent::Talks(_)
            | SimEvent::Looks => None,
        };
        if let Some(stopped) = seat.and_then(|seat| self.hosts[seat].stopped.as_mut()) {
            return stopped.push(event); // The kernel takes it; the process will see it.
        }
        if let Some(seat) = self.waits_for_disk(&event) {
            return self.hosts[seat].stalled.push(event);
        }
        match event {
            SimEvent::Arrives(parcel, incarnation) => self.deliver(parcel, incarnation),
            SimEvent::Closes(at, other, lane, number) => {
                if self.network.close(at, other, lane, number) {
                    self.lose_connection(at, other, lane);
                }
            }
            SimEvent::Lost(at, other, lane, number) => {
                if self.network.lose(at, other, lane, number) {
                    self.lose_connection(at, other, lane);
                }
            }
            SimEvent::Refused(at, incarnation, other, lane) => {
                // What was sent was for a process that is gone. The one after it may have opened a connection since.
                if self.hosts[at].incarnation == incarnation && self.network.open(at, other, lane).is_none() {
                    self.lose_connection(at, other, lane);
                }
            }
            SimEvent::Stalled(from, to, lane, number) => self.give_up_stalled(from, to, lane, number),
            SimEvent::Expires(seat, incarnation, timer, at) => {
                self.with(seat, incarnation, |peer, now| peer.expire(now, timer, at));
            }
            SimEvent::Rings(seat, incarnation, at) => self.ring(seat, incarnation, at),
            SimEvent::Computed(seat, incarnation, id) => {
                self.with_leaf(seat, incarnation, |leaf, now| leaf.computed(now, id));
                self.with(seat, incarnation, |peer, now| peer.computed(now, id));
            }
            SimEvent::Stores(seat, incarnation, record) => {
                if self.hosts[seat].incarnation == incarnation {
                    self.store(seat, record);
                }
            }
            SimEvent::Saved(seat, incarnation, state) => {
                if self.hosts[seat].incarnation == incarnation {
                    let manifest = self.saved(seat, &state);
                    let is_kept = self.hosts[seat].disk.holds(state.step, state.digest);
                    self.with(seat, incarnation, |peer, now| peer.saved(now, &state, is_kept, manifest));
                }
            }
            SimEvent::Heard(seat, from, head) if self.hosts[seat].keeper.is_some() => {
                self.keeper_hears(seat, from, *head);
            }
            SimEvent::Heard(seat, from, head) => {
                let incarnation = self.hosts[seat].incarnation;
                self.with(seat, incarnation, |peer, now| peer.heard(now, from, *head));
            }
            SimEvent::Strikes(fault) => self.strike(fault),
            SimEvent::Passes(fault) => self.pass(fault),
            SimEvent::Starts(seat, incarnation) => {
                if self.hosts[seat].incarnation == incarnation && !self.hosts[seat].is_up() {
                    if !self.hosts[seat].gave_up {
                        self.invariants.progress.disturbed(self.now, "starts");
                    }
                    self.start(seat);
                }
            }
            SimEvent::StartsLeaf(seat, incarnation) => self.start_leaf(seat, incarnation),
            SimEvent::DialsBack(seat, incarnation, member) => self.dial_back(seat, incarnation, member),
            SimEvent::Seeks(seat, incarnation, errand) => self.run_errand(seat, incarnation, errand),
            SimEvent::Twins(seat, incarnation, dialed) => self.look_on(seat, incarnation, dialed),
            SimEvent::Keeps(seat, incarnation, head, from) => self.keeper_fetches(seat, incarnation, &head, &from),
            SimEvent::Tells(seat, incarnation, view, from) => self.keeper_is_told(seat, incarnation, view, &from),
            SimEvent::Measures(seat, incarnation) => self.measure(seat, incarnation),
            SimEvent::LooksAtItself(seat, incarnation) => self.look_at_itself(seat, incarnation),
            SimEvent::Talks(seat) => self.talk(seat),
            SimEvent::Looks => self.look(),
        }
    }

    fn deliver(&mut self, parcel: Parcel, incarnation: u32) {
        let Parcel { from, to, number, departed, message, .. } = parcel;
        let lane = message.lane();
        let sender = &self.hosts[from];
        if sender.incarnation != incarnation && departed > sender.died {
            return; // What had not left a process when it died, never will.
        }
        let is_there = self.hosts[to].peer.is_some() || self.hosts[to].leaf.is_some();
        // Of a leaf's streams the newest counts.
        let is_newest = lane != Lane::Leaf || self.network.open(to, from, lane) == Some(number);
        let heard = is_there && is_newest && self.network.accepts(to, from, lane, number);
        let heard = heard && self.hears_this_one(from, to, &message);
        if !heard {
            // Nobody listens on this connection, and the sender learns it, if anything gets back to it.
            let gone = self.hosts[to].off || self.network.is_blocked(to, from);
            let takes = if gone { self.network.patience() } else { self.network.delay(to, from) };
            return self.queue.push(self.now + takes, SimEvent::Lost(from, to, lane, number));
        }
        self.deliveries += 1;
        self.bring_up_at_delivery();
        if self.hosts[to].peer.is_none() && self.hosts[to].leaf.is_none() {
            return; // That was the fault.
        }
        self.tell(|_| format!("{to} <- {from}: {message}"));
        let (name, incarnation) = (self.hosts[from].name(), self.hosts[to].incarnation);
        self.overhear(to, name, &message);
        if !self.is_on_its_stream(from, to, number, &message) {
            return;
        }
        if self.hosts[to].leaf.is_some() {
            return self.with_leaf(to, incarnation, |leaf, now| leaf.receive(now, name, message));
        }
        self.with(to, incarnation, |peer, now| peer.receive(now, name, message));
    }

    fn lose_connection(&mut self, at: Seat, other: Seat, lane: Lane) {
        self.tell(|_| format!("{at}: the {lane:?} connection to {other} is closed"));
        if self.has_another(at, other, lane) {
            return;
        }
        let (name, incarnation) = (self.hosts[other].name(), self.hosts[at].incarnation);
        self.with_leaf(at, incarnation, |leaf, now| leaf.closed(now, name, lane));
        self.with(at, incarnation, |peer, now| peer.closed(now, name, lane));
    }

    /// Lets something happen to a process, if it is still that one, and does what it wants then.
    fn with(&mut self, seat: Seat, incarnation: u32, happens: impl FnOnce(&mut Peer, Time)) {
        let host = &mut self.hosts[seat];
        let now = host.clock(self.now);
        let Some(peer) = host.peer.as_mut().filter(|_| host.incarnation == incarnation) else { return };
        happens(peer, now);
        let effects = peer.take_effects();
        self.execute_all(seat, incarnation, effects);
        self.look_again(seat);
        self.bring_up_at_phase(seat);
    }
}
