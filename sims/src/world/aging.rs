//! What a machine does to its own process: a disk that comes back as it was before, a clock that leaps, a queue that is full.

use std::time::Duration;

use starling_topology::{Record, Time};

use super::{SimEvent, World};
use crate::hardware::machine::host::Host;
use crate::hardware::network::Seat;
use crate::steps::message::Lane;
use crate::sweep::fault::{Crash, DiskFate, Fault, Kind, Queue};
use crate::verdict::invariants::Broken;

const NAME: &str = "set_back_told";

/// Has those keep copies of their disks that will be set back.
pub(super) fn copy_disks(faults: &[Fault], hosts: &mut [Host]) {
    for fault in faults {
        if let Kind::Crash(seat, Crash { fate: DiskFate::SetBack, .. }) = &fault.kind {
            hosts[*seat].copies.get_or_insert_default();
        }
    }
}

impl World {
    /// An older copy of a disk takes its place.
    pub(super) fn set_back(&mut self, seat: Seat) {
        let host = &mut self.hosts[seat];
        let copies = host.copies.take().unwrap_or_default();
        let last = copies.len().saturating_sub(1) as u64;
        let place = usize::try_from(self.rng.between(0, last)).unwrap_or(0);
        let host = &mut self.hosts[seat];
        if let Some(before) = copies.get(place).cloned() {
            let said = host.disk.newest_record();
            host.disk.set_back(before);
            host.set_back |= host.disk.newest_record() != said;
            self.forgotten |= host.set_back;
            let name = host.name();
            self.invariants.own_branch.set_back(name);
            self.invariants.stable_survives.set_back(name);
        }
        self.hosts[seat].copies = Some(copies.into_iter().take(place + 1).collect());
    }

    /// A process tells its user that others have shown what it does not know that it has said.
    pub(super) fn told_set_back(&mut self, seat: Seat) {
        self.hosts[seat].told = true;
        if !self.hosts[seat].set_back && self.hosts[seat].twin.is_none() {
            let seen = format!("{seat} says that its disk was set back, and it was not");
            self.breaks(Err(Broken::new(NAME, seen)));
        }
    }

    /// Judges what a process writes down by what it has found when it started: a seat that it had forgotten, or a decision with
    /// its own signature, of a ballot that it had forgotten, is told before.
    pub(super) fn tells_what_it_forgot(&self, seat: Seat, record: &Record) -> Result<(), Broken> {
        self.stays_with_those_who_have_disks(seat, record)?;
        let host = &self.hosts[seat];
        let Some(before) = host.disk.newest_record().filter(|_| host.set_back && host.is_judged()) else {
            return Ok(());
        };
        let (me, view) = (host.name(), before.view.id());
        let follows = record.view.parent == Some(view);
        let signed = record.certificate.as_ref().filter(|certificate| follows && certificate.is_signed_by(me));
        let accepted = before.accepted.as_ref().map(|(ballot, _)| *ballot);
        // What it proposes itself, it may accept and enter before it writes that down.
        let by_others = signed.filter(|certificate| certificate.ballot.proposer != me);
        let forgot_vote = by_others.is_some_and(|certificate| Some(certificate.ballot) > accepted);
        let origin = record.origin.as_ref().filter(|_| record.view.id() != view && !follows && !record.view.forked);
        let forgot_seat = origin.is_some_and(|it| it.joiners.iter().all(|joiner| joiner.contact.peer != me));
        if (forgot_vote || forgot_seat) && !host.told {
            let seen =
                format!("{seat} goes on with what it had forgotten that it said, and its user does not hear of it");
            return Err(Broken::new(NAME, seen));
        }
        Ok(())
    }

