//! The reducer: one operation at a time, over the plan of the view.

use std::rc::Rc;

use starling_collective::{
    self as collective, Buffer, Execution, ForwardPolicy, Layout, OperationKey, Schedule, SegmentHeader, Slot,
    SlotLayout, SumLimit, Violation, Workspace,
};
use starling_engine::{ActiveView, words};
use starling_topology::ledger::STARVED;
use starling_topology::{Lineage, MemberResumePlan, PeerId, Rank, Ring, StallReport, Time, View, ViewId};

use super::{Effect, Peer};
use crate::steps::buffer::{Counted, Payload};
use crate::steps::contribution::{Contributions, gradient, name_of_numbers, numbers};
use crate::steps::message::{Message, Segment};
use crate::steps::state::ResultRecord;
use crate::steps::workload::{MOST, PLANNED, Workload};
use crate::sweep::canary::Sabotage;
use crate::verdict::invariants::Settled;

/// Where a peer stands in its view.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) view: View,
    pub(super) id: ViewId,
    ring: Ring,
    rank: Rank,
    layout: Layout,
    schedule: Schedule,
    /// What members may say of their speeds: who holds the state is ready.
    slots: SlotLayout,
}

impl Place {
    /// None if the peer is not in the view.
    pub(super) fn of(peer: PeerId, resumption: &MemberResumePlan, workload: &Workload) -> Option<Self> {
        let MemberResumePlan { view, syncing, .. } = resumption;
        let ring = Ring::plan(view);
        let (rank, world) = (ring.rank_of(peer)?, ring.world_size());
        let agreed = workload.plan.agree_over(&ring, view, PLANNED);
        let schedule = Schedule::new(&agreed.plan, world, collective::Operation::AllReduce, rank);
        let layout = workload.layout(world, &agreed);
        let slot = |member: &PeerId| {
            Some(Slot { of: ring.rank_of(*member)?, words: words(member, syncing, workload.arrives) })
        };
        let slots = SlotLayout::new(view.members().iter().filter_map(slot));
        Some(Self { id: view.id(), view: view.clone(), ring, rank, layout, schedule, slots })
    }

    /// Those with whom it exchanges segments.
    fn neighbours(&self) -> impl Iterator<Item = PeerId> + '_ {
        self.schedule.receivers().iter().chain(self.schedule.senders()).map(|rank| self.ring.peer(*rank))
    }

    /// Those to whom it keeps connections: all, or in a large view those that watch each other and its neighbours.
    pub(super) fn partners(&self) -> Vec<PeerId> {
        let (members, me) = (self.view.members(), self.ring.peer(self.rank));
        if members.len() <= 16 {
            return members.iter().copied().filter(|member| *member != me).collect();
        }
        let at = members.iter().position(|member| *member == me).unwrap_or_default();
        let near = |by: usize| [members[(at + by) % members.len()], members[(at + members.len() - by) % members.len()]];
        (1..=4).flat_map(near).chain(self.neighbours()).collect()
    }

    /// Whether it exchanges segments with `other`.
    pub(super) fn is_beside(&self, other: PeerId) -> bool {
        self.neighbours().any(|neighbour| neighbour == other)
    }
}

#[derive(Debug)]
pub(super) struct Operation {
    step: u64,
    execution: Execution<Counted>,
    /// What this peer brings: the numbers, and, cell by cell, who they are from.
    numbers: Vec<f32>,
    brought: Vec<Contributions>,
    /// Whether all of that is there.
    pub(super) is_whole: bool,
    /// A segment was refused: nothing is taken or sent any more, until another view comes.
    is_broken: bool,
}

/// Now one, now another way on.
struct Links(u64);

impl ForwardPolicy for Links {
    fn takes(&self, _: Rank) -> bool {
        self.0.is_multiple_of(2)
    }

    fn gives_place(&self) -> bool {
        self.0.is_multiple_of(3)
    }
}

impl Peer {
    /// The connection for segments to `other` has closed at our end.
    pub(super) fn note_failed_link(&mut self, now: Time, other: PeerId) {
        let place = self.place.as_ref().filter(|place| place.is_beside(other));
        place.into_iter().for_each(|place| self.member.link_failed(now, other, place.id));
    }

