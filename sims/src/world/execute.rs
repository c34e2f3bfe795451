//! What peers want, and what the invariants say to it.

use std::rc::Rc;

use starling_engine::member::completion::departs;
use starling_engine::member::quorum_search::is_end;
use starling_engine::return_engine::LeaveRecord;
use starling_topology::plan::{Plan, PlanPolicy};
use starling_topology::{CatchUpAction, Digest, Event, Head, PeerId, Proposal, Reason, Record, Root, Time, View};

use super::seeking::Errand;
use super::{SimEvent, World};
use crate::hardware::machine::checkpoints;
use crate::hardware::machine::host::Host;
use crate::hardware::network::{Seat, Sent};
use crate::peer::{Commit, Effect, Entered, Peer};
use crate::steps::message::{Lane, Message};
use crate::steps::state::State;
use crate::steps::workload::PLANNED;
use crate::sweep::canary::Sabotage;
use crate::sweep::fault::Queue;
use crate::verdict::invariants::{DampedLinks, LastCheckpoint};
use crate::verdict::report::picture::What;

impl World {
    /// Does what a process wants, in order, until it dies of it.
    pub(super) fn execute_all(&mut self, seat: Seat, incarnation: u32, effects: Vec<Effect>) {
        for effect in effects {
            if self.hosts[seat].incarnation != incarnation || self.hosts[seat].peer.is_none() {
                return;
            }
            self.execute(seat, effect);
        }
        let end = self.hosts[seat].peer.as_ref().and_then(|peer| peer.end().cloned());
        if let Some(event) = end {
            self.end(seat, event);
        }
    }

