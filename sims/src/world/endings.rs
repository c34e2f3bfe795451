//! How a run must end: everyone ends, and each with a reason.

use std::collections::BTreeSet;

use starling_engine::return_engine::ReturnOptions;
use starling_topology::{Digest, Event, MarkStatus, PeerId, RefusalReason, Root, View};

use super::World;
use crate::hardware::machine::checkpoints;
use crate::hardware::machine::contacts::ContactsFile;
use crate::hardware::machine::host::Host;
use crate::hardware::network::Seat;
use crate::peer::Peer;
use crate::verdict::invariants::Broken;
use crate::verdict::report::Deserted;

const NAME: &str = "endings";

impl World {
    /// Whether nobody runs any more, or only those to whom nobody is left to talk.
    pub(super) fn is_over(&self) -> bool {
        self.over || (self.running == 0 && self.is_out_of_faults())
    }

    /// Whether all who still run came back too late: the others have completed the run, or left it, and are gone.
    pub(super) fn is_abandoned(&self) -> bool {
        let progress = &self.invariants.progress;
        let quiet = progress.stands_still(self.now, self.config.max_stall * 3);
        let may_be_over = !self.completed.is_empty() || self.is_deserted();
        progress.is_healed() && quiet && may_be_over && self.stuck().is_empty()
    }

    /// Whether the run can't go on, whatever those do who are left: nobody of them has the state, or they are too few.
    pub(super) fn is_deserted(&self) -> bool {
        self.deserted().is_some()
    }

    /// Why it can't, if so.
    pub(super) fn deserted(&self) -> Option<Deserted> {
        // Where some are hostile, nothing is done to the others that they could be short for. But who alone has a state that is on
        // no disk yet may lose its power, before anybody has it.
        if !self.plan.hostility.seats.is_empty() {
            let is_none_due = self.invariants.progress.highest() < self.config.checkpoint_every;
            return self.has_lost_the_state().filter(|_| is_none_due);
        }
        let short = || self.is_short_of_votes().then_some(Deserted::NoQuorum);
        let most_left = || self.have_most_left().then_some(Deserted::MostLeft);
        short().or_else(most_left).or_else(|| self.has_lost_the_state())
    }

    /// Whether those who could have saved what was due before the newest view have left in order, nobody who is left has it, and
    /// nobody may go on as a fork: no member can know that it was not stable. Who is left, and has lost what it had signed, has signed
    /// that with them.
    fn have_most_left(&self) -> bool {
        if self.config.fork_after.is_some() || self.honest().any(|seat| self.has_a_copy(seat)) {
            return false;
        }
        let since = self.newest_step.checked_rem(self.config.checkpoint_every);
        let due = self.newest_step - since.unwrap_or(self.newest_step);
        let in_the_run = self.hosts.iter().filter(|host| host.is_in_the_run());
        let usable =
            in_the_run.flat_map(|host| host.disk.checkpoints().keys().filter(|(step, _)| host.disk.has_usable(*step)));
        let (step, lineage) = usable.max().copied().unwrap_or_default();
        let left = self.hosts.iter().filter(|host| matches!(host.ended, Some(Event::Left { .. })));
        let left: BTreeSet<PeerId> = left.map(Host::name).collect();
        let may_have_signed = |noted: MarkStatus| match noted {
            MarkStatus::Nothing => false,
            MarkStatus::Saved(mark) => mark.step > step,
            MarkStatus::Unknown => true,
        };
        let has_lost = |host: &&Host| host.is_in_the_run() && may_have_signed(host.disk.noted());
        let lost = self.hosts.iter().filter(has_lost).map(Host::name);
        let signed: BTreeSet<PeerId> = left.iter().copied().chain(lost).collect();
        let may_hold = |view: &View| left.iter().any(|peer| view.votes(*peer));
        let could_decide =
            |view: &View| view.generation >= lineage.generation && may_hold(view) && view.has_quorum(&signed);
        step < due && self.known.values().any(could_decide)
    }

    /// Whether no peer has a state to go on from. What peers say does not excuse them for what most of a view had on disk, if
    /// that is still there, but where the last member left in order, with a later one.
    fn has_lost_the_state(&self) -> Option<Deserted> {
        if self.honest().any(|seat| self.has_a_copy(seat)) {
            return None;
        }
        // Who comes back asks keepers.
        let roots: Vec<Root> =
            self.honest().filter_map(|seat| Some(self.hosts[seat].disk.newest_record()?.root)).collect();
        if self.is_kept(|proof| roots.iter().any(|root| root.may_admit(proof.head.step, &proof.view))) {
            return None;
        }
        let is_last = |host: &Host| {
            let last = host.disk.record().map(|record| record.view.id());
            matches!(&host.ended, Some(Event::Left { stayed }) if stayed.is_empty())
                && last == self.newest.as_ref().map(View::id)
        };
        if self.hosts.iter().any(is_last) {
            return Some(Deserted::LastLeft);
        }
        let in_the_run = || self.hosts.iter().filter(|host| host.is_in_the_run());
        let holds = |host: &&Host, step, digest| host.disk.holds(step, digest) && host.disk.has_usable(step);
        let holder = |step, digest| in_the_run().find(|host| holds(host, step, digest)).map(Host::name);
        let newest = self.newest.as_ref().filter(|_| !self.damaged);
        let lost = newest.is_none_or(|newest| !self.invariants.stable_survives.is_held(newest.id(), holder));
        lost.then_some(Deserted::NoState)
    }

