//! Peers that follow another view: those left behind, other branches of the run, and ourselves when the others go on
//! without us.

use std::time::Duration;

use crate::config::Config;
use crate::id::{Generation, PeerId, ViewId};
use crate::membership::flaw::FlawKind;
use crate::membership::interface::{Event, HoldPosition};
use crate::membership::outside::join_attempt::JoinAttempt;
use crate::membership::outside::schism::Schism;
use crate::membership::seat::Seat;
use crate::membership::{Membership, Steps};
use crate::message::{Body, BranchPosition, Contact, Evidence, MAX_HINTS};
use crate::time::Time;
use crate::view::View;
use crate::vote::certificate::{SuccessionProof, leads};
use crate::vote::proposal::{Progress, Proposal, Reason};
use crate::vote::record::Record;

/// How many lost peers are looked for.
const MAX_PROBED: usize = 64;
/// Of a view's members, this many look for those that are lost.
const PROBERS: u32 = 3;
/// The time between two probes of one peer doubles this often.
const MAX_DOUBLINGS: u32 = 4;
/// So many of those who were with us are asked besides the one that says that the others went on.
const ASKED_BESIDES: usize = 4;
/// The time for which mere words are doubted doubles this often.
const MAX_DOUBTS: u32 = 3;
/// How many peers of other views are remembered as answered.
const MAX_ANSWERED: usize = 1024;

/// How long we go outside for nobody's mere word, since the last one was followed by nothing: twice as long each time. So those
/// who have no quorum, or come back from records, meet in their seats, whoever says again and again that others went on.
#[derive(Debug, Default)]
pub(in crate::membership) struct Doubts {
    until: Time,
    times: u32,
}

impl Doubts {
    pub(in crate::membership) fn believes(&self, now: Time) -> bool {
        now >= self.until
    }

    /// Whether we have taken our seat again since, after we had gone outside for a mere word.
    pub(in crate::membership) fn have_grown(&self) -> bool {
        self.times > 0
    }

    fn grow(&mut self, now: Time, stall: Duration) {
        self.until = now + stall * (2 << self.times.min(MAX_DOUBTS));
        self.times = self.times.saturating_add(1);
    }
}

/// A lost peer that may come back.
#[derive(Debug)]
pub(in crate::membership) struct Probe {
    at: Time,
    times: u32,
}

impl Seat {
    /// Whether we, who have no vote, miss `peer`, without which those who have one decide nothing. While we hear a process of it, that
    /// one may go on, whatever another one says.
    fn waits_for(&self, me: PeerId, peer: PeerId) -> bool {
        let is_gone = |evidence: &Evidence| !evidence.outlasts_messages();
        !self.view.votes(me) && self.view.needs(peer) && self.suspects.get(&peer).is_some_and(is_gone)
    }
}

