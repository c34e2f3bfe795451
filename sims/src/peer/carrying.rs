//! What a member does for its leaves: the engine's [`CarrierEngine`], and the contribution that it has put together.

use std::ops::Range;
use std::rc::Rc;

use starling_engine::leaf::MAX_LEAVES;
use starling_engine::leaf::carrier::{CarrierConfig, Input, Output};
use starling_engine::{CarrierEngine, StepResult};
use starling_topology::{CarrierBody, Contact, LeafBody, PeerId, Time};

use super::{Effect, Peer, Start};
use crate::steps::contribution::gradient;
use crate::steps::message::{LeafGradient, Message};
use crate::steps::state::ResultRecord;
use crate::steps::workload::{MOST, Workload};
use crate::sweep::canary::Sabotage;
use crate::world::RUN;

/// Positions that somebody computes: under which number, which they are.
type Numbered = (u64, Vec<Range<u32>>);

/// A member's leaves, and its contribution to the step under way.
#[derive(Debug)]
pub(super) struct Carrying {
    engine: CarrierEngine<LeafGradient, Rc<ResultRecord>>,
    timer: Option<Time>,
    gathered: Gathered,
    /// Whether a contribution is being put together.
    pub(super) is_gathering: bool,
    /// What the learner computes, unless that is not wanted any more; and what it is to compute next.
    part: Option<Numbered>,
    next: Option<Numbered>,
    /// What it has just computed.
    computed: Option<Numbered>,
}

/// What a contribution is made of.
#[derive(Debug, Clone, Default)]
pub struct Gathered {
    /// The step.
    pub step: u64,
    /// The share, as the ledger has it.
    pub share: Vec<Range<u32>>,
    /// The sum of what stands for the gradients.
    pub sum: u64,
    /// Who has computed which positions; `None`: the member itself.
    pub parts: Vec<(Option<PeerId>, Vec<Range<u32>>)>,
}

impl Carrying {
    pub(super) fn new(start: &Start, workload: &Workload) -> Self {
        let mut engine = CarrierEngine::new(CarrierConfig {
            me: start.contact.peer,
            run: RUN,
            max_stall: start.max_stall,
            elements: workload.elements as u64,
            most: MOST,
            places: MAX_LEAVES,
        });
        if let Some(Sabotage::Machine(flaw)) = start.sabotage {
            engine.plant(flaw);
        }
        let gathered = Gathered::default();
        Self { engine, timer: None, gathered, is_gathering: false, part: None, next: None, computed: None }
    }
}

impl Peer {
    /// How many leaves take part through it.
    pub fn leaves(&self) -> usize {
        self.carrying.engine.leaves().count()
    }

    /// What it says of its speed.
    pub(super) fn told_speed(&mut self) -> u32 {
        self.carrying.engine.speed(self.speed)
    }

    /// Whether leaves have a part of what it contributes next.
    pub(super) fn has_handed_on(&self) -> bool {
        self.carrying.engine.has_handed_on()
    }

    /// What it contributes to `step`, once that is whole.
    pub(super) fn gathered(&self, step: u64) -> Option<u64> {
        let gathered = &self.carrying.gathered;
        (!self.carrying.is_gathering && gathered.step == step).then_some(gathered.sum)
    }

    /// Its machine looks where the steps stand.
    pub(super) fn look_after_leaves(&mut self, now: Time) {
        let generation = self.place.as_ref().map(|place| place.view.generation);
        self.carrying.engine.look(now, &self.steps, generation);
        self.carry(now);
    }

    /// These are the members of its view.
    pub(super) fn knows_members(&mut self, now: Time, members: &[PeerId]) {
        let others = members.iter().filter(|member| **member != self.name);
        let contacts = others.map(|peer| Contact { peer: *peer, addresses: Vec::new() }).collect();
        self.tell_carrier(now, Input::Knows(contacts));
    }

    pub(super) fn tell_carrier(&mut self, now: Time, input: Input<LeafGradient>) {
        self.carrying.engine.handle(now, input);
        self.carry(now);
    }

    /// What came from a leaf, or from one that wants to be one.
    pub(super) fn receive_from_leaf(&mut self, now: Time, from: PeerId, bytes: &[u8], gradient: Option<LeafGradient>) {
        let body = LeafBody::decode(bytes).map_err(starling_engine::leaf::violation::LeafViolation::Message);
        // As a driver does before it takes memory for what follows.
        let admitted = body.and_then(|body| self.carrying.engine.admits(from, &body).map(|bytes| (body, bytes)));
        match admitted {
            Ok((_, None)) => {}
            Ok((body, Some(_))) => self.tell_carrier(now, Input::Received { from, body, gradient }),
            Err(violation) => self.tell_carrier(now, Input::Faulted { from, violation }),
        }
        self.go_on(now);
    }

