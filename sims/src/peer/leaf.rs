//! A simulated leaf: the engine's [`LeafEngine`], the steps, and a learner that takes its time.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use starling_engine::leaf::leaf_engine::{Input, LeafConfig, LeafEvent, LeafTask, Output};
use starling_engine::leaf::violation::LeafViolation;
use starling_engine::{Download, LeafEngine, LearnerPosition, StepEngine, StepEvent, Task, download};
use starling_topology::{
    Body, CarrierBody, Contact, Digest, Envelope, Generation, JoinRequest, LeafBody, Lineage, PeerId, Time, ViewId,
};

use crate::hardware::machine::notary::Key;
use crate::hostile::leaf::LeafLiar;
use crate::steps::contribution::gradient;
use crate::steps::message::{Chunk, Lane, LeafGradient, Message, Reply, Request, Sealed, Snapshot};
use crate::steps::state::{Commits, ResultRecord, State};
use crate::steps::workload::Workload;
use crate::sweep::canary::Sabotage;
use crate::world::RUN;

/// What a leaf wants from its world, or tells it.
#[derive(Debug)]
pub enum LeafEffect {
    /// Put a message on a link.
    Send(PeerId, Message),
    /// Close the connection to this member once all is sent.
    Close(PeerId),
    /// Call [`Leaf::ring`] at that time.
    Alarm(Time),
    /// Call [`Leaf::computed`] with this number once the gradient is there.
    Compute(u64),
    /// It has applied a step, or loaded the state after it.
    Holds(Rc<State>),
    /// This member is to dial it; then [`Leaf::reach`].
    AsksReach(PeerId),
    /// It is a leaf no more, and asks to be let in as a member.
    Joins,
    /// It has loaded a state.
    Loads,
    /// A member has done what no correct carrier does.
    Blames(PeerId, LeafViolation),
    /// Its machine tells the user.
    Told(LeafEvent),
    /// It has ended.
    Ends(LeafEvent),
    /// Something that no correct driver meets.
    Broken(String),
}

/// A state on its way.
#[derive(Debug)]
struct Loading {
    from: PeerId,
    number: u64,
    generation: Generation,
    wanted: (u64, Lineage),
    machine: Download<Snapshot, u32>,
    of: Option<Snapshot>,
    chunks: BTreeMap<u32, Chunk>,
}

/// How a leaf begins.
#[derive(Debug)]
pub struct LeafStart {
    /// Its name.
    pub name: PeerId,
    /// The members that it knows.
    pub members: Vec<PeerId>,
    /// What steps came to, for all peers.
    pub commits: Rc<RefCell<Commits>>,
    /// The run's longest stall.
    pub max_stall: Duration,
    /// What it does wrong, on purpose.
    pub sabotage: Option<Sabotage>,
    /// How often it was something else before.
    pub role_changes: u32,
    /// What it says besides, if it is hostile.
    pub liar: Option<LeafLiar>,
}

/// One process of a leaf.
#[derive(Debug)]
pub struct Leaf {
    name: PeerId,
    engine: LeafEngine<Rc<ResultRecord>>,
    steps: StepEngine<Rc<ResultRecord>, Rc<State>>,
    cursor: LearnerPosition,
    state: Option<Rc<State>>,
    workload: Rc<Workload>,
    commits: Rc<RefCell<Commits>>,
    max_stall: Duration,
    sabotage: Option<Sabotage>,
    liar: Option<LeafLiar>,
    /// What the learner is at, unless that is not wanted any more.
    computing: Option<(u64, Option<LeafTask>)>,
    computations: u64,
    loading: Option<Loading>,
    /// What it has asked, by the number that the answer carries: whom, what its machine calls it, and for what.
    asked: BTreeMap<u64, (PeerId, u64, Request)>,
    questions: u64,
    timers: [Option<Time>; 2],
    effects: Vec<LeafEffect>,
}

impl Leaf {
    /// One that holds nothing.
    pub fn new(now: Time, start: LeafStart, workload: Rc<Workload>) -> Self {
        let LeafStart { name, members, commits, max_stall, sabotage, role_changes, liar } = start;
        let contacts = members.into_iter().map(|peer| Contact { peer, addresses: Vec::new() }).collect();
        let config = LeafConfig {
            me: name,
            run: RUN,
            max_stall,
            elements: workload.elements as u64,
            role_changes: Some(role_changes),
        };
        let mut engine = LeafEngine::new(now, config, contacts, None);
        if let Some(Sabotage::Machine(flaw)) = sabotage {
            engine.plant(flaw);
        }
        Self {
            name,
            engine,
            steps: StepEngine::without_state(workload.steps),
            cursor: LearnerPosition::default(),
            state: None,
            workload,
            commits,
            max_stall,
            sabotage,
            liar,
            computing: None,
            computations: 0,
            loading: None,
            asked: BTreeMap::new(),
            questions: 0,
            timers: [None; 2],
            effects: Vec::new(),
        }
    }