    fn execute(&mut self, seat: Seat, effect: Effect) {
        if let Effect::Entered(entry) = &effect {
            self.note_contacts(seat, &entry.resumption.view);
        }
        self.chronicle(seat, &effect);
        let effect = if self.hosts[seat].is_hostile() { self.execute_hostile(seat, effect) } else { Some(effect) };
        let effect = effect.and_then(|effect| match self.hosts[seat].twin {
            Some(_) => self.execute_twin(seat, effect),
            None => Some(effect),
        });
        let Some(effect) = effect else { return };
        let name = self.hosts[seat].name();
        let incarnation = self.hosts[seat].incarnation;
        match effect {
            Effect::Send(to, message) => {
                if let Some(to) = self.reach(seat, to, &message) {
                    self.send(seat, to, message);
                }
            }
            Effect::Connect(others) => {
                for other in others {
                    let Some(other) = self.at(seat, other) else { continue };
                    if self.hosts[other].peer.is_some() {
                        self.network.connect(seat, other);
                    }
                }
            }
            Effect::Timer(timer, at) => {
                let when = self.hosts[seat].world_time(at).max(self.now);
                self.queue.push(when, SimEvent::Expires(seat, incarnation, timer, at));
            }
            Effect::CallBack(call, at) => {
                let when = self.hosts[seat].world_time(at).max(self.now);
                self.queue.push(when, SimEvent::Seeks(seat, incarnation, Errand::Calls(call)));
            }
            Effect::Search(terms) => self.search_for_more(seat, terms),
            Effect::Notices => {
                let when = self.now + self.looks.spread(1, 20_000);
                self.queue.push(when, SimEvent::Seeks(seat, incarnation, Errand::Notices));
            }
            Effect::AskKeepers(keepers) => self.ask_keepers(seat, &keepers),
            Effect::GiveUpSearch => self.hosts[seat].seeking = None,
            Effect::ComeBack => {
                self.tell(|_| format!("{seat} finds that the run has gone on without it, and comes back"));
                self.close_process(seat, false);
                self.start(seat);
            }
            Effect::NoPlace => self.become_leaf(seat),
            // This is when that fault strikes.
            Effect::Rotted => self.invariants.progress.disturbed(self.now, "memory is bad"),
            Effect::Alarm(at) => {
                self.hosts[seat].alarms.insert(at);
                let when = self.hosts[seat].world_time(at).max(self.now);
                self.queue.push(when, SimEvent::Rings(seat, incarnation, at));
            }
            Effect::Compute(computation) => self.compute(seat, computation),
            Effect::Persist(record) => {
                self.judge_choice(seat, &record);
                // One that takes longer than the others wait is a fault too, and those are over once all is healed.
                let slow = self.rng.one_in(40) && !self.invariants.progress.is_healed();
                let takes = if slow { self.rng.spread(50_000, 3_000_000) } else { self.rng.spread(100, 50_000) };
                let (until, is_late) = (self.now + takes, takes > self.config.promise_limit() / 4);
                let host = &mut self.hosts[seat];
                host.storing = Some(Rc::clone(&record));
                host.late_until = if is_late { until } else { host.late_until };
                self.queue.push(self.now + takes, SimEvent::Stores(seat, incarnation, record));
            }
            Effect::Keep(_) => {} // It is in the history.
            Effect::Root(root) => self.root_in(seat, root),
            // One that comes to a full queue is left out, and the next one may be taken.
            Effect::Save(state) if self.is_full(seat, Queue::Saver) && state.step < self.workload.steps => {
                self.with(seat, incarnation, |peer, _| peer.leave_out());
            }
            Effect::Save(state) => {
                // One after the other.
                let host = &mut self.hosts[seat];
                host.saves_until = host.saves_until.max(self.now) + self.rng.spread(100, 400_000);
                self.queue.push(host.saves_until, SimEvent::Saved(seat, incarnation, state));
            }
            Effect::Announce(others, head) => {
                self.announce(seat, &others, &head);
                self.announce_to_keepers(seat, &head);
            }
            Effect::Stable(_) if self.is_full(seat, Queue::Saver) => {}
            Effect::Stable(proof) => self.hosts[seat].disk.sign(&proof),
            Effect::Entered(entry) => self.entered(seat, &entry),
            Effect::Loaded(state) => {
                self.tell(|_| format!("{seat} loads the state of step {}", state.step));
                self.mark(seat, What::Loads);
                self.invariants.progress.goes_on(self.now);
                self.invariants.nothing_dropped.begins_anew(name);
                self.invariants.starved_shares.begins_anew(name);
                let held = self.invariants.bitwise_agreement.holds(name, &state);
                self.breaks(held);
            }
            Effect::Committed(commit) => self.committed(seat, &commit),
            Effect::Keeps(what, length, limit) => {
                let held = self.invariants.bounded_queues.keeps(name, what, length, limit);
                self.breaks(held);
            }
            Effect::Settled(settled, record) => {
                let divisor = self.workload.divisor();
                let held = self.invariants.nothing_dropped.settled(name, &settled, &record, divisor);
                self.breaks(held);
            }
            Effect::Downloads => self.invariants.progress.goes_on(self.now),
            Effect::Ends(why) => {
                self.tell(|_| format!("{seat} ends: {why}"));
                self.mark(seat, What::Ends);
                self.close_process(seat, false);
                // Whoever wanted to leave has its place still.
                self.hosts[seat].leaving = false;
                self.start_again(seat);
            }
            Effect::Told(event) => {
                self.tell(|_| format!("{seat}: {event:?}"));
                if let Event::Changed { generation, reasons, .. } = &event
                    && reasons.contains(&Reason::Replanned)
                {
                    self.replans.insert(*generation);
                }
                if matches!(event, Event::SetBack { .. }) {
                    self.told_set_back(seat);
                    self.told_of_twin(seat, false);
                }
                if matches!(event, Event::Complete { .. }) {
                    self.hosts[seat].completed = Some(self.now);
                }
                if matches!(event, Event::Twin { .. }) {
                    self.told_of_twin(seat, true);
                }
                if let Event::Evicted { by } = event {
                    let held = self.keeps_who_proposes(seat, by);
                    self.breaks(held);
                    self.mark(seat, What::Evicted);
                    self.begins_anew(seat);
                }
            }
            Effect::Blames(other, violation) => self.blamed(seat, other, &violation),
            Effect::CloseLeaf(leaf) => {
                if let Some(leaf) = self.seats.get(&leaf).copied() {
                    self.close_leafs(seat, leaf);
                }
            }
            Effect::Gathered(gathered) => {
                let held = self.invariants.leaf_counts_once.gathered(name, &gathered);
                self.breaks(held);
            }
            Effect::OfLeaves(event) => {
                self.leaf_totals.happened(&event);
                self.tell(|_| format!("{seat}: {event:?}"));
            }
            Effect::BlamesLeaf(leaf, violation) => self.blames_leaf(seat, leaf, violation),
            Effect::Broken(broken) => self.breaks(Err(broken)),
        }
    }

