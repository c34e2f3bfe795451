//! One simulated run, from its seed to its end.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use starling_topology::{Config, Contact, Event, Membership, PeerId, RunId, Time, Timer, WorldSize};

use crate::endings;
use crate::invariants::{Broken, Invariants};
use crate::message::Message;
use crate::network::{Lane, Network};
use crate::peer::{Effect, Peer};
use crate::queue::Queue;
use crate::report::Outcome;
use crate::rng::Rng;
use crate::scenario::{Action, Plan, Planned, Setup};
use crate::workload::Workload;

const RUN: RunId = RunId([7; 32]);

/// A run in which nothing but heartbeats moves for this many times `max_stall` hangs.
const PATIENCE: u32 = 5;

/// Runs `seed` to its end.
pub fn simulate(seed: u64, setup: &Setup) -> Outcome {
    World::new(seed, setup, None).run()
}

/// Runs `seed` to its end and tells everything that happens: the same text each time.
pub fn replay(seed: u64, setup: &Setup) -> (Outcome, String) {
    let mut outcome = World::new(seed, setup, Some(String::new())).run();
    let trace = std::mem::take(&mut outcome.trace);
    (outcome, trace)
}

/// Something that will happen.
#[derive(Debug)]
enum Happening {
    Arrives { from: PeerId, to: PeerId, departed: Time, message: Message },
    Expires { peer: PeerId, timer: Timer },
    Computed { peer: PeerId, computation: u64 },
    Act(Action),
}

#[derive(Debug)]
struct World {
    seed: u64,
    now: Time,
    rng: Rng,
    queue: Queue<Happening>,
    network: Network,
    config: Config,
    workload: Workload,
    early_limit: usize,
    planned: Vec<Planned>,
    peers: BTreeMap<PeerId, Peer>,
    /// Asked to leave.
    leaving: BTreeSet<PeerId>,
    crash: Option<endings::Crash>,
    ended: BTreeMap<PeerId, Time>,
    invariants: Invariants,
    broken: Vec<Broken>,
    highest_step: u64,
    last_progress: Time,
    events: u64,
    trace: Option<String>,
}

impl World {
    fn new(seed: u64, setup: &Setup, trace: Option<String>) -> Self {
        let mut rng = Rng::new(seed);
        let network = Network::new(rng.fork());
        let workload = Workload::draw(&mut rng.fork(), setup.steps);
        let plan = Plan::draw(&mut rng.fork(), setup);
        let early_limit = workload.early_limit(WorldSize::new(setup.peers.max(1)));
        let config = Config { min_members: plan.min_members as usize, ..Config::default() };
        Self {
            seed,
            now: Time::ZERO,
            rng,
            queue: Queue::new(),
            network,
            config,
            workload,
            early_limit,
            planned: plan.actions,
            peers: BTreeMap::new(),
            leaving: BTreeSet::new(),
            crash: None,
            ended: BTreeMap::new(),
            invariants: Invariants::default(),
            broken: Vec::new(),
            highest_step: 0,
            last_progress: Time::ZERO,
            events: 0,
            trace,
        }
    }

    fn run(mut self) -> Outcome {
        self.tell(|world| format!("{:?}, {:?}", world.workload, world.planned));
        self.found();
        self.plan_after(0);
        let mut hung = false;
        while let Some((at, happening)) = self.queue.pop() {
            self.now = at;
            if self.now - self.last_progress > self.config.max_stall * PATIENCE {
                hung = true;
                break;
            }
            self.events += 1;
            self.happen(happening);
        }
        let peers = self.peers.iter().map(|(name, peer)| (*name, peer)).collect();
        let (leaving, ended) = (&self.leaving, &self.ended);
        let endings = endings::Endings { peers, leaving, ended, crash: self.crash.as_ref(), config: &self.config };
        self.broken.extend(endings.check());
        let stuck = hung.then(|| endings.running());
        let stale = self.peers.values().map(Peer::stale).sum();
        let longest_queue = self.invariants.bounded_queues.longest();
        if let Some(running) = &stuck {
            self.tell(|_| format!("hung: still running: {running:?}"));
        }
        Outcome {
            seed: self.seed,
            events: self.events,
            simulated: self.now - Time::ZERO,
            steps: self.highest_step,
            stale,
            longest_queue,
            broken: self.broken,
            stuck,
            trace: self.trace.unwrap_or_default(),
        }
    }

    fn happen(&mut self, happening: Happening) {
        let now = self.now;
        match happening {
            Happening::Arrives { from, to, departed, message } => self.deliver(from, to, departed, message),
            Happening::Expires { peer, timer } => self.with(peer, |peer| peer.expire(now, timer)),
            Happening::Computed { peer, computation } => self.with(peer, |peer| peer.computed(now, computation)),
            Happening::Act(action) => self.act(action),
        }
    }