    /// Whether the newest view has no quorum left, for ever: too many of its members left in order, or their disks have
    /// forgotten it, or never heard of it. Without forks the run is over then: whoever is left can't know that it is not
    /// the others who went on.
    fn is_short_of_votes(&self) -> bool {
        let Some(newest) = self.newest.as_ref().filter(|_| self.config.fork_after.is_none()) else { return false };
        let votes = |host: &&Host| {
            let view = host.disk.record().filter(|_| host.is_in_the_run()).map(|record| record.view.id());
            view.is_some_and(|view| view == newest.id() || Some(view) == newest.parent)
        };
        !newest.has_quorum(&self.hosts.iter().filter(votes).map(Host::name).collect())
    }

    /// Somebody who left waits for those who stayed, and they have completed the run and are gone: the user of one that it knows starts
    /// that one again, once. Whether there was such a one.
    pub(super) fn wake_the_finished(&mut self) -> bool {
        if !self.plan.hostility.seats.is_empty() || self.may_differ() || !self.is_abandoned() {
            return false;
        }
        for waiting in 0..self.hosts.len() {
            let Some(root) = self.waits_after_leaving(waiting) else { continue };
            let known = self.known_to(waiting, None);
            let brings = |seat: &Seat| {
                let host = &self.hosts[*seat];
                let is_done = matches!(host.ended, Some(Event::Complete { .. }));
                is_done && known.contains(&host.name()) && self.holds_the_end(*seat, &root)
            };
            let Some(seat) = (0..self.hosts.len()).find(brings) else { continue };
            if let Some(before) = self.hosts[waiting].brought.replace(seat) {
                let seen =
                    format!("{waiting} left, and waits for the end that {before} has held since it was started again");
                self.breaks(Err(Broken::new(NAME, seen)));
                continue;
            }
            let host = &mut self.hosts[seat];
            (host.ended, host.choice, host.guided) = (None, Some(ReturnOptions::default()), false);
            self.running += 1;
            self.tell(|_| format!("{seat} is started again, as {waiting} waits for the end"));
            self.invariants.progress.goes_on(self.now);
            self.start(seat);
            return true;
        }
        false
    }

    /// Whether it holds the last state of this branch, signed.
    fn holds_the_end(&self, seat: Seat, root: &Root) -> bool {
        let disk = &self.hosts[seat].disk;
        let proof = checkpoints::newest_proof(disk, disk.root().as_ref());
        proof.is_some_and(|it| it.head.step >= self.workload.steps && root.may_admit(it.head.step, &it.view))
    }

    /// The branch that it left, if it waits for the end of that. Who holds the end waits for those who lack it.
    fn waits_after_leaving(&self, seat: Seat) -> Option<Root> {
        let host = &self.hosts[seat];
        let waits = host.is_in_the_run() && host.stopped.is_none() && host.peer.as_ref()?.view().is_none();
        let ContactsFile::Whole(contacts) = host.disk.contacts() else { return None };
        let left = contacts.left.as_ref().filter(|left| waits && !left.stayed.is_empty());
        let root = left.filter(|_| !host.disk.has_record())?.root;
        (!self.holds_the_end(seat, &root)).then_some(root)
    }

    /// Those who still run and should not: all, if nobody completed the run, or if it waited for them. Else those who
    /// are in a view that completed it; one that came back too late finds nobody, and that is how it is.
    pub(super) fn stuck(&self) -> Vec<Seat> {
        if self.is_deserted() {
            return Vec::new();
        }
        // Who is left out in the last moment for what a hostile peer says comes back too late as well.
        let may_miss_it = !self.waits_for_all() || !self.plan.hostility.seats.is_empty();
        let excused = !self.completed.is_empty() && may_miss_it;
        let honest = self.hosts.iter().enumerate().filter(|(_, host)| !host.is_hostile());
        // Of two with one name, one that is in no view that completed it has nobody left to tell it so.
        let is_left = |host: &Host| host.twin.is_some_and(|twin| self.completed.contains_key(&twin));
        let running = honest.filter(|(_, host)| host.is_in_the_run() && !is_left(host));
        let final_view = |peer: &Peer| peer.view_id().is_some_and(|view| self.final_views.contains(&view));
        let stuck = running.filter(|(_, host)| !excused || host.peer.as_ref().is_some_and(final_view));
        stuck.map(|(seat, _)| seat).collect()
    }