    /// It begins.
    pub fn begin(&mut self, now: Time) {
        self.go_on(now);
    }

    /// The member that carries it.
    pub fn carrier(&self) -> Option<PeerId> {
        self.engine.carrier()
    }

    /// The step that it has applied last; `None` while it holds no state.
    pub fn step(&self) -> Option<u64> {
        self.state.as_ref().map(|state| state.step)
    }

    /// What it wants done, in order.
    pub fn take_effects(&mut self) -> Vec<LeafEffect> {
        std::mem::take(&mut self.effects)
    }

    /// A message arrived.
    pub fn receive(&mut self, now: Time, from: PeerId, message: Message) {
        match message {
            Message::OfCarrier(bytes, result) => {
                let input = match CarrierBody::decode(&bytes) {
                    Ok(body) => Input::Received { from, body, result },
                    Err(violation) => Input::Faulted { from, violation: LeafViolation::Message(violation) },
                };
                if let (Some(liar), Input::Received { body, .. }) = (&mut self.liar, &input) {
                    let said = liar.hears(body);
                    self.effects.extend(said.into_iter().map(|message| LeafEffect::Send(from, message)));
                }
                self.tell(now, input);
            }
            Message::Answered(question, reply) => self.take_reply(now, from, question, reply),
            Message::OfLeaf(..) => self.tell(now, Input::Asked(from)),
            // It is no member: nobody answers on those.
            Message::Control(_) | Message::Segment(_) | Message::Asked(..) => {}
        }
        self.go_on(now);
    }

    /// A connection has closed at our end.
    pub fn closed(&mut self, now: Time, other: PeerId, lane: Lane) {
        match lane {
            Lane::Leaf => self.tell(now, Input::Closed(other)),
            Lane::State => {
                for (_, (_, number, wanted)) in
                    self.asked.extract_if(.., |_, (peer, ..)| *peer == other).collect::<Vec<_>>()
                {
                    self.take_answer(now, number, wanted, Err("the connection closed".to_owned()));
                }
            }
            Lane::Control | Lane::Ring => {}
        }
        self.go_on(now);
    }

    /// An alarm rings.
    pub fn ring(&mut self, now: Time) {
        if self.timers[0].take_if(|at| *at <= now).is_some() {
            self.tell(now, Input::Expired);
        }
        if self.timers[1].take_if(|at| *at <= now).is_some()
            && let Some(loading) = &mut self.loading
        {
            loading.machine.handle(now, download::Input::Expired);
            self.go_on_downloading(now, None);
        }
        self.go_on(now);
    }

    /// A member that was to dial it has answered.
    pub fn reach(&mut self, now: Time, peer: PeerId, reached: bool) {
        self.tell(now, Input::Reach { peer, reached });
        self.go_on(now);
    }

    /// A gradient is there.
    pub fn computed(&mut self, now: Time, computation: u64) {
        if let Some((_, task)) = self.computing.take_if(|(at, _)| *at == computation)
            && let Some(task) = task
        {
            self.engine.handle(now, Input::Computed { number: task.number, is_whole: true });
            self.obey(now, Some(&task));
        }
        self.go_on(now);
    }

    fn tell(&mut self, now: Time, input: Input<Rc<ResultRecord>>) {
        self.engine.handle(now, input);
        self.obey(now, None);
    }