    /// Begins the operation of a step, with the gradient, or with nothing if it is syncing.
    pub(super) fn reduce(&mut self, now: Time, active: &ActiveView, step: u64) {
        let Some(place) = self.place.clone() else { return };
        if !self.steps.submit(active.number, step) {
            return;
        }
        self.booked.begin(place.id, step);
        let (world, workload) = (place.ring.world_size(), Rc::clone(&self.workload));
        self.tries += 1;
        let has_state = self.steps.progress().has_state;
        let is_starved = has_state && self.starvation.passes(step);
        if is_starved {
            self.steps.starve(step);
        }
        let told = match is_starved && self.sabotage != Some(Sabotage::StarvesInSilence) {
            true => STARVED,
            false => self.told_speed(),
        };
        // Who brings a part before the rest is there has all of its share to itself.
        let of = if self.sabotage == Some(Sabotage::StaleGradient) { step.max(2) - 1 } else { step };
        let share = self.learner.state.as_ref().filter(|_| has_state).map(|state| state.ledger.share_of(self.name));
        let name = share.filter(|_| !is_starved).map_or(0, |share| name_of_numbers(self.name, of, share));
        let (mine, speed) = match (share, self.gathered(step)) {
            (Some(_), _) if is_starved => (0, told),
            (Some(_), Some(gathered)) if of == step => (gathered, told),
            (Some(share), _) => (gradient(self.name, of, share), told),
            (None, _) => (0, 0),
        };
        if has_state && !is_starved && self.gathered(step).is_none() && self.learner.computing.is_none() {
            self.broken("leaf_counts_once", format!("{:?} contributes to step {step} what is not whole", self.name));
        }
        let mut numbers = numbers(name, workload.elements);
        // In memory as an earlier operation leaves it.
        let mut workspace =
            Workspace::new(place.layout.clone(), workload.codec, vec![9.0; workload.elements], workload.divisor())
                .within(SumLimit::new(MOST, workload.codec, world.get()));
        if let Some(feedback) = self.learner.feedback.as_ref().filter(|_| has_state && !is_starved) {
            feedback.residual().add_to(0, &mut numbers);
            workspace = workspace.booking(feedback.dropped(vec![9.0; workload.elements]));
            let made_up = feedback.residual().values().to_vec();
            let brought = Settled { view: place.id, brought: numbers.clone(), made_up, left: Vec::new() };
            self.brought = Some((step, Box::new(brought)));
        }
        let others = u32::from(self.sabotage == Some(Sabotage::SpeaksForOthers));
        let slots: Vec<u32> =
            place.view.members().iter().map(|member| if *member == self.name { speed } else { others }).collect();
        let slots_of = |index| if index == 0 { slots.clone() } else { Vec::new() };
        let mut buffer = Counted::new(workspace, |_| Contributions::default());
        buffer.slots = place.slots.clone();
        let cells = 0..buffer.cells.len();
        let mut brought: Vec<Contributions> =
            cells.map(|index| Contributions::of(place.rank, world, mine, slots_of(index))).collect();
        if self.sabotage == Some(Sabotage::CountsTwice) && self.tries > 1 {
            brought.iter_mut().for_each(|cell| cell.accumulate(&cell.clone()));
        }
        let (key, spare) = (OperationKey { step, attempt: 0 }, std::mem::take(&mut self.spare));
        let execution = Execution::new(key, place.schedule.clone(), buffer, workload.in_flight, spare);
        let is_whole = (self.learner.computing.is_none() && !self.carrying.is_gathering) || !has_state;
        self.operation = Some(Operation { step, execution, numbers, brought, is_whole, is_broken: false });
        self.drive(now);
        let due = |(_, segment): &(PeerId, Segment)| segment.view == place.id && segment.step() == step;
        let (due, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.early).into_iter().partition(due);
        self.early = later;
        for (from, segment) in due {
            self.receive_segment(now, from, segment);
        }
    }

    /// What it waits for in the operation under way.
    pub(super) fn missing(&self) -> StallReport {
        let missing = self.operation.as_ref().zip(self.place.as_ref()).and_then(|(operation, place)| {
            let (at, from) = operation.execution.missing()?;
            let mut from: Vec<PeerId> = from.into_iter().map(|rank| place.ring.peer(rank)).collect();
            from.sort_unstable();
            Some(StallReport { step: operation.step, place: at, from })
        });
        missing.unwrap_or_else(|| StallReport::nothing(self.step() + 1))
    }

    /// The rest of the gradient is there.
    pub(super) fn bring_rest(&mut self, now: Time) {
        if let Some(operation) = self.operation.as_mut().filter(|operation| !operation.is_whole) {
            operation.is_whole = true;
            self.drive(now);
        }
    }

    pub(super) fn receive_segment(&mut self, now: Time, from: PeerId, segment: Segment) {
        let current = self.place.as_ref().map(|place| (place.view.generation, place.id));
        let next = self.step() + 1;
        // No step commits any more in a view whose steps are held.
        let is_held = self.steps.is_held() && !self.member.is_waiting() && self.operation.is_none();
        match current {
            Some((generation, id))
                if segment.generation < generation
                    || (segment.generation == generation && id != segment.view)
                    || (id == segment.view && (segment.step() < next || is_held)) =>
            {
                self.stale += 1;
            }
            Some((_, id)) if id == segment.view && segment.step() == next && self.operation.is_some() => {
                let rank = self.place.as_ref().and_then(|place| place.ring.rank_of(from));
                let Some(rank) = rank else {
                    let seen =
                        format!("{from:?} sent {} to {:?}, in whose ring it is not", segment.header.segment, self.name);
                    return self.broken("only_members_step", seen);
                };
                match self.take(rank, segment) {
                    Ok(()) => self.drive(now),
                    Err(violation) => {
                        self.operation.iter_mut().for_each(|operation| operation.is_broken = true);
                        match violation.is_blameless() {
                            true => self.note_failed_link(now, from),
                            false => self.blame(from, &violation),
                        }
                    }
                }
            }
            // Of a step that has not begun here, or of a view that we are about to enter.
            Some(_) | None => self.keep_early(from, segment),
        }
    }

