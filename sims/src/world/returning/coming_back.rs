//! How a process comes to take part: the engine's [`ReturnEngine`], executed in virtual time, and what users say to it.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use starling_engine::ReturnEngine;
use starling_engine::member::quorum_search::AbsenceReason;
use starling_engine::return_engine::{
    Decision, Input, LeaveRecord, Output, PAUSE, ReturnConfig, ReturnOptions, SavedState, WaitKind, WaitStatus,
};
use starling_topology::{
    Config, Contact, Event, FlawKind, MarkStatus, Membership, PeerId, Progress, Record, Root, View,
};

use crate::hardware::machine::checkpoints;
use crate::hardware::machine::contacts::ContactsFile;
use crate::hardware::machine::disk::Disk;
use crate::hardware::machine::host::Host;
use crate::hardware::machine::notary::with_key;
use crate::hardware::network::Seat;
use crate::hardware::network::rng::Rng;
use crate::peer::{Manners, Peer, Start};
use crate::scenario::Scenario;
use crate::steps::state::State;
use crate::sweep::canary::Sabotage;
use crate::verdict::invariants::Broken;
use crate::verdict::report::picture::What;
use crate::world::seeking::Errand;
use crate::world::{RUN, SimEvent, World};

/// Contacts that a ticket has.
const CONTACTS: usize = 16;
/// Once in so many times that a machine is started where forks are allowed, its user wants it to go on alone.
const ALONE: u64 = 12;

impl World {
    /// A process starts: it takes part, once it knows how.
    pub(in crate::world) fn start(&mut self, seat: Seat) {
        let host = &self.hosts[seat];
        if host.ended.is_some() || host.return_engine.is_some() || host.looking.is_some() || self.looks_for_twin(seat) {
            return;
        }
        self.begin(seat);
    }

    /// It knows no other process that is it.
    pub(in crate::world) fn begin(&mut self, seat: Seat) {
        self.recall_keepers(seat);
        if !self.plan.hostility.seats.is_empty() {
            let outcome = self.without_asking(seat);
            return self.take_part(seat, &outcome);
        }
        let (past, choice) = (self.past(seat), self.choice(seat));
        let Config { last_step, checkpoint_every: stride, max_stall, .. } = self.config;
        let host = &mut self.hosts[seat];
        let now = host.clock(self.now);
        let mut return_engine = ReturnEngine::new(past, choice, ReturnConfig { last_step, stride, max_stall }, now);
        if let Some(Sabotage::Machine(flaw)) = self.sabotage {
            return_engine.plant(flaw);
        }
        (host.return_engine, host.begun, host.off) = (Some(Box::new(return_engine)), now, false);
        self.come_back(seat);
        self.bring_up_at_phase(seat);
    }

    /// Where some are hostile, nobody is asked: it is told whom it can trust.
    fn without_asking(&self, seat: Seat) -> Decision {
        let host = &self.hosts[seat];
        match host.disk.has_record() {
            true => Decision::Recover { has_state: true, can_begin: true },
            false if founds(host, seat) => Decision::Found,
            false => Decision::Join { members: self.ticket(seat), awaited: WaitStatus::default() },
        }
    }

    /// What this machine has of the run, and whom its user names.
    fn past(&self, seat: Seat) -> SavedState {
        let host = &self.hosts[seat];
        let (me, record) = (host.name(), host.disk.record());
        let has_lost_its_seat = host.disk.has_lost_its_record();
        let (left, has_lost_its_contacts) = match host.disk.contacts() {
            ContactsFile::Missing => (None, false),
            ContactsFile::Damaged => (None, true),
            ContactsFile::Whole(contacts) => (contacts.left.clone(), false),
        };
        let was_here = !is_new_to(host);
        let keepers = host.keepers.iter().copied().collect();
        let members = self.known_to(seat, record.as_ref());
        let noted = self.noted_by(seat);
        SavedState {
            me,
            was_here,
            seat: record,
            noted,
            has_lost_its_seat,
            has_lost_its_contacts,
            members,
            keepers,
            left,
        }
    }

    /// What it had saved. Who makes up what it holds has no use for that.
    fn noted_by(&self, seat: Seat) -> MarkStatus {
        match (self.hosts[seat].disk.noted(), self.sabotage) {
            (_, Some(Sabotage::ClaimsInitialState | Sabotage::PrefersStable)) => MarkStatus::Nothing,
            (MarkStatus::Unknown, Some(Sabotage::TakesLostForNothing)) => MarkStatus::Nothing,
            (noted, _) => noted,
        }
    }

