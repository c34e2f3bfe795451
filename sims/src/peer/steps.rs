//! The step loop: compute, reduce, commit.

use std::rc::Rc;

use starling_collective as collective;
use starling_collective::{Layout, Schedule, Session};
use starling_topology::plan::Plan;
use starling_topology::{CatchUp, Input, PeerId, Rank, Resumption, Ring, Time, View, ViewId};

use super::{Commit, Effect, Entry, Peer};
use crate::canary::Sabotage;
use crate::contribution::{Cell, Contributions, gradient};
use crate::message::{Message, Segment};
use crate::state::{ResultRecord, State};

/// How far the steps may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gate {
    /// Not at all, until the machine says how to go on.
    Held,
    /// On and on.
    Open,
    /// To the end of the operation under way.
    Boundary,
    /// To this step.
    After(u64),
}

/// The gradient of the next step. It outlives views: what was computed is not thrown away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gradient {
    None,
    /// On its way, under this number: one that was dropped is not taken for the one that replaced it.
    Computing(u64),
    Ready,
}

/// Where it stands in its view.
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
    /// Whether `other` is a neighbour in the ring.
    pub(super) fn is_beside(&self, other: PeerId) -> bool {
        let world = self.ring.world_size();
        [world.next(self.rank), world.previous(self.rank)].map(|rank| self.ring.peer(rank)).contains(&other)
    }
}

#[derive(Debug)]
pub(super) struct Operation {
    session: Session<Contributions>,
    cells: Vec<(Cell, Contributions)>,
}

impl Operation {
    fn cell(&mut self, cell: Cell) -> &mut Contributions {
        let at = self.cells.binary_search_by_key(&cell, |(cell, _)| *cell);
        &mut self.cells[at.expect("invariant: a layout's cells are all there")].1
    }
}

impl Peer {
    /// The last committed step; of a member that still loads the state, the last one whose result it keeps.
    pub(super) fn step(&self) -> u64 {
        match (&self.download, &self.state) {
            (Some(download), _) => download.step(),
            (None, Some(state)) => state.step,
            (None, None) => 0,
        }
    }

    /// Goes on in a view.
    pub(super) fn resume(&mut self, now: Time, resumption: Resumption) {
        if self.gate != Gate::Held {
            self.broken(
                "views_change_at_a_boundary",
                format!("{:?} was told to go on while it was not held", self.name),
            );
        }
        let (view, id) = (resumption.view.clone(), resumption.view.id());
        let ring = Ring::plan(&view);
        let Some(rank) = ring.rank_of(self.name) else {
            return self.broken("only_members_step", format!("{:?} was told to go on in {id:?}", self.name));
        };
        let progress = self.as_told();
        let told = self.changed.filter(|(generation, _)| *generation == view.generation);
        let forks = told.map_or(view.forked, |(_, forks)| forks);
        self.effects.push(Effect::Connect(partners(&view, self.name)));
        let world = ring.world_size();
        let layout = self.workload.layout(world);
        let schedule = Schedule::new(&Plan::Ring, world, collective::Operation::AllReduce, rank);
        let place = Place { id, view: view.clone(), ring, rank, layout, schedule };
        let before = self.early.len();
        self.early.retain(|(_, segment)| segment.generation >= view.generation);
        self.stale += (before - self.early.len()) as u64;
        if self.sabotage != Some(Sabotage::IgnoresResume) || self.place.is_none() {
            self.place = Some(Rc::new(place));
        }
        self.operation = None;
        self.fetch = None;
        self.gate = Gate::Open;
        let is_drawn = resumption.catch_up == CatchUp::Current && self.download.is_none();
        if resumption.step == 0 && (self.state.is_some() || is_drawn) {
            // Before the first commit, who has which share is agreed anew with each view.
            self.state = Some(Rc::new(State::assigned(self.workload.ledger(), view.members())));
            self.gradient = Gradient::None;
        }
        let state = self.state.clone();
        let entry = Entry { view: id, resumption: resumption.clone(), progress, state, forks };
        self.effects.push(Effect::Entered(Box::new(entry)));
        self.donor.is_asked(&resumption);
        match resumption.catch_up {
            CatchUp::Current => self.go_on_downloading(now, &resumption.view, &resumption.syncing),
            CatchUp::Result { from } => self.fetch_result(now, resumption.step, from),
            CatchUp::State { from } => self.begin_download(now, resumption.step, from),
        }
        self.keep_snapshot();
        self.begin(now);
    }

    /// Goes on to the next step, as far as it may and can.
    pub(super) fn begin(&mut self, now: Time) {
        if self.gate == Gate::Held || self.operation.is_some() || self.fetch.is_some() || self.place.is_none() {
            return;
        }
        let step = self.step();
        if self.gate == Gate::Boundary || self.gate == Gate::After(step) {
            return self.tell_held(now);
        }
        match &self.state {
            // Those who hear of it may go for good: the last state must be on disk first.
            Some(state) if step >= self.workload.steps && self.saved == Some(step) => {
                let digest = state.digest;
                self.input(now, Input::Finished { step, digest });
            }
            Some(_) | None if step >= self.workload.steps => {}
            // Without a state there is nothing to compute, and that takes no time.
            Some(_) | None => match self.gradient {
                Gradient::None => {
                    self.computation += 1;
                    self.gradient = Gradient::Computing(self.computation);
                    self.effects.push(Effect::Compute(self.computation));
                    if self.overlaps() {
                        self.reduce(now);
                    }
                }
                Gradient::Computing(_) => {}
                Gradient::Ready => self.reduce(now),
            },
        }
    }

