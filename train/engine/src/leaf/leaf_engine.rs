//! A leaf: whom it asks to carry it, what it is given, and what it brings.
//!
//! ```text
//!   seeks --Attach--> asks --Attached--> waits --Start--> loads the state, or holds it --> follows: Result, Work
//!     ^                 |                                                                     |
//!     '--- refused, closed, silent, no step for long, or the carrier did what no correct one does
//! ```
//!
//! It holds the replicated state, so it checks that work is of its carrier's share, and that results follow one another. What it has no way to
//! check, it believes its carrier: that a result is what the members reduced. It compares its digests with the carrier's, and loads the
//! state anew where they differ.
//!
//! Results wait here until the one before is applied, so that [`StepEngine::deliver`](crate::StepEngine::deliver) always takes the next.

mod interface;

use std::collections::VecDeque;

use starling_topology::ledger::Ledger;
use starling_topology::message::leaf::LeafProgress;
use starling_topology::{
    AttachRefusalReason, CarrierBody, Contact, DeclineReason, Digest, FlawKind, Generation, LeafBody, Lineage, PeerId,
    Time,
};

use crate::leaf::carrier_search::{CarrierSearch, MAX_ROUNDS};
use crate::leaf::reach_watch::ReachWatch;
use crate::leaf::violation::LeafViolation;
use crate::leaf::{MAX_BEHIND, MAX_BEHIND_BYTES};
use crate::steps::StepResult;
pub use interface::{Input, LeafConfig, LeafEvent, LeafTask, LossReason, Output};

/// After so many rounds in which nobody carried it, a leaf that was a member gives up for the first time.
const FIRST_ROUNDS: u32 = 4;

/// Where a leaf stands with its carrier.
#[derive(Debug)]
enum Stage {
    /// It asks nobody, until then.
    Rests(Time),
    /// It has asked this member, and waits for its answer until then.
    Asks(PeerId, Time),
    Attached(Carrier),
    /// It is over, or it is a leaf no more.
    Stopped,
}

#[derive(Debug)]
struct Carrier {
    peer: PeerId,
    /// When it was last heard, and last told something.
    heard: Time,
    said: Time,
    /// When something last went on: a start, a result, a part of the state.
    went_on: Time,
    /// The number of its last start; 0 before the first.
    start: u64,
    /// The step of that.
    began: u64,
    /// Whether the state of that start is here.
    is_loaded: bool,
    /// The last result that came, or where it started.
    last: (u64, Lineage),
    work: Option<Work>,
    ended: Option<(u64, Digest)>,
}

#[derive(Debug)]
struct Work {
    task: LeafTask,
    /// Whether the learner has it.
    is_handed_out: bool,
}

/// See the module. `R` is a result behind a handle that is cheap to clone.
#[derive(Debug)]
pub struct LeafEngine<R> {
    config: LeafConfig,
    search: CarrierSearch,
    stage: Stage,
    /// The state that it has applied all results to; `None` while it has none.
    holds: Option<LeafProgress>,
    /// The result that the steps have, and that is not applied yet.
    delivered: Option<LeafProgress>,
    /// Those that came after it.
    waiting: VecDeque<R>,
    /// Whether a state is on its way.
    loads: bool,
    /// Whether somebody has said that the run has finished, since the last round, and whether somebody has said something else.
    finished: bool,
    contradicted: bool,
    /// Whether members can dial it by now; `None` if it stays a leaf.
    reach: Option<ReachWatch>,
    timer: Option<Time>,
    flaw: Option<FlawKind>,
    outputs: VecDeque<Output<R>>,
}

impl<R: StepResult> LeafEngine<R> {
    /// One that knows these members, and holds this state, as its [`StepEngine`](crate::StepEngine) does.
    pub fn new(now: Time, config: LeafConfig, contacts: Vec<Contact>, holds: Option<LeafProgress>) -> Self {
        let mut leaf = Self {
            config,
            search: CarrierSearch::new(config.me, config.max_stall, contacts),
            stage: Stage::Rests(now),
            holds: holds.filter(|holds| holds.step > 0),
            delivered: None,
            waiting: VecDeque::new(),
            loads: false,
            finished: false,
            contradicted: false,
            reach: config.role_changes.map(|changes| ReachWatch::new(now, config.max_stall, changes)),
            timer: None,
            flaw: None,
            outputs: VecDeque::new(),
        };
        leaf.go_on(now);
        leaf
    }