    fn deliver(&mut self, from: PeerId, to: PeerId, departed: Time, message: Message) {
        // What had not left a peer when it died, never will. That its connections are closed, its kernel says.
        let dead = |crash: &endings::Crash| crash.victim == from && departed > crash.at;
        if self.crash.as_ref().is_some_and(dead) && message != Message::Closed {
            return;
        }
        if self.ended.contains_key(&to) {
            // Nobody listens there any more, and the sender learns it, unless it is gone too.
            if message != Message::Closed {
                self.send(to, from, Message::Closed);
            }
            return;
        }
        self.tell(|_| format!("{to:?} <- {from:?}: {}", describe(&message)));
        let now = self.now;
        if message.lane() != Lane::Control {
            self.last_progress = now; // Of these, a step and a download take a bounded number each.
        }
        self.with(to, |peer| peer.receive(now, from, message));
    }

    // --- what happens from outside ------------------------------------------------------------------------------

    fn found(&mut self) {
        let me = self.next_contact();
        let machine = Membership::found(self.config.clone(), RUN, me.clone(), self.now);
        self.tell(|_| format!("{:?} founds the run", me.peer));
        self.add(me.peer, machine, true);
    }

    fn act(&mut self, action: Action) {
        let members: Vec<PeerId> = self.running().filter(|(_, peer)| peer.is_member()).map(|(name, _)| name).collect();
        match action {
            Action::Join => {
                // Before the first step there is one to ask: the founder, who was there first.
                let asked = if self.highest_step == 0 && members.is_empty() {
                    self.running().find(|(_, peer)| peer.founded()).map(|(name, _)| name)
                } else {
                    self.rng.pick(&members)
                };
                let Some(asked) = asked else { return };
                let me = self.next_contact();
                self.tell(|_| format!("{:?} wants to join and asks {asked:?}", me.peer));
                let tells = self.rng.one_in(2);
                let machine = Membership::join(self.config.clone(), RUN, me.clone(), asked, self.now);
                self.add(me.peer, machine, tells);
            }
            Action::Leave => {
                let Some(leaver) = self.rng.pick(&members) else { return };
                self.tell(|_| format!("{leaver:?} is told to leave"));
                self.leaving.insert(leaver);
                let now = self.now;
                self.with(leaver, |peer| peer.leave(now));
            }
            Action::Kill | Action::Hang => {
                let Some(victim) = self.rng.pick(&members) else { return };
                let kill = action == Action::Kill;
                self.tell(|_| format!("{victim:?} {}", if kill { "dies" } else { "hangs" }));
                let dispensable = self.peers[&victim].step() == self.workload.steps || self.leaving.contains(&victim);
                self.crash = Some(endings::Crash { victim, at: self.now, members, dispensable });
                if kill {
                    self.close(victim);
                }
            }
        }
    }