    /// Does what its machine asks. `done` is what the learner has just computed.
    fn obey(&mut self, now: Time, done: Option<&LeafTask>) {
        while let Some(output) = self.engine.poll() {
            match output {
                Output::Send { to, body } => self.send(to, &body, done),
                Output::Refuse { to, body } => {
                    self.effects.push(LeafEffect::Send(to, Message::OfCarrier(body.encode(), None)));
                }
                Output::Close(peer) => self.effects.push(LeafEffect::Close(peer)),
                Output::Load { from, generation, step, lineage } => self.load(now, from, generation, (step, lineage)),
                Output::StopLoading => self.loading = None,
                Output::Deliver(result) => {
                    if self.steps.deliver(result).is_err() {
                        self.effects
                            .push(LeafEffect::Broken(format!("{:?} got a result that does not fit", self.name)));
                    }
                }
                Output::Work => {}
                Output::Drop(number) => {
                    if let Some((_, task)) = &mut self.computing {
                        task.take_if(|task| task.number == number);
                    }
                }
                Output::SetTimer(at) => self.set_timer(0, at),
                Output::AskReach(peer) => self.effects.push(LeafEffect::AsksReach(peer)),
                Output::Join => self.effects.push(LeafEffect::Joins),
                Output::Fault { carrier, violation } => self.effects.push(LeafEffect::Blames(carrier, violation)),
                Output::Event(event) => {
                    if let (LeafEvent::Attached(carrier), Some(Sabotage::LeafJoins)) = (event, self.sabotage) {
                        self.ask_to_join(carrier);
                    }
                    self.effects.push(LeafEffect::Told(event));
                }
                Output::End(event) => self.effects.push(LeafEffect::Ends(event)),
            }
        }
    }

    fn send(&mut self, to: PeerId, body: &LeafBody, done: Option<&LeafTask>) {
        let numbers = done.filter(|_| matches!(body, LeafBody::Gradient { .. })).map(|task| LeafGradient {
            sum: gradient(to, task.step, &task.ranges),
            elements: self.workload.elements as u64,
            largest: 1.0,
        });
        let message = Message::OfLeaf(body.encode(), numbers);
        let said = match &mut self.liar {
            Some(liar) => liar.says(body, message),
            None => vec![message],
        };
        self.effects.extend(said.into_iter().map(|message| LeafEffect::Send(to, message)));
    }

    /// Asks to be let in as a member, and stays a leaf: a planted fault.
    fn ask_to_join(&mut self, member: PeerId) {
        let contact = Contact { peer: self.name, addresses: Vec::new() };
        let body = Body::Join(JoinRequest::new(contact, 1).signed(RUN, &Key::of(self.name)));
        let envelope = Envelope { run: RUN, generation: Generation(0), view: ViewId::NONE, body };
        self.effects.push(LeafEffect::Send(member, Message::Control(Sealed::new(&envelope))));
    }

    fn set_timer(&mut self, which: usize, at: Time) {
        self.timers[which] = Some(at);
        self.effects.push(LeafEffect::Alarm(at));
    }

    // --- the learner --------------------------------------------------------------------------------------------

    fn go_on(&mut self, now: Time) {
        self.obey(now, None);
        while self.computing.is_none() {
            if let Some(task) = self.steps.next(&mut self.cursor) {
                self.work(now, task);
            } else if let Some(state) = self.state.clone()
                && let Some(task) = self.engine.next_task(now, &state.ledger)
            {
                self.computations += 1;
                self.computing = Some((self.computations, Some(task)));
                self.effects.push(LeafEffect::Compute(self.computations));
            } else {
                break;
            }
            self.obey(now, None);
        }
        // Which work is not the carrier's may be known only now.
        self.obey(now, None);
    }

    fn work(&mut self, now: Time, task: Task<Rc<ResultRecord>, Rc<State>>) {
        match task {
            Task::Load(state) => {
                self.effects.push(LeafEffect::Loads);
                self.hold(state);
            }
            Task::Synced => {
                while let Some(notice) = self.steps.take_notice() {
                    if notice == StepEvent::Synced {
                        let digest = self.state.as_ref().and_then(|state| self.compared(state));
                        self.tell(now, Input::Loaded { digest });
                    }
                }
            }
            Task::Apply { result, .. } => {
                let Some(before) = self.state.take() else { return };
                let after = match self.sabotage == Some(Sabotage::LeafMisapplies) {
                    true => before.apply(&result, Some(Sabotage::DropsReturned)),
                    false => self.commits.borrow_mut().apply(&before, &result, None),
                };
                let (step, digest) = (after.step, self.compared(&after));
                self.hold(after);
                self.tell(now, Input::Applied { step, digest });
            }
            Task::Stop { .. }
            | Task::Begin { .. }
            | Task::Snapshot
            | Task::Finished
            | Task::Compute
            | Task::Contribute(_)
            | Task::LoadAhead { .. } => {
                self.effects.push(LeafEffect::Broken(format!("{:?} is told to do what members do", self.name)));
            }
        }
    }

    fn hold(&mut self, state: Rc<State>) {
        self.effects.push(LeafEffect::Holds(Rc::clone(&state)));
        self.state = Some(state);
    }

    fn compared(&self, state: &State) -> Option<Digest> {
        self.workload.compares(state.step).then_some(state.digest)
    }

    // --- a state ------------------------------------------------------------------------------------------------

