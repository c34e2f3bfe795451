//! Whether a run has all that it takes to go on. Then nothing excuses it if it does not.

use std::collections::BTreeSet;

use starling_topology::{Body, Config, Envelope, LostState, PeerId, Proposal, Quorum, Reason, Record, View};

use super::World;
use crate::hardware::machine::host::Host;
use crate::hardware::network::Seat;
use crate::peer::Peer;
use crate::steps::message::Message;
use crate::verdict::invariants::Progressing;

impl World {
    /// Looks whether the run stands still without a reason.
    pub(super) fn look_for_a_stall(&mut self) {
        let group = self.who_can_go_on();
        // Of those who can't go on any more, some may have talked to others through a hub until now.
        let all_hear = group.as_deref().is_some_and(|group| self.all_hear(group));
        let limit = match (self.plan.hostility.seats.is_empty(), all_hear) {
            (true, true) => Progressing::stall_limit(&self.config),
            (true, false) => Progressing::hub_limit(&self.config),
            (false, _) => Progressing::hostile_limit(&self.config),
        };
        let held = self.invariants.progress.looked(self.now, group.is_some(), limit);
        self.breaks(held);
    }

    /// A view that somebody is told of was decided, whoever has stored it; one that somebody proposes may be.
    pub(super) fn note_decision(&mut self, from: Seat, message: &Message) {
        let Message::Control(sealed) = message else { return };
        let Ok(Envelope { view, body, .. }) = sealed.read() else { return };
        match body {
            _ if self.hosts[from].is_hostile() => {}
            Body::Install { proposal, certificate: Some(_), .. } => {
                if let Some(parent) = proposal.view.parent {
                    self.successors.entry(parent).or_insert_with(|| proposal.view.clone());
                }
            }
            Body::Propose { ballot, justified, .. } => self.judge_proposal(*view, *ballot, justified),
            _ => {}
        }
    }

    /// `seat` writes down that it is in the view of `record`, if its disk takes that.
    pub(super) fn note_record(&mut self, seat: Seat, record: &Record) {
        self.invariants.wrote(record);
        self.guilt.wrote(record);
        self.known.entry(record.view.id()).or_insert_with(|| record.view.clone());
        self.parents.extend(record.view.parent.map(|parent| (record.view.id(), parent)));
        let host = &self.hosts[seat];
        if !host.disk.takes_votes() && is_decided_by(record, host.name()) {
            return;
        }
        if self.newest.as_ref().is_none_or(|newest| newest.generation < record.view.generation) {
            self.newest = Some(record.view.clone());
            self.newest_step = record.origin.as_ref().map_or(0, |origin| origin.resume.step);
        }
        // One by its user's word follows from nothing that others have decided.
        let is_fork = |origin: &Proposal| origin.reasons.contains(&Reason::Forked);
        let forks = record.origin.as_ref().map_or(record.view.forked, is_fork);
        if let Some(parent) = record.view.parent.filter(|_| !forks) {
            let first = self.successors.entry(parent).or_insert_with(|| record.view.clone());
            if *first != record.view {
                self.split = self.split.or_else(|| self.twins.voted_twice());
            }
        }
    }

    /// Peers that can all talk to each other, or all to one of them, and are enough, and one of them holds the state.
    fn who_can_go_on(&self) -> Option<Vec<Seat>> {
        let groups = if self.is_withheld() || self.is_apart() { Vec::new() } else { self.groups() };
        groups.into_iter().find(|group| self.is_enough(group))
    }

    fn all_hear(&self, group: &[Seat]) -> bool {
        group.iter().all(|one| group.iter().all(|other| one == other || self.hear_each_other(*one, *other)))
    }

    /// Whether it is the simulator that holds the run back.
    pub(super) fn is_withheld(&self) -> bool {
        self.plan.gated && self.invariants.progress.highest() + 1 >= self.workload.steps
    }

    /// Whether the newest view is a fork that waits for more members: for those of the view that it left, who go on as a fork first.
    /// How long that may take, [`Progressing::limit`] says.
    fn is_apart(&self) -> bool {
        let is_short = |view: &View| view.forked && view.members().len() < self.config.min_members;
        self.newest.as_ref().is_some_and(is_short)
    }

    /// Peers that nothing is wrong with, in groups between which nothing gets through.
    fn groups(&self) -> Vec<Vec<Seat>> {
        let runs = |host: &Host| host.peer.is_some() && host.stopped.is_none() && !host.is_hostile();
        let is_well = |host: &Host| runs(host) && host.disk.takes_votes();
        let all = (0..self.hosts.len()).filter(|seat| is_well(&self.hosts[*seat]));
        // Of whom there are two, neither is counted on; nor is who has completed the run: it takes no part any more, and for how long it
        // stays for signatures and keepers is another bound.
        let is_relied_on = |seat: &Seat| !self.has_twin_there(*seat) && self.hosts[*seat].completed.is_none();
        let mut well: Vec<Seat> = all.filter(is_relied_on).collect();
        if !self.network.has_blocks() {
            return vec![well];
        }
        let talk = |one: Seat, other: Seat| self.hear_each_other(one, other);
        let mut groups = Vec::new();
        while let Some(first) = well.pop() {
            let mut group = vec![first];
            let mut at = 0;
            while let Some(one) = group.get(at).copied() {
                group.extend(well.extract_if(.., |other| talk(one, *other)));
                at += 1;
            }
            // Of two that can't talk while both can talk to others, neither is counted on, unless somebody can talk to all.
            let all: Vec<Seat> = group.clone();
            let talks_to_all = |one: &Seat| all.iter().all(|other| one == other || talk(*one, *other));
            if !all.iter().any(talks_to_all) {
                group.retain(talks_to_all);
            }
            groups.push(group);
        }
        groups
    }