    /// What is gossiped gets to those who can be reached just then, at some time, mostly.
    fn announce(&mut self, from: Seat, others: &[PeerId], head: &Head) {
        let name = self.hosts[from].name();
        let others = others.iter().filter(|other| **other != name);
        for to in others.flat_map(|other| self.all_of(*other)).collect::<Vec<Seat>>() {
            if self.network.is_blocked(from, to) || self.gossip.one_in(8) {
                continue;
            }
            let at = self.now + self.gossip.spread(200, 2_000_000);
            self.queue.push(at, SimEvent::Heard(to, name, Box::new(*head)));
        }
    }

    pub(super) fn begins_anew(&mut self, seat: Seat) {
        let name = self.hosts[seat].name();
        self.invariants.monotonic_generation.begins_anew(name);
        self.invariants.nothing_dropped.begins_anew(name);
        self.invariants.starved_shares.begins_anew(name);
        self.invariants.nothing_undone.begins_anew(name);
        self.invariants.votes_given.begins_anew(name, self.invariants.progress.highest());
    }

    pub(super) fn send(&mut self, from: Seat, to: Seat, message: Message) {
        let lane = message.lane();
        if matches!(message, Message::Segment(_)) && std::mem::take(&mut self.hosts[from].swallows) {
            self.invariants.progress.disturbed(self.now, "segment lost"); // This is when that fault strikes.
            return;
        }
        if lane == Lane::Control && self.is_full(from, Queue::Control) {
            return self.find_no_room(from, to);
        }
        self.note_decision(from, &message);
        let (incarnation, host) = (self.hosts[from].incarnation, &self.hosts[to]);
        if matches!(message, Message::OfCarrier(..)) && !self.has_its_stream(from, to) {
            return; // What it would go over is gone, whether that is known or not.
        }
        // A router lets nothing in that was not asked for.
        let is_shut = self.is_leafs(to) && self.network.open(from, to, lane).is_none();
        if (host.peer.is_none() && host.leaf.is_none()) || is_shut {
            let gone = host.off || self.network.is_blocked(from, to) || self.network.is_blocked(to, from);
            let takes = if gone { self.network.patience() } else { self.network.delay(from, to) };
            let event = match self.network.open(from, to, lane) {
                Some(number) => SimEvent::Closes(from, to, lane, number),
                None => SimEvent::Refused(from, incarnation, to, lane),
            };
            return self.queue.push(self.now + takes, event);
        }
        let bytes = message.bytes(self.workload.result_bytes(), self.workload.chunk_bytes);
        match self.network.send(self.now, from, to, message, bytes) {
            Sent::Arrives(at, parcel) => self.queue.push(at, SimEvent::Arrives(parcel, incarnation)),
            Sent::Stalls(at, number) => self.queue.push(at, SimEvent::Stalled(from, to, lane, number)),
            Sent::Waits => {}
        }
    }

    fn compute(&mut self, seat: Seat, computation: u64) {
        let (least, most) = (self.workload.compute_least, self.workload.compute_most);
        let micros = |time: std::time::Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let host = &self.hosts[seat];
        let full = host.peer.as_ref().is_some_and(Peer::is_full);
        let takes = self.rng.micros(micros(least), micros(most)) * if full { host.slower } else { 0 };
        let (slow, until) = (full && host.slower > 1, self.now + takes);
        self.hosts[seat].computes_until = if slow { until } else { self.now };
        let host = &self.hosts[seat];
        self.queue.push(self.now + takes, SimEvent::Computed(seat, host.incarnation, computation));
    }

    /// Lets the last step begin once all faults are over and all peers are full members of one view.
    pub(super) fn release(&mut self) {
        // What had been sent into the void may have closed its connection by then.
        if !self.plan.gated || !self.invariants.progress.was_healed(self.now, self.network.patience()) {
            return;
        }
        let honest = self.hosts.iter().enumerate().filter(|(_, host)| host.is_in_the_run() && !host.is_hostile());
        let mut views = honest.filter(|(seat, _)| !self.is_stood_in_for(*seat)).map(|(_, host)| {
            let full = host.peer.as_ref().filter(|peer| peer.is_full());
            full.and_then(|peer| peer.view())
        });
        let first = views.next().flatten();
        // Nor before links that have failed are tried again, unless somebody may say for ever that they fail.
        let is_tried = |view: &View| !view.is_unsteady() || !self.plan.hostility.seats.is_empty();
        if first.is_some_and(is_tried) && views.all(|view| view == first) {
            self.plan.gated = false; // It is held back once.
            self.invariants.progress.goes_on(self.now);
            for seat in 0..self.hosts.len() {
                let incarnation = self.hosts[seat].incarnation;
                self.with(seat, incarnation, Peer::release);
            }
        }
    }