impl Membership {
    /// A peer says where it stands: because it had lost us (`told` is `None`), or because we are not in its view.
    ///
    /// Who has a quorum goes nowhere for what one peer says: only for a chain that leads from its own view to the other one.
    pub(in crate::membership) fn meet(
        &mut self,
        now: Time,
        from: PeerId,
        theirs: (Generation, ViewId, BranchPosition),
        told: Option<(Vec<Contact>, Vec<SuccessionProof>)>,
    ) {
        let (generation, view, branch_position) = theirs;
        let (hints, chain) = told.unzip();
        if self.is_outside() {
            self.note_way(chain.unwrap_or_default());
            return self.meet_as_outsider(now, from, branch_position, hints.unwrap_or_default());
        }
        let proven = self
            .seat
            .as_ref()
            .is_some_and(|seat| chain.as_ref().is_some_and(|chain| leads(&*self.notary, &seat.view, chain, view)));
        if proven {
            self.look_along(from, chain.as_deref().unwrap_or_default());
        }
        if self.ended || self.gives_way_to_twin(from, chain.as_deref().unwrap_or_default()) {
            return;
        }
        let told_so = self.is_flawed(FlawKind::GoesWhereTold);
        let decided = chain.as_ref().and_then(|chain| self.what_we_decided(chain));
        // Who has a quorum goes nowhere for it, unless it may have forgotten what it has signed.
        let may_go = self.came_back || self.seat.as_ref().is_some_and(|seat| seat.paused.is_some() || seat.view.forked);
        let schism = chain.as_ref().filter(|_| may_go && !proven && !told_so);
        let schism = schism.and_then(|chain| self.schism(chain, view));
        let gives_way = schism.as_ref().is_some_and(Schism::gives_way);
        let forgot =
            decided.is_some() || (gives_way && self.came_back && schism.as_ref().is_some_and(Schism::has_mine));
        let is_ours_beside = chain.as_ref().is_some_and(|chain| self.have_gone_beside(chain));
        let is_kept = schism.as_ref().is_some_and(Schism::keeps_us);
        let forfeits = forgot || schism.as_ref().is_some_and(Schism::forfeits);
        let decided = decided.or_else(|| schism.filter(Schism::gives_way).map(|schism| schism.beside));
        // Who goes on in a fork does not stop for a stranger's word.
        let is_parted = self.has_parted(from);
        let step = self.reached;
        let Some(seat) = &mut self.seat else { return };
        let known = seat.view.contains(from);
        let ours = seat.branch_position(step);
        if view == seat.id && !known {
            return; // It names our view, but is not in it.
        }
        let me = self.me.peer;
        // Who has no vote can't have gone on without us where all wait for us, and says that it misses us: it is still here.
        let waits_for_us = branch_position.paused && !seat.view.votes(from) && seat.view.needs(me);
        let is_awaited = seat.waits_for(me, from);
        if view == seat.id || (Some(view) == seat.view.parent && known) {
            match (&mut seat.recovering, branch_position.recovering) {
                (Some(recovering), false) if view == seat.id && waits_for_us => {
                    recovering.returned.insert(from);
                    self.note_alive(now, from);
                }
                (Some(recovering), true) if view == seat.id => {
                    if recovering.returned.insert(from) {
                        self.note_alive(now, from);
                        self.send(from, Body::Hello(ours));
                    }
                }
                // Its view goes on, or has gone on: whoever comes back from a record is not a part of it any more.
                (Some(_), false) if view == seat.id => {
                    if self.doubts.believes(now) {
                        self.evict_ourselves(now, from, hints.unwrap_or_default(), None);
                    }
                }
                // What we missed is back: without it nothing was decided, so that it need not ask to be let in.
                (None, true) if view == seat.id && is_awaited => {
                    self.note_alive(now, from);
                    self.send(from, Body::Hello(BranchPosition { paused: true, ..ours }));
                }
                (None, true) if view == seat.id => {
                    self.suspect(now, from, Evidence::Restarted);
                    self.show_out(from, view);
                }
                // It has not taken part in our view yet, in no process: whoever does writes that down first.
                (Some(_) | None, _) if view != seat.id => self.send_install(from, None),
                (Some(_) | None, _) => self.note_alive(now, from),
            }
            return;
        }
        let ours_generation = seat.view.generation;
        let joins = |origin: &Proposal| origin.joiners.iter().any(|joiner| joiner.contact.peer == from);
        let is_let_in = !seat.heard.contains(&from) && seat.origin.as_ref().is_some_and(joins);
        let after_ours = branch_position.parent == Some(seat.id);
        let unforked = !branch_position.forked && !ours.forked && branch_position.branch == ours.branch;
        let goes_on = !branch_position.paused && !branch_position.recovering;
        // Whoever is still there has slept since.
        let before_ours = self.chain.came_from(view);
        // Without a quorum a claim takes nothing from us but time; nor does that of one who was with us before we forked.
        let unsure = ours.paused || ours.recovering || (ours.forked && is_parted);
        // Of two that stand at one step, who can go on does not wait for who can't.
        let tie = ours.paused || view < seat.id;
        let ahead = branch_position.step > ours.step || (branch_position.step == ours.step && tie);
        let they_lead = is_ours_beside
            || gives_way
            || after_ours
            || (unforked && generation > seat.view.generation)
            || (unforked && generation == seat.view.generation && ahead)
            || (!unforked && goes_on && (ahead || (ours.forked && !branch_position.forked)));
        let is_believed = (unsure || forgot) && !before_ours && !is_kept && self.doubts.believes(now);
        let they_win = proven || (they_lead && (told_so || is_believed));
        match (they_win, hints) {
            (true, Some(hints)) => {
                if forgot {
                    self.tell_forgotten(from);
                }
                let last = chain.filter(|_| proven).and_then(|mut chain| chain.pop());
                self.evict_ourselves(now, from, hints, last.map(|link| link.view).or(decided));
                if forfeits {
                    self.forfeit();
                }
            }
            // We may be in their view without knowing it: they will tell.
            (true, None) => self.say_hello(from),
            // There is one view of each generation without forks, so it has gone through theirs: what it said is old, from
            // before it joined perhaps, or it has yet to hear of ours.
            // Of a fork it believes whom it sat with, and may have been let in by another.
            (false, _)
                if is_let_in || (known && unforked && !branch_position.recovering && generation < ours_generation) =>
            {
                if self.may_answer(now, from) {
                    self.send_install(from, Some(generation));
                }
            }
            (false, _) => {
                if known {
                    self.suspect(now, from, Evidence::Elsewhere);
                }
                if self.may_answer(now, from) {
                    self.show_out(from, view);
                }
            }
        }
    }