    /// Other members that it knows: those on the ticket first, if its user has one that is new, then those of its last view.
    pub(in crate::world) fn known_to(&self, seat: Seat, record: Option<&Record>) -> Vec<PeerId> {
        let host = &self.hosts[seat];
        let has_ticket = host.guided || (is_new_to(host) && !founds(host, seat));
        let ticket = if has_ticket { self.ticket(seat) } else { Vec::new() };
        let of_view = record.into_iter().flat_map(|record| record.view.members()).copied();
        let listed = if let ContactsFile::Whole(contacts) = host.disk.contacts() { contacts.members() } else { &[] };
        let mut seen = BTreeSet::from([host.name()]);
        let all = ticket.into_iter().chain(of_view).chain(listed.iter().copied());
        all.filter(|peer| seen.insert(*peer)).collect()
    }

    /// What its user says. Whoever comes back may come by either command; of a ticket, the names may be old.
    fn choice(&mut self, seat: Seat) -> ReturnOptions {
        let host = &mut self.hosts[seat];
        let (said, guided) = (host.choice.take(), host.guided);
        if is_new_to(host) {
            return ReturnOptions { joins: !founds(host, seat), ..ReturnOptions::default() };
        }
        let joins = guided || self.users.one_in(2);
        let alone = self.plan.words && self.users.one_in(ALONE);
        said.unwrap_or(ReturnOptions { joins, alone, goes_back: false })
    }

    /// Does what the process wants that comes back.
    pub(in crate::world) fn come_back(&mut self, seat: Seat) {
        while let Some(output) = self.hosts[seat].return_engine.as_mut().and_then(|return_engine| return_engine.poll())
        {
            match output {
                Output::Search { peers, terms } => self.seek(seat, &peers, terms),
                Output::Look { root } => {
                    let holdings = checkpoints::holdings(&self.hosts[seat].disk, root.as_ref(), self.sabotage);
                    self.answer_return_engine(seat, Input::Holds(holdings));
                }
                Output::SetTimer(at) => {
                    let when = self.hosts[seat].world_time(at).max(self.now);
                    let incarnation = self.hosts[seat].incarnation;
                    self.queue.push(when, SimEvent::Seeks(seat, incarnation, Errand::Pauses));
                }
                Output::Done(outcome) => return self.come_to(seat, &outcome),
            }
        }
    }

    /// Tells the process that comes back what it has asked for.
    pub(in crate::world) fn answer_return_engine(&mut self, seat: Seat, input: Input) {
        let host = &mut self.hosts[seat];
        let now = host.clock(self.now);
        host.return_engine.iter_mut().for_each(|return_engine| return_engine.handle(now, input.clone()));
    }

    /// It knows how it takes part, or that it does not.
    fn come_to(&mut self, seat: Seat, outcome: &Decision) {
        self.tell(|_| format!("{seat} comes back: {outcome:?}"));
        let host = &mut self.hosts[seat];
        host.return_engine = None;
        let waited = host.clock(self.now) - host.begun;
        self.coverage.note_way(name(outcome));
        match outcome {
            Decision::Found | Decision::Recover { .. } | Decision::Join { .. } | Decision::Fork => {
                self.take_part(seat, outcome);
            }
            Decision::Over => self.is_told_that_it_is_over(seat),
            Decision::Behind(_) if waited + PAUSE < self.config.max_stall => {
                let seen = format!("{seat} ends since others may be ahead of it, and has asked for {waited:?} alone");
                self.breaks(Err(Broken::new("asks_again", seen)));
            }
            Decision::Unknown | Decision::Behind(_) | Decision::OthersBranch => self.is_told_to_say_more(seat),
        }
    }

    /// The run is over, and its user hears it. It was killed before it heard that the others had finished too.
    fn is_told_that_it_is_over(&mut self, seat: Seat) {
        let host = &self.hosts[seat];
        let (name, last) = (host.name(), self.workload.steps);
        let digest = checkpoints::newest_proof(&host.disk, None).map(|proof| proof.head.digest);
        let holds = digest.filter(|digest| host.disk.holds(last, *digest));
        let may_differ = self.completed.is_empty() || self.may_differ();
        let is_known = may_differ || self.completed.values().any(|completed| Some(*completed) == holds);
        let (Some(digest), true) = (holds, is_known) else {
            let seen = format!("{name:?} is told that the run is over, and does not hold the last state");
            return self.breaks(Err(Broken::new("endings", seen)));
        };
        self.mark(seat, What::Ends);
        self.close_process(seat, false);
        self.invariants.progress.goes_on(self.now);
        self.completed.insert(seat, digest);
        self.hosts[seat].ended = Some(Event::Complete { step: last, digest });
        self.running -= 1;
    }