    /// The disk is done with a record, in one way or another.
    pub(super) fn store(&mut self, seat: Seat, record: Rc<Record>) {
        let doomed = self.hosts[seat].doomed.take();
        if let Some(crash) = doomed.filter(|crash| crash.at_record == Some(false)) {
            return self.die(seat, crash);
        }
        if !self.hosts[seat].is_hostile() {
            let held = self.keeps_whom_a_hub_reaches(&record);
            self.breaks(held);
            self.note_record(seat, &record);
            if self.plan.hostility.seats.is_empty() {
                let held = self.invariants.damped_links.wrote(self.now, &record);
                self.breaks(held);
            }
            // What a liar brings is nothing, perhaps, and what one of two does nobody has looked at.
            let (seats, hosts) = (&self.seats, &self.hosts);
            let is_excused = |peer, stepped| {
                let host = seats.get(&peer).map(|seat| &hosts[*seat]);
                host.is_some_and(|host| host.twin.is_some() || (host.is_hostile() && stepped))
            };
            // Nor does anybody else vote in what liars have begun alone, which whoever joins takes their word for.
            let is_liars = |peer: &PeerId| seats.get(peer).is_some_and(|seat| hosts[*seat].is_hostile());
            let begun_by = |origin: &Proposal| {
                let joins = |peer: &PeerId| origin.joiners.iter().any(|joiner| joiner.contact.peer == *peer);
                origin.view.members().iter().filter(|peer| !joins(peer)).all(is_liars)
            };
            let is_unsigned = record.view.forked || record.certificate.is_none();
            if !(is_unsigned && record.origin.as_ref().is_some_and(begun_by)) {
                let held = self.invariants.votes_given.wrote(&record, is_excused);
                self.breaks(held);
            }
        }
        self.note_vote(seat, &record);
        let held = self.tells_what_it_forgot(seat, &record);
        self.breaks(held);
        let host = &mut self.hosts[seat];
        host.storing = None;
        host.copy_disk();
        let (is_stored, incarnation) = (host.disk.write_record(record).is_ok(), host.incarnation);
        host.has_stored |= is_stored;
        host.is_outside &= !is_stored;
        if is_stored {
            host.places.clear(); // It notes where it listens itself.
        }
        if let Some(crash) = doomed {
            return self.die(seat, crash);
        }
        if self.sabotage == Some(Sabotage::VotesUnstored) {
            return; // It believes that it is stored already.
        }
        if !is_stored {
            self.tell(|_| format!("{seat} can't store its record"));
        }
        self.with(seat, incarnation, |peer, now| if is_stored { peer.persisted(now) } else { peer.not_persisted(now) });
    }

    /// The disk is done with a state. The name under which it has it, if it does.
    pub(super) fn saved(&mut self, seat: Seat, state: &State) -> Option<Digest> {
        let rotten = self.plan.rots && self.rng.one_in(6);
        self.damaged |= rotten;
        let host = &mut self.hosts[seat];
        host.damaged |= rotten;
        host.copy_disk();
        let kept = host.keeps_its_own(state);
        let before = LastCheckpoint::good(&host.disk);
        let saved = checkpoints::save(&mut host.disk, host.root, state, rotten, self.sabotage);
        let full = saved.is_err();
        // Who has it and does not sign for it has promised otherwise.
        let vouches = host.peer.as_ref().is_some_and(|peer| peer.vouches_for(state));
        if vouches && host.disk.holds(state.step, state.digest) && host.is_judged() {
            self.invariants.stable_survives.saved(host.name(), state);
        }
        let held = match host.is_judged() {
            false => Ok(()),
            true => self.invariants.last_checkpoint.tidied(host.name(), before, &host.disk),
        };
        self.breaks(kept);
        let step = state.step;
        if step == self.workload.steps {
            self.hosts[seat].has_last.get_or_insert(self.now);
            self.last_state_lost |= full;
        }
        self.tell(|_| format!("{seat} {} a checkpoint of step {step}", if full { "has no room for" } else { "saves" }));
        self.breaks(held);
        saved.ok().flatten()
    }

