//! The reducer: one operation at a time, over the ring of the view.

use starling_collective as collective;
use starling_collective::{Layout, Schedule, Session};
use starling_engine::ActiveView;
use starling_topology::plan::Plan;
use starling_topology::{PeerId, Rank, Ring, Time, View, ViewId};

use super::{Effect, Peer};
use crate::canary::Sabotage;
use crate::contribution::{Cell, Contributions, gradient};
use crate::message::{Message, Segment};
use crate::state::ResultRecord;

/// Where a peer stands in its view.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) view: View,
    pub(super) id: ViewId,
    ring: Ring,
    rank: Rank,
    layout: Layout,
    schedule: Schedule,
}

impl Place {
    /// None if the peer is not in the view.
    pub(super) fn of(
        peer: PeerId,
        view: &View,
        layout: impl Fn(starling_topology::WorldSize) -> Layout,
    ) -> Option<Self> {
        let ring = Ring::plan(view);
        let (rank, world) = (ring.rank_of(peer)?, ring.world_size());
        let schedule = Schedule::new(&Plan::Ring, world, collective::Operation::AllReduce, rank);
        Some(Self { id: view.id(), view: view.clone(), ring, rank, layout: layout(world), schedule })
    }

    /// Whether `other` is a neighbour in the ring.
    pub(super) fn is_beside(&self, other: PeerId) -> bool {
        let world = self.ring.world_size();
        [world.next(self.rank), world.previous(self.rank)].map(|rank| self.ring.peer(rank)).contains(&other)
    }
}

#[derive(Debug)]
pub(super) struct Operation {
    step: u64,
    session: Session<Contributions>,
    cells: Vec<(Cell, Contributions)>,
    /// Whether all of this peer's contribution is there.
    pub(super) is_whole: bool,
}

impl Operation {
    fn cell(&mut self, cell: Cell) -> &mut Contributions {
        let at = self.cells.binary_search_by_key(&cell, |(cell, _)| *cell);
        &mut self.cells[at.expect("invariant: a layout's cells are all there")].1
    }
}

impl Peer {
    /// Begins the operation of a step, with the gradient, or with nothing if it is syncing.
    pub(super) fn reduce(&mut self, now: Time, active: &ActiveView, step: u64) {
        let Some(place) = self.place.clone() else { return };
        if !self.steps.submit(active.number, step) {
            return;
        }
        let world = place.ring.world_size();
        self.tries += 1;
        let has_state = self.steps.progress().has_state;
        let (mine, speed) = match self.learner.state.as_ref().filter(|_| has_state) {
            Some(state) => {
                let of = if self.sabotage == Some(Sabotage::StaleGradient) { step.max(2) - 1 } else { step };
                (gradient(self.name, of, state.ledger.share_of(self.name)), self.speed)
            }
            None => (0, 0),
        };
        let slots: Vec<u32> =
            place.view.members().iter().map(|member| if *member == self.name { speed } else { 0 }).collect();
        let slots_of = |index| if index == 0 { slots.clone() } else { Vec::new() };
        let mut cells: Vec<(Cell, Contributions)> = Cell::all(&place.layout)
            .enumerate()
            .map(|(index, cell)| (cell, Contributions::of(place.rank, world, mine, slots_of(index))))
            .collect();
        if self.sabotage == Some(Sabotage::CountsTwice) && self.tries > 1 {
            cells.iter_mut().for_each(|(_, cell)| cell.accumulate(&cell.clone()));
        }
        let session = Session::over(place.schedule.clone(), place.layout.clone(), self.workload.in_flight);
        let is_whole = self.learner.computing.is_none() || !has_state;
        self.operation = Some(Operation { step, session, cells, is_whole });
        let from = if is_whole { 0 } else { place.layout.buckets().div_ceil(2) };
        self.feed(now, place.ring.peer(place.rank), collective::Input::Ready { from });
        let due = |(_, segment): &(PeerId, Segment)| segment.view == place.id && segment.step == step;
        let (due, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.early).into_iter().partition(due);
        self.early = later;
        for (from, segment) in due {
            self.receive_segment(now, from, segment);
        }
    }