    /// Has it make a mistake from now on.
    #[cfg(feature = "flaws")]
    pub fn plant(&mut self, flaw: FlawKind) {
        self.flaw = Some(flaw);
    }

    /// What the driver does next; drain to `None` after each call of the others.
    pub fn poll(&mut self) -> Option<Output<R>> {
        self.outputs.pop_front()
    }

    /// The member that carries it, if one does.
    pub fn carrier(&self) -> Option<PeerId> {
        if let Stage::Attached(carrier) = &self.stage { Some(carrier.peer) } else { None }
    }

    /// Where members are, as far as it knows: whom it asks next.
    pub fn contacts(&self) -> impl Iterator<Item = &Contact> {
        self.search.contacts()
    }

    /// Takes in what happened.
    pub fn handle(&mut self, now: Time, input: Input<R>) {
        match input {
            Input::Received { from, body, result } => {
                if let Err(violation) = self.receive(now, from, body, result) {
                    self.leave_faulty(now, violation);
                }
            }
            Input::Faulted { from, violation } if self.is_with(from) => self.leave_faulty(now, violation),
            Input::Faulted { .. } => {}
            // What its carrier said last is enough to end with.
            Input::Closed(peer) if self.is_with(peer) && self.ends_with_what_is_here() => {}
            Input::Closed(peer) if self.is_with(peer) => self.leave(now, LossReason::Closed),
            Input::Closed(_) => {}
            Input::Asked(peer) => {
                let body = CarrierBody::Refused(AttachRefusalReason::NoMember);
                self.outputs.push_back(Output::Refuse { to: peer, body });
            }
            Input::Downloads => self.attached().into_iter().for_each(|carrier| carrier.went_on = now),
            Input::Loaded { digest } => self.loaded(now, digest),
            Input::NotLoaded => {
                if std::mem::take(&mut self.loads) {
                    self.leave(now, LossReason::NoState);
                }
            }
            Input::Applied { step, digest } => self.applied(now, step, digest),
            Input::Computed { number, is_whole } => self.computed(now, number, is_whole),
            Input::Reach { peer, reached } => {
                let is_reached = self.reach.as_mut().is_some_and(|reach| reach.answered(now, peer, reached));
                // What is left of the end comes to a leaf, and to no joiner.
                let has_ended = self.attached().is_some_and(|carrier| carrier.ended.is_some());
                if is_reached && !has_ended {
                    self.join();
                }
            }
            Input::Leaves if matches!(self.stage, Stage::Stopped) => {}
            Input::Leaves => {
                self.drop_carrier(true);
                self.end(LeafEvent::Left);
            }
            Input::Expired => self.timer = None,
        }
        self.go_on(now);
    }

    /// What the learner, which has nothing else to do, computes next for the carrier, by the ledger of the state that it holds.
    pub fn next_task(&mut self, now: Time, ledger: &Ledger) -> Option<LeafTask> {
        let Stage::Attached(carrier) = &mut self.stage else { return None };
        let peer = carrier.peer;
        let work = carrier.work.as_mut().filter(|work| !work.is_handed_out)?;
        let step = work.task.step;
        if ledger.step() < step {
            return None; // What comes before it is yet to be applied.
        }
        if ledger.step() == step && is_of_share(&work.task, ledger, peer) {
            work.is_handed_out = true;
            return Some(work.task.clone());
        }
        if ledger.step() > step {
            self.decline(now, DeclineReason::Over);
        } else {
            self.leave_faulty(now, LeafViolation::NotItsShare { step });
        }
        self.go_on(now);
        None
    }

    // --- what the carrier says ----------------------------------------------------------------------------------

