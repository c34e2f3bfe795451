//! A simulated peer: the production machines, and a driver that obeys them by the same rules as `starling-node`.
//!
//! A peer is one process. It dies with its memory; what it wrote to its [`Disk`](crate::hardware::machine::disk::Disk) stays, and the
//! process that starts after it is another [`Peer`].

mod blame;
mod carrying;
mod catch_up;
mod donor;
mod effect;
mod ending;
pub mod leaf;
mod learner;
mod phase;
mod quorum_search;
mod reduction;
mod start;
mod starvation;
mod vouching;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use starling_collective::PendingResidual;
use starling_engine::{Action, MAX_SNAPSHOTS, Member, Output, OverdueAction, SnapshotStore, StepEngine, StepStatus};
use starling_topology::plan::Link;
use starling_topology::{
    CatchUpAction, Digest, Envelope, Event, Evidence, Generation, HoldPosition, Input, MemberResumePlan, PeerId,
    Progress, Reason, Time, Timer, View, ViewId,
};

use crate::steps::buffer::Payload;
use crate::steps::message::{Lane, Message, Sealed, Segment};
use crate::steps::state::{Commits, ResultRecord, State};
use crate::steps::workload::Workload;
use crate::sweep::canary::Sabotage;
use crate::verdict::invariants::{Broken, Settled};

use carrying::Carrying;
pub use carrying::Gathered;
use catch_up::{Asked, Fetch, Loading};
use donor::Donor;
pub use donor::Manners;
pub use effect::{Call, Commit, Effect, Entered};
use learner::Learner;
use reduction::{Operation, Place};
pub use start::Start;
use starvation::Starvation;

/// In larger views nobody vouches for anything: each would hear of all.
const MAX_VOUCHING: usize = 32;
/// Nobody forges one here.
const SIGNATURE: [u8; 64] = [0; 64];

/// One process.
#[derive(Debug)]
pub struct Peer {
    name: PeerId,
    member: Member,
    workload: Rc<Workload>,
    commits: Rc<RefCell<Commits>>,
    early_limit: usize,
    speed: u32,
    sabotage: Option<Sabotage>,
    steps: StepEngine<Rc<ResultRecord>, Rc<State>>,
    snapshots: SnapshotStore<Rc<State>>,
    learner: Learner,
    carrying: Carrying,
    starvation: Starvation,
    /// The state after the last committed step, if that is known: for who judges it.
    reached: Option<Rc<State>>,
    /// The views that reduced steps which are not applied yet.
    reduced_in: BTreeMap<u64, ViewId>,
    gated: bool,
    /// How it stood when its steps were last held.
    held: Option<Progress>,
    place: Option<Rc<Place>>,
    operation: Option<Operation>,
    /// Memory that the operation before has left.
    spare: Vec<Payload>,
    booked: PendingResidual,
    /// To which step it contributed last, and what, with a codec that drops something.
    brought: Option<(u64, Box<Settled>)>,
    /// Segments that came and went.
    moved: u64,
    /// Tries of the step under way, for a planted fault.
    tries: u32,
    /// The newest view that was told of, and whether it is a fork.
    changed: Option<(Generation, bool)>,
    fetch: Option<Fetch>,
    download: Option<Loading>,
    /// The number of the sync that it takes part in steps for, with nothing.
    syncs: Option<u64>,
    /// What it has asked others for, by the number that their answers carry.
    asked: BTreeMap<u64, Asked>,
    questions: u64,
    donor: Donor,
    early: Vec<(PeerId, Segment)>,
    timers: BTreeMap<Timer, Time>,
    max_stall: Duration,
    stale: u64,
    /// How it ended.
    end: Option<Event>,
    effects: Vec<Effect>,
}

impl Peer {
    /// A process whose steps are held before the first one, and that may keep `early_limit` segments for later.
    pub fn new(start: Start, workload: Rc<Workload>, early_limit: usize) -> Self {
        let mut steps = match &start.state {
            Some(state) => StepEngine::new(state.step, state.lineage, workload.steps),
            None => StepEngine::without_state(workload.steps),
        };
        let carrying = Carrying::new(&start, &workload);
        let mut member = Member::new(start.machine, start.apart);
        if start.may_be_leaf {
            member.allow_leaf();
        }
        if let Some(Sabotage::Machine(flaw)) = start.sabotage {
            steps.plant(flaw);
            member.plant(flaw);
        }
        let (reached, learner) = (start.state.clone(), Learner::new(start.state, &workload));
        Self {
            name: start.contact.peer,
            member,
            workload: Rc::clone(&workload),
            commits: start.commits,
            early_limit,
            speed: start.speed,
            sabotage: start.sabotage,
            steps,
            snapshots: SnapshotStore::default(),
            reached,
            learner,
            carrying,
            starvation: Starvation::new(start.lacking),
            reduced_in: BTreeMap::new(),
            gated: start.gated,
            held: None,
            place: None,
            operation: None,
            spare: Vec::new(),
            booked: PendingResidual::default(),
            brought: None,
            moved: 0,
            tries: 0,
            changed: None,
            fetch: None,
            download: None,
            syncs: None,
            asked: BTreeMap::new(),
            questions: 0,
            donor: Donor::new(start.manners),
            early: Vec::new(),
            timers: BTreeMap::new(),
            max_stall: start.max_stall,
            stale: 0,
            end: None,
            effects: Vec::new(),
        }
    }