    /// Judges whether a process whose disk was never set back goes where those lead it whose disks were. Whoever follows a fork, has lost
    /// something else, or can store no vote, has no other way; and where two processes of one name have parted the run, its user has it come over.
    fn stays_with_those_who_have_disks(&self, seat: Seat, record: &Record) -> Result<(), Broken> {
        let is_intact = |host: &Host| host.is_judged() && !host.set_back && !host.damaged && host.disk.takes_votes();
        let host = &self.hosts[seat];
        let is_split = self.forked || self.split.is_some();
        let is_due = self.forgotten && !is_split && is_intact(host) && !self.hosts.iter().any(Host::is_hostile);
        let Some(before) = host.disk.newest_record().filter(|_| is_due) else { return Ok(()) };
        let intact = |peer| self.seats.get(&peer).is_some_and(|seat| is_intact(&self.hosts[*seat]));
        self.invariants.led_away.entered(host.name(), &before.view, &record.view, intact)
    }

    /// A clock leaps ahead: what was to happen by it in the meantime happens at once.
    pub(super) fn jump(&mut self, seat: Seat, by: Duration) {
        let host = &mut self.hosts[seat];
        host.ahead += by;
        let (incarnation, host) = (host.incarnation, &self.hosts[seat]);
        let Some(peer) = &host.peer else { return };
        let timers: Vec<_> = peer.timers().map(|(timer, at)| (timer, at, host.world_time(at).max(self.now))).collect();
        let alarms: Vec<_> = host.alarms.iter().map(|at| (*at, host.world_time(*at).max(self.now))).collect();
        for (timer, at, when) in timers {
            self.queue.push(when, SimEvent::Expires(seat, incarnation, timer, at));
        }
        alarms.into_iter().for_each(|(at, when)| self.queue.push(when, SimEvent::Rings(seat, incarnation, at)));
    }

    /// An alarm of a process rings, once.
    pub(super) fn ring(&mut self, seat: Seat, incarnation: u32, at: Time) {
        let host = &mut self.hosts[seat];
        if host.incarnation == incarnation && host.alarms.remove(&at) {
            self.with_leaf(seat, incarnation, |leaf, now| leaf.ring(now.max(at)));
            self.with(seat, incarnation, |peer, now| peer.ring(now, at));
        }
    }

    pub(super) fn is_full(&self, seat: Seat, queue: Queue) -> bool {
        self.hosts[seat].full.contains(&queue)
    }

    /// A queue takes something again.
    pub(super) fn make_room(&mut self, seat: Seat, queue: Queue) {
        self.hosts[seat].full.remove(&queue);
        if queue == Queue::Saver && !self.hosts[seat].disk.hangs() {
            std::mem::take(&mut self.hosts[seat].stalled).into_iter().for_each(|event| self.happen(event));
        }
    }

    /// Whose disk has to come to this first. The last state waits for room; others that find none are left out.
    pub(super) fn waits_for_disk(&self, event: &SimEvent) -> Option<Seat> {
        let (seat, is_last) = if let SimEvent::Stores(seat, ..) = event {
            (*seat, false)
        } else if let SimEvent::Saved(seat, _, state) = event {
            (*seat, state.step == self.workload.steps)
        } else {
            return None;
        };
        let waits = self.hosts[seat].disk.hangs() || (is_last && self.is_full(seat, Queue::Saver));
        waits.then_some(seat)
    }

    /// What is to be said to `to` finds no room: it is lost, and the connection with it. What was sent before arrives.
    pub(super) fn find_no_room(&mut self, from: Seat, to: Seat) {
        let (lane, incarnation) = (Lane::Control, self.hosts[from].incarnation);
        let soon = self.now + self.rng.spread(10, 1_000);
        match self.network.open(from, to, lane) {
            Some(number) => {
                self.queue.push(soon, SimEvent::Closes(from, to, lane, number));
                let told = self.network.farewell(self.now, from, to, lane).max(soon);
                self.queue.push(told, SimEvent::Closes(to, from, lane, number));
            }
            None => self.queue.push(soon, SimEvent::Refused(from, incarnation, to, lane)),
        }
    }
}