    /// The rest of the gradient is there.
    pub(super) fn bring_rest(&mut self, now: Time) {
        let is_early = |operation: &&mut Operation| !operation.is_whole;
        let (Some(operation), Some(place)) = (self.operation.as_mut().filter(is_early), &self.place) else { return };
        operation.is_whole = true;
        let me = place.ring.peer(place.rank);
        self.feed(now, me, collective::Input::Ready { from: 0 });
    }

    pub(super) fn receive_segment(&mut self, now: Time, from: PeerId, segment: Segment) {
        let current = self.place.as_ref().map(|place| (place.view.generation, place.id));
        let next = self.step() + 1;
        // No step commits any more in a view whose steps are held.
        let is_held = self.is_held() && self.operation.is_none();
        match current {
            Some((generation, id))
                if segment.generation < generation
                    || (segment.generation == generation && id != segment.view)
                    || (id == segment.view && (segment.step < next || is_held)) =>
            {
                self.stale += 1;
            }
            Some((_, id)) if id == segment.view && segment.step == next && self.operation.is_some() => {
                let rank = self.place.as_ref().and_then(|place| place.ring.rank_of(from));
                let Some(rank) = rank else {
                    let seen = format!("{from:?} sent {} to {:?}, in whose ring it is not", segment.id, self.name);
                    return self.broken("only_members_step", seen);
                };
                let input = collective::Input::Received { from: rank, segment: segment.id, payload: segment.payload };
                self.feed(now, from, input);
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

    fn feed(&mut self, now: Time, from: PeerId, input: collective::Input<Contributions>) {
        let (Some(place), Some(operation)) = (&self.place, &mut self.operation) else { return };
        self.moved += u64::from(matches!(input, collective::Input::Received { .. }));
        if let Err(violation) = operation.session.handle(input) {
            return self.blame(from, &violation);
        }
        while let Some(output) = operation.session.poll() {
            match output {
                collective::Output::Send { to, segment } => {
                    let payload = operation.cell(Cell::from(segment)).clone();
                    let elements = place.layout.range(&segment).map_or(0, |range| range.len());
                    let (generation, view, step) = (place.view.generation, place.id, operation.step);
                    let segment = Segment { generation, view, step, id: segment, payload, elements };
                    self.moved += 1;
                    self.effects.push(Effect::Send(place.ring.peer(to), Message::Segment(segment)));
                }
                collective::Output::Accumulate { segment, payload } => {
                    operation.cell(segment.into()).accumulate(&payload);
                }
                collective::Output::Divide { segment } => operation.cell(segment.into()).divided += 1,
                collective::Output::Store { segment, payload } => *operation.cell(segment.into()) = payload,
                // Counts lose nothing, and a ring never has two payloads to put before its own.
                collective::Output::Round { .. }
                | collective::Output::Prepend { .. }
                | collective::Output::BucketDone(_)
                | collective::Output::Done => {}
            }
        }
        if operation.session.is_done() {
            self.complete(now);
        }
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
    pub(super) fn take_result_so_far(&mut self) -> Option<(ViewId, std::rc::Rc<ResultRecord>)> {
        let (operation, place) = (self.operation.take()?, self.place.as_ref()?);
        let members = place.view.members().to_vec();
        let record = ResultRecord { step: operation.step, members, cells: operation.cells };
        Some((place.id, self.commits.borrow().share(record)))
    }

    /// Drops the operation under way if it may not complete any more.
    pub(super) fn interrupt(&mut self) {
        let gate = self.steps.gate();
        if self.sabotage != Some(Sabotage::CommitsAfterPromise) {
            self.operation.take_if(|operation| !gate.admits(operation.step));
        }
    }
}
