//! Leaves: machines behind routers that let nothing in. They dial members, and take part through one; their processes die, stop and come
//! back as others' do, and some of them are hostile.

use std::rc::Rc;

use starling_engine::leaf::MAX_LEAVES;
use starling_engine::leaf::leaf_engine::LeafEvent;
use starling_engine::leaf::violation::LeafViolation;
use starling_topology::{Event, LeafBody, PeerId, Time};

use crate::hardware::network::Seat;
use crate::hardware::network::rng::Rng;
use crate::hostile::leaf::LeafLiar;
use crate::peer::Peer;
use crate::peer::leaf::{Leaf, LeafEffect, LeafStart};
use crate::steps::message::{Lane, Message};
use crate::sweep::canary::Sabotage;
use crate::sweep::fault::Crash;
use crate::verdict::invariants::{Broken, Candidate};
use crate::world::{SimEvent, World};

impl World {
    /// Leaves start, some of them later than the others.
    pub(in crate::world) fn start_leaves(&mut self) {
        for seat in self.leaf_seats() {
            let at = self.now + self.leaves.spread(1_000, 5_000_000);
            self.queue.push(at, SimEvent::StartsLeaf(seat, 0));
        }
    }

    pub(in crate::world) fn leaf_seats(&self) -> impl Iterator<Item = Seat> + use<> {
        let first = self.plan.peers + self.plan.keepers;
        let (opened, displaced) = (self.opened.clone(), self.displaced.clone());
        displaced.into_iter().chain((first..first + self.plan.leaves).filter(move |seat| !opened.contains(seat)))
    }

    /// It was a member, and has no place among the others: it takes part as a leaf until they reach it.
    pub(in crate::world) fn become_leaf(&mut self, seat: Seat) {
        self.close_process(seat, false);
        self.displaced.insert(seat);
        self.routers.insert(seat);
        self.leaf_totals.displaced += 1;
        self.tell(|_| format!("{seat} has no place, and goes on as a leaf"));
        self.queue.push(self.now, SimEvent::StartsLeaf(seat, self.hosts[seat].incarnation));
    }

    /// A leaf's router lets others in from now on.
    pub(in crate::world) fn open_router(&mut self, seat: Seat) {
        if !self.is_hostile_leaf(seat) {
            self.tell(|_| format!("the router of {seat} lets others in"));
            self.routers.insert(seat);
        }
    }

    /// A member dials a leaf, as that has asked it to, and tells it what came of it, if both are there.
    pub(in crate::world) fn dial_back(&mut self, seat: Seat, incarnation: u32, member: PeerId) {
        let Some(from) = self.seats.get(&member).copied() else { return };
        let is_there = self.hosts[from].peer.is_some() && self.hosts[from].stopped.is_none();
        let is_cut = self.network.is_blocked(from, seat) || self.network.is_blocked(seat, from);
        if is_there && !is_cut {
            let reached = self.routers.contains(&seat);
            self.with_leaf(seat, incarnation, |leaf, now| leaf.reach(now, member, reached));
        }
    }

    /// It is a leaf no more, and joins as any other machine does.
    fn join_as_member(&mut self, seat: Seat) {
        self.end_leaf(seat, false);
        self.leaf_totals.joined += 1;
        if self.displaced.remove(&seat) {
            self.tell(|_| format!("{seat} is reached again, and asks to be let in"));
            return self.start(seat);
        }
        self.hosts[seat].died = Time::from_nanos(u64::MAX);
        self.opened.insert(seat);
        self.gated &= self.plan.gated; // Nobody waits at the end for one that asks then.
        let name = self.hosts[seat].name();
        self.invariants.leaf_is_no_member.joins(name);
        self.tell(|_| format!("{seat} is a leaf no more, and asks to be let in"));
        self.start(seat);
    }

    /// Whether it is a leaf's machine: nothing gets in there that was not asked for.
    pub(in crate::world) fn is_leafs(&self, seat: Seat) -> bool {
        self.leaf_seats().any(|leaf| leaf == seat)
    }

    /// Whether the leaf there is hostile.
    pub(in crate::world) fn is_hostile_leaf(&self, seat: Seat) -> bool {
        self.plan.hostile_leaves.iter().any(|(leaf, _)| *leaf == seat)
    }

