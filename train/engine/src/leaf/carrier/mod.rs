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

mod attending;
mod interface;
mod leaf_slot;
mod share_parts;
mod sharing;

use std::collections::{BTreeMap, VecDeque};

use starling_topology::ledger::{MAX_SPEED, UNMEASURED};
use starling_topology::{
    AttachRefusalReason, CarrierBody, Contact, DetachReason, Digest, FlawKind, Generation, LeafBody, Lineage, PeerId,
    Time,
};

use crate::SnapshotStatus;
use crate::leaf::MAX_LEAVES;
use crate::leaf::part_gradient::PartGradient;
use crate::leaf::violation::LeafViolation;
use crate::steps::{MemberSet, StepEngine, StepResult};
pub use interface::{CarrierConfig, CarrierEvent, Input, Output};
use leaf_slot::{LeafHabits, LeafSlot, LeafStatus};
use share_parts::{PartState, ShareParts, samples};

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
    /// What it was like when it was a leaf last: who comes again is no other for it.
    habits: LeafHabits,
}

impl Asked {
    /// It has not asked yet.
    fn new(now: Time) -> Self {
        Self { credits: ASKS, at: now, refused_until: None, habits: LeafHabits::default() }
    }
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
    /// What it said last of it, with that of its leaves; 0: nothing.
    said_speed: u32,
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
            said_speed: 0,
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

    /// What this member says of its speed, if it is `own`: that of its leaves is added. Who gave up, or measured nothing, says that. Should all leaves fail, it
    /// computes its share alone, and all others wait: so it says no more than what brings a share that it can compute in half of `max_stall`.
    pub fn speed(&mut self, own: u32) -> u32 {
        if own <= UNMEASURED || own > MAX_SPEED {
            return own;
        }
        let ready = self.leaves.values().filter(|slot| slot.status == LeafStatus::Follows && slot.owed.is_none());
        let all = ready.filter_map(LeafSlot::speed).fold(own, u32::saturating_add).min(MAX_SPEED);
        let Some(parts) = &self.parts else { return all };
        // Speeds count eighths of a sample per second. A share grows as what is said of the speed.
        let alone = (u128::from(samples(&parts.share)) * 8_000_000_000 / u128::from(own)).max(1);
        let said = u128::from(self.said_speed.max(own));
        let most = said * (self.config.max_stall / 2).as_nanos() / alone;
        self.said_speed = u32::try_from(most).unwrap_or(u32::MAX).clamp(own, all.max(own));
        self.said_speed
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
            Input::Void => self.clear_parts(),
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
        let there = generation.filter(|_| progress.has_state && progress.step > 0);
        let position = there.map(|generation| Position { generation, step: progress.step, lineage: progress.lineage });
        self.members = steps.active().map(|active| active.members.clone()).filter(|_| there.is_some());
        let members = self.members.clone();
        let is_in = |leaf: &PeerId| members.as_ref().is_some_and(|members| members.binary_search(leaf).is_ok());
        for leaf in self.leaves.keys().copied().filter(is_in).collect::<Vec<_>>() {
            self.let_go(now, leaf, DetachReason::IsMember);
        }
        if !progress.has_state {
            self.clear_parts();
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
                    None => self.stand_anew(after),
                }
            }
            (None, None) => {}
            (None, Some(after)) if self.parts.as_ref().is_none_or(|parts| parts.step > after.step) => {
                self.position = Some(after);
            }
            // What its learner is at, or has computed, is as good in the next view.
            (Some(_), None) => {
                (self.position, self.newest) = (None, None);
                self.part_with_all(now, |_| CarrierBody::Lost(DetachReason::NotReady));
            }
            (_, Some(after)) => self.stand_anew(after),
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
    fn stand_anew(&mut self, position: Position) {
        (self.position, self.newest) = (Some(position), None);
        self.digests.clear();
        self.clear_parts();
        for slot in self.leaves.values_mut() {
            slot.status = LeafStatus::Waits(None);
            slot.digests.clear();
        }
    }

    fn go_on(&mut self, now: Time) {
        let max_stall = self.config.max_stall;
        for (leaf, reason) in self.overdue(now) {
            self.let_go(now, leaf, reason);
            // Others may want the state that it did not load.
            if reason == DetachReason::TooFarBehind {
                self.refuse_for_a_while(now, leaf);
            }
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
        let bytes = self.newest.as_ref().map_or(0, StepResult::bytes);
        let reason = |slot: &LeafSlot| match slot.status {
            _ if now - slot.heard >= self.config.max_stall => Some(DetachReason::Silent),
            LeafStatus::Loads(until) if until <= now => Some(DetachReason::TooFarBehind),
            LeafStatus::Loads(_) | LeafStatus::Follows if slot.is_too_far_behind(bytes) => {
                Some(DetachReason::TooFarBehind)
            }
            LeafStatus::Waits(_) | LeafStatus::Loads(_) | LeafStatus::Follows => None,
        };
        self.leaves.iter().filter_map(|(leaf, slot)| Some((*leaf, reason(slot)?))).collect()
    }
}
