//! A simulated peer: the production machines, and a driver that obeys them.

use std::collections::BTreeMap;

use starling_collective as collective;
use starling_collective::{Layout, Session};
use starling_topology::{
    Digest, Envelope, Event, Evidence, Gate, Input, Membership, Output, PeerId, Rank, Ring, Time, Timer, View, ViewId,
};

use crate::contribution::{Cell, Contributions};
use crate::invariants::Broken;
use crate::message::{Message, Segment};
use crate::oracle;
use crate::workload::Workload;

/// What a peer wants from its world.
#[derive(Debug)]
pub enum Effect {
    /// Put a message on a link.
    Send(PeerId, Message),
    /// Call [`Peer::expire`] at that time.
    Timer(Timer, Time),
    /// Call [`Peer::computed`] with this number once the gradient is there.
    Compute(u64),
    /// It entered a view.
    Entered(View),
    /// It loaded a state.
    Loaded(u64, Digest),
    /// It committed a step.
    Committed(Commit),
    /// It keeps this many segments, of at most so many, for later.
    Keeps(usize, usize),
    /// Its machine told the user.
    Told(Event),
    /// Something that no correct peer does.
    Broken(Broken),
}

/// A committed step.
#[derive(Debug)]
pub struct Commit {
    /// The step.
    pub step: u64,
    /// The view that committed it.
    pub view: View,
    /// What it came to.
    pub result: BTreeMap<Cell, Contributions>,
    /// The digest of the replicated state after it.
    pub digest: Digest,
}

/// One peer.
#[derive(Debug)]
pub struct Peer {
    name: PeerId,
    machine: Membership,
    workload: Workload,
    step: u64,
    digest: Digest,
    gate: Gate,
    place: Option<Place>,
    task: Task,
    /// Counts computations, so that one that was dropped is not taken for the one that replaced it.
    computation: u64,
    early: Vec<(PeerId, Segment)>,
    early_limit: usize,
    fetching: Option<(PeerId, u64, Digest)>,
    timers: BTreeMap<Timer, Time>,
    stale: u64,
    founder: bool,
    end: Option<Event>,
    effects: Vec<Effect>,
}

/// Where it stands in its view.
#[derive(Debug, Clone)]
struct Place {
    view: View,
    id: ViewId,
    ring: Ring,
    rank: Rank,
    layout: Layout,
}

/// What its step loop does.
#[derive(Debug)]
enum Task {
    Held,
    Computing,
    Reducing(Operation),
    Finished,
}

#[derive(Debug)]
struct Operation {
    session: Session<Contributions>,
    cells: BTreeMap<Cell, Contributions>,
}

impl Peer {
    /// A peer whose steps are held before the first one, and that may keep `early_limit` segments for later.
    pub fn new(name: PeerId, machine: Membership, workload: Workload, early_limit: usize) -> Self {
        let founder = machine.view().is_some();
        Self {
            name,
            machine,
            workload,
            step: 0,
            digest: oracle::INITIAL,
            gate: Gate::open(),
            place: None,
            task: Task::Held,
            computation: 0,
            early: Vec::new(),
            early_limit,
            fetching: None,
            timers: BTreeMap::new(),
            stale: 0,
            founder,
            end: None,
            effects: Vec::new(),
        }
    }

    /// It begins. `tells` says whether it reports its boundary now: a founder must, a joiner may.
    pub fn begin_held(&mut self, now: Time, tells: bool) {
        if tells {
            self.tell_held(now);
        }
        self.obey(now);
    }

    /// How it ended, if it did.
    pub fn end(&self) -> Option<Event> {
        self.end
    }

    /// The last committed step.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Whether it ever stepped in a view.
    pub fn is_member(&self) -> bool {
        self.place.is_some()
    }

    /// Whether it founded the run.
    pub fn founded(&self) -> bool {
        self.founder
    }

    /// Segments of older views that it dropped.
    pub fn stale(&self) -> u64 {
        self.stale
    }

    /// What it wants done, in order.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// The user wants it to leave.
    pub fn leave(&mut self, now: Time) {
        self.input(now, Input::Leave);
        self.obey(now);
    }

    /// A timer has come to its time, unless it was set anew since.
    pub fn expire(&mut self, now: Time, timer: Timer) {
        if self.timers.get(&timer) == Some(&now) {
            self.timers.remove(&timer);
            self.input(now, Input::Expired(timer));
            self.obey(now);
        }
    }