    /// It begins.
    pub fn begin_held(&mut self, now: Time) {
        self.obey(now);
    }

    /// The view that it steps in.
    pub fn view(&self) -> Option<&View> {
        self.place.as_ref().map(|place| &place.view)
    }

    /// The name of the view that it steps in.
    pub fn view_id(&self) -> Option<ViewId> {
        self.place.as_ref().map(|place| place.id)
    }

    /// Whether it holds the state of its step, and steps in a view.
    pub fn is_full(&self) -> bool {
        self.place.is_some() && self.steps.progress().has_state
    }

    /// The peers that it has addresses of.
    pub fn knows(&self) -> impl Iterator<Item = PeerId> + '_ {
        self.member.membership().contacts().map(|contact| contact.peer)
    }

    /// Whether it holds a state.
    pub fn has_state(&self) -> bool {
        self.steps.progress().has_state
    }

    /// Segments of older views that it dropped.
    pub fn stale(&self) -> u64 {
        self.stale
    }

    /// The last committed step; of a member that still loads the state, the last one whose result it keeps.
    pub fn step(&self) -> u64 {
        self.steps.progress().step
    }

    /// Where it stands, as far as its machine knew when its steps were held: what a decree follows. A state that came after
    /// that may be newer than the one that the others have gone on from meanwhile.
    fn as_told(&self) -> Progress {
        let progress = self.steps.progress();
        Progress { has_state: progress.has_state && self.held.is_none_or(|held| held.has_state), ..progress }
    }

    /// What it wants done, in order.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// It has measured its links.
    pub fn measured(&mut self, now: Time, links: Vec<(PeerId, Link)>) {
        self.input(now, Input::Measured { links });
        self.obey(now);
    }

    /// A timer has come to its time, unless it was set anew since.
    pub fn expire(&mut self, now: Time, timer: Timer, at: Time) {
        if self.timers.get(&timer) == Some(&at) {
            if let Some(later) = self.member.stood_still(now) {
                self.timers.insert(timer, later);
                return self.effects.push(Effect::Timer(timer, later));
            }
            self.timers.remove(&timer);
            self.input(now, Input::Expired(timer));
            self.obey(now);
        }
    }

    /// An alarm rings that was set for `at`.
    pub fn ring(&mut self, now: Time, at: Time) {
        self.look_at_timers(now.max(at));
        self.obey(now);
    }

    /// The gradient of a computation is there.
    pub fn computed(&mut self, now: Time, computation: u64) {
        self.take_gradient(now, computation);
        self.obey(now);
    }

    /// It may compute the last step.
    pub fn release(&mut self, now: Time) {
        self.gated = false;
        self.go_on(now);
        self.obey(now);
    }

    /// The record that it wanted written is on the disk.
    pub fn persisted(&mut self, now: Time) {
        self.input(now, Input::Persisted);
        self.obey(now);
    }

    /// It is not, nor will it be.
    pub fn not_persisted(&mut self, now: Time) {
        self.input(now, Input::NotPersisted);
        self.obey(now);
    }

    /// A state was written to the disk, under the name that is to be signed, or had no room there.
    pub fn saved(&mut self, now: Time, state: &State, is_kept: bool, manifest: Option<Digest>) {
        let State { step, lineage, digest, .. } = *state;
        manifest.into_iter().for_each(|manifest| self.member.saved(step, lineage, digest, manifest));
        self.take_saved(now, is_kept);
        self.obey(now);
    }

    /// It looks how far it is, as it does regularly.
    pub fn look(&mut self, now: Time) {
        let is_whole = self.operation.as_ref().is_some_and(|operation| operation.is_whole);
        let operation = self.steps.operation().filter(|_| is_whole);
        // Whose last step is withheld would wait for the others by now.
        let withheld = self.is_withheld(self.learner.cursor.step + 1).then_some((u64::MAX, self.workload.steps));
        let seen = StepStatus {
            work: self.learner.computing,
            has_others: self.place.as_ref().is_some_and(|place| place.view.members().len() > 1),
            view: self.view_id(),
            is_held: self.steps.is_held(),
            operation: operation.or(withheld),
            moved: self.moved,
        };
        let looked = self.member.look(now, seen);
        match looked.overdue {
            Some(OverdueAction::End) => return self.effects.push(Effect::Ends("its own work takes too long")),
            Some(OverdueAction::Warn) | None => {}
        }
        let waits = looked.stands.then(|| self.missing());
        self.input(now, Input::Reached { step: self.step(), waits });
        self.obey(now);
    }

    /// A connection has closed at our end.
    pub fn closed(&mut self, now: Time, other: PeerId, lane: Lane) {
        match lane {
            Lane::Control => self.input(now, Input::Suspected { peer: other, evidence: Evidence::Closed }),
            Lane::Ring => self.note_failed_link(now, other),
            Lane::State => self.asked_is_gone(now, other),
            Lane::Leaf => self.leaf_is_gone(now, other),
        }
        self.obey(now);
    }

    /// A message arrived.
    pub fn receive(&mut self, now: Time, from: PeerId, message: Message) {
        match message {
            Message::Control(sealed) => match sealed.open() {
                Ok(envelope) => self.input(now, Input::Received { from, envelope }),
                Err(violation) => self.blame(from, &violation),
            },
            Message::Segment(segment) => self.receive_segment(now, from, *segment),
            Message::Asked(question, wanted) => self.give(now, from, question, wanted),
            Message::Answered(question, reply) => self.take_reply(now, from, question, reply),
            Message::OfLeaf(bytes, gradient) => self.receive_from_leaf(now, from, &bytes, gradient),
            Message::OfCarrier(..) => {} // It has no carrier.
        }
        self.obey(now);
    }

    // --- what the membership machine asks -----------------------------------------------------------------------

    fn input(&mut self, now: Time, input: Input) {
        let from = if let Input::Received { from, .. } = &input { Some(*from) } else { None };
        if let (Err(violation), Some(from)) = (self.member.handle(now, input), from) {
            self.blame(from, &violation);
        }
        if let Err(seen) = self.member.membership().check() {
            self.broken("sound_machine", seen);
        }
    }

    fn broken(&mut self, invariant: &'static str, seen: String) {
        self.effects.push(Effect::Broken(Broken::new(invariant, seen)));
    }

    fn send(&mut self, to: PeerId, message: Message) {
        self.effects.push(Effect::Send(to, message));
    }

    fn obey(&mut self, now: Time) {
        let mut last: Option<(Envelope, Rc<Sealed>)> = None;
        while let Some(output) = self.member.poll(now) {
            match output {
                Output::Send { to, envelope } => {
                    let same = last.take().filter(|(before, _)| *before == envelope).map(|(_, sealed)| sealed);
                    let sealed = same.unwrap_or_else(|| Sealed::new(&envelope));
                    last = Some((envelope, Rc::clone(&sealed)));
                    self.send(to, Message::Control(sealed));
                }
                Output::Learn(_) => {}
                Output::SetTimer { timer, at } => {
                    self.timers.insert(timer, at);
                    self.effects.push(Effect::Timer(timer, at));
                }
                Output::Hold(hold) => self.hold(hold),
                Output::Persist(record) => {
                    self.effects.push(Effect::Persist(Rc::new(record)));
                    if self.sabotage == Some(Sabotage::VotesUnstored) {
                        self.input(now, Input::Persisted);
                    }
                }
                Output::Keep(record) => self.effects.push(Effect::Keep(Rc::new(record))),
                Output::Resume(resumption) => self.resume(now, resumption),
                Output::Event(event) => {
                    if matches!(event, Event::Evicted { .. }) {
                        self.member.leave(&mut self.steps);
                        self.stand_aside();
                    }
                    if let Event::Changed { generation, reasons, .. } = &event {
                        self.changed = Some((*generation, reasons.contains(&Reason::Forked)));
                    }
                    if let Event::Complete { step, digest } = event {
                        self.tell_carrier(now, starling_engine::leaf::carrier::Input::Ended { step, digest });
                    }
                    self.effects.push(Effect::Told(event));
                }
                Output::Sign(head) => self.member.signed(head, SIGNATURE),
                Output::Announce { head, .. } => {
                    let members = self.view().map(|view| view.members().to_vec()).unwrap_or_default();
                    self.effects.push(Effect::Announce(members, Box::new(head)));
                }
                Output::Stable(proof) => self.effects.push(Effect::Stable(Box::new(proof))),
                Output::Differs { peer, step, .. } => {
                    let seen =
                        format!("{:?} and {peer:?} have signed two states of step {step} in one view", self.name);
                    self.broken("bitwise_agreement", seen);
                }
                Output::LookOut(at) => self.effects.push(Effect::CallBack(Call::LookOut, at)),
                Output::Search(terms) => self.effects.push(Effect::Search(terms)),
                Output::GiveUpSearch => self.effects.push(Effect::GiveUpSearch),
                Output::ComeBack => self.effects.push(Effect::ComeBack),
                Output::NoPlace => self.effects.push(Effect::NoPlace),
                Output::Settle(at) => self.effects.push(Effect::CallBack(Call::Settle, at)),
                Output::AskKeepers(keepers) => self.effects.push(Effect::AskKeepers(keepers)),
                Output::AwaitsKeepers(_) => {}
                Output::End(event) => self.end = Some(event),
            }
        }
        self.look_after_leaves(now);
    }

    fn hold(&mut self, hold: HoldPosition) {
        if self.sabotage == Some(Sabotage::AppliesAborted)
            && hold == HoldPosition::Now
            && let Some((view, record)) = self.take_result_so_far()
        {
            self.committed(&record, view);
            let _ = self.steps.deliver(record);
        }
        let is_whole = self.operation.as_ref().is_none_or(|operation| operation.is_whole);
        let held = self.member.hold(&mut self.steps, hold, is_whole);
        self.held = held.or(self.held);
        self.interrupt();
    }

    /// Goes on in a view.
    fn resume(&mut self, now: Time, resumption: MemberResumePlan) {
        if !self.steps.is_held() {
            self.broken(
                "views_change_at_a_boundary",
                format!("{:?} was told to go on while it was not held", self.name),
            );
        }
        let view = resumption.view.clone();
        let mut obeyed = resumption.clone();
        if let Some(place) = self.place.as_ref().filter(|_| self.sabotage == Some(Sabotage::IgnoresResume)) {
            obeyed.view = place.view.clone();
        }
        let Some(place) = Place::of(self.name, &obeyed, &self.workload) else {
            return self.broken("only_members_step", format!("{:?} was told to go on in {:?}", self.name, view.id()));
        };
        let progress = self.as_told();
        let told = self.changed.filter(|(generation, _)| *generation == view.generation);
        let forks = told.map_or(view.forked, |(_, forks)| forks);
        self.effects.push(Effect::Connect(place.partners()));
        let before = self.early.len();
        self.early.retain(|(_, segment)| segment.generation >= view.generation);
        self.stale += (before - self.early.len()) as u64;
        let id = view.id();
        self.place = Some(Rc::new(place));
        self.operation = None;
        // What its learner saves from now on is of the new branch.
        self.effects.extend(self.root().map(Effect::Root));
        let action = self.member.enter(&mut self.steps, &mut self.snapshots, &obeyed);
        self.knows_members(now, view.members());
        if view.members().len() > MAX_VOUCHING {
            self.member.vouch_no_more();
        }
        if action != Action::Wait {
            self.fetch = None;
        }
        self.effects.push(Effect::Keeps("snapshots", self.snapshots.len(), MAX_SNAPSHOTS));
        // Before the first commit, who has which share is agreed anew with each view.
        let is_initial = resumption.step == 0 && progress.has_state;
        let initial = || Rc::new(State::assigned(self.workload.ledger(), view.members()));
        let state = if is_initial { Some(initial()) } else { self.reached.clone() };
        let state = state.filter(|_| resumption.catch_up == CatchUpAction::Current && progress.has_state);
        let missed = (self.steps.progress().step > progress.step).then_some(resumption.step);
        let entry = Entered { view: id, resumption, progress, state, forks };
        self.effects.push(Effect::Entered(Box::new(entry)));
        if let Some(starling_engine::SnapshotStatus::Here(record)) = missed.map(|step| self.steps.result_of(step)) {
            self.committed(&record, id);
        }
        self.follow(now, action);
        self.go_on(now);
    }

    /// Does what is left to it of its way into its view.
    fn follow(&mut self, now: Time, action: Action) {
        match action {
            Action::GoOn | Action::Wait | Action::Withheld(_) => {}
            Action::GoOnFromInitial => {
                let initial = Rc::new(State::initial(self.workload.ledger()));
                (self.learner.state, self.reached) = (Some(Rc::clone(&initial)), Some(initial));
            }
            Action::FetchResult { number, step, lineage, from } => {
                self.fetch_result(now, number, (step, lineage), &from);
            }
            Action::FetchState { number, generation, step, lineage, from } => {
                self.begin_download(now, number, generation, (step, lineage), &from);
            }
            Action::Unable(_) => self.stand_aside(),
        }
    }

    /// Goes on as far as it may and can.
    fn go_on(&mut self, now: Time) {
        self.work(now);
        self.notice();
        self.interrupt();
    }

    /// It is no member any more, as far as it knows.
    fn stand_aside(&mut self) {
        // What has come for later views stays: one of them may be about to let it in.
        if let Some(place) = self.place.take() {
            self.early.retain(|(_, segment)| segment.generation > place.view.generation);
        }
        (self.operation, self.fetch, self.download) = (None, None, None);
    }
}