    pub(in crate::world) fn start_leaf(&mut self, seat: Seat, incarnation: u32) {
        let is_over = self.hosts[seat].leaf.is_some() || self.opened.contains(&seat);
        if self.hosts[seat].incarnation != incarnation || is_over {
            return;
        }
        // Those of its ticket, and those that have come since, as it has noted.
        let members = (0..self.plan.peers).chain(self.opened.iter().copied());
        let members = members.map(|member| self.hosts[member].name()).collect();
        let attack = self.plan.hostile_leaves.iter().find(|(leaf, _)| *leaf == seat).map(|(_, attack)| *attack);
        let number = seat as u64 | u64::from(incarnation) << 32;
        let rng = Rng::new(self.seed ^ 0x001e_af15 ^ number << 8);
        let host = &mut self.hosts[seat];
        let (now, name) = (host.clock(self.now), host.name());
        host.off = false;
        host.alarms.clear();
        let start = LeafStart {
            name,
            members,
            commits: Rc::clone(&self.commits),
            max_stall: self.config.max_stall,
            sabotage: self.sabotage,
            role_changes: u32::from(self.displaced.contains(&seat)),
            liar: attack.map(|attack| LeafLiar::new(attack, rng)),
        };
        host.leaf = Some(Box::new(Leaf::new(now, start, Rc::clone(&self.workload))));
        self.tell(|_| format!("{seat} starts, a leaf {name:?}, {attack:?}"));
        self.invariants.leaf_goes_on.begins(name);
        self.with_leaf(seat, incarnation, Leaf::begin);
    }

    /// A leaf's process dies, and starts again after a while.
    pub(in crate::world) fn kill_leaf(&mut self, seat: Seat, crash: Crash) {
        if self.hosts[seat].leaf.is_some() {
            self.tell(|_| format!("{seat} dies, a leaf"));
            self.end_leaf(seat, crash.power);
            self.hosts[seat].off = crash.power;
            if self.displaced.remove(&seat) {
                // It comes back to the seat that it had.
                return self.queue.push(self.now + crash.down, SimEvent::Starts(seat, self.hosts[seat].incarnation));
            }
            self.queue.push(self.now + crash.down, SimEvent::StartsLeaf(seat, self.hosts[seat].incarnation));
        }
    }

    fn end_leaf(&mut self, seat: Seat, silently: bool) {
        self.hosts[seat].leaf = None;
        self.close_process(seat, silently);
    }

    /// Starts again what is down.
    pub(in crate::world) fn heal_leaves(&mut self) {
        for seat in self.leaf_seats() {
            if self.hosts[seat].leaf.is_none() {
                let incarnation = self.hosts[seat].incarnation;
                self.queue.push(self.now, SimEvent::StartsLeaf(seat, incarnation));
            }
        }
    }

    /// Lets something happen to a leaf's process, if it is still that one, and does what it wants then.
    pub(in crate::world) fn with_leaf(&mut self, seat: Seat, incarnation: u32, happens: impl FnOnce(&mut Leaf, Time)) {
        let host = &mut self.hosts[seat];
        let now = host.clock(self.now);
        let Some(leaf) = host.leaf.as_mut().filter(|_| host.incarnation == incarnation) else { return };
        happens(leaf, now);
        for effect in leaf.take_effects() {
            if self.hosts[seat].incarnation != incarnation {
                return;
            }
            self.execute_leaf(seat, incarnation, effect);
        }
    }

    fn execute_leaf(&mut self, seat: Seat, incarnation: u32, effect: LeafEffect) {
        let name = self.hosts[seat].name();
        match effect {
            LeafEffect::Send(to, message) => {
                if let Some(to) = self.seats.get(&to).copied() {
                    self.send(seat, to, message);
                }
            }
            LeafEffect::Close(other) => {
                if let Some(other) = self.seats.get(&other).copied() {
                    self.close_leafs(seat, other);
                }
            }
            LeafEffect::Alarm(at) => {
                self.hosts[seat].alarms.insert(at);
                let when = self.hosts[seat].world_time(at).max(self.now);
                self.queue.push(when, SimEvent::Rings(seat, incarnation, at));
            }
            LeafEffect::Compute(number) => {
                let micros = |time: std::time::Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
                let (least, most) = (micros(self.workload.compute_least), micros(self.workload.compute_most));
                let takes = self.leaves.micros(least / 2, most) * self.hosts[seat].slower;
                let host = &mut self.hosts[seat];
                host.computes_until = if host.slower > 1 { self.now + takes } else { self.now };
                self.queue.push(self.now + takes, SimEvent::Computed(seat, incarnation, number));
            }
            LeafEffect::Holds(state) => {
                self.tell(|_| format!("{seat} holds the state of step {}", state.step));
                if !self.is_hostile_leaf(seat) {
                    let held = self.invariants.leaf_state.holds(name, &state);
                    self.breaks(held);
                }
            }
            LeafEffect::Blames(..) if self.is_hostile_leaf(seat) => {}
            LeafEffect::Blames(carrier, violation) => {
                let seen = format!("the leaf {name:?} says that {carrier:?} {violation}");
                self.breaks(Err(Broken::new("no_violations", seen)));
            }
            LeafEffect::Broken(seen) => self.breaks(Err(Broken::new("leaf_state", seen))),
            LeafEffect::AsksReach(member) => {
                let later = self.now + self.leaves.spread(1_000, 100_000);
                self.queue.push(later, SimEvent::DialsBack(seat, incarnation, member));
            }
            LeafEffect::Joins => self.join_as_member(seat),
            LeafEffect::Loads => self.leaf_totals.loaded += 1,
            LeafEffect::Told(event) => self.tell(|_| format!("{seat}: {event:?}")),
            LeafEffect::Ends(event) => {
                self.tell(|_| format!("{seat} ends, a leaf: {event:?}"));
                if let LeafEvent::Complete { digest, .. } = event
                    && !self.is_hostile_leaf(seat)
                {
                    self.leaf_totals.completed += 1;
                    let held = self.invariants.leaf_state.completes(name, digest);
                    self.breaks(held);
                }
                self.end_leaf(seat, false);
                if self.displaced.remove(&seat) {
                    return self.end_displaced(seat, event);
                }
                self.hosts[seat].died = Time::from_nanos(u64::MAX);
                // Its user starts it again; what is over is over.
                if !matches!(event, LeafEvent::Complete { .. }) {
                    let later = self.now + self.config.max_stall;
                    self.queue.push(later, SimEvent::StartsLeaf(seat, self.hosts[seat].incarnation));
                }
            }
        }
    }

