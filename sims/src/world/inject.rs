//! Faults: how they strike, how they pass, and how all is healed in the end.

use starling_topology::{MarkStatus, Proof, Time};

use super::{SimEvent, World};
use crate::hardware::machine::checkpoints;
use crate::hardware::machine::host::Host;
use crate::hardware::network::{Parcel, Seat};
use crate::peer::Peer;
use crate::steps::message::Lane;
use crate::sweep::coverage::STORES;
use crate::sweep::fault::{Crash, DiskFate, FileSet, Kind};
use crate::verdict::report::picture::What;

impl World {
    pub(super) fn strike(&mut self, index: usize) {
        let kind = self.plan.faults[index].kind.clone();
        let lasts = kind.lasts();
        if self.invariants.progress.is_healed() && !matches!(kind, Kind::Join(_)) {
            self.active -= 1;
            return;
        }
        self.faults += 1;
        // What becomes of leaves is no excuse for members.
        let is_leafs = kind.seats().iter().any(|seat| self.is_leafs(*seat));
        if !matches!(kind, Kind::Join(_) | Kind::Leave(_) | Kind::Return(_)) && !is_leafs {
            self.invariants.progress.disturbed(self.now, kind.name());
        }
        self.tell(|_| format!("fault {index}: {kind}"));
        if let Some(seat) = kind.seat() {
            self.mark(seat, What::Fault(kind.to_string()));
        }
        if !matches!(kind, Kind::Join(_) | Kind::Crash(..) | Kind::Lacks(..)) {
            kind.seats().into_iter().for_each(|seat| self.note_phase(kind.name(), seat));
        }
        match kind {
            Kind::Join(seat) => {
                if !self.hosts[seat].started {
                    self.start(seat);
                }
            }
            Kind::Leave(seat) => {
                // A run that everybody leaves is over, and one that its founder leaves alone never begins.
                let stays = |other: &Host| !other.leaving && other.peer.as_ref().is_some_and(Peer::is_full);
                let others = self.hosts.iter().enumerate().filter(|(other, _)| *other != seat);
                let goes_on = others.into_iter().any(|(_, other)| stays(other));
                if self.hosts[seat].peer.is_some() && goes_on {
                    self.hosts[seat].leaving = true;
                    let incarnation = self.hosts[seat].incarnation;
                    self.with(seat, incarnation, Peer::leave);
                }
            }
            Kind::Return(seat) => self.return_to_it(seat),
            Kind::Crash(seat, crash) if is_leafs => self.kill_leaf(seat, crash),
            Kind::Crash(seat, crash) => {
                if self.hosts[seat].is_up() {
                    match crash.at_record {
                        Some(_) => self.hosts[seat].doomed = Some(crash),
                        None => self.die(seat, crash),
                    }
                }
            }
            Kind::Pause(seat, _) => {
                let runs = self.hosts[seat].peer.is_some() || self.hosts[seat].leaf.is_some();
                if runs && self.hosts[seat].stopped.is_none() {
                    self.hosts[seat].stopped = Some(Vec::new());
                }
            }
            Kind::Slow(seat, factor, _) => self.hosts[seat].slower = factor,
            Kind::DiskFull(seat, _) => self.hosts[seat].disk.set_full(true),
            Kind::DiskReadOnly(seat, _) => self.hosts[seat].disk.set_read_only(true),
            Kind::DiskHangs(seat, _) => self.hosts[seat].disk.set_hanging(true),
            Kind::Break(a, b, lane) => self.break_connection(a, b, lane),
            Kind::Swallow(seat) => self.hosts[seat].swallows = true,
            Kind::Jump(seat, by) => self.jump(seat, by),
            Kind::Full(seat, queue, _) => _ = self.hosts[seat].full.insert(queue),
            Kind::Twin(seat, copied) => self.start_twin(seat, copied),
            Kind::Opens(seat) => self.open_router(seat),
            Kind::Lacks(seat, files, _) => self.has_data(seat, |lacking| lacking | files),
            Kind::Cut(..) | Kind::Partition(..) | Kind::Clog(..) => {
                for (from, to) in self.blocked_by(&kind) {
                    self.network.block(from, to);
                }
            }
        }
        self.queue.push(self.now + lasts, SimEvent::Passes(index));
    }