    /// Whether half of its gradient is there as soon as it begins to compute, and leaves at once. Every second peer is like
    /// that, so that those who wait for all of theirs meet those who don't.
    fn overlaps(&self) -> bool {
        self.name.0[0] % 2 == 1 && self.state.is_some()
    }

    /// The rest of the gradient is there.
    pub(super) fn bring_rest(&mut self, now: Time) {
        if let Some(place) = self.place.clone().filter(|_| self.operation.is_some()) {
            self.feed(now, place.ring.peer(place.rank), collective::Input::Ready { from: 0 });
        }
    }

    fn reduce(&mut self, now: Time) {
        let Some(place) = self.place.clone() else { return };
        let step = self.step() + 1;
        let world = place.ring.world_size();
        self.tries += 1;
        let (mine, speed) = match &self.state {
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
        self.operation = Some(Operation { session, cells });
        let from = if self.gradient == Gradient::Ready { 0 } else { place.layout.buckets().div_ceil(2) };
        self.feed(now, place.ring.peer(place.rank), collective::Input::Ready { from });
        let due = |(_, segment): &(PeerId, Segment)| segment.view == place.id && segment.step == step;
        let (due, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.early).into_iter().partition(due);
        self.early = later;
        for (from, segment) in due {
            self.receive_segment(now, from, segment);
        }
    }

    pub(super) fn receive_segment(&mut self, now: Time, from: PeerId, segment: Segment) {
        let current = self.place.as_ref().map(|place| (place.view.generation, place.id));
        let next = self.step() + 1;
        // No step commits any more in a view whose steps are held.
        let is_held = self.gate == Gate::Held && self.operation.is_none();
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
        let step = self.step() + 1;
        let (Some(place), Some(operation)) = (&self.place, &mut self.operation) else { return };
        if let Err(violation) = operation.session.handle(input) {
            return self.blame(from, &violation);
        }
        while let Some(output) = operation.session.poll() {
            match output {
                collective::Output::Send { to, segment } => {
                    let payload = operation.cell(Cell::from(segment)).clone();
                    let elements = place.layout.range(&segment).map_or(0, |range| range.len());
                    let (generation, view) = (place.view.generation, place.id);
                    let segment = Segment { generation, view, step, id: segment, payload, elements };
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
            self.commit(now);
            self.begin(now);
        }
    }

    /// The operation is done: its result is what everybody has.
    pub(super) fn commit(&mut self, now: Time) {
        let (Some(operation), Some(place)) = (self.operation.take(), &self.place) else { return };
        let step = self.step() + 1;
        let members = place.view.members().to_vec();
        let record = self.commits.borrow().share(ResultRecord { step, members, cells: operation.cells });
        self.accept(now, record, place.id);
    }

    /// Takes over the result of the next step, reduced here or fetched from one who has it.
    pub(super) fn accept(&mut self, now: Time, record: Rc<ResultRecord>, view: ViewId) {
        self.result = Some(Rc::clone(&record));
        self.tries = 0;
        self.gradient = Gradient::None;
        self.input(now, Input::Committed { step: record.step });
        if let Some(download) = &mut self.download {
            return download.keep(record, view);
        }
        let Some(mut before) = self.state.take() else { return };
        // The first step is assigned to those who reduce it, and whoever fetches its result may not be one of them.
        if before.step == 0 {
            before = Rc::new(State::assigned(self.workload.ledger(), &record.members));
        }
        if before.ledger.step() != record.step {
            let (pending, step) = (before.ledger.step(), record.step);
            return self.broken("results_fit", format!("{:?} takes {step}, and {pending} is pending", self.name));
        }
        let after = self.apply(before, record, view);
        let step = after.step;
        self.state = Some(Rc::clone(&after));
        if self.workload.compares(step) {
            self.input(now, Input::Digest { step, digest: after.digest });
        }
        if step.is_multiple_of(self.workload.checkpoint_every) || step == self.workload.steps {
            self.effects.push(Effect::Save(after));
        }
    }

    /// Applies the result of the next step to a state.
    pub(super) fn apply(&mut self, before: Rc<State>, record: Rc<ResultRecord>, view: ViewId) -> Rc<State> {
        let drops = self.sabotage == Some(Sabotage::DropsReturned);
        let after = self.commits.borrow_mut().apply(&before, &record, drops);
        let commit = Commit { view, record, before, after: Rc::clone(&after) };
        self.effects.push(Effect::Committed(Box::new(commit)));
        after
    }
}

/// Whom a member keeps connections to: all, or in a large view those that watch each other and the next in the ring.
fn partners(view: &View, me: PeerId) -> Vec<PeerId> {
    let members = view.members();
    if members.len() <= 16 {
        return members.iter().copied().filter(|member| *member != me).collect();
    }
    let at = members.iter().position(|member| *member == me).unwrap_or_default();
    let near = |by: usize| [members[(at + by) % members.len()], members[(at + members.len() - by) % members.len()]];
    (1..=4).flat_map(near).collect()
}