    /// The gradient of a computation is there.
    pub fn computed(&mut self, now: Time, computation: u64) {
        if computation == self.computation && matches!(self.task, Task::Computing) {
            self.reduce(now);
            self.obey(now);
        }
    }

    /// A message arrived.
    pub fn receive(&mut self, now: Time, from: PeerId, message: Message) {
        match message {
            Message::Control(bytes) => match Envelope::decode(&bytes) {
                Ok(envelope) => self.input(now, Input::Received { from, envelope }),
                Err(violation) => self.blame(from, &violation),
            },
            Message::Segment(segment) => self.receive_segment(now, from, segment),
            Message::StateAsked => {
                let state = Message::State { step: self.step, digest: self.digest };
                self.effects.push(Effect::Send(from, state));
            }
            Message::State { step, digest } => {
                // A newer proposal's state replaces the one that was on its way.
                if self.fetching.take_if(|fetching| *fetching == (from, step, digest)).is_some() {
                    (self.step, self.digest) = (step, digest);
                    self.effects.push(Effect::Loaded(step, digest));
                    self.tell_held(now);
                }
            }
            Message::Closed => self.input(now, Input::Suspected { peer: from, evidence: Evidence::Closed }),
        }
        self.obey(now);
    }

    // --- what the membership machine asks -----------------------------------------------------------------------

    fn input(&mut self, now: Time, input: Input) {
        let from = if let Input::Received { from, .. } = &input { Some(*from) } else { None };
        if let (Err(violation), Some(from)) = (self.machine.handle(now, input), from) {
            self.blame(from, &violation);
        }
    }

    fn blame(&mut self, from: PeerId, violation: &dyn std::error::Error) {
        let seen = format!("{:?} says that {from:?} {violation}", self.name);
        self.effects.push(Effect::Broken(Broken::new("no violations among correct peers", seen)));
    }

    fn obey(&mut self, now: Time) {
        while let Some(output) = self.machine.poll() {
            match output {
                Output::Send { to, envelope } => {
                    self.effects.push(Effect::Send(to, Message::Control(envelope.encode())))
                }
                Output::Learn(_) => {}
                Output::SetTimer { timer, at } => {
                    self.timers.insert(timer, at);
                    self.effects.push(Effect::Timer(timer, at));
                }
                Output::Hold { after } => self.hold(now, after),
                Output::Fetch { from, step, digest } => {
                    self.fetching = Some((from, step, digest));
                    self.effects.push(Effect::Send(from, Message::StateAsked));
                }
                Output::Step(view) => self.enter(now, view),
                Output::Event(event) => {
                    self.effects.push(Effect::Told(event));
                    if self.machine.has_ended() {
                        self.end = Some(event);
                    }
                }
            }
        }
    }

    fn hold(&mut self, now: Time, after: Option<u64>) {
        let under_way = matches!(self.task, Task::Computing | Task::Reducing(_));
        let boundary = self.step + u64::from(under_way);
        let last = after.unwrap_or(boundary);
        self.gate = Gate::closed_after(last);
        if !self.gate.admits(self.step + 1) {
            self.tell_held(now); // Drops the step that is under way: no proposer has contributed to it.
        }
    }

    fn tell_held(&mut self, now: Time) {
        self.task = Task::Held;
        self.input(now, Input::Held { step: self.step, digest: self.digest });
    }

    fn enter(&mut self, now: Time, view: View) {
        if !matches!(self.task, Task::Held) || self.fetching.is_some() {
            let seen = format!("{:?} was told to step in {:?} while it was not held", self.name, view.id());
            self.effects.push(Effect::Broken(Broken::new("views change at a boundary", seen)));
        }
        let ring = Ring::plan(&view);
        let Some(rank) = ring.rank_of(self.name) else {
            let seen = format!("{:?} was told to step in {:?}", self.name, view.id());
            return self.effects.push(Effect::Broken(Broken::new("peers step in their own views only", seen)));
        };
        let layout = self.workload.layout(ring.world_size());
        let place = Place { id: view.id(), view: view.clone(), ring, rank, layout };
        let before = self.early.len();
        self.early.retain(|(_, segment)| segment.generation >= view.generation);
        self.stale += (before - self.early.len()) as u64;
        self.place = Some(place);
        self.gate = Gate::open();
        self.effects.push(Effect::Entered(view));
        self.begin(now);
    }

    // --- the steps ----------------------------------------------------------------------------------------------