    /// Remembers what a member was doing when a fault struck it.
    fn note_phase(&mut self, fault: &'static str, seat: Seat) {
        let host = &self.hosts[seat];
        let Some(phase) = host.phase().filter(|_| host.stopped.is_none()) else { return };
        self.coverage.note(fault, phase);
        if host.storing.is_some() {
            self.coverage.note(fault, STORES);
        }
    }

    pub(super) fn pass(&mut self, index: usize) {
        if self.invariants.progress.is_healed() {
            return;
        }
        self.active -= 1;
        let kind = self.plan.faults[index].kind.clone();
        let is_leafs = kind.seats().iter().any(|seat| self.is_leafs(*seat));
        if kind.lasts() > std::time::Duration::ZERO && !is_leafs {
            self.invariants.progress.disturbed(self.now, kind.name());
            self.tell(|_| format!("fault {index} is over"));
        }
        match kind {
            Kind::Pause(seat, _) => self.go_on(seat),
            Kind::Slow(seat, ..) => self.hosts[seat].slower = 1,
            Kind::DiskFull(seat, _) => self.hosts[seat].disk.set_full(false),
            Kind::DiskReadOnly(seat, _) => self.hosts[seat].disk.set_read_only(false),
            Kind::DiskHangs(seat, _) => self.unstall(seat),
            Kind::Cut(..) | Kind::Partition(..) | Kind::Clog(..) => {
                for (from, to) in self.blocked_by(&kind) {
                    self.unblock(from, to);
                }
            }
            Kind::Full(seat, queue, _) => self.make_room(seat, queue),
            Kind::Lacks(seat, files, _) => self.has_data(seat, |lacking| lacking & !files),
            Kind::Join(_)
            | Kind::Leave(_)
            | Kind::Return(_)
            | Kind::Crash(..)
            | Kind::Break(..)
            | Kind::Swallow(_)
            | Kind::Jump(..)
            | Kind::Opens(_)
            | Kind::Twin(..) => {}
        }
    }

    /// Ends all faults, and starts again what is down.
    pub(super) fn heal(&mut self) {
        self.tell(|_| "all is healed".into());
        self.invariants.progress.healed(self.now);
        let mut ahead = std::mem::take(&mut self.ahead);
        ahead.extend(self.at_delivery.drain(..).map(|(_, index)| index));
        ahead.sort_unstable();
        for index in ahead {
            if matches!(self.plan.faults[index].kind, Kind::Join(_)) {
                self.queue.push(self.now, SimEvent::Strikes(index));
                self.active += 1;
            }
        }
        for seat in 0..self.hosts.len() {
            self.hosts[seat].doomed = None;
            self.hosts[seat].slower = 1;
            self.hosts[seat].disk.set_full(false);
            self.hosts[seat].disk.set_read_only(false);
            self.hosts[seat].full.clear();
            self.go_on(seat);
            self.unstall(seat);
            self.has_data(seat, |_| 0);
            for other in 0..self.hosts.len() {
                while self.network.is_blocked(seat, other) {
                    self.unblock(seat, other);
                }
            }
        }
        for seat in 0..self.hosts.len() {
            if self.hosts[seat].is_in_the_run() && !self.hosts[seat].is_up() {
                self.start(seat);
            }
        }
        self.heal_leaves();
    }

    /// What a machine lacks of the data changes.
    fn has_data(&mut self, seat: Seat, change: impl FnOnce(FileSet) -> FileSet) {
        let host = &mut self.hosts[seat];
        host.lacking = change(host.lacking);
        let (lacking, incarnation) = (host.lacking, host.incarnation);
        self.with(seat, incarnation, |peer, now| peer.lacks(now, lacking));
    }