    fn entered(&mut self, seat: Seat, entry: &Entered) {
        let (view, step) = (&entry.resumption.view, entry.resumption.step);
        let (name, id) = (self.hosts[seat].name(), entry.view);
        // Who has a view installed by its word alone says what it likes of why.
        let is_first = view.forked && view.parent.is_some_and(|parent| self.views.get(&parent) == Some(&false));
        let forks = entry.forks || is_first || self.is_among_liars(seat, view);
        self.forked |= view.forked; // The fork itself may only have waited for members.
        self.tell(|world| {
            let generation = view.generation;
            let members: Vec<Option<&Seat>> = view.members().iter().map(|member| world.seats.get(member)).collect();
            let fork = if forks { ", a fork" } else { "" };
            let catch_up = &entry.resumption.catch_up;
            format!(
                "{seat} enters {id:?} of generation {generation}{fork} after step {step}, {catch_up:?}: {members:?}"
            )
        });
        self.mark(seat, What::Enters(view.generation.0));
        self.views.insert(id, view.forked);
        if !view.severed().is_empty() && matches!(PlanPolicy::Ring.agree(view, PLANNED).plan, Plan::Star(_)) {
            self.stars.insert(id);
        }
        if view.is_unsteady() {
            self.unsteady.insert(id);
        }
        self.invariants.no_split_brain.entered(view, step, forks);
        self.invariants.own_branch.entered(name, &entry.resumption, !entry.progress.has_state);
        // Of a disk that has lost something nothing is asked; nor of a machine beside which an older copy of it speaks under the same name.
        let comes_back = self.hosts.iter().filter(|host| host.is_in_the_run() && host.twin.is_none() && !host.damaged);
        let holds = |step, digest| move |host: &&Host| host.disk.holds(step, digest);
        let holder = |step, digest| comes_back.clone().find(holds(step, digest)).map(Host::name);
        let (seats, hosts) = (&self.seats, &self.hosts);
        let all_of = |peer| seats.get(&peer).into_iter().flat_map(|seat| [Some(*seat), hosts[*seat].twin]).flatten();
        let has = |peer, step| all_of(peer).any(|seat| hosts[seat].disk.has_usable(step));
        let survives = self.invariants.stable_survives.resumed(id, step, holder, has);
        let mut held = vec![
            self.invariants.monotonic_generation.entered(name, view.generation),
            self.invariants.leaf_is_no_member.entered(view),
            self.invariants.one_decision.entered(name, view, id, forks),
            self.invariants.nothing_undone.entered(name, id, &entry.resumption, entry.progress),
            survives,
        ];
        if !view.severed().is_empty() {
            held.push(DampedLinks::plans(view, self.workload.plan, PLANNED));
        }
        if let (CatchUpAction::Current, Some(state)) = (&entry.resumption.catch_up, &entry.state) {
            held.push(self.invariants.bitwise_agreement.resumes(name, id, state));
        }
        held.into_iter().for_each(|held| self.breaks(held));
    }

    /// Whether it has come to this view by their word, among liars alone: once nobody else has answered for long, nothing but their word
    /// is left.
    fn is_among_liars(&self, seat: Seat, view: &View) -> bool {
        let (name, came_by_word) =
            (self.hosts[seat].name(), self.hosts[seat].peer.as_ref().is_some_and(Peer::came_by_word));
        let is_liar = |peer: &PeerId| self.seats.get(peer).is_some_and(|seat| self.hosts[*seat].is_hostile());
        came_by_word && view.members().len() > 1 && view.members().iter().filter(|peer| **peer != name).all(is_liar)
    }

    fn committed(&mut self, seat: Seat, commit: &Commit) {
        let Commit { view: id, record, before, after } = commit;
        let (name, id, step) = (self.hosts[seat].name(), *id, after.step);
        self.tell(|_| format!("{seat} commits step {step}: {:?}", after.digest));
        self.mark(seat, What::Commits(step));
        let invariants = &mut self.invariants;
        let held = [
            invariants.exactly_once.committed(name, before, record, after),
            invariants.bitwise_agreement.committed(name, id, before, after),
            invariants.no_split_brain.committed(name, id, step),
            invariants.starved_shares.committed(name, before, record, after),
        ];
        invariants.stable_survives.committed(id, after);
        invariants.votes_given.committed(id, record);
        invariants.own_branch.committed(before, after);
        invariants.every_sample_once.committed(before, record, after);
        invariants.leaf_state.committed(after, self.workload.steps);
        let highest = invariants.progress.committed(self.now, step);
        held.into_iter().for_each(|held| self.breaks(held));
        if highest {
            self.bring_up(step);
        }
    }