    /// Whether the last step was held back until all were members, and none of them has ended itself since.
    fn waits_for_all(&self) -> bool {
        self.gated
    }

    /// Somebody ends like that. Whoever had a seat in the newest view, or in the one before, gets the last state while others
    /// that hold it are there, if it comes before they have waited for `max_stall`.
    pub(super) fn note_ending(&mut self, seat: Seat, event: &Event) {
        if let Event::Refused { from, .. } = event {
            let is_liar = self.seats.get(from).is_some_and(|from| self.hosts[*from].is_hostile());
            let are_others = self.honest().any(|other| other != seat && self.hosts[other].is_in_the_run());
            self.hosts[seat].left_to_liars = is_liar && !are_others && !self.completed.is_empty();
        }
        let Some(newest) = self.newest.as_ref().filter(|_| self.completed.is_empty() && !self.forked) else { return };
        let last = self.hosts[seat].disk.record().map(|record| record.view.id());
        let had_a_seat = last.is_some_and(|last| last == newest.id() || Some(last) == newest.parent);
        let Event::Refused { from, refusal: RefusalReason::RunFinished } = event else { return };
        let finished = self.seats.get(from).and_then(|seat| self.hosts[*seat].has_last);
        let has_waited = finished.is_some_and(|at| self.now - at >= self.config.max_stall);
        if had_a_seat && !has_waited {
            self.sent_away.insert(seat);
        }
    }

    /// Looks at how everybody ended.
    pub(super) fn check_endings(&mut self) {
        let mut wrong = Vec::new();
        for (seat, host) in self.hosts.iter().enumerate().filter(|(_, host)| !host.is_hostile()) {
            let expected = match &host.ended {
                None => true,
                Some(Event::Left { .. }) => host.leaving,
                Some(Event::Refused { .. }) if !host.is_judged() => true,
                Some(Event::Twin { .. }) => self.is_one_of_two(seat) || host.set_back,
                Some(Event::Complete { step, digest }) => {
                    *step == self.workload.steps || self.invariants.starved_shares.ends_with(*digest)
                }
                // Who is left out in the last moment for what a hostile peer says comes back too late.
                Some(Event::Refused { refusal: RefusalReason::RunFinished, .. })
                    if !self.plan.hostility.seats.is_empty() && !self.completed.is_empty() =>
                {
                    true
                }
                // Where none but hostile ones are left then, they say what they like of it.
                Some(Event::Refused { .. }) if host.left_to_liars => true,
                // Unless it has that state already.
                Some(Event::Refused { .. }) if self.sent_away.contains(&seat) => {
                    let holds = |digest: &Digest| host.disk.holds(self.workload.steps, *digest);
                    !self.completed.is_empty() && self.completed.values().all(holds)
                }
                Some(Event::Refused { refusal: RefusalReason::RunFinished | RefusalReason::Withdrawn, .. }) => {
                    !self.waits_for_all()
                }
                Some(_) => false,
            };
            if !expected {
                wrong.push(Broken::new(NAME, format!("{seat} ended with {:?}", host.ended)));
            }
        }
        let judged = || self.completed.iter().filter(|(seat, _)| self.hosts[**seat].is_judged());
        // Whoever comes when others have stopped for want of data may go on from there.
        let is_last = |digest: &Digest| !self.invariants.starved_shares.ends_with(*digest);
        let digests: BTreeSet<Digest> = judged().map(|(_, digest)| *digest).filter(is_last).collect();
        // If disks lose what was the last state, those who come back can't know it when the others are gone.
        // And two may have gone on beside each other, unforked, where a disk that was set back let one vote for both.
        // So may who has gone on from a copy of an older disk, where the others had ended.
        let may_differ = self.may_differ();
        if digests.len() > 1 && self.split.is_none() && !self.last_state_lost && (!may_differ || self.waits_for_all()) {
            wrong.push(Broken::new(NAME, format!("they completed with different states: {:?}", self.completed)));
        }
        // What one did alone, of whom there are two, is nothing that others can tell from what the other one did.
        for (seat, digest) in judged().filter(|_| self.twins.voted_twice().is_none()) {
            let ended = &self.hosts[*seat].ended;
            let step = if let Some(Event::Complete { step, .. }) = ended { *step } else { self.workload.steps };
            let (name, samples) = (self.hosts[*seat].name(), self.workload.samples);
            wrong.extend(self.invariants.every_sample_once.ended(name, *digest, step, samples).err());
        }
        wrong.extend(self.invariants.twin_told.ended().err());
        wrong.into_iter().for_each(|broken| self.breaks(Err(broken)));
    }

    /// Whether two that complete the run need not have come to the same: somebody has gone on alone on purpose, or has voted twice.
    pub(super) fn may_differ(&self) -> bool {
        let has_twins = self.hosts.iter().any(|host| host.twin.is_some());
        self.forked || self.forgotten || has_twins
    }
}