    pub(super) fn leaf_is_gone(&mut self, now: Time, leaf: PeerId) {
        self.tell_carrier(now, Input::Closed(leaf));
        self.go_on(now);
    }

    /// The alarm that it set has come to its time, or an earlier one.
    pub(super) fn look_at_carrier_timer(&mut self, now: Time) {
        if self.carrying.timer.take_if(|at| *at <= now).is_some() {
            self.tell_carrier(now, Input::Expired);
            self.go_on(now);
        }
    }

    /// Begins to put its contribution to the next step together.
    pub(super) fn gather(&mut self, now: Time) {
        let ledger = self.learner.state.as_ref().map(|state| &state.ledger);
        let share = ledger.map(|ledger| ledger.share_of(self.name).to_vec()).unwrap_or_default();
        let (epoch, micro_batch) = ledger.map_or((0, 0), |ledger| (ledger.epoch(), ledger.micro_batch()));
        let step = self.learner.cursor.step + 1;
        self.carrying.gathered.share.clone_from(&share);
        self.carrying.is_gathering = true;
        self.tell_carrier(now, Input::Computes { step, epoch, share, micro_batch });
    }

    /// The learner is through with what it computed.
    pub(super) fn take_computed(&mut self, now: Time) {
        if let Some((number, ranges)) = self.carrying.part.take() {
            self.carrying.computed = Some((number, ranges));
            self.tell_carrier(now, Input::Computed(number));
            self.carrying.computed = None;
        }
        self.compute_next();
    }

    fn compute_next(&mut self) {
        if self.learner.computing.is_none()
            && let Some(part) = self.carrying.next.take()
        {
            self.carrying.part = Some(part);
            self.begin_computing();
        }
    }

    /// Does what its machine asks.
    fn carry(&mut self, now: Time) {
        while let Some(output) = self.carrying.engine.poll() {
            match output {
                Output::Send { to, mut body, result } => {
                    if let CarrierBody::Result { bytes, .. } = &mut body {
                        *bytes = result.as_ref().map_or(0, |result| result.bytes() as u64);
                    }
                    self.send(to, Message::OfCarrier(body.encode(), result));
                }
                Output::Close(leaf) => self.effects.push(Effect::CloseLeaf(leaf)),
                Output::Clear => {
                    let share = std::mem::take(&mut self.carrying.gathered.share);
                    let step = self.learner.cursor.step + 1;
                    self.carrying.gathered = Gathered { step, share, ..Gathered::default() };
                }
                Output::Compute { number, ranges, .. } => {
                    self.carrying.next = Some((number, ranges));
                    self.compute_next();
                }
                // What the learner is at it ends all the same.
                Output::Drop(number) => {
                    self.carrying.part.take_if(|(part, _)| *part == number);
                    self.carrying.next.take_if(|(next, _)| *next == number);
                }
                Output::Count(number) => {
                    let computed = self.carrying.computed.clone().filter(|(computed, _)| *computed == number);
                    if let Some((_, ranges)) = computed {
                        let sum = gradient(self.name, self.carrying.gathered.step, &ranges);
                        self.add(None, ranges, sum);
                    }
                }
                Output::Add { leaf, ranges, gradient, .. } => self.add(Some(leaf), ranges, gradient.sum),
                Output::Whole(step) => self.is_gathered(now, step),
                Output::Over(_) => self.carrying.is_gathering = false,
                Output::Lend(step) => {
                    if self.steps.lend(step) {
                        self.snapshots.lend(step);
                    }
                }
                Output::Release => self.snapshots.release(),
                Output::SetTimer(at) => {
                    self.carrying.timer = Some(at);
                    self.effects.push(Effect::Alarm(at));
                }
                Output::Fault { leaf, violation } => self.effects.push(Effect::BlamesLeaf(leaf, violation)),
                Output::Event(event) => self.effects.push(Effect::OfLeaves(event)),
            }
        }
    }

    fn add(&mut self, by: Option<PeerId>, ranges: Vec<Range<u32>>, sum: u64) {
        let gathered = &mut self.carrying.gathered;
        gathered.sum = gathered.sum.wrapping_add(sum);
        gathered.parts.push((by, ranges));
    }

    fn is_gathered(&mut self, now: Time, step: u64) {
        self.carrying.is_gathering = false;
        if step == self.learner.cursor.step + 1 {
            self.learner.cursor.prepared = true;
            self.effects.push(Effect::Gathered(self.carrying.gathered.clone()));
            self.bring_rest(now);
        }
    }
}