    /// A process dies, and its machine perhaps with it.
    pub(super) fn die(&mut self, seat: Seat, crash: Crash) {
        self.tell(|_| format!("{seat} dies"));
        self.invariants.progress.disturbed(self.now, crash.name());
        self.mark(seat, What::Dies);
        self.note_phase(crash.name(), seat);
        if let Some(record) = self.hosts[seat].storing.take() {
            self.hosts[seat].disk.tear_record(record, &mut self.rng);
        }
        self.close_process(seat, crash.power);
        // A run whose last copy is destroyed is lost, whatever its members do.
        let others = (0..self.hosts.len()).filter(|other| *other != seat && self.hosts[*other].is_in_the_run());
        let admits = |proof: &Proof| {
            let record = self.hosts[seat].disk.newest_record();
            record.is_some_and(|record| record.root.may_admit(proof.head.step, &proof.view))
        };
        let safe = others.into_iter().any(|other| self.holds_a_copy(other))
            || crash.fate == DiskFate::ListLost
            || (matches!(crash.fate, DiskFate::Flipped | DiskFate::Torn) && self.is_kept(admits));
        let fate = match if safe { crash.fate } else { DiskFate::Kept } {
            // Who can't know any more that it has saved nothing does not begin anew, and ends if nobody else can.
            fate @ (DiskFate::SavedLost | DiskFate::MarkLost) if !self.may_forget_its_mark(seat) => match fate {
                DiskFate::SavedLost => DiskFate::CheckpointsLost,
                _ => DiskFate::Kept,
            },
            fate => fate,
        };
        let host = &mut self.hosts[seat];
        host.damaged |= !matches!(fate, DiskFate::Kept | DiskFate::ListLost | DiskFate::MarkLost);
        self.damaged |= host.damaged;
        match fate {
            DiskFate::Kept => {}
            DiskFate::Wiped => host.disk.wipe(),
            DiskFate::Flipped => {
                let _ = host.disk.flip(&mut self.rng);
            }
            DiskFate::Torn => {
                let _ = host.disk.tear(&mut self.rng);
            }
            DiskFate::CheckpointsLost => host.disk.lose_checkpoints(),
            DiskFate::MarkLost => host.disk.lose_mark(),
            DiskFate::SavedLost => {
                host.disk.lose_checkpoints();
                host.disk.lose_mark();
            }
            DiskFate::SetBack => self.set_back(seat),
            DiskFate::SeatLost => host.disk.lose_record(),
            DiskFate::ListLost => host.disk.lose_contacts(),
        }
        let host = &mut self.hosts[seat];
        host.off = crash.power;
        let incarnation = host.incarnation;
        self.queue.push(self.now + crash.down, SimEvent::Starts(seat, incarnation));
    }

    /// Whether the run could go on from this machine's disk alone.
    fn holds_a_copy(&self, seat: Seat) -> bool {
        let host = &self.hosts[seat];
        let found = |record| {
            let (begins, _) = checkpoints::begins(&host.disk, host.disk.noted(), (host.name(), &record));
            checkpoints::found(&host.disk, (&record, begins), self.workload.ledger(), None).0
        };
        let state = host.disk.record().and_then(found);
        state.is_some_and(|state| state.step >= self.newest_step)
    }

    /// Whether it has saved something, or another member of its view could go on from its own disk.
    fn may_forget_its_mark(&self, seat: Seat) -> bool {
        let disk = &self.hosts[seat].disk;
        let sits = |other: &Seat| {
            let name = self.hosts[*other].name();
            let is_other = name != self.hosts[seat].name() && self.hosts[*other].is_in_the_run();
            is_other && disk.newest_record().is_some_and(|record| record.view.contains(name))
        };
        disk.noted() != MarkStatus::Nothing || (0..self.hosts.len()).filter(sits).any(|other| self.holds_a_copy(other))
    }

    /// Whether the run could go on from what this machine has.
    pub(super) fn has_a_copy(&self, seat: Seat) -> bool {
        let host = &self.hosts[seat];
        let is_late = |peer: &Peer| peer.has_state() && peer.step() >= self.newest_step;
        let held = host.peer.as_ref().is_some_and(is_late) && host.disk.has_record();
        host.is_in_the_run() && (held || self.holds_a_copy(seat))
    }