    fn receive(&mut self, now: Time, from: PeerId, body: CarrierBody, result: Option<R>) -> Result<(), LeafViolation> {
        if matches!(body, CarrierBody::Result { .. }) != result.is_some() {
            return if self.is_with(from) { Err(LeafViolation::Detached) } else { Ok(()) };
        }
        match &self.stage {
            Stage::Asks(peer, _) if *peer == from => return self.receive_answer(now, from, body),
            Stage::Attached(carrier) if carrier.peer == from => {}
            // What was on its way when it was left counts for nothing.
            Stage::Asks(..) | Stage::Attached(_) | Stage::Rests(_) | Stage::Stopped => return Ok(()),
        }
        let Some(carrier) = self.attached() else { return Ok(()) };
        carrier.heard = now;
        match body {
            CarrierBody::Members { contacts } => {
                self.search.learn(self.config.me, from, contacts);
                Ok(())
            }
            CarrierBody::Start { number, step, lineage, generation, loads } => {
                self.start(now, number, LeafProgress { step, lineage }, generation, loads)
            }
            CarrierBody::Work { number, step, epoch, ranges } => {
                if carrier.work.is_some() {
                    return Err(LeafViolation::TooMuchWork);
                }
                if carrier.start == 0 || number == 0 {
                    return Err(LeafViolation::OutOfTurn);
                }
                let task = LeafTask { number, step, epoch, ranges };
                carrier.work = Some(Work { task, is_handed_out: false });
                // The result came first, or another step's work was meant.
                if carrier.last.0 >= step {
                    self.decline(now, DeclineReason::Over);
                } else {
                    self.outputs.push_back(Output::Work);
                }
                Ok(())
            }
            CarrierBody::Result { step, .. } => match result {
                Some(result) => self.take_result(now, step, result),
                None => Err(LeafViolation::Detached),
            },
            CarrierBody::Differs { step, .. } => {
                self.outputs.push_back(Output::Event(LeafEvent::Differs { step }));
                Ok(())
            }
            CarrierBody::Alive => Ok(()),
            CarrierBody::Lost(reason) => {
                self.leave(now, LossReason::LetGo(reason));
                Ok(())
            }
            CarrierBody::Ended { step, digest } => {
                carrier.ended = Some((step, digest));
                self.look_at_end();
                Ok(())
            }
            // The run finished before it was told where to start.
            CarrierBody::Refused(reason) => {
                self.finished |= reason == AttachRefusalReason::RunFinished;
                self.leave(now, LossReason::Refused(reason));
                Ok(())
            }
            CarrierBody::Attached { .. } => Err(LeafViolation::OutOfTurn),
        }
    }

    fn receive_answer(&mut self, now: Time, from: PeerId, body: CarrierBody) -> Result<(), LeafViolation> {
        match body {
            CarrierBody::Attached { contacts } => {
                self.search.learn(self.config.me, from, contacts);
                let last = (0, Lineage::NONE);
                let (start, began, is_loaded, work, ended) = (0, 0, false, None, None);
                let (heard, said, went_on) = (now, now, now);
                let carrier = Carrier { peer: from, heard, said, went_on, start, began, is_loaded, last, work, ended };
                self.stage = Stage::Attached(carrier);
                self.outputs.push_back(Output::Event(LeafEvent::Attached(from)));
                Ok(())
            }
            CarrierBody::Refused(reason) => {
                match reason {
                    AttachRefusalReason::RunFinished => self.finished = true,
                    _ => self.contradicted = true,
                }
                self.leave(now, LossReason::Refused(reason));
                Ok(())
            }
            CarrierBody::Lost(reason) => {
                self.leave(now, LossReason::LetGo(reason));
                Ok(())
            }
            CarrierBody::Members { .. }
            | CarrierBody::Start { .. }
            | CarrierBody::Work { .. }
            | CarrierBody::Result { .. }
            | CarrierBody::Differs { .. }
            | CarrierBody::Alive
            | CarrierBody::Ended { .. } => Err(LeafViolation::OutOfTurn),
        }
    }