    fn meet_as_outsider(&mut self, now: Time, from: PeerId, branch_position: BranchPosition, hints: Vec<Contact>) {
        for contact in hints {
            let peer = contact.peer;
            self.learn(contact);
            self.consider_asking(peer);
        }
        let is_new = self.join_attempt.as_ref().is_some_and(|join_attempt| join_attempt.has_not_asked(from));
        self.consider_asking(from);
        match &mut self.join_attempt {
            Some(join_attempt) if is_new => {
                join_attempt.turn_to(from);
                self.ask(now);
            }
            Some(join_attempt) => join_attempt.call(from),
            None => {}
        }
        // One that has no quorum itself does not go on: who waits for it may be what it waits for.
        if !branch_position.recovering
            && !branch_position.paused
            && let Some(join_attempt) = self.join_attempt.as_mut().filter(|join_attempt| !join_attempt.unproven)
        {
            join_attempt.answered_at = now;
            join_attempt.note_step(branch_position.step);
        }
    }

    fn evict_ourselves(&mut self, now: Time, by: PeerId, hints: Vec<Contact>, proven: Option<View>) {
        // Those too who were there with us: what one says alone is not all that we are told.
        let ours = self.seat.as_ref().map_or_else(Vec::new, |seat| seat.others(self.me.peer));
        let others = ours.into_iter().filter(|peer| *peer != by).take(ASKED_BESIDES);
        let mut members: Vec<PeerId> = [by].into_iter().chain(others).collect();
        for contact in hints {
            members.push(contact.peer);
            self.learn(contact);
        }
        self.go_outside(now, by, &members);
        let unproven = proven.is_none();
        self.join_attempt.iter_mut().for_each(|join_attempt| join_attempt.unproven = unproven);
        self.note_follower(proven);
    }

    /// While we are outside: this view is proven to have followed ours. The first one counts: what our old view decides afterwards, with
    /// our vote, may be beside where we go.
    pub(in crate::membership) fn note_follower(&mut self, view: Option<View>) {
        if let Some(join_attempt) = self.join_attempt.as_mut().filter(|join_attempt| join_attempt.followed_by.is_none())
        {
            join_attempt.followed_by = view;
        }
    }

    /// Whether we are outside, a view is proven to have followed the one that we had a seat in, and those in it take steps: our vote is of no
    /// use to anybody, and they are not waiting for us.
    pub fn is_succeeded(&self) -> bool {
        let goes_on = |join_attempt: &JoinAttempt| join_attempt.followed_by.is_some() && join_attempt.has_gone_on();
        self.join_attempt.as_ref().is_some_and(goes_on)
    }