    /// Keeps a segment for later: of our view, or of the newest one that we have heard of. What lies between can't be
    /// entered any more.
    fn keep_early(&mut self, from: PeerId, segment: Segment) {
        let ours = self.place.as_ref().map(|place| place.id);
        let newest = self.early.iter().map(|(_, segment)| segment.generation).max();
        if Some(segment.view) != ours {
            if newest.is_some_and(|newest| segment.generation < newest) {
                self.stale += 1;
                return;
            }
            let keeps = |other: &Segment| Some(other.view) == ours || other.view == segment.view;
            self.early.retain(|(_, other)| keeps(other));
        }
        self.early.push((from, segment));
        self.effects.push(Effect::Keeps("early segments", self.early.len(), self.early_limit));
    }

    /// Takes in a segment of the operation under way.
    fn take(&mut self, from: Rank, segment: Segment) -> Result<(), Violation> {
        let Some(operation) = self.operation.as_mut().filter(|operation| !operation.is_broken) else { return Ok(()) };
        self.moved += 1;
        let Segment { header, mut payload, .. } = segment;
        let goes_on = operation.execution.take(from, &header.to_bytes(), &mut payload, &Links(self.moved))?;
        if let Some((to, header)) = goes_on {
            self.send_segment(to, header, payload);
        }
        Ok(())
    }

    /// Brings and sends what there is to, and ends the operation once it is done.
    fn drive(&mut self, now: Time) {
        let Some(operation) = self.operation.as_mut().filter(|operation| !operation.is_broken) else { return };
        let Operation { execution, numbers, brought, is_whole, .. } = operation;
        // Half of the gradient is there from the beginning.
        let ready = if *is_whole { 0 } else { execution.buffer().layout().buckets().div_ceil(2) };
        execution.bring_wanted(ready, |buffer, range| buffer.fill(range, numbers, brought));
        let receivers = execution.schedule().receivers().to_vec();
        for (position, to) in receivers.into_iter().enumerate() {
            while let Some(operation) = &mut self.operation
                && let Some(header) = operation.execution.next_send(position)
            {
                let mut payload = Payload::default();
                operation.execution.buffer_mut().write(&header.segment, &mut payload);
                self.send_segment(to, header, payload);
            }
        }
        if self.operation.as_ref().is_some_and(|operation| operation.execution.is_done()) {
            self.complete(now);
        }
    }

    fn send_segment(&mut self, to: Rank, header: SegmentHeader, payload: Payload) {
        let Some(place) = &self.place else { return };
        self.moved += 1;
        let segment = Segment { generation: place.view.generation, view: place.id, header, payload };
        self.effects.push(Effect::Send(place.ring.peer(to), Message::Segment(Box::new(segment))));
    }

    /// The operation is complete: its result is what everybody has.
    fn complete(&mut self, now: Time) {
        let Some((view, record)) = self.take_result_so_far() else { return };
        if self.steps.admits(view, record.step).is_some() {
            self.committed(&record, view);
            self.steps.complete(view, record, true);
        } else if self.sabotage == Some(Sabotage::CommitsAfterPromise) {
            self.committed(&record, view);
            let _ = self.steps.deliver(record);
        }
        self.go_on(now);
    }

    /// Ends the operation under way. What it has come to, and its view.
    pub(super) fn take_result_so_far(&mut self) -> Option<(ViewId, Rc<ResultRecord>)> {
        let place = Rc::clone(self.place.as_ref()?);
        let Operation { step, execution, .. } = self.operation.take()?;
        let (Counted { workspace, cells, .. }, spare) = execution.finish();
        self.spare = spare;
        let (mean, dropped) = workspace.finish();
        self.booked.end(place.id, step, dropped);
        let (lineage, after) = (Lineage::of(&place.view), self.steps.progress().lineage);
        let members = place.view.members().to_vec();
        let record = ResultRecord { step, lineage, after, members, cells, mean };
        Some((place.id, self.commits.borrow().share(record)))
    }

    /// Ends the operation under way if it may not complete any more.
    pub(super) fn interrupt(&mut self) {
        let gate = self.steps.gate();
        let is_over = self.operation.as_ref().is_some_and(|operation| !gate.admits(operation.step));
        if is_over && self.sabotage != Some(Sabotage::CommitsAfterPromise) {
            self.take_result_so_far();
            if self.sabotage == Some(Sabotage::SettlesUncommitted) {
                let dropped = self.booked.take(self.step() + 1);
                self.learner.feedback.iter_mut().for_each(|feedback| _ = feedback.settle(dropped.clone()));
            }
        }
    }
}