    /// It is told where it starts: with what it holds, or with a state that it loads.
    fn start(
        &mut self,
        now: Time,
        number: u64,
        at: LeafProgress,
        generation: Generation,
        loads: bool,
    ) -> Result<(), LeafViolation> {
        self.decline(now, DeclineReason::Over);
        let standing = self.delivered.or(self.holds).filter(|_| self.waiting.is_empty());
        let Some(carrier) = self.attached() else { return Ok(()) };
        if number <= carrier.start || at.step == 0 || (!loads && standing != Some(at)) {
            return Err(LeafViolation::OutOfTurn);
        }
        let peer = carrier.peer;
        (carrier.start, carrier.went_on, carrier.last) = (number, now, (at.step, at.lineage));
        (carrier.began, carrier.is_loaded) = (at.step, !loads);
        if loads {
            self.drop_state();
            self.loads = true;
            let LeafProgress { step, lineage } = at;
            self.outputs.push_back(Output::Load { from: peer, generation, step, lineage });
        } else {
            self.search.succeed();
        }
        Ok(())
    }

    fn take_result(&mut self, now: Time, step: u64, result: R) -> Result<(), LeafViolation> {
        let kept: usize = self.waiting.iter().map(StepResult::bytes).fold(0, usize::saturating_add);
        let is_too_much = self.waiting.len() >= 2 && kept.saturating_add(result.bytes()) > MAX_BEHIND_BYTES;
        let count = u64::try_from(self.waiting.len()).unwrap_or(u64::MAX);
        let Some(carrier) = self.attached() else { return Ok(()) };
        let follows = (carrier.last.0.checked_add(1), carrier.last.1) == (Some(step), result.after());
        if carrier.start == 0 || !follows || result.step() != step {
            return Err(LeafViolation::DoesNotFollow { step });
        }
        if is_too_much || count > MAX_BEHIND {
            self.leave(now, LossReason::TooFarBehind);
            return Ok(());
        }
        (carrier.last, carrier.went_on) = ((step, result.lineage()), now);
        let is_over = carrier.work.as_ref().is_some_and(|work| work.task.step <= step);
        self.waiting.push_back(result);
        if is_over {
            self.decline(now, DeclineReason::Over);
        }
        Ok(())
    }

    /// The work that is not answered won't be.
    fn decline(&mut self, now: Time, reason: DeclineReason) {
        let Some(work) = self.attached().and_then(|carrier| carrier.work.take()) else { return };
        let number = work.task.number;
        if work.is_handed_out {
            self.outputs.push_back(Output::Drop(number));
        }
        self.say(now, LeafBody::Declines { number, reason });
    }

    // --- what the steps and the learner say ---------------------------------------------------------------------

    fn loaded(&mut self, now: Time, digest: Option<Digest>) {
        if !std::mem::take(&mut self.loads) {
            return;
        }
        let first_kept = self.waiting.front().map(|result| (result.step().saturating_sub(1), result.after()));
        let Some(carrier) = self.attached() else { return };
        carrier.is_loaded = true;
        carrier.went_on = now;
        let (step, lineage) = first_kept.unwrap_or(carrier.last);
        let start = carrier.start;
        self.holds = Some(LeafProgress { step, lineage });
        self.search.succeed();
        self.say(now, LeafBody::Applied { start, step, digest });
    }

    fn applied(&mut self, now: Time, step: u64, digest: Option<Digest>) {
        let Some(delivered) = self.delivered.take_if(|delivered| delivered.step == step) else { return };
        self.holds = Some(delivered);
        let Some(carrier) = self.attached() else { return };
        let start = carrier.start;
        // Where it started is no news.
        if carrier.is_loaded && start > 0 && step > carrier.began {
            self.say(now, LeafBody::Applied { start, step, digest });
        }
        self.look_at_end();
    }

    fn computed(&mut self, now: Time, number: u64, is_whole: bool) {
        let elements = self.config.elements;
        let is_it = |work: &mut Work| work.task.number == number && work.is_handed_out;
        let Some(carrier) = self.attached() else { return };
        if !is_whole {
            if carrier.work.as_mut().is_some_and(is_it) {
                self.decline(now, DeclineReason::Unable);
            }
            return;
        }
        let Some(work) = carrier.work.take_if(is_it) else { return };
        carrier.said = now;
        let (to, LeafTask { step, ranges, .. }) = (carrier.peer, work.task);
        let weight = ranges.iter().map(|range| u64::from(range.end - range.start)).sum();
        let body = LeafBody::Gradient { number, step, weight, ranges, elements };
        self.outputs.push_back(Output::Send { to, body });
    }