    /// It goes on from here: whatever else its disk has is put aside.
    fn root_in(&mut self, seat: Seat, root: Root) {
        let host = &mut self.hosts[seat];
        host.root = root;
        if !host.disk.hangs() {
            checkpoints::put_aside(&mut host.disk, &root);
        }
    }

    /// A process notes who is in its view, for when it is gone, unless its disk is too busy for that.
    fn note_contacts(&mut self, seat: Seat, view: &View) {
        let is_busy = self.is_full(seat, Queue::Saver);
        let host = &mut self.hosts[seat];
        let me = host.name();
        if !is_busy {
            // It may know of some who are not there any more, and go without those who are.
            let keepers = &host.keepers;
            let _ = host.disk.note_contacts(|contacts| {
                contacts.enter(me, view);
                contacts.learn_keepers(keepers);
            });
        }
    }

    /// A process has left, and others stay, or has finished: it notes that, and only then gives its seat up.
    fn departs(&mut self, seat: Seat, view: Option<&View>, left: LeaveRecord) {
        let host = &mut self.hosts[seat];
        let (me, keepers) = (host.name(), &host.keepers);
        // With all that it knows, though its disk was too busy for that before.
        let noted = host.disk.note_contacts(|contacts| {
            view.into_iter().for_each(|view| contacts.enter(me, view));
            contacts.learn_keepers(keepers);
            contacts.left = Some(left);
        });
        if noted.is_ok() {
            host.disk.remove_record();
        }
    }

    /// The user of a process that has given up starts it again: the others, its device or its disk may be back by then.
    pub(super) fn start_again(&mut self, seat: Seat) {
        self.hosts[seat].gave_up = true;
        self.gated &= self.plan.gated; // Nobody waits at the end for one that ends itself then.
        let later: Time = self.now + self.config.max_stall;
        self.queue.push(later, SimEvent::Starts(seat, self.hosts[seat].incarnation));
    }

    /// A process has come to its end.
    fn end(&mut self, seat: Seat, event: Event) {
        self.tell(|_| format!("{seat} ends: {event:?}"));
        self.mark(seat, What::Ends);
        let peer = self.hosts[seat].peer.as_ref();
        let (view, root) = (peer.and_then(Peer::view_id), peer.and_then(Peer::root));
        let (last, is_saved) = (peer.and_then(Peer::view).cloned(), peer.is_some_and(Peer::is_saved));
        let forked = last.as_ref().is_some_and(|view| view.forked);
        let completed = self.hosts[seat].completed.unwrap_or(self.now);
        let keepers = self.keepers_there(seat);
        self.close_process(seat, false);
        self.hosts[seat].died = Time::from_nanos(u64::MAX); // It ends in order: what it has said is sent.
        let hostile = self.hosts[seat].is_hostile();
        if matches!(event, Event::NoState | Event::NotStored) || (hostile && !matches!(event, Event::Complete { .. })) {
            self.hosts[seat].stranded += u32::from(event == Event::NoState);
            return self.start_again(seat);
        }
        if hostile {
            self.hosts[seat].ended = Some(event);
            return;
        }
        if matches!(event, Event::Twin { .. }) && self.both_have_ended(seat) {
            return self.start_again(seat); // Its user is told to, and why.
        }
        let trusts = self.plan.hostility.seats.is_empty();
        if is_end(&event) && trusts && !std::mem::replace(&mut self.hosts[seat].refused, true) {
            return self.start(seat);
        }
        self.invariants.progress.goes_on(self.now);
        self.note_ending(seat, &event);
        if let Event::Complete { digest, .. } = &event {
            let held = self.left_with_keepers(seat, completed, &keepers);
            self.breaks(held);
            self.completed.insert(seat, *digest);
            // Nobody waits at the end for one that comes when the others have given up.
            self.gated &= !self.invariants.starved_shares.ends_with(*digest);
            self.final_views.extend(view);
        }
        if let (Some(stayed), Some(root)) = (departs(&event, self.workload.steps, is_saved), root) {
            self.departs(seat, last.as_ref(), LeaveRecord { stayed, root, forked });
        }
        self.hosts[seat].ended = Some(event);
        self.running -= 1;
    }
}