    /// Only its user can know: it starts it again later, with a ticket of somebody who is there by then, or, where forks are allowed,
    /// with the word to go on alone.
    fn is_told_to_say_more(&mut self, seat: Seat) {
        self.mark(seat, What::Ends);
        self.close_process(seat, false);
        let alone = self.config.fork_after.is_some() && self.users.one_in(4);
        let host = &mut self.hosts[seat];
        host.choice = alone.then_some(ReturnOptions { alone, ..ReturnOptions::default() });
        host.guided = !alone;
        self.start_again(seat);
    }

    /// The user of a machine that has left starts it again.
    pub(in crate::world) fn return_to_it(&mut self, seat: Seat) {
        let host = &mut self.hosts[seat];
        if matches!(host.ended, Some(Event::Left { .. })) && !self.is_stood_in_for(seat) {
            let host = &mut self.hosts[seat];
            (host.ended, host.leaving, host.has_last) = (None, false, None);
            self.running += 1;
            self.start(seat);
        }
    }

    /// It takes part.
    fn take_part(&mut self, seat: Seat, outcome: &Decision) {
        self.note_twin(seat);
        let host = &self.hosts[seat];
        let (me, now) = (host.contact.clone(), host.clock(self.now));
        let mut record = host.disk.record();
        if self.sabotage == Some(Sabotage::ForgetsPromise)
            && let Some(record) = &mut record
        {
            (record.promised, record.accepted, record.echoed) = (None, None, None);
        }
        let mut known = self.known_to(seat, record.as_ref());
        if !self.plan.hostility.seats.is_empty() {
            known = self.ticket(seat);
        }
        self.hosts[seat].guided = false;
        let host = &self.hosts[seat];
        let noted = self.noted_by(seat);
        let contacts: Vec<Contact> = known.into_iter().map(|peer| Contact { peer, addresses: Vec::new() }).collect();
        let disk = host.disk.clone();
        let initial = self.workload.ledger();
        let config = Config { incarnation: self.incarnation_of(seat), ..self.config.clone() };
        self.hosts[seat].is_outside = matches!(outcome, Decision::Join { .. });
        if let Decision::Join { members, .. } = outcome {
            self.hear_of_keepers(seat, members);
        }
        let mut file = None;
        let before = |state: Option<&State>| {
            let none = Progress { has_state: state.is_some(), ..Progress::default() };
            state.map_or(none, |state| Progress { step: state.step, lineage: state.lineage, ..none })
        };
        let awaited = if let Decision::Join { awaited, .. } = outcome { Some(awaited) } else { None };
        let of_seat = |awaited: &WaitStatus| record.as_ref().and_then(|record| awaited.apart(record));
        let apart = awaited.and_then(|awaited| of_seat(awaited).or_else(|| waits(&disk)));
        let (mut machine, mut state) = match (outcome, record) {
            (Decision::Recover { has_state, can_begin }, Some(record)) => {
                // Where nobody is asked, nobody has looked what the disk holds either.
                let (begins, may_begin) = checkpoints::begins(&disk, noted, (me.peer, &record));
                let is_told = self.plan.hostility.seats.is_empty();
                let (claims, can_begin) = if is_told { (*has_state, *can_begin) } else { (begins, may_begin) };
                let (state, saved) = checkpoints::found(&disk, (&record, claims), initial, self.sabotage);
                if is_told && *has_state && saved.is_none() && !begins {
                    let seen = format!("{seat} comes back as one that holds a state, and can load none");
                    self.breaks(Err(Broken::new("holds_what_it_says", seen)));
                }
                file = saved;
                let progress = before(state.as_ref());
                let me = with_key(me.clone());
                let mut machine = Membership::recover(config, RUN, me, (record, noted), contacts, progress, now);
                if can_begin {
                    machine.allow_to_begin();
                }
                (machine, state)
            }
            (Decision::Fork, record) => {
                let listed = if let ContactsFile::Whole(contacts) = disk.contacts() { contacts.view } else { None };
                let seat_of = |record: &Record| (record.view.generation, record.view.id());
                let parent = record.as_ref().map(seat_of).or(listed);
                let Some(state) = checkpoints::for_fork(&disk, record.as_ref(), initial) else {
                    return self.is_told_to_say_more(seat); // What it has is damaged.
                };
                let progress = before(Some(&state));
                (Membership::fork(config, RUN, with_key(me.clone()), parent, contacts, progress, now), Some(state))
            }
            (Decision::Found, _) => {
                let progress = Progress { has_state: true, ..Progress::default() };
                let machine = Membership::found(config, RUN, with_key(me.clone()), progress, now);
                machine.view().cloned().iter().for_each(|first| self.begin_branch(seat, first));
                (machine, Some(State::initial(initial)))
            }
            (_, _) => {
                let machine = Membership::join(config, RUN, with_key(me.clone()), contacts, now);
                (machine, Some(State::initial(initial)))
            }
        };
        match self.sabotage {
            Some(Sabotage::Machine(flaw)) => machine.plant(flaw),
            // Else the others would wait for who holds what their view began with.
            Some(Sabotage::ClaimsInitialState) => machine.plant(FlawKind::GoesBack),
            _ => {}
        }
        let at = state.as_ref().map(|state| state.step);
        self.last_state_lost |= self.hosts[seat].has_last.is_some() && at < Some(self.workload.steps);
        self.tell(|_| format!("{seat} starts as {:?} at {at:?}", me.peer));
        self.mark(seat, What::Starts);
        self.meet_keepers(seat);
        self.measure_later(seat, self.hosts[seat].incarnation);
        if let (Some(file), Some(state), true) = (&file, &state, self.hosts[seat].is_judged()) {
            let actual = self.hosts[seat].disk.checkpoints().get(&(state.step, state.lineage)).unwrap_or(file);
            let held = self.invariants.verified_checkpoints.loaded(me.peer, actual, state);
            self.breaks(held);
            // What a quorum of a later view has signed need not follow from where this one stood: the others may have gone back.
            if !self.hosts[seat].fetched.contains(&(state.step, state.lineage)) {
                let held = self.invariants.own_branch.loaded(me.peer, state);
                self.breaks(held);
            }
        }
        if let Some(state) = &mut state
            && self.sabotage == Some(Sabotage::MistakesLineage)
            && file.is_some()
        {
            state.digest.0[0] ^= 1;
        }
        self.begins_anew(seat);
        let host = &mut self.hosts[seat];
        self.running += usize::from(!host.started && !host.is_hostile());
        (host.started, host.off, host.gave_up, host.told) = (true, false, false, false);
        host.saves_until = starling_topology::Time::ZERO;
        host.alarms.clear();
        host.root = host.disk.record().map_or_else(Root::default, |record| record.root);
        let lies = host.liar.as_ref().is_some_and(|liar| liar.has_begun());
        let number = seat as u64 | u64::from(host.incarnation) << 32;
        let mut rng = Rng::new(self.seed ^ 0x00d0_4075 ^ number);
        let pace = if self.seed.is_multiple_of(2) { rng.micros(0, 200_000) } else { Duration::ZERO };
        let manners = Manners { rots: self.plan.rots, lies, pace, rng };
        let start = Start {
            commits: Rc::clone(&self.commits),
            contact: me,
            machine,
            state: state.map(Rc::new),
            speed: host.speed,
            lacking: host.lacking,
            sabotage: self.sabotage,
            manners,
            gated: self.plan.gated,
            apart,
            may_be_leaf: matches!(self.setup.scenario, Scenario::Star | Scenario::Leaf),
            max_stall: self.config.max_stall,
        };
        host.peer = Some(Peer::new(start, Rc::clone(&self.workload), self.early_limit));
        let incarnation = host.incarnation;
        self.with(seat, incarnation, Peer::begin_held);
        self.look_later(seat, incarnation);
        self.retell_later(seat, incarnation);
    }