    /// Whether the run has ended, and all results up to its end are here: its carrier, which goes, is needed no more.
    fn ends_with_what_is_here(&self) -> bool {
        let Stage::Attached(carrier) = &self.stage else { return false };
        let is_here = |(step, _): (u64, Digest)| carrier.last.0 >= step;
        carrier.is_loaded && carrier.ended.is_some_and(is_here)
    }

    /// Ends once the last state is applied.
    fn look_at_end(&mut self) {
        let holds = self.holds;
        let Some((step, digest)) = self.attached().and_then(|carrier| carrier.ended) else { return };
        if holds.is_some_and(|holds| holds.step >= step) {
            self.drop_carrier(false);
            self.end(LeafEvent::Complete { step, digest });
        }
    }

    // --- carriers -----------------------------------------------------------------------------------------------

    fn attached(&mut self) -> Option<&mut Carrier> {
        if let Stage::Attached(carrier) = &mut self.stage { Some(carrier) } else { None }
    }

    fn is_with(&self, other: PeerId) -> bool {
        match &self.stage {
            Stage::Asks(peer, _) => *peer == other,
            Stage::Attached(carrier) => carrier.peer == other,
            Stage::Rests(_) | Stage::Stopped => false,
        }
    }

    fn say(&mut self, now: Time, body: LeafBody) {
        if let Some(carrier) = self.attached() {
            carrier.said = now;
            let to = carrier.peer;
            self.outputs.push_back(Output::Send { to, body });
        }
    }

    /// No state is here, or will be, that the results that wait are applied to.
    fn drop_state(&mut self) {
        (self.holds, self.delivered) = (None, None);
        self.waiting.clear();
    }

    /// It has nothing to do with its carrier any more, and tells it so if it is `polite`.
    fn drop_carrier(&mut self, polite: bool) {
        let peer = match &mut self.stage {
            Stage::Attached(carrier) => {
                let handed_out = carrier.work.take().filter(|work| work.is_handed_out);
                self.outputs.extend(handed_out.map(|work| Output::Drop(work.task.number)));
                Some(carrier.peer)
            }
            Stage::Asks(peer, _) => Some(*peer),
            Stage::Rests(_) | Stage::Stopped => None,
        };
        if let Some(to) = peer {
            if polite {
                self.outputs.push_back(Output::Send { to, body: LeafBody::Detach });
            }
            self.outputs.push_back(Output::Close(to));
        }
        if std::mem::take(&mut self.loads) {
            self.drop_state();
            self.outputs.push_back(Output::StopLoading);
        }
        // Whoever carries it next says what follows what it holds.
        self.waiting.clear();
    }

    fn leave(&mut self, now: Time, reason: LossReason) {
        let carrier = self.carrier();
        self.drop_carrier(!matches!(reason, LossReason::Closed | LossReason::LetGo(_) | LossReason::Refused(_)));
        self.outputs.extend(carrier.map(|carrier| Output::Event(LeafEvent::Lost { carrier, reason })));
        self.stage = match (carrier, self.flaw) {
            (Some(_), Some(FlawKind::StaysWithCarrier)) => Stage::Stopped,
            (_, Some(_) | None) => Stage::Rests(now),
        };
    }

    fn leave_faulty(&mut self, now: Time, violation: LeafViolation) {
        if let Stage::Attached(Carrier { peer, .. }) | Stage::Asks(peer, _) = self.stage {
            self.outputs.push_back(Output::Fault { carrier: peer, violation });
        }
        self.leave(now, LossReason::Faulty);
    }

    fn end(&mut self, event: LeafEvent) {
        self.stage = Stage::Stopped;
        self.outputs.push_back(Output::End(event));
    }

    /// Members can dial it.
    fn join(&mut self) {
        if !matches!(self.stage, Stage::Stopped) {
            self.drop_carrier(true);
            self.stage = Stage::Stopped;
            self.outputs.push_back(Output::Join);
        }
    }

    /// After so many rounds in vain it gives up: one that was a member soon, as others may wait for its vote, and later each time.
    fn most_rounds(&self) -> u32 {
        let doubled = |changes: u32| FIRST_ROUNDS << changes.saturating_sub(1).min(MAX_ROUNDS.ilog2());
        self.config.role_changes.filter(|changes| *changes > 0).map_or(MAX_ROUNDS, doubled).min(MAX_ROUNDS)
    }

