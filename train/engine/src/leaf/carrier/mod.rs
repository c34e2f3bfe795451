//! A member's leaves: who they are, what each is given of the share, what counts, and what is computed here in their place.
//!
//! ```text
//!   Computes --> split: own part | part of leaf a | part of leaf b     Work goes to a and b
//!                  Compute own --> Count
//!                                  a's gradient came:   Add            whichever of the two is whole first counts,
//!                                  b's is late or lost: Compute --> Count        the other is dropped
//!                all parts there --> Whole: the learner contributes    committed --> Result goes to a and b
//! ```
//!
//! A share's parts are kept until its step is committed, whatever becomes of the view meanwhile: the same share of the same step is not
//! computed again. Another share, or another state, begins anew.
//!
//! Only who holds the state that a step begins with is given work of it, and nobody a second one before it has answered the first: a leaf
//! that is frozen costs one wait. One that is late again and again rests, for more steps each time. How fast a leaf is, its carrier
//! measures; nothing that it says counts.

mod interface;
mod leaf_slot;
mod share_parts;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use starling_topology::ledger::{MAX_SPEED, UNMEASURED, split};
use starling_topology::{
    AttachRefusalReason, CarrierBody, Contact, DetachReason, Digest, FlawKind, Generation, LeafBody, LeafProgress,
    Lineage, PeerId, Time,
};

use crate::SnapshotStatus;
use crate::leaf::part_gradient::PartGradient;
use crate::leaf::violation::LeafViolation;
use crate::leaf::{MAX_BEHIND, MAX_LEAVES};
use crate::steps::{MemberSet, StepEngine, StepResult};
pub use interface::{CarrierConfig, CarrierEvent, Input, Output};
use leaf_slot::{LeafSlot, LeafStatus, Owed};
use share_parts::{Part, PartState, ShareParts, samples};

/// So many digests are kept to be compared, here and of each leaf.
const MAX_DIGESTS: usize = 64;
/// So many peers are remembered that asked to be leaves.
const MAX_ASKED: usize = 64;
/// How often a peer may ask at once; once more after each sixteenth of `max_stall`.
const ASKS: u32 = 8;
/// How often a leaf's state may be another one, before it is let go for it.
const MAX_DIFFERENCES: u32 = 1;

/// Where a carrier stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Position {
    generation: Generation,
    step: u64,
    lineage: Lineage,
}

/// What is remembered of a peer that asked to be a leaf.
#[derive(Debug)]
struct Asked {
    credits: u32,
    at: Time,
    /// It is refused until then.
    refused_until: Option<Time>,
}

/// See the module. `G` is a leaf's gradient, `R` a result behind a handle that is cheap to clone.
#[derive(Debug)]
pub struct CarrierEngine<G, R> {
    config: CarrierConfig,
    /// Where it stands, if it can hand anything on: in a view, with the state of a committed step.
    position: Option<Position>,
    /// The members of its view.
    members: Option<MemberSet>,
    contacts: Vec<Contact>,
    /// The result of the step where it stands, if it came about here.
    newest: Option<R>,
    leaves: BTreeMap<PeerId, LeafSlot>,
    asked: BTreeMap<PeerId, Asked>,
    parts: Option<ShareParts>,
    /// Counts works, and what is computed here.
    numbers: u64,
    /// How fast this member computes; 0: unknown.
    own_speed: u32,
    digests: BTreeMap<u64, Digest>,
    /// The step whose state is ready for leaves, or will be.
    lent: Option<u64>,
    is_over: bool,
    leaves_run: bool,
    timer: Option<Time>,
    flaw: Option<FlawKind>,
    outputs: VecDeque<Output<G, R>>,
}

impl<G: PartGradient, R: StepResult> CarrierEngine<G, R> {
    /// A member without leaves.
    pub fn new(config: CarrierConfig) -> Self {
        Self {
            config: CarrierConfig { places: config.places.min(MAX_LEAVES), ..config },
            position: None,
            members: None,
            contacts: Vec::new(),
            newest: None,
            leaves: BTreeMap::new(),
            asked: BTreeMap::new(),
            parts: None,
            numbers: 0,
            own_speed: 0,
            digests: BTreeMap::new(),
            lent: None,
            is_over: false,
            leaves_run: false,
            timer: None,
            flaw: None,
            outputs: VecDeque::new(),
        }
    }