    /// One that was a member has ended as a leaf: with the last state, or it asks to be let in again.
    fn end_displaced(&mut self, seat: Seat, event: LeafEvent) {
        match event {
            LeafEvent::Complete { step, digest } => {
                self.completed.insert(seat, digest);
                self.hosts[seat].ended = Some(Event::Complete { step, digest });
                self.running -= 1;
            }
            _ => self.start(seat),
        }
    }

    /// Whether what a leaf has sent over the connection of this `number` is heard: over that on which it attached last.
    pub(in crate::world) fn is_on_its_stream(&mut self, from: Seat, to: Seat, number: u32, message: &Message) -> bool {
        let Message::OfLeaf(bytes, _) = message else { return true };
        if matches!(LeafBody::decode(bytes), Ok(LeafBody::Attach { .. })) {
            self.leaf_streams.insert((to, from), number);
        }
        self.leaf_streams.get(&(to, from)).is_none_or(|stream| *stream == number)
    }

    /// Whether the connection on which a leaf attached to a member is still the one between them.
    pub(in crate::world) fn has_its_stream(&self, member: Seat, leaf: Seat) -> bool {
        let stream = self.leaf_streams.get(&(member, leaf)).copied();
        stream.is_none_or(|stream| self.network.open(member, leaf, Lane::Leaf).is_none_or(|open| open == stream))
    }

    /// A connection between a leaf and a member is closed at the first one's end, and soon at the other.
    pub(in crate::world) fn close_leafs(&mut self, at: Seat, other: Seat) {
        let lane = Lane::Leaf;
        if let Some(number) = self.network.open(at, other, lane) {
            let told = self.network.farewell(self.now, at, other, lane);
            self.network.close(at, other, lane, number);
            self.queue.push(told, SimEvent::Closes(other, at, lane, number));
        }
    }

    /// A carrier says that a leaf has done what no correct one does.
    pub(in crate::world) fn blames_leaf(&mut self, seat: Seat, leaf: PeerId, violation: LeafViolation) {
        self.leaf_totals.refused += 1;
        self.tell(|_| format!("{seat} says that the leaf {leaf:?} {violation}"));
        let is_hostile = self.seats.get(&leaf).is_some_and(|leaf| self.is_hostile_leaf(*leaf));
        let is_excused = self.sabotage == Some(Sabotage::LeafMisapplies);
        if !is_hostile && !is_excused {
            let seen = format!("{seat} says that the leaf {leaf:?} {violation}");
            self.breaks(Err(Broken::new("no_violations", seen)));
        }
    }

    /// Judges whether leaves go on where they could.
    pub(in crate::world) fn leaves_look(&mut self) {
        for seat in self.leaf_seats() {
            let host = &self.hosts[seat];
            // What a slow one computes it ends first.
            let is_held_up = host.stopped.is_some() || host.computes_until > self.now;
            let Some(leaf) = host.leaf.as_ref().filter(|_| !self.is_hostile_leaf(seat)) else { continue };
            if is_held_up {
                self.invariants.leaf_goes_on.begins(host.name());
                continue;
            }
            let name = host.name();
            let can_carry = |member: &Seat| {
                let other = &self.hosts[*member];
                let reaches = !self.is_cut_off(seat, *member) && other.stopped.is_none() && other.completed.is_none();
                let has_room = |peer: &Peer| {
                    let places = MAX_LEAVES - usize::from(leaf.carrier() != Some(other.name()));
                    peer.is_full() && peer.leaves() <= places && !other.leaving
                };
                reaches && other.peer.as_ref().is_some_and(has_room)
            };
            let members = (0..self.hosts.len()).filter(can_carry);
            let candidates: Vec<Candidate> = members
                .filter_map(|member| {
                    let host = &self.hosts[member];
                    Some(Candidate {
                        name: host.name(),
                        incarnation: host.incarnation,
                        step: host.peer.as_ref()?.step(),
                    })
                })
                .collect();
            let step = leaf.step();
            let held = self.invariants.leaf_goes_on.looked(self.now, name, step, &candidates, self.config.max_stall);
            self.breaks(held);
        }
    }
}