    /// The others go on without us: we vote on in our view, stand still, and ask `members` to be let in.
    pub(in crate::membership) fn go_outside(&mut self, now: Time, by: PeerId, members: &[PeerId]) {
        if !self.is_outside() {
            // Those who still count on us need not wait until they miss us.
            self.tell_members(&Body::Suspect { peer: self.me.peer, evidence: Evidence::Elsewhere });
            self.join_attempt = Some(JoinAttempt::new(now));
            self.tell(Event::Evicted { by });
            self.finished = None;
            if !self.synced {
                // The driver drops the download, and what it kept for it.
                self.downloading = false;
                self.progress = Progress::default();
            }
            self.since = Some(now);
            self.lost.clear();
            if let Some(seat) = &mut self.seat {
                (seat.decree, seat.takeover_at) = (None, None);
            }
            self.joiners.clear(); // They ask the others.
            self.hold(HoldPosition::Now);
        }
        for peer in members {
            self.consider_asking(*peer);
        }
        if self.leaving.is_wanted() {
            return self.withdraw();
        }
        self.ask(now);
    }

    /// We could not do what it takes to go on: nobody had what we need.
    pub(in crate::membership) fn give_up(&mut self, now: Time) {
        let me = self.me.peer;
        let Some(others) = self.seat.as_ref().map(|seat| seat.others(me)) else { return };
        if !self.is_outside() && !others.is_empty() {
            (self.synced, self.progress.has_state, self.whole_since) = (false, false, None);
            self.go_outside(now, me, &others);
            self.join_attempt.iter_mut().for_each(|join_attempt| join_attempt.bereft = true);
        }
    }

    /// Nobody that goes on has answered for long. All who could may be gone, and we may hold the state, or be missed by those
    /// who do: we take our place again. Our vote was never away, so that changes nothing that others may have decided.
    pub(in crate::membership) fn come_back_if_alone(&mut self, now: Time) {
        let waited = self
            .join_attempt
            .as_ref()
            .is_some_and(|join_attempt| now - join_attempt.answered_at >= self.config.max_stall * 2);
        let stays = self.is_flawed(FlawKind::StaysOutside) && !self.progress.has_state;
        if waited && !stays && self.seat.is_some() && self.steps == Steps::Held {
            if let Some(join_attempt) = self.join_attempt.take() {
                if join_attempt.unproven {
                    self.doubts.grow(now, self.config.max_stall);
                }
                // They may come back to where they were.
                join_attempt.into_candidates().for_each(|peer| self.probe_later(now, peer));
            }
            if let Some(seat) = &mut self.seat {
                seat.suspects.retain(|_, evidence| *evidence != Evidence::Elsewhere);
                seat.suspicion_reports.clear();
                seat.tries = 0;
                seat.waiting = false;
                seat.returned = true;
                let Config { fork_after, max_stall, .. } = self.config;
                seat.paused.iter_mut().for_each(|paused| paused.begin_again(now, fork_after, max_stall));
            }
            self.look_for_parted(now);
            self.give_time(now, Duration::ZERO);
            self.watch(now);
        }
    }

    /// Those that our process knew whose record this is, and that are in no view of ours, may have gone on elsewhere, as we may alone.
    /// They were with us before that, also if we are in no fork yet.
    pub(in crate::membership) fn look_for_branches(&mut self, now: Time, record: &Record) {
        let known: Vec<PeerId> = self.contacts.keys().copied().collect();
        self.note_parted(known, &record.view);
        let reasons = || record.origin.iter().flat_map(|origin| &origin.reasons);
        let has_left = |peer: PeerId| reasons().any(|reason| matches!(reason, Reason::Left(left) if *left == peer));
        let is_apart = |peer: &PeerId| !record.view.contains(*peer) && !has_left(*peer);
        let apart: Vec<PeerId> = self.contacts.keys().copied().filter(is_apart).collect();
        apart.into_iter().for_each(|peer| self.probe_later(now, peer));
    }