    fn hear_each_other(&self, one: Seat, other: Seat) -> bool {
        !self.network.is_blocked(one, other) && !self.network.is_blocked(other, one)
    }

    fn is_enough(&self, group: &[Seat]) -> bool {
        let hosts = || group.iter().map(|seat| &self.hosts[*seat]);
        // Who is alone waits for its device and its data, however slow those are. All wait at the end for a disk that is to have the last state.
        let is_over = self.invariants.progress.highest() == self.workload.steps;
        let is_alone =
            |host: &Host| host.peer.as_ref().and_then(Peer::view).is_some_and(|view| view.members().len() == 1);
        let lacks_data = |host: &Host| host.peer.as_ref().is_some_and(Peer::waits_for_data);
        let computes = |host: &Host| host.slower > 1 || host.computes_until > self.now || lacks_data(host);
        let waits = |host: &Host| (is_alone(host) && computes(host)) || (is_over && host.disk.hangs());
        if self.hosts.iter().filter(|host| host.peer.is_some()).any(waits) {
            return false;
        }
        let seated = hosts().filter(|host| !host.is_outside);
        let records = seated.filter_map(|host| Some((host.name(), host.disk.newest_record()?)));
        let records: Vec<_> = records.collect();
        let Some((_, newest)) = records.iter().max_by_key(|(_, record)| record.view.generation) else { return false };
        let mut view = &newest.view;
        // What others have decided since counts, whoever of the group knows of it.
        while let Some(next) = self.successors.get(&view.id()) {
            view = next;
        }
        let id = view.id();
        // Those who have not heard of it yet will. What nobody decided binds only those who have promised nothing since.
        let is_decided = newest.view.id() != id || newest.certificate.is_some() || !view.forked;
        // Where none of the group has heard of it, they find it among what a quorum of theirs has accepted, and not without one.
        let theirs: BTreeSet<PeerId> = records
            .iter()
            .filter(|(name, record)| newest.view.contains(*name) && record.view.id() == newest.view.id())
            .map(|(name, _)| *name)
            .collect();
        if newest.view.id() != id && !newest.view.has_quorum(&theirs) {
            return false;
        }
        let knows = |record: &Record| record.view.id() == id || (is_decided && Some(record.view.id()) == view.parent);
        let votes = records.iter().filter(|(name, record)| view.contains(*name) && knows(record));
        let votes: BTreeSet<PeerId> = votes.map(|(name, _)| *name).collect();
        // A state of an earlier view is what all go on from only if nobody can have a later one.
        let complete = view.members().iter().all(|member| votes.contains(member));
        let holds = |host: &Host| {
            let counts = votes.contains(&host.name()) || (complete && host.disk.has_record());
            // Who was set back and has come over holds nothing that the others could go on from.
            let came_over = host.set_back && host.peer.as_ref().is_some_and(Peer::is_syncing);
            counts
                && !came_over
                && host.peer.as_ref().is_some_and(|peer| peer.has_state() && peer.step() >= self.newest_step)
        };
        // Who is on another branch first waits for those who were there with it.
        let led_here = |host: &&Host| {
            let theirs = host.disk.newest_record().map(|record| record.view.id());
            let mut chain = std::iter::successors(Some(id), |view| self.parents.get(view).copied());
            theirs.is_none_or(|theirs| chain.any(|view| view == theirs))
        };
        // Who asks to be let in asks those whom it knows. One whose disk takes nothing answers nobody.
        let finds = |host: &&Host| {
            let votes_there = |other: PeerId| other != host.name() && votes.contains(&other);
            votes.contains(&host.name()) || host.peer.as_ref().is_some_and(|peer| peer.knows().any(votes_there))
        };
        // Who is let in has asked whoever proposes, which may be one that it can't talk to.
        let all_talk = self.all_hear(group);
        let gets_in = |host: &&Host| all_talk || votes.contains(&host.name());
        // Nor does a hub lead ballots that is not in the view: those who are talk to nobody, and can't let it in.
        let is_hub = |one: &Seat| group.iter().all(|other| one == other || self.hear_each_other(*one, *other));
        let is_member = |seat: &Seat| votes.contains(&self.hosts[*seat].name());
        let has_hub = all_talk || group.iter().filter(|seat| is_member(seat)).any(is_hub);
        let stay = hosts().filter(|host| !host.leaving).filter(led_here).filter(finds).filter(gets_in).count();
        stay >= self.plan.min_members
            && has_hub
            && view.has_quorum(&votes)
            && hosts().any(holds)
            && !self.waits_for_a_holder(group, view, &votes)
    }