    /// A process is gone. Its kernel says so to all that it was connected to, unless that is gone too.
    pub(super) fn close_process(&mut self, seat: Seat, silently: bool) {
        let host = &mut self.hosts[seat];
        if let Some(peer) = host.peer.take() {
            self.stale += peer.stale();
        }
        host.incarnation += 1;
        (host.return_engine, host.seeking, host.looking) = (None, None, None);
        (host.died, host.stopped, host.doomed) = (self.now, None, None);
        host.stalled.clear();
        (host.storing, host.completed) = (None, None);
        host.keepers.clear();
        for (other, lane, number) in self.network.neighbours(seat) {
            let stalled = silently || self.network.is_blocked(seat, other);
            let patient = self.now + self.network.patience();
            let told = if stalled { patient } else { self.network.farewell(self.now, seat, other, lane) };
            self.network.close(seat, other, lane, number);
            self.queue.push(told, SimEvent::Closes(other, seat, lane, number));
        }
    }

    /// A stopped process goes on: it sees all at once what came meanwhile.
    fn go_on(&mut self, seat: Seat) {
        let waiting = self.hosts[seat].stopped.take();
        for event in waiting.into_iter().flatten() {
            self.happen(event);
        }
    }

    /// A disk that hung answers again.
    fn unstall(&mut self, seat: Seat) {
        self.hosts[seat].disk.set_hanging(false);
        for event in std::mem::take(&mut self.hosts[seat].stalled) {
            self.happen(event);
        }
    }

    pub(super) fn break_connection(&mut self, a: Seat, b: Seat, lane: Lane) {
        for (at, other) in [(a, b), (b, a)] {
            if let Some(number) = self.network.open(at, other, lane) {
                let takes = self.rng.spread(10, 1_000_000);
                self.queue.push(self.now + takes, SimEvent::Closes(at, other, lane, number));
            }
        }
    }

    /// A kernel looks whether it has waited too long: then it gives the connection up.
    pub(super) fn give_up_stalled(&mut self, from: Seat, to: Seat, lane: Lane, number: u32) {
        if self.network.is_stalled(from, to, lane, number) {
            self.queue.push(self.now, SimEvent::Closes(from, to, lane, number));
            let later = self.now + self.rng.micros(1_000, 2_000_000);
            self.queue.push(later, SimEvent::Closes(to, from, lane, number));
        }
    }

    fn unblock(&mut self, from: Seat, to: Seat) {
        let freed: Vec<(Time, Parcel)> = self.network.unblock(self.now, from, to);
        for (at, parcel) in freed {
            let incarnation = self.hosts[parcel.from].incarnation;
            self.queue.push(at, SimEvent::Arrives(parcel, incarnation));
        }
    }

    fn blocked_by(&self, kind: &Kind) -> Vec<(Seat, Seat)> {
        let seats = 0..self.hosts.len();
        match kind {
            Kind::Cut(from, to, _) => vec![(*from, *to)],
            Kind::Clog(seat, _) => {
                let others = seats.filter(|other| other != seat);
                others.flat_map(|other| [(*seat, other), (other, *seat)]).collect()
            }
            Kind::Partition(side, _) => {
                let (inside, outside): (Vec<Seat>, Vec<Seat>) = seats.partition(|seat| side.contains(seat));
                let pairs = |one: Seat| outside.iter().flat_map(move |other| [(one, *other), (*other, one)]);
                inside.iter().flat_map(|one| pairs(*one)).collect()
            }
            Kind::Join(_)
            | Kind::Leave(_)
            | Kind::Return(_)
            | Kind::Crash(..)
            | Kind::Pause(..)
            | Kind::Slow(..)
            | Kind::DiskFull(..)
            | Kind::DiskReadOnly(..)
            | Kind::DiskHangs(..)
            | Kind::Break(..)
            | Kind::Swallow(_)
            | Kind::Jump(..)
            | Kind::Twin(..)
            | Kind::Opens(_)
            | Kind::Lacks(..)
            | Kind::Full(..) => Vec::new(),
        }
    }
}