    /// Those that wait outside, or go on alone as forks, and know nobody but peers that are gone for good: their users start them
    /// again, with the address of somebody who is there.
    pub(in crate::world) fn guide_the_lost(&mut self) {
        let in_view = |host: &Host| host.is_in_the_run() && host.disk.has_record();
        let gone = |peer: &PeerId| !self.all_of(*peer).any(|seat| in_view(&self.hosts[seat]));
        let lost = |host: &Host| {
            let is_fork =
                |view: &View| view.forked && view.members().len() == 1 && self.invariants.progress.is_healed();
            let is_apart = |peer: &&Peer| host.stopped.is_none() && peer.view().is_none_or(is_fork);
            let peer = host.peer.as_ref().filter(is_apart);
            peer.is_some_and(|peer| peer.knows().all(|other| other == host.name() || gone(&other)))
        };
        let lost: Vec<Seat> = (0..self.hosts.len()).filter(|seat| lost(&self.hosts[*seat])).collect();
        for seat in lost {
            let name = self.hosts[seat].name();
            if self.hosts.iter().any(|other| other.name() != name && in_view(other)) {
                self.close_process(seat, false);
                self.hosts[seat].guided = true;
                self.start(seat);
            }
        }
    }

    /// All wait outside for each other, since nobody has a seat any more or has given it up to one that has none, and have done so for
    /// long: where forks are allowed, the user of one has it go on alone.
    pub(in crate::world) fn end_the_wait(&mut self) {
        let progress = &self.invariants.progress;
        let Some(patience) = self.config.fork_after.map(|after| after + self.config.max_stall * 10) else { return };
        if !progress.is_healed() || !progress.stands_still(self.now, patience) || !self.completed.is_empty() {
            return;
        }
        let runs = |seat: &Seat| self.hosts[*seat].is_in_the_run() && self.hosts[*seat].peer.is_some();
        let is_seated = |seat: Seat| self.hosts[seat].peer.as_ref().is_some_and(|peer| peer.view().is_some());
        let Some(seat) = self.honest().find(runs).filter(|_| !self.honest().any(is_seated)) else { return };
        self.close_process(seat, false);
        let host = &mut self.hosts[seat];
        (host.choice, host.guided) = (Some(ReturnOptions { alone: true, ..ReturnOptions::default() }), false);
        self.invariants.progress.goes_on(self.now);
        self.start(seat);
    }