    /// Asks members whether they can dial it by now, the one that carries it first: it is there.
    fn look_at_reach(&mut self, now: Time) -> Option<Time> {
        let carrier = self.carrier().filter(|_| !self.ends_with_what_is_here())?;
        let others = self.search.contacts().map(|contact| contact.peer);
        let (asked, is_reached) = self.reach.as_mut()?.look(now, carrier, others);
        self.outputs.extend(asked.into_iter().map(Output::AskReach));
        if is_reached {
            self.join();
        }
        self.reach.as_ref().map(ReachWatch::due)
    }

    fn go_on(&mut self, now: Time) {
        let max_stall = self.config.max_stall;
        let ends = self.ends_with_what_is_here();
        if let Stage::Attached(carrier) = &self.stage
            && !ends
        {
            if now - carrier.heard >= max_stall {
                self.leave(now, LossReason::Silent);
            } else if now - carrier.went_on >= max_stall * 3 {
                self.leave(now, LossReason::NoStep);
            } else if now - carrier.said >= max_stall / 4 {
                self.say(now, LeafBody::Alive);
            }
        }
        if let Stage::Asks(_, until) = self.stage
            && until <= now
        {
            self.leave(now, LossReason::Silent);
        }
        if let Stage::Rests(until) = self.stage
            && until <= now
        {
            self.ask_next(now);
        }
        self.deliver();
        let reach = self.look_at_reach(now);
        let next = match &self.stage {
            Stage::Rests(until) | Stage::Asks(_, until) => Some(*until),
            // Its learner is what it waits for.
            Stage::Attached(_) if ends => None,
            Stage::Attached(carrier) => {
                let word = (carrier.said + max_stall / 4).min(carrier.heard + max_stall);
                Some(word.min(carrier.went_on + max_stall * 3))
            }
            Stage::Stopped => None,
        };
        let next = next.map(|next| reach.into_iter().fold(next, Time::min));
        if let Some(at) = next.filter(|at| self.timer.is_none_or(|timer| *at < timer)) {
            self.timer = Some(at);
            self.outputs.push_back(Output::SetTimer(at));
        }
    }

    fn ask_next(&mut self, now: Time) {
        match self.search.next(now) {
            Ok(to) => {
                self.stage = Stage::Asks(to, now + self.config.max_stall / 4);
                // What is on its way to the learner is applied by the time an answer comes, or it is told of then.
                let progress = self.delivered.or(self.holds);
                let body = LeafBody::Attach { run: self.config.run, progress };
                self.outputs.push_back(Output::Send { to, body });
            }
            Err(wait) => {
                let (finished, contradicted) =
                    (std::mem::take(&mut self.finished), std::mem::take(&mut self.contradicted));
                match wait {
                    _ if finished && !contradicted => self.end(LeafEvent::Finished),
                    _ if self.search.rounds() >= self.most_rounds() => self.end(LeafEvent::NoCarrier),
                    Some(until) => self.stage = Stage::Rests(until),
                    None => self.end(LeafEvent::NoCarrier),
                }
            }
        }
    }

    /// Hands the next result to the steps, once the one before is applied.
    fn deliver(&mut self) {
        let is_loaded = matches!(&self.stage, Stage::Attached(carrier) if carrier.is_loaded);
        if is_loaded
            && self.delivered.is_none()
            && let Some(result) = self.waiting.pop_front()
        {
            self.delivered = Some(LeafProgress { step: result.step(), lineage: result.lineage() });
            self.outputs.push_back(Output::Deliver(result));
        }
    }
}

/// Whether these samples are of the carrier's share of the ledger's pending step, in whole micro-batches.
fn is_of_share(task: &LeafTask, ledger: &Ledger, carrier: PeerId) -> bool {
    let share = ledger.share_of(carrier);
    let unit = ledger.micro_batch().max(1);
    task.epoch == ledger.epoch()
        && task.ranges.iter().all(|range| {
            let inside = share.iter().any(|share| share.start <= range.start && range.end <= share.end);
            let is_border = |at: u32| at.is_multiple_of(unit) || at == ledger.samples();
            inside && is_border(range.start) && is_border(range.end)
        })
}