    pub(in crate::membership) fn probe_later(&mut self, now: Time, peer: PeerId) {
        if peer != self.me.peer && self.lost.len() < MAX_PROBED {
            self.lost.insert(peer, Probe { at: now + self.config.probe_interval(), times: 0 });
        }
    }

    /// Looks for lost peers: a network that was split may have healed. Those who came back from a record, and those who
    /// have no quorum, look for all that they know.
    pub(in crate::membership) fn probe(&mut self, now: Time) {
        let me = self.me.peer;
        let interval = self.config.probe_interval();
        let (Some(seat), None) = (&mut self.seat, &self.join_attempt) else { return };
        if seat.recovering.is_some() || seat.paused.is_some() {
            let returned = seat.recovering.as_ref().map(|recovering| &recovering.returned);
            let here = |peer: &PeerId| *peer == me || returned.is_some_and(|returned| returned.contains(peer));
            // Those who were here may have left, and those who go on be others.
            let others = seat.others(me).into_iter().chain(self.contacts.keys().copied());
            for peer in others.filter(|peer| !here(peer)) {
                if self.lost.len() < MAX_PROBED {
                    self.lost.entry(peer).or_insert(Probe { at: now + interval, times: 0 });
                }
            }
        } else if self.lost.is_empty() || seat.stagger(me) >= PROBERS {
            return;
        }
        let mut due = Vec::new();
        for (peer, probe) in self.lost.iter_mut().filter(|(_, probe)| now >= probe.at) {
            probe.at = now + interval * (1 << probe.times.min(MAX_DOUBLINGS));
            probe.times = probe.times.saturating_add(1);
            due.push(*peer);
        }
        for peer in due {
            self.say_hello(peer);
        }
    }

    /// Tries the links that the view says are broken.
    pub(in crate::membership) fn try_severed(&mut self, now: Time) {
        let (me, step) = (self.me.peer, self.reached);
        let interval = self.config.probe_interval();
        let Some(seat) = self.seat.as_mut().filter(|seat| now - seat.tried_at >= interval) else { return };
        seat.tried_at = now;
        // In an unsteady view who hears another may not be heard by that one yet, for as long as they are apart.
        let is_tried = |peer: &PeerId| seat.view.is_unsteady() || !seat.heard.contains(peer);
        let apart: Vec<PeerId> = seat.severed_from(me).filter(is_tried).collect();
        for peer in apart {
            self.send(peer, Body::Heartbeat { step, waiting: 0 });
        }
    }

    pub(in crate::membership) fn say_hello(&mut self, to: PeerId) {
        if let Some(branch_position) = self.seat.as_ref().map(|seat| seat.branch_position(self.reached)) {
            self.send(to, Body::Hello(branch_position));
        }
    }

    /// "You are not in our view." To one in the view called `theirs`.
    pub(in crate::membership) fn show_out(&mut self, to: PeerId, theirs: ViewId) {
        let Some(seat) = &self.seat else { return };
        let branch_position = seat.branch_position(self.reached);
        let members = seat.view.members().iter().filter(|peer| seat.trusts(**peer) && **peer != to);
        let contacts = members.filter_map(|peer| self.contacts.get(peer)).take(MAX_HINTS).cloned().collect();
        let mut chain = self.chain.from(theirs);
        if chain.is_empty() {
            // Its way may have parted from ours, somewhere.
            chain = if theirs == ViewId::NONE { self.chain.signed_by(to) } else { self.chain.until(None) };
        }
        self.send(to, Body::Outsider { branch_position, contacts, chain });
    }

    /// Whether it is time to tell `peer` again where we stand. Two that disagree must not talk without end.
    pub(in crate::membership) fn may_answer(&mut self, now: Time, peer: PeerId) -> bool {
        let interval = self.config.heartbeat_interval();
        if self.answered.len() >= MAX_ANSWERED {
            self.answered.clear();
        }
        let due = self.answered.get(&peer).is_none_or(|at| now - *at >= interval);
        if due {
            self.answered.insert(peer, now);
        }
        due
    }
}