    fn load(&mut self, now: Time, from: PeerId, generation: Generation, wanted: (u64, Lineage)) {
        self.state = None;
        self.asked.clear();
        let number = self.steps.sync(wanted.0, wanted.1);
        let terms = download::DownloadConfig::of_state(self.max_stall);
        let machine = Download::new(now, terms, &[from], number);
        self.loading = Some(Loading { from, number, generation, wanted, machine, of: None, chunks: BTreeMap::new() });
        self.go_on_downloading(now, None);
    }

    fn take_reply(&mut self, now: Time, from: PeerId, question: u64, reply: Reply) {
        let is_from = self.asked.get(&question).is_some_and(|(peer, ..)| *peer == from);
        if !is_from || matches!(reply, Reply::Begins(_)) {
            return;
        }
        if let Some((_, number, wanted)) = self.asked.remove(&question) {
            self.tell(now, Input::Downloads);
            self.take_answer(now, number, wanted, Ok(reply));
        }
    }

    fn take_answer(&mut self, now: Time, number: u64, wanted: Request, reply: Result<Reply, String>) {
        use download::DownloadReply;
        let Some(loading) = &mut self.loading else { return };
        let is_wanted = |offered: &Snapshot| (offered.step, offered.lineage) == loading.wanted;
        let (answer, chunk) = match (wanted, reply) {
            (Request::Snapshot(..), Ok(Reply::Snapshot(offered))) if is_wanted(&offered) => {
                (DownloadReply::Manifest(offered), None)
            }
            (Request::Chunk(of, index), Ok(Reply::Chunk(chunk))) => {
                (DownloadReply::Chunk { fits: chunk.intact && (chunk.of, chunk.index) == (of, index) }, Some(chunk))
            }
            (_, Ok(Reply::Later)) => (DownloadReply::Later, None),
            (_, Ok(Reply::NotHeld)) => (DownloadReply::NotHere, None),
            (_, Ok(_)) => (DownloadReply::Wrong("it named another state".to_owned()), None),
            (_, Err(reason)) => (DownloadReply::Failed(reason), None),
        };
        loading.machine.handle(now, download::Input::Answered { number, answer });
        self.go_on_downloading(now, chunk);
    }

    fn go_on_downloading(&mut self, now: Time, came: Option<Chunk>) {
        use download::{DownloadRequest, Input as DownloadInput, Output as DownloadOutput};
        while let Some((load, output)) =
            self.loading.as_mut().and_then(|it| it.machine.poll().map(|output| (it, output)))
        {
            match output {
                DownloadOutput::Ask { number, donor, question } => {
                    let wanted = match (question, load.of) {
                        (DownloadRequest::Chunk(index), Some(of)) => Request::Chunk(of, index),
                        (DownloadRequest::Chunk(_) | DownloadRequest::Manifest, _) => {
                            Request::Snapshot(load.generation, load.wanted.0)
                        }
                    };
                    self.questions += 1;
                    self.asked.insert(self.questions, (load.from, number, wanted));
                    self.effects.push(LeafEffect::Send(donor, Message::Asked(self.questions, wanted)));
                }
                DownloadOutput::GiveUp(number) => self.asked.retain(|_, (_, asked, _)| *asked != number),
                DownloadOutput::SetTimer(at) => self.set_timer(1, at),
                DownloadOutput::Load(of) => {
                    load.of = Some(of);
                    load.chunks.clear();
                    load.machine.handle(now, DownloadInput::Lacks((0..of.chunks).collect()));
                }
                DownloadOutput::Take(_) => load.chunks.extend(came.clone().map(|chunk| (chunk.index, chunk))),
                DownloadOutput::Assemble => {
                    let is_it = |chunk: &Chunk| Some(chunk.state.digest) == load.of.map(|of| of.digest);
                    let input = match load.chunks.values().next().is_some_and(is_it) {
                        true => DownloadInput::Whole,
                        false => DownloadInput::Spoiled("it is of another model".to_owned()),
                    };
                    load.machine.handle(now, input);
                }
                DownloadOutput::Differ(_) | DownloadOutput::Fault { .. } => {}
                DownloadOutput::End(outcome) => {
                    let state = load.chunks.values().next().map(|chunk| Rc::clone(&chunk.state));
                    let number = load.number;
                    self.loading = None;
                    match state.filter(|_| outcome.is_ok()) {
                        Some(state) => _ = self.steps.arrive(number, state),
                        None => self.tell(now, Input::NotLoaded),
                    }
                }
            }
        }
    }
}