    fn next_contact(&mut self) -> Contact {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&self.rng.bits().to_be_bytes());
        bytes[8] = u8::try_from(self.peers.len()).unwrap_or(u8::MAX);
        Contact { peer: PeerId(bytes), addresses: Vec::new() }
    }

    fn add(&mut self, name: PeerId, machine: Membership, tells: bool) {
        let peer = Peer::new(name, machine, self.workload.clone(), self.early_limit);
        self.peers.insert(name, peer);
        let now = self.now;
        self.with(name, |peer| peer.begin_held(now, tells));
    }

    /// Brings up what is planned after `step`.
    fn plan_after(&mut self, step: u64) {
        let now = self.now;
        let (due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.planned).into_iter().partition(|planned| planned.after_step <= step);
        self.planned = later;
        for planned in due {
            self.queue.push(now + planned.delay, Happening::Act(planned.action));
        }
    }

    // --- what the peers want ------------------------------------------------------------------------------------

    /// Lets something happen to a peer that can still do anything, and does what it wants then.
    fn with(&mut self, name: PeerId, happens: impl FnOnce(&mut Peer)) {
        let crashed = self.crash.as_ref().is_some_and(|crash| crash.victim == name);
        if crashed || self.ended.contains_key(&name) {
            return;
        }
        let Some(peer) = self.peers.get_mut(&name) else { return };
        happens(peer);
        let (effects, ended) = (peer.take_effects(), peer.end().is_some());
        for effect in effects {
            self.execute(name, effect);
        }
        if ended {
            self.ended.insert(name, self.now);
            self.last_progress = self.now;
            self.close(name);
        }
    }

    fn execute(&mut self, name: PeerId, effect: Effect) {
        let held = match effect {
            Effect::Send(to, message) => return self.send(name, to, message),
            Effect::Timer(timer, at) => return self.queue.push(at, Happening::Expires { peer: name, timer }),
            Effect::Compute(computation) => {
                let (least, most) = (self.workload.compute_least, self.workload.compute_most);
                let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
                let takes = self.rng.micros(micros(least), micros(most));
                return self.queue.push(self.now + takes, Happening::Computed { peer: name, computation });
            }
            Effect::Entered(view) => {
                self.tell(|_| format!("{name:?} enters generation {}: {:?}", view.generation, view.members()));
                self.last_progress = self.now;
                let generations = self.invariants.monotonic_generation.entered(name, view.generation);
                generations.and_then(|()| self.invariants.one_view_per_generation.entered(name, &view))
            }
            Effect::Loaded(step, digest) => {
                self.tell(|_| format!("{name:?} loads the state of step {step}"));
                self.invariants.exactly_once.loaded(name, step);
                self.invariants.bitwise_agreement.holds(name, step, digest)
            }
            Effect::Committed(commit) => {
                let (step, view, digest) = (commit.step, commit.view, commit.digest);
                self.tell(|_| format!("{name:?} commits step {step}: {digest:?}"));
                self.last_progress = self.now;
                if step > self.highest_step {
                    self.highest_step = step;
                    self.plan_after(step);
                }
                let invariants = &mut self.invariants;
                let once = invariants.exactly_once.committed(name, step, view.id(), view.world_size(), &commit.result);
                once.and_then(|()| invariants.bitwise_agreement.committed(name, step, &view, digest, &self.workload))
            }
            Effect::Keeps(length, limit) => self.invariants.bounded_queues.keeps(name, length, limit),
            Effect::Told(event) => {
                self.tell(|_| format!("{name:?}: {event:?}"));
                Ok(())
            }
            Effect::Broken(broken) => Err(broken),
        };
        if let Err(broken) = held {
            self.tell(|_| format!("BROKEN {broken}"));
            self.broken.push(broken);
        }
    }

    fn send(&mut self, from: PeerId, to: PeerId, message: Message) {
        let bytes = message.bytes(self.workload.state_bytes);
        let passage = self.network.send(self.now, from, to, message.lane(), bytes);
        let departed = passage.departs;
        self.queue.push(passage.arrives, Happening::Arrives { from, to, departed, message });
    }

    fn close(&mut self, name: PeerId) {
        let others: Vec<PeerId> = self.running().map(|(other, _)| other).filter(|other| *other != name).collect();
        for other in others {
            self.send(name, other, Message::Closed);
        }
    }

    fn running(&self) -> impl Iterator<Item = (PeerId, &Peer)> {
        let crashed = self.crash.as_ref().map(|crash| crash.victim);
        let runs = move |name: &PeerId| !self.ended.contains_key(name) && crashed != Some(*name);
        self.peers.iter().filter(move |(name, _)| runs(name)).map(|(name, peer)| (*name, peer))
    }

    fn tell(&mut self, line: impl FnOnce(&Self) -> String) {
        if self.trace.is_none() {
            return;
        }
        let line = line(self);
        let micros = self.now.as_nanos() / 1_000;
        if let Some(trace) = &mut self.trace {
            // Writing to a string cannot fail.
            let _ = writeln!(trace, "{:>6}.{:06} {line}", micros / 1_000_000, micros % 1_000_000);
        }
    }
}

fn describe(message: &Message) -> String {
    match message {
        Message::Control(bytes) => match starling_topology::Envelope::decode(bytes) {
            Ok(envelope) => format!("generation {}: {:?}", envelope.generation, envelope.body),
            Err(violation) => violation.to_string(),
        },
        Message::Segment(segment) => {
            format!("generation {}, step {}: {}", segment.generation, segment.step, segment.id)
        }
        Message::StateAsked => "asks for the state".into(),
        Message::State { step, digest } => format!("state of step {step}: {digest:?}"),
        Message::Closed => "closed".into(),
    }
}

/// Whether an event ends a machine because a peer was lost, and which one.
pub(crate) fn lost(event: Event) -> Option<PeerId> {
    if let Event::Lost { peer, .. } = event { Some(peer) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    fn world(scenario: Scenario) -> World {
        World::new(3, &Setup { peers: 4, steps: 8, scenario }, None)
    }

    #[test]
    fn a_run_that_waits_forever_hangs() {
        let mut world = world(Scenario::Steady);
        world.planned.clear(); // Nobody comes, and the founder waits for three more.
        let outcome = world.run();
        assert_eq!(outcome.stuck.map(|running| running.len()), Some(1));
        assert!(outcome.broken.is_empty());
    }

    #[test]
    fn a_run_that_ends_for_no_reason_is_noticed() {
        let mut world = world(Scenario::Steady);
        // Peers that lose patience within a microsecond lose each other.
        world.config.max_stall = Duration::from_micros(1);
        let outcome = world.run();
        assert!(outcome.broken.iter().all(|broken| broken.invariant == "endings"));
        assert!(!outcome.is_good());
    }
}