    /// Where a disk was set back, a view may have two successors, neither of which is a fork and gives way. Who is left alone in one, and
    /// waits there for more members, is started again by its user once, with a ticket of those who go on.
    pub(in crate::world) fn reunite(&mut self) {
        let progress = &self.invariants.progress;
        let is_due = progress.is_healed() && progress.stands_still(self.now, self.config.max_stall * 10);
        if !self.forgotten || !is_due || !self.completed.is_empty() {
            return;
        }
        let least = self.plan.min_members;
        let view = |seat: Seat| {
            let host = &self.hosts[seat];
            host.peer.as_ref().filter(|_| host.stopped.is_none() && host.is_in_the_run()).and_then(Peer::seat)
        };
        let is_alone = |seat: &Seat| {
            let is_new = !self.hosts[*seat].reunited;
            is_new && view(*seat).is_some_and(|it| !it.forked && it.members().len() == 1 && least > 1)
        };
        let can = |seat: Seat| self.hosts[seat].peer.as_ref().is_some_and(Peer::goes_on);
        let goes_on = |seat: Seat| can(seat) && view(seat).is_some_and(|it| !it.forked && it.members().len() >= least);
        let Some(seat) = self.honest().find(is_alone).filter(|_| self.honest().any(goes_on)) else { return };
        self.close_process(seat, false);
        let host = &mut self.hosts[seat];
        (host.choice, host.guided, host.reunited) = (None, true, true);
        self.invariants.progress.goes_on(self.now);
        self.start(seat);
    }

    /// Whom a ticket names: those who are in the run, members first.
    fn ticket(&self, me: Seat) -> Vec<PeerId> {
        let name = self.hosts[me].name();
        let others = self.hosts.iter().filter(|host| host.name() != name && host.is_in_the_run());
        let mut others: Vec<&Host> = others.collect();
        others.sort_by_key(|host| !host.disk.has_record());
        others.into_iter().map(Host::name).take(CONTACTS).collect()
    }
}

/// What a machine that was a member waits for, from what it has noted.
fn waits(disk: &Disk) -> Option<AbsenceReason> {
    let ContactsFile::Whole(contacts) = disk.contacts() else { return None };
    contacts.left.as_ref().map(LeaveRecord::apart)
}

/// Whether nothing on its disk says that it was here before.
fn is_new_to(host: &Host) -> bool {
    let is_listed = *host.disk.contacts() != ContactsFile::Missing;
    !host.disk.has_record() && !host.disk.has_lost_its_record() && !is_listed
}

/// Whether it is the founder's, of whom nobody has heard anything.
fn founds(host: &Host, seat: Seat) -> bool {
    seat == 0 && !host.has_stored
}

/// What an outcome is called.
fn name(outcome: &Decision) -> &'static str {
    match outcome {
        Decision::Found => "founds",
        Decision::Recover { has_state: true, .. } => "takes its seat",
        Decision::Recover { has_state: false, .. } => "takes its seat without a state",
        Decision::Join { awaited, .. } if awaited.why == WaitKind::Live => "joins",
        Decision::Join { awaited, .. } if awaited.why == WaitKind::Stayed => "waits for those who stayed",
        Decision::Join { awaited, .. } if awaited.why == WaitKind::Lacking => "waits for those who lack the end",
        Decision::Join { .. } => "waits for others",
        Decision::Fork => "forks",
        Decision::Over => "is over",
        Decision::Unknown => "only its user can know",
        Decision::Behind(_) => "may be behind",
        Decision::OthersBranch => "is not alone",
    }
}