    /// Has it make a mistake from now on.
    #[cfg(feature = "flaws")]
    pub fn plant(&mut self, flaw: FlawKind) {
        self.flaw = Some(flaw);
    }

    /// What the driver does next; drain to `None` after each call of the others.
    pub fn poll(&mut self) -> Option<Output<G, R>> {
        self.outputs.pop_front()
    }

    /// Its leaves.
    pub fn leaves(&self) -> impl Iterator<Item = PeerId> + '_ {
        self.leaves.keys().copied()
    }

    /// Those that hold the state, and get each step's result.
    pub fn followers(&self) -> impl Iterator<Item = PeerId> + '_ {
        self.leaves.iter().filter(|(_, slot)| slot.status == LeafStatus::Follows).map(|(leaf, _)| *leaf)
    }

    /// Whether leaves were given parts of the share under way: its contribution is whole with theirs alone.
    pub fn has_handed_on(&self) -> bool {
        self.parts.as_ref().is_some_and(|parts| parts.parts.len() > 1)
    }

    /// What this member says of its speed, if it is `own`: that of its leaves is added. Who gave up, or measured nothing, says that.
    pub fn speed(&self, own: u32) -> u32 {
        if own <= UNMEASURED || own > MAX_SPEED {
            return own;
        }
        let ready = self.leaves.values().filter(|slot| slot.status == LeafStatus::Follows && slot.owed.is_none());
        ready.filter_map(LeafSlot::speed).fold(own, u32::saturating_add).min(MAX_SPEED)
    }

    /// How many bytes of numbers follow this message, once it is known that they may come: before memory is taken for them. `None`: the
    /// peer was let go, and nothing more is read of it.
    ///
    /// # Errors
    /// If no correct leaf sends it: say [`Input::Faulted`].
    pub fn admits(&self, from: PeerId, body: &LeafBody) -> Result<Option<u64>, LeafViolation> {
        let LeafBody::Gradient { number, step, weight, ranges, elements } = body else { return Ok(Some(0)) };
        let (number, expected) = (*number, self.config.elements);
        let Some(slot) = self.leaves.get(&from) else { return Ok(None) };
        match &slot.owed {
            Some(owed) if owed.number == number => {
                if owed.step != *step {
                    return Err(LeafViolation::OtherStep { step: *step });
                }
                if owed.ranges != *ranges || samples(&owed.ranges) != *weight {
                    return Err(LeafViolation::OtherSamples { number });
                }
            }
            _ if number != 0 && number <= slot.answered => return Err(LeafViolation::Twice { number }),
            Some(_) | None => return Err(LeafViolation::NotGiven { number }),
        }
        if *elements != expected {
            return Err(LeafViolation::Length { elements: *elements, expected });
        }
        elements.checked_mul(4).map(Some).ok_or(LeafViolation::Length { elements: *elements, expected })
    }

    /// Takes in what happened.
    pub fn handle(&mut self, now: Time, input: Input<G>) {
        match input {
            Input::Received { from, body, gradient } => {
                if let Err(violation) = self.receive(now, from, body, gradient) {
                    self.fault(now, from, violation);
                }
            }
            Input::Faulted { from, violation } => self.fault(now, from, violation),
            Input::Closed(leaf) => self.lose(leaf, None),
            Input::Knows(mut contacts) => {
                contacts.truncate(starling_topology::message::carrier::MAX_TOLD);
                if contacts != self.contacts {
                    self.contacts = contacts;
                    let members = CarrierBody::Members { contacts: self.contacts.clone() };
                    self.leaves.keys().copied().collect::<Vec<_>>().into_iter().for_each(|leaf| {
                        self.send(now, leaf, members.clone(), None);
                    });
                }
            }
            Input::Computes { step, epoch, share, micro_batch } => self.begin(now, (step, epoch), share, micro_batch),
            Input::Computed(number) => self.take_own(now, number),
            Input::Applied { step, digest } => self.note_digest(now, step, digest),
            Input::Ended { step, digest } => {
                self.is_over = true;
                self.part_with_all(now, |slot| match slot.status {
                    LeafStatus::Waits(_) => CarrierBody::Refused(AttachRefusalReason::RunFinished),
                    LeafStatus::Loads(_) | LeafStatus::Follows => CarrierBody::Ended { step, digest },
                });
            }
            Input::Leaves => {
                self.leaves_run = true;
                self.part_with_all(now, |_| CarrierBody::Lost(DetachReason::Leaves));
            }
            Input::Expired => self.timer = None,
        }
        self.go_on(now);
    }

    /// Looks where the steps stand: after each of them that is committed, at once, and whenever they enter a view or leave one. `generation`
    /// is that of the view that they are in, if they are in one.
    pub fn look<S>(&mut self, now: Time, steps: &StepEngine<R, S>, generation: Option<Generation>) {
        let progress = steps.progress();
        // What a step begins with that nobody has committed is agreed anew with each view.
        let is_ready = progress.has_state && progress.step > 0 && !self.leaves_run && !self.is_over;
        let there = generation.filter(|_| is_ready);
        let position = there.map(|generation| Position { generation, step: progress.step, lineage: progress.lineage });
        self.members = steps.active().map(|active| active.members.clone()).filter(|_| there.is_some());
        let members = self.members.clone();
        let is_in = |leaf: &PeerId| members.as_ref().is_some_and(|members| members.binary_search(leaf).is_ok());
        for leaf in self.leaves.keys().copied().filter(is_in).collect::<Vec<_>>() {
            self.let_go(now, leaf, DetachReason::Leaves);
        }
        match (self.position, position) {
            (Some(before), Some(after)) if (before.step, before.lineage) == (after.step, after.lineage) => {
                self.position = Some(after);
            }
            (Some(before), Some(after)) if before.step.checked_add(1) == Some(after.step) => {
                let result = match steps.result_of(after.step) {
                    SnapshotStatus::Here(result) if result.after() == before.lineage => Some(result),
                    SnapshotStatus::Here(_) | SnapshotStatus::Later | SnapshotStatus::Nothing => None,
                };
                match result {
                    Some(result) => self.commit(now, after, result),
                    None => self.stand_anew(now, Some(after)),
                }
            }
            (None, None) => {}
            (None, Some(after)) if self.parts.as_ref().is_none_or(|parts| parts.step > after.step) => {
                self.position = Some(after);
            }
            (_, after) => self.stand_anew(now, after),
        }
        self.go_on(now);
    }

    /// A step is committed here.
    fn commit(&mut self, now: Time, position: Position, result: R) {
        let step = position.step;
        self.position = Some(position);
        self.drop_parts(step);
        for leaf in self.leaves.keys().copied().collect::<Vec<_>>() {
            let Some(slot) = self.leaves.get_mut(&leaf) else { continue };
            let follows = matches!(slot.status, LeafStatus::Loads(_) | LeafStatus::Follows);
            if follows && slot.sent.checked_add(1) == Some(step) {
                slot.sent = step;
                self.send(now, leaf, CarrierBody::Result { step, bytes: 0 }, Some(result.clone()));
            }
        }
        self.newest = Some(result);
    }

    /// It stands elsewhere, and no result that it has leads there.
    fn stand_anew(&mut self, now: Time, position: Option<Position>) {
        (self.position, self.newest) = (position, None);
        self.digests.clear();
        self.clear_parts();
        if position.is_none() {
            return self.part_with_all(now, |_| CarrierBody::Lost(DetachReason::NotReady));
        }
        for slot in self.leaves.values_mut() {
            slot.status = LeafStatus::Waits(None);
            slot.digests.clear();
        }
    }

    // --- leaves -------------------------------------------------------------------------------------------------

    fn receive(&mut self, now: Time, from: PeerId, body: LeafBody, gradient: Option<G>) -> Result<(), LeafViolation> {
        if let LeafBody::Attach { run, progress } = body {
            return if gradient.is_some() {
                Err(LeafViolation::Detached)
            } else {
                self.attach(now, from, run, progress)
            };
        }
        let max_stall = self.config.max_stall;
        // What was on its way when it was let go counts for nothing.
        let Some(slot) = self.leaves.get_mut(&from) else { return Ok(()) };
        if !slot.hear(now, max_stall) {
            return Err(LeafViolation::Floods);
        }
        let is_gradient = matches!(body, LeafBody::Gradient { .. });
        if is_gradient != gradient.is_some() {
            return Err(LeafViolation::Detached);
        }
        match body {
            LeafBody::Gradient { .. } => {
                self.admits(from, &body)?;
                let gradient = gradient.ok_or(LeafViolation::Detached)?;
                self.take_gradient(now, from, gradient)
            }
            LeafBody::Declines { number, reason } => {
                match &slot.owed {
                    Some(owed) if owed.number == number => {}
                    _ if number != 0 && number <= slot.answered => return Err(LeafViolation::Twice { number }),
                    Some(_) | None => return Err(LeafViolation::NotGiven { number }),
                }
                slot.answer(now, Some(reason));
                self.parts.iter_mut().for_each(|parts| parts.lose(from));
                Ok(())
            }
            LeafBody::Applied { start, step, digest } => self.note_applied(now, from, start, step, digest),
            LeafBody::Alive => Ok(()),
            LeafBody::Detach => {
                self.lose(from, None);
                self.outputs.push_back(Output::Close(from));
                Ok(())
            }
            LeafBody::Attach { .. } => Err(LeafViolation::OutOfTurn),
        }
    }

    fn attach(
        &mut self,
        now: Time,
        from: PeerId,
        run: starling_topology::RunId,
        progress: Option<LeafProgress>,
    ) -> Result<(), LeafViolation> {
        // It has closed its stream before, whether that is known here or not.
        if self.leaves.contains_key(&from) {
            self.lose(from, None);
        }
        let each = self.config.max_stall / 16;
        self.make_room_for(now, from);
        let asked = self.asked.entry(from).or_insert(Asked { credits: ASKS, at: now, refused_until: None });
        while asked.credits < ASKS && now - asked.at >= each && !each.is_zero() {
            (asked.credits, asked.at) = (asked.credits + 1, asked.at + each);
        }
        if asked.credits == ASKS {
            asked.at = now;
        }
        let refused = asked.refused_until.filter(|until| *until > now);
        if refused.is_none() && asked.credits == 0 {
            return Err(LeafViolation::Floods);
        }
        asked.credits = asked.credits.saturating_sub(1);
        let is_member = |members: &MemberSet| members.binary_search(&from).is_ok();
        let reason = if run != self.config.run {
            Some(AttachRefusalReason::OtherRun)
        } else if let Some(until) = refused {
            let for_ms = u64::try_from((until - now).as_millis()).unwrap_or(u64::MAX);
            Some(AttachRefusalReason::Misbehaved { for_ms })
        } else if from == self.config.me || self.members.as_ref().is_some_and(is_member) {
            Some(AttachRefusalReason::IsMember)
        } else if self.is_over {
            Some(AttachRefusalReason::RunFinished)
        } else if self.position.is_none() {
            Some(AttachRefusalReason::NotReady)
        } else if self.leaves.len() >= self.config.places {
            let places = u32::try_from(self.config.places).unwrap_or(u32::MAX);
            Some(AttachRefusalReason::Full { places })
        } else {
            None
        };
        if let Some(reason) = reason {
            let body = CarrierBody::Refused(reason);
            self.outputs.push_back(Output::Send { to: from, body, result: None });
            self.outputs.push_back(Output::Close(from));
            return Ok(());
        }
        self.leaves.insert(from, LeafSlot::new(now, progress));
        self.outputs.push_back(Output::Event(CarrierEvent::Attached(from)));
        self.send(now, from, CarrierBody::Attached { contacts: self.contacts.clone() }, None);
        Ok(())
    }

    /// Forgets the peer that asked longest ago, one that is refused last, so that there is room for one more.
    fn make_room_for(&mut self, now: Time, from: PeerId) {
        if self.asked.len() < MAX_ASKED || self.asked.contains_key(&from) {
            return;
        }
        let is_refused = |asked: &Asked| asked.refused_until.is_some_and(|until| until > now);
        let oldest = self.asked.iter().min_by_key(|(_, asked)| (is_refused(asked), asked.at)).map(|(peer, _)| *peer);
        oldest.into_iter().for_each(|peer| _ = self.asked.remove(&peer));
    }

    /// Tells those who wait where they start, as far as that can be said.
    fn start_who_wait(&mut self, now: Time) {
        let Some(position) = self.position else { return };
        let is_needed = |slot: &LeafSlot| matches!(slot.status, LeafStatus::Loads(_));
        if self.lent.is_some() && !self.leaves.values().any(is_needed) {
            self.lent = None;
            self.outputs.push_back(Output::Release);
        }
        for leaf in self.leaves.keys().copied().collect::<Vec<_>>() {
            let Some(LeafStatus::Waits(holds)) = self.leaves.get(&leaf).map(|slot| slot.status) else { continue };
            let (step, lineage) = (position.step, position.lineage);
            let result = self.newest.clone().filter(|result| {
                let is_before = |holds: LeafProgress| {
                    holds.step.checked_add(1) == Some(result.step()) && holds.lineage == result.after()
                };
                result.step() == step && result.lineage() == lineage && holds.is_some_and(is_before)
            });
            let (start, lineage, loads) = match holds {
                Some(holds) if holds == (LeafProgress { step, lineage }) => (step, lineage, false),
                Some(holds) if result.is_some() => (holds.step, holds.lineage, false),
                // One state at a time is kept for leaves.
                Some(_) | None if self.lent.is_none_or(|lent| lent == step) => (step, lineage, true),
                Some(_) | None => continue,
            };
            if loads && self.lent.is_none() {
                self.lent = Some(step);
                self.outputs.push_back(Output::Lend(step));
            }
            let until = now + self.config.max_stall * 4;
            let Some(slot) = self.leaves.get_mut(&leaf) else { continue };
            slot.starts += 1;
            slot.digests.clear();
            (slot.sent, slot.applied) = (start, (!loads).then_some(start));
            slot.status = if loads { LeafStatus::Loads(until) } else { LeafStatus::Follows };
            let (number, generation) = (slot.starts, position.generation);
            let body = CarrierBody::Start { number, step: start, lineage, generation, loads };
            self.send(now, leaf, body, None);
            if let Some(result) = result.filter(|_| !loads && start < step) {
                self.leaves.get_mut(&leaf).into_iter().for_each(|slot| slot.sent = step);
                self.send(now, leaf, CarrierBody::Result { step, bytes: 0 }, Some(result));
            }
        }
    }

    fn note_applied(
        &mut self,
        now: Time,
        leaf: PeerId,
        start: u64,
        step: u64,
        digest: Option<Digest>,
    ) -> Result<(), LeafViolation> {
        let Some(slot) = self.leaves.get_mut(&leaf) else { return Ok(()) };
        if start > slot.starts || start == 0 {
            return Err(LeafViolation::OutOfTurn);
        }
        // It has not heard of its new start yet.
        if start != slot.starts || matches!(slot.status, LeafStatus::Waits(_)) {
            return Ok(());
        }
        if step > slot.sent || slot.applied.is_some_and(|applied| step <= applied) {
            return Err(LeafViolation::Beyond { step });
        }
        slot.applied = Some(step);
        slot.status = LeafStatus::Follows;
        if let Some(digest) = digest {
            slot.digests.insert(step, digest);
            if slot.digests.len() > MAX_DIGESTS {
                slot.digests.pop_first();
            }
        }
        self.compare(now, leaf)
    }

    fn note_digest(&mut self, now: Time, step: u64, digest: Digest) {
        self.digests.insert(step, digest);
        if self.digests.len() > MAX_DIGESTS {
            self.digests.pop_first();
        }
        for leaf in self.leaves.keys().copied().collect::<Vec<_>>() {
            if let Err(violation) = self.compare(now, leaf) {
                self.fault(now, leaf, violation);
            }
        }
    }

    /// Compares a leaf's digests with those that are known here.
    fn compare(&mut self, now: Time, leaf: PeerId) -> Result<(), LeafViolation> {
        let Some(slot) = self.leaves.get_mut(&leaf) else { return Ok(()) };
        let known = |(step, _): &(u64, Digest)| self.digests.contains_key(step);
        let both: Vec<(u64, Digest)> =
            slot.digests.iter().map(|(step, digest)| (*step, *digest)).filter(known).collect();
        for (step, theirs) in both {
            slot.digests.remove(&step);
            let Some(ours) = self.digests.get(&step).copied().filter(|ours| *ours != theirs) else { continue };
            slot.differed += 1;
            if slot.differed > MAX_DIFFERENCES {
                return Err(LeafViolation::Differs { step });
            }
            slot.status = LeafStatus::Waits(None);
            slot.digests.clear();
            self.send(now, leaf, CarrierBody::Differs { step, digest: ours }, None);
            break;
        }
        Ok(())
    }

    fn send(&mut self, now: Time, to: PeerId, body: CarrierBody, result: Option<R>) {
        if let Some(slot) = self.leaves.get_mut(&to) {
            slot.sent(now);
            self.outputs.push_back(Output::Send { to, body, result });
        }
    }

    /// A leaf takes part no more.
    fn lose(&mut self, leaf: PeerId, reason: Option<DetachReason>) {
        if self.leaves.remove(&leaf).is_some() {
            if let Some(parts) = &mut self.parts {
                parts.lose(leaf);
            }
            self.outputs.push_back(Output::Event(CarrierEvent::Lost { leaf, reason }));
        }
    }

    fn let_go(&mut self, now: Time, leaf: PeerId, reason: DetachReason) {
        self.send(now, leaf, CarrierBody::Lost(reason), None);
        self.outputs.push_back(Output::Close(leaf));
        self.lose(leaf, Some(reason));
    }

    fn part_with_all(&mut self, now: Time, word: impl Fn(&LeafSlot) -> CarrierBody) {
        for leaf in self.leaves.keys().copied().collect::<Vec<_>>() {
            let Some(body) = self.leaves.get(&leaf).map(&word) else { continue };
            self.send(now, leaf, body, None);
            self.outputs.push_back(Output::Close(leaf));
            self.lose(leaf, None);
        }
        if self.lent.take().is_some() {
            self.outputs.push_back(Output::Release);
        }
    }

    /// A peer did what no correct leaf does: it is let go, and refused for a while.
    fn fault(&mut self, now: Time, leaf: PeerId, violation: LeafViolation) {
        let until = now + self.config.max_stall * 4;
        self.make_room_for(now, leaf);
        let asked = self.asked.entry(leaf).or_insert(Asked { credits: ASKS, at: now, refused_until: None });
        asked.refused_until = Some(until);
        self.outputs.push_back(Output::Fault { leaf, violation });
        self.outputs.push_back(Output::Close(leaf));
        self.lose(leaf, None);
    }

    // --- the share ----------------------------------------------------------------------------------------------

    fn begin(&mut self, now: Time, (step, epoch): (u64, u64), share: Vec<Range<u32>>, micro_batch: u32) {
        if let Some(parts) = self.parts.as_mut().filter(|parts| parts.is_of(step, epoch, &share)) {
            parts.is_whole = false; // It is told again.
            return;
        }
        self.clear_parts();
        self.outputs.push_back(Output::Clear);
        let is_next = self.position.is_some_and(|position| position.step.checked_add(1) == Some(step));
        let ready = self.leaves.iter().filter(|(_, slot)| is_next && slot.is_ready(step - 1));
        let ready: Vec<(PeerId, Option<u32>)> = ready.map(|(leaf, slot)| (*leaf, slot.speed())).collect();
        // Who was not measured yet is taken for average.
        let own_speed = (self.own_speed > UNMEASURED).then_some(self.own_speed);
        let speeds: Vec<Option<u32>> = [own_speed].into_iter().chain(ready.iter().map(|(_, speed)| *speed)).collect();
        let known: Vec<u64> = speeds.iter().flatten().map(|speed| u64::from(*speed)).collect();
        let typical =
            known.iter().sum::<u64>().checked_div(known.len() as u64).and_then(|speed| u32::try_from(speed).ok());
        let weights: Vec<u32> = speeds.iter().map(|speed| speed.or(typical).unwrap_or(1)).collect();
        let mut cut = split(&share, micro_batch, &weights).into_iter();
        self.numbers += 1;
        let own = cut.next().unwrap_or_default();
        let mut parts = vec![Part {
            leaf: None,
            number: self.numbers,
            ranges: own.clone(),
            expected: None,
            state: PartState::Waiting,
        }];
        let computing = Some((self.numbers, 0));
        self.outputs.push_back(Output::Compute { number: self.numbers, ranges: own, is_backup: false });
        for ((leaf, speed), ranges) in ready.into_iter().zip(cut) {
            if ranges.is_empty() {
                continue;
            }
            self.numbers += 1;
            let number = self.numbers;
            let takes = |speed: u32| {
                // Speeds count eighths of a sample per second.
                let nanos = u128::from(samples(&ranges)) * 8_000_000_000 / u128::from(speed.max(1));
                std::time::Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
            };
            let expected = speed.map(|speed| now + takes(speed));
            if let Some(slot) = self.leaves.get_mut(&leaf) {
                slot.owed = Some(Owed { number, step, ranges: ranges.clone(), sent: now });
            }
            self.send(now, leaf, CarrierBody::Work { number, step, epoch, ranges: ranges.clone() }, None);
            parts.push(Part { leaf: Some(leaf), number, ranges, expected, state: PartState::Waiting });
        }
        let (began, own_done, is_whole) = (now, None, false);
        self.parts = Some(ShareParts { step, epoch, share, began, parts, computing, own_done, is_whole });
    }

    /// The learner has computed a part.
    fn take_own(&mut self, now: Time, number: u64) {
        let counts_twice = self.flaw == Some(FlawKind::CountsLeavesTwice);
        let Some(parts) = &mut self.parts else { return };
        let Some((_, at)) = parts.computing.take_if(|(computing, _)| *computing == number) else { return };
        let Some(part) = parts.parts.get_mut(at) else { return };
        if part.state == PartState::Counted && !counts_twice {
            return;
        }
        part.state = PartState::Counted;
        if at == 0 {
            let measured = starling_run::training::contribution::speed(samples(&part.ranges), now - parts.began);
            self.own_speed = match (self.own_speed, measured) {
                (known, UNMEASURED) => known,
                (0, measured) => measured,
                (known, measured) => (3 * known + measured + 2) / 4,
            };
            parts.own_done = Some(now);
        }
        self.outputs.push_back(Output::Count(number));
    }

    /// A leaf has brought the gradient that it owes; its header is admitted.
    fn take_gradient(&mut self, now: Time, leaf: PeerId, gradient: G) -> Result<(), LeafViolation> {
        let CarrierConfig { elements: expected, most, .. } = self.config;
        if gradient.elements() != expected {
            return Err(LeafViolation::Length { elements: gradient.elements(), expected });
        }
        if let Some((at, value)) = gradient.first_bad(most) {
            let is_finite = value.is_finite();
            return Err(if is_finite {
                LeafViolation::TooLarge { at, value }
            } else {
                LeafViolation::NotFinite { at }
            });
        }
        let takes_late = self.flaw == Some(FlawKind::TakesLateGradients);
        let counts_twice = self.flaw == Some(FlawKind::CountsLeavesTwice);
        let Some(owed) = self.leaves.get_mut(&leaf).and_then(|slot| slot.answer(now, None)) else { return Ok(()) };
        let weight = samples(&owed.ranges);
        let mut part = self.parts.as_mut().and_then(|parts| parts.part_of(leaf, owed.number));
        let counts = part.as_mut().filter(|part| part.state != PartState::Counted);
        let Some(part) = counts else {
            self.outputs.push_back(Output::Event(CarrierEvent::Late { leaf, step: owed.step }));
            if takes_late && self.parts.as_ref().is_some_and(|parts| !parts.is_whole) {
                self.outputs.push_back(Output::Add { leaf, ranges: owed.ranges, weight, gradient });
            }
            return Ok(());
        };
        part.state = PartState::Counted;
        let number = part.number;
        self.outputs.push_back(Output::Add { leaf, ranges: owed.ranges, weight, gradient });
        // What is computed in its place is of no use any more.
        if let Some(parts) = self.parts.as_mut().filter(|_| !counts_twice)
            && let Some((computing, at)) = parts.computing
            && parts.parts.get(at).is_some_and(|part| part.number == number)
        {
            parts.computing = None;
            self.outputs.push_back(Output::Drop(computing));
        } else if let Some(slot) = self.leaves.get_mut(&leaf) {
            slot.note_in_time();
        }
        Ok(())
    }

    /// The step is committed: its share is over.
    fn drop_parts(&mut self, step: u64) {
        if let Some(parts) = self.parts.take_if(|parts| parts.step <= step) {
            self.outputs.extend(parts.computing.map(|(number, _)| Output::Drop(number)));
            if !parts.is_whole {
                self.outputs.push_back(Output::Over(parts.step));
            }
        }
    }

    fn clear_parts(&mut self) {
        self.drop_parts(u64::MAX);
    }

    /// Computes what is late, tells what is whole.
    fn complete(&mut self, now: Time) {
        let (ignores, waits) =
            (self.flaw == Some(FlawKind::CountsWithoutLeaves), self.flaw == Some(FlawKind::WaitsForLeaves));
        let most = self.config.max_stall / 8;
        let Some(parts) = &mut self.parts else { return };
        if parts.own_done.is_none() || parts.computing.is_some() || parts.is_whole {
            return;
        }
        if ignores || parts.parts.iter().all(|part| part.state == PartState::Counted) {
            parts.is_whole = true;
            return self.outputs.push_back(Output::Whole(parts.step));
        }
        let is_due = |part: &Part| match part.state {
            PartState::Counted => false,
            PartState::Lost => true,
            PartState::Waiting => parts.due(part, most).is_some_and(|due| due <= now),
        };
        let Some(at) = parts.parts.iter().position(|part| is_due(part) && !waits) else { return };
        let (step, part) = (parts.step, &parts.parts[at]);
        let late = part.leaf.filter(|_| part.state == PartState::Waiting);
        late.and_then(|leaf| self.leaves.get_mut(&leaf)).into_iter().for_each(|slot| slot.note_late(step));
        self.numbers += 1;
        parts.computing = Some((self.numbers, at));
        let ranges = part.ranges.clone();
        let event = part.leaf.map(|leaf| Output::Event(CarrierEvent::Backup { leaf, step }));
        self.outputs.extend(event);
        self.outputs.push_back(Output::Compute { number: self.numbers, ranges, is_backup: true });
    }

    fn go_on(&mut self, now: Time) {
        let max_stall = self.config.max_stall;
        for (leaf, reason) in self.overdue(now) {
            self.let_go(now, leaf, reason);
        }
        self.start_who_wait(now);
        let is_silent = |slot: &LeafSlot| now - slot.said >= max_stall / 4;
        let due: Vec<PeerId> = self.leaves.iter().filter(|(_, slot)| is_silent(slot)).map(|(leaf, _)| *leaf).collect();
        due.into_iter().for_each(|leaf| self.send(now, leaf, CarrierBody::Alive, None));
        self.complete(now);
        let word = self.leaves.values().map(|slot| (slot.said + max_stall / 4).min(slot.heard + max_stall));
        let loads = self.leaves.values().filter_map(|slot| match slot.status {
            LeafStatus::Loads(until) => Some(until),
            LeafStatus::Waits(_) | LeafStatus::Follows => None,
        });
        let parts = self.parts.as_ref().filter(|parts| parts.computing.is_none() && !parts.is_whole);
        let due = parts.into_iter().flat_map(|parts| {
            let waiting = parts.parts.iter().filter(|part| part.state == PartState::Waiting);
            waiting.filter_map(|part| parts.due(part, max_stall / 8)).filter(|due| *due > now)
        });
        let next = word.chain(loads).chain(due).min();
        if let Some(at) = next.filter(|at| self.timer.is_none_or(|timer| *at < timer)) {
            self.timer = Some(at);
            self.outputs.push_back(Output::SetTimer(at));
        }
    }

    /// Leaves that were not heard of for long, or are too far behind.
    fn overdue(&self, now: Time) -> Vec<(PeerId, DetachReason)> {
        let reason = |slot: &LeafSlot| match slot.status {
            _ if now - slot.heard >= self.config.max_stall => Some(DetachReason::Silent),
            LeafStatus::Loads(until) if until <= now => Some(DetachReason::TooFarBehind),
            LeafStatus::Follows if slot.sent.saturating_sub(slot.applied.unwrap_or(0)) > MAX_BEHIND => {
                Some(DetachReason::TooFarBehind)
            }
            LeafStatus::Waits(_) | LeafStatus::Loads(_) | LeafStatus::Follows => None,
        };
        self.leaves.iter().filter_map(|(leaf, slot)| Some((*leaf, reason(slot)?))).collect()
    }
}