    fn begin(&mut self, now: Time) {
        if self.step >= self.workload.steps {
            self.task = Task::Finished;
            self.input(now, Input::Finished { step: self.step, digest: self.digest });
        } else if self.gate.admits(self.step + 1) {
            self.computation += 1;
            self.task = Task::Computing;
            self.effects.push(Effect::Compute(self.computation));
        } else {
            self.tell_held(now);
        }
    }

    fn reduce(&mut self, now: Time) {
        let Some(place) = self.place.clone() else { return };
        let world = place.ring.world_size();
        let mine = Contributions::of(place.rank, world);
        let cells = Cell::all(&place.layout).map(|cell| (cell, mine.clone())).collect();
        let session = Session::new(place.layout.clone(), place.rank, self.workload.in_flight);
        self.task = Task::Reducing(Operation { session, cells });
        self.feed(now, place.ring.peer(place.rank), collective::Input::Start);
        let step = self.step + 1;
        let due = |(_, segment): &(PeerId, Segment)| segment.view == place.id && segment.step == step;
        let (due, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.early).into_iter().partition(due);
        self.early = later;
        for (from, segment) in due {
            self.receive_segment(now, from, segment);
        }
    }

    fn receive_segment(&mut self, now: Time, from: PeerId, segment: Segment) {
        let current = self.place.as_ref().map(|place| (place.view.generation, place.id));
        let next = self.step + 1;
        let reducing = matches!(self.task, Task::Reducing(_));
        match current {
            Some((generation, id))
                if segment.generation < generation || (id == segment.view && segment.step < next) =>
            {
                self.stale += 1;
            }
            Some((_, id)) if id == segment.view && !self.gate.admits(segment.step) => self.stale += 1,
            Some((_, id)) if id == segment.view && segment.step == next && reducing => {
                let rank = self.place.as_ref().and_then(|place| place.ring.rank_of(from));
                let Some(rank) = rank else {
                    let seen = format!("{from:?} sent {} to {:?}, in whose ring it is not", segment.id, self.name);
                    return self.effects.push(Effect::Broken(Broken::new("only members send segments", seen)));
                };
                let input = collective::Input::Received { from: rank, segment: segment.id, payload: segment.payload };
                self.feed(now, from, input);
            }
            // Of a step that has not begun here, or of a view that we are about to enter.
            Some(_) | None => {
                self.early.push((from, segment));
                self.effects.push(Effect::Keeps(self.early.len(), self.early_limit));
            }
        }
    }

    fn feed(&mut self, now: Time, from: PeerId, input: collective::Input<Contributions>) {
        let (Some(place), Task::Reducing(operation)) = (&self.place, &mut self.task) else { return };
        if let Err(violation) = operation.session.handle(input) {
            return self.blame(from, &violation);
        }
        while let Some(output) = operation.session.poll() {
            match output {
                collective::Output::Send { to, segment } => {
                    let payload = operation.cells[&Cell::from(segment)].clone();
                    let elements = place.layout.range(&segment).map_or(0, |range| range.len());
                    let (generation, view, step) = (place.view.generation, place.id, self.step + 1);
                    let segment = Segment { generation, view, step, id: segment, payload, elements };
                    self.effects.push(Effect::Send(place.ring.peer(to), Message::Segment(segment)));
                }
                collective::Output::Accumulate { segment, payload } => {
                    operation.cells.entry(segment.into()).and_modify(|mine| mine.accumulate(&payload));
                }
                collective::Output::Divide { segment } => {
                    operation.cells.entry(segment.into()).and_modify(|mine| mine.divided += 1);
                }
                collective::Output::Store { segment, payload } => {
                    operation.cells.insert(segment.into(), payload);
                }
                // A ring has never two payloads to put before its own, and counts lose nothing.
                collective::Output::Prepend { .. }
                | collective::Output::Round { .. }
                | collective::Output::BucketDone(_)
                | collective::Output::Done => {}
            }
        }
        if operation.session.is_done() {
            self.commit(now);
        }
    }

    fn commit(&mut self, now: Time) {
        let Task::Reducing(operation) = std::mem::replace(&mut self.task, Task::Held) else { return };
        let Some(place) = &self.place else { return };
        self.step += 1;
        self.digest = oracle::chain(self.digest, self.step, place.id, &operation.cells);
        let view = place.view.clone();
        self.effects.push(Effect::Committed(Commit {
            step: self.step,
            view,
            result: operation.cells,
            digest: self.digest,
        }));
        self.begin(now);
    }
}