    /// Whether some of those who vote here had saved what nobody here holds, and others may hold it that are not there. Members can't know
    /// that of those who are here none lies: where two thirds decide, as many as may be hostile count as having signed it, too.
    fn waits_for_a_holder(&self, group: &[Seat], view: &View, votes: &BTreeSet<PeerId>) -> bool {
        let peers =
            || group.iter().filter_map(|seat| Some((self.hosts[*seat].name(), self.hosts[*seat].peer.as_ref()?)));
        let held = peers().filter(|(_, peer)| peer.has_state()).map(|(_, peer)| peer.step()).max().unwrap_or(0);
        let hostile = (view.voter_count() - 1) / 3;
        // Who does not know what it has signed has signed nothing beyond the next step of those who took part in all, if these are more
        // than may be hostile.
        let took_part =
            |(name, peer): &(PeerId, &Peer)| view.votes(*name) && peer.has_state() && peer.has_entered(view);
        let mut steps: Vec<u64> = peers().filter(took_part).map(|(_, peer)| peer.step()).collect();
        steps.sort_unstable();
        let reached = if hostile > 0 { steps.get(hostile) } else { steps.last() };
        let signable = reached.map(|reached| self.due_by(reached + 1));
        let is_lost = |(_, peer): &(PeerId, &Peer)| match (peer.loss(), signable) {
            (LostState::Unknown, Some(signable)) => signable > held,
            (lost, _) => lost.is_after(held),
        };
        let lost: BTreeSet<PeerId> = peers().filter(is_lost).map(|(name, _)| name).collect();
        let signed: BTreeSet<PeerId> =
            view.voters().filter(|peer| !votes.contains(peer) || lost.contains(peer)).collect();
        let all_told = view.members().iter().all(|peer| votes.contains(peer));
        let hidden = if view.quorum == Quorum::TwoThirds { hostile } else { 0 };
        let with_hidden = hidden > 0 && view.quorum.is_met(signed.len() + hidden, view.voter_count(), true);
        !lost.is_empty() && !all_told && (view.has_quorum(&signed) || with_hidden)
    }

    /// The last step up to this one after which all save their state.
    fn due_by(&self, step: u64) -> u64 {
        let Config { last_step, checkpoint_every, .. } = self.config;
        let step = step.min(last_step);
        if step == last_step { step } else { step - step.checked_rem(checkpoint_every).unwrap_or(step) }
    }
}

/// Whether nobody but `me` has decided on the view of `record`. Who does so alone writes its vote down with what it decides, and tells the
/// others once that is stored: until then nothing is decided, and after a restart it may decide otherwise. What others have accepted
/// was shown to them, and so its vote was stored before.
fn is_decided_by(record: &Record, me: PeerId) -> bool {
    record.certificate.as_ref().is_some_and(|decided| decided.seals.iter().all(|(signer, _)| *signer == me))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::rc::Rc;

    use starling_topology::{Ballot, Certificate, WireSignature};

    use super::super::RUN;
    use super::*;
    use crate::scenario::Setup;
    use crate::simulation::Simulation;

    #[test]
    fn what_one_decides_alone_is_decided_once_it_is_stored() {
        let mut world = World::new(Simulation::new(1, Setup { peers: Some(2), ..Setup::default() }));
        let [one, two] = [0, 1].map(|seat: Seat| world.hosts[seat].name());
        let first = View::found(RUN, one);
        let second = first.succeed([one, two]);
        let decided = |signers: &[PeerId]| {
            let ballot = Ballot { attempt: 1, proposer: one };
            let seals = signers.iter().map(|signer| (*signer, WireSignature::from([0; 64]))).collect();
            Record { certificate: Some(Certificate { ballot, seals }), ..Record::of(second.clone(), None) }
        };
        let founded = Record::of(first.clone(), None);
        world.note_record(0, &founded);
        world.hosts[0].disk.write_record(Rc::new(founded)).expect("it takes all");
        let decision = |world: &World| world.successors.get(&first.id()).cloned();
        world.hosts[0].disk.set_read_only(true);
        world.note_record(0, &decided(&[one]));
        assert_eq!((decision(&world), world.newest.as_ref()), (None, Some(&first)), "nobody is told");
        world.note_record(0, &decided(&[one, two]));
        assert_eq!(
            (decision(&world), world.newest.as_ref()),
            (Some(second.clone()), Some(&second)),
            "others have accepted it"
        );
        (world.newest, world.successors) = (None, BTreeMap::new());
        world.hosts[0].disk.set_read_only(false);
        world.note_record(0, &decided(&[one]));
        assert_eq!((decision(&world), world.newest.as_ref()), (Some(second.clone()), Some(&second)), "it is there");
    }
}
