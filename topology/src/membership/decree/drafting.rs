//! What we propose: what follows from the promises that we hold, and whether it is time to go on from that.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::id::{Generation, PeerId};
use crate::membership::Membership;
use crate::membership::decree::proposal_inputs::{ProposalInputs, Steadiness, donor};
use crate::membership::flaw::FlawKind;
use crate::membership::interface::{Event, Output};
use crate::membership::seat::{Decree, Seat};
use crate::message::Evidence;
use crate::time::Time;
use crate::view::View;
use crate::view::lineage::Lineage;
use crate::vote::promise::{Promise, SignedPromise};
use crate::vote::proposal::{JoinRequest, MAX_JOINERS, Progress, Proposal, Reason};
use crate::vote::quorum::Quorum;

impl Membership {
    /// Finds promises that can't be true: who has taken part in all steps knows that nobody is more than one ahead.
    pub(in crate::membership) fn refute(&mut self) {
        let (me, Progress { step, has_state, .. }) = (self.me.peer, self.progress);
        let Some(seat) = self.seat.as_mut().filter(|seat| has_state && seat.is_steady(me)) else { return };
        let Some(decree) = &seat.decree else { return };
        let liars = decree.promises.iter().filter(|(_, promise)| promise.is_beyond(step)).map(|(by, _)| *by);
        for peer in liars.collect::<Vec<_>>() {
            let evidence = Evidence::Misbehaved;
            seat.accused.insert(peer);
            if seat.suspects.insert(peer, evidence) != Some(evidence) {
                self.outbox.push(Output::Event(Event::Suspected { peer, evidence, reporter: None }));
            }
        }
    }

    /// What we promise ourselves, as of now.
    pub(in crate::membership) fn renew_promise(&mut self, now: Time) {
        let (me, leaving) = (self.me.peer, self.leaving.is_wanted());
        let Some(own) = self.own_promise(now, leaving) else { return };
        let Some(seat) = &mut self.seat else { return };
        seat.decree.iter_mut().for_each(|decree| drop(decree.promises.insert(me, own.clone())));
    }

    /// The promises of a ballot of ours, each with its member's signature.
    pub(in crate::membership) fn signed_promises(&self, seat: &Seat, decree: &Decree) -> Vec<SignedPromise> {
        let me = self.me.peer;
        let signed = |(by, promise): (&PeerId, &Promise)| {
            let promise = promise.clone();
            if *by == me {
                return Some(SignedPromise::new(&*self.notary, seat.id, decree.ballot, me, promise));
            }
            Some(SignedPromise { by: *by, promise, seal: *decree.signatures.get(by)? })
        };
        decree.promises.iter().filter_map(signed).collect()
    }

    /// Whether none of a quorum holds the state, and it is no use to wait for the rest.
    pub(in crate::membership) fn is_bereft(&self, now: Time, seat: &Seat, decree: &Decree) -> bool {
        let promised = decree.round.promised();
        let stateless = !decree.promises.values().any(|promised| promised.progress.has_state);
        let complete = self.have_all_told(seat, decree);
        stateless
            && seat.view.has_quorum(promised)
            && (complete || self.is_paused_for(now, seat, self.config.fork_after))
    }

    /// Whether what our view goes on from is still to be waited for, although there is an older state, or a joiner has `brought` one.
    /// Where all came back from records and lack what was to be saved before it began, what a quorum of the view before had signed is
    /// on one of its disks: without a quorum of that view too they wait as long as a fork would. So they do, and go on as a fork then,
    /// where something that may be stable is with somebody who was lost before. Where no member holds any state, whoever holds a newer
    /// one than is brought has time to say so.
    pub(in crate::membership) fn is_behind(
        &self,
        now: Time,
        seat: &Seat,
        decree: &Decree,
        brought: Option<Held>,
    ) -> bool {
        if seat.is_reached(decree) || brought.is_some_and(|(step, _)| step >= seat.least()) {
            return false;
        }
        let stateless = !decree.promises.values().any(|promised| promised.progress.has_state);
        let all_came_back = decree.promises.values().all(|promised| promised.recovering);
        let is_elsewhere = (stateless || all_came_back) && self.may_be_stable_elsewhere(seat, decree, brought);
        let waited = match all_came_back && !stateless {
            true => {
                !self.lacks_due(seat, decree, brought)
                    || self.are_parents_here(seat, decree)
                    || self.is_paused_for(now, seat, self.config.fork_after)
            }
            false => self.is_paused_for(now, seat, Some(self.config.max_stall)),
        };
        let all_told = !stateless && self.have_all_told(seat, decree);
        is_elsewhere || (!waited && !all_told)
    }

    /// Whether a checkpoint that was due before our view began is on none of the disks that are here, and those who are away were
    /// a quorum of a view that may have saved it: one since the newest state that is here, or is `brought`, was committed.
    fn may_be_stable_elsewhere(&self, seat: &Seat, decree: &Decree, brought: Option<Held>) -> bool {
        let Some(origin) = seat.origin.as_ref().filter(|_| !self.is_flawed(FlawKind::GoesBack)) else { return false };
        let earlier = self.chain.before(seat.view.parent);
        // Since which view that is, a liar may say: of views that are not on our way it counts for nothing.
        let known = |lineage: Lineage| earlier.clone().any(|view| view.id() == lineage.view);
        let since = |lineage: Lineage| if known(lineage) { lineage.generation } else { Generation(0) };
        let held = held(decree, brought).map(|(step, lineage)| (step, Reverse(since(lineage)))).max();
        let (_, Reverse(since)) = held.unwrap_or((0, Reverse(Generation(0))));
        let is_away = |peer: &PeerId| !self.has_told(decree, peer);
        let could_decide = |view: &View| {
            view.branch == seat.view.branch && view.generation >= since && could_have_decided(view, is_away)
        };
        // Of a view before that nobody has shown us all that is known is who went, and how many voted.
        let gone = origin.reasons.iter().filter_map(Reason::gone).filter(is_away).count();
        let gone = gone.min(voters_gone(origin));
        let has_parent = earlier.clone().any(|view| Some(view.id()) == seat.view.parent);
        let could_parents = !has_parent && seat.view.quorum.is_met(gone, origin.of as usize, true);
        self.lacks_due(seat, decree, brought) && (could_parents || earlier.into_iter().any(could_decide))
    }

    /// Those of these that were in one of the views which led to ours, and bring a state that these came through: since it was committed
    /// whoever may have made something stable is known.
    pub(in crate::membership) fn were_here(&self, seat: &Seat, joiners: &[JoinRequest]) -> BTreeSet<PeerId> {
        let parent = seat.view.parent;
        let was_in = |peer: PeerId| self.chain.before(parent).any(|view| view.contains(peer));
        let comes = |(step, lineage): Held| self.chain.came_through(step, lineage, parent);
        let brings = |joiner: &&JoinRequest| joiner.state.is_some_and(comes) && was_in(joiner.contact.peer);
        joiners.iter().filter(brings).map(|joiner| joiner.contact.peer).collect()
    }

    /// Whether nobody here holds as much as was to be saved before our view began: members sign that alone, so it may be stable.
    pub(in crate::membership) fn lacks_due(&self, seat: &Seat, decree: &Decree, brought: Option<Held>) -> bool {
        let step = held(decree, brought).map(|(step, _)| step).max().unwrap_or(0);
        step < self.config.due_by(seat.least())
    }

    /// Whether so many members of the view before have told what they hold that the others can't have decided there: those that
    /// stayed, and those that ask to be let in.
    pub(in crate::membership) fn are_parents_here(&self, seat: &Seat, decree: &Decree) -> bool {
        let Some(origin) = &seat.origin else { return true };
        if self.is_flawed(FlawKind::GoesBack) {
            return true;
        }
        if let Some(parent) = self.chain.before(seat.view.parent).last().filter(|it| Some(it.id()) == seat.view.parent)
        {
            return !could_have_decided(parent, |peer| !self.has_told(decree, peer));
        }
        let stayed = decree.promises.keys().filter(|peer| voted_before(origin, **peer)).count();
        // Which of those who went had a vote nobody knows: that may be those who are not back.
        let is_away = |peer: &PeerId| !self.joiners.contains_key(peer);
        let away = origin.reasons.iter().filter_map(Reason::gone).filter(is_away).count();
        let back = voters_gone(origin).saturating_sub(away);
        seat.view.quorum.is_met(stayed + back, origin.of as usize, false)
    }

    /// Whether each member has told what it holds: whoever asks to be let in does too, and may have no vote here any more.
    pub(in crate::membership) fn have_all_told(&self, seat: &Seat, decree: &Decree) -> bool {
        seat.view.members().iter().all(|peer| self.has_told(decree, peer))
    }

    pub(in crate::membership) fn has_told(&self, decree: &Decree, peer: &PeerId) -> bool {
        decree.promises.contains_key(peer) || self.joiners.contains_key(peer)
    }

    pub(in crate::membership) fn is_paused_for(&self, now: Time, seat: &Seat, limit: Option<Duration>) -> bool {
        let since = seat.paused.map_or(now, |paused| paused.since);
        limit.is_some_and(|limit| now - since >= limit)
    }

    pub(in crate::membership) fn plan(
        &self,
        now: Time,
        seat: &Seat,
        decree: &Decree,
        forked: bool,
    ) -> Option<(Proposal, Vec<(PeerId, Evidence)>)> {
        let trusted = |peer: &PeerId| seat.trusts(*peer);
        let me = self.me.peer;
        let stateless = !decree.promises.values().any(|promised| promised.progress.has_state);
        let bereft = if forked { stateless } else { self.is_bereft(now, seat, decree) };
        // One of those who have not heard of our view may hold what all can go on from.
        let strayed = self.strayed(decree.round.promised());
        let is_open = bereft || !(stateless || forked);
        let outside: Vec<JoinRequest> = match is_open {
            true => self.admitted().chain(strayed).take(MAX_JOINERS).cloned().collect(),
            false => Vec::new(),
        };
        let brings = |peer: &PeerId| outside.iter().find(|joiner| joiner.contact.peer == *peer)?.state;
        let earlier = if stateless { self.were_here(seat, &outside) } else { BTreeSet::new() };
        let donor = donor(&seat.view, seat.origin.as_ref(), &decree.promises, &outside, &earlier);
        let brought = donor.as_ref().and_then(brings);
        // Whoever brings something has nobody wait who would go on without.
        let waits = |brought| self.is_behind(now, seat, decree, brought);
        if !forked && waits(brought) && (stateless || brought.is_none() || waits(None)) {
            return None;
        }
        let donor = donor.filter(|_| !forked || brought.is_some_and(|(step, _)| step >= seat.least()));
        let candidates = match donor {
            Some(_) => outside,
            None if forked => Vec::new(),
            None => self.candidates(now).cloned().collect(),
        };
        let ours = seat.suspects.iter().filter(|(_, evidence)| **evidence == Evidence::LinkFailed);
        // Whom to put out for what it did, the promises say together: one member alone is not believed.
        let is_accused = |why: Evidence| why == Evidence::Misbehaved && seat.view.most_hostile() > 0;
        let untrusted = seat.suspects.iter().filter(|(peer, why)| !trusted(peer) && !is_accused(**why));
        let excluded: BTreeMap<PeerId, Evidence> = untrusted.map(|(peer, why)| (*peer, *why)).collect();
        let inputs = ProposalInputs {
            config: &self.config,
            view: &seat.view,
            resumed: seat.resumed(),
            failed: ours.map(|(peer, _)| (me, *peer)).chain(seat.suspicion_reports.failed_links()).collect(),
            promises: &decree.promises,
            excluded: &excluded,
            restarted: &self.restarted(seat),
            suspicion_reports: &seat.suspicion_reports,
            candidates,
            link_matrix: &seat.link_matrix,
            donor,
            outdated: seat.outdated,
            steadiness: self.steadiness(now, seat),
            forked: forked && !self.is_flawed(FlawKind::ForksUnmarked),
            needs_ring: self.is_flawed(FlawKind::NeedsRing),
            spares_nobody: self.is_flawed(FlawKind::SparesNobody),
        };
        let mut proposal = inputs.answer()?;
        self.spoil(decree, &mut proposal);
        let promised = excluded.into_iter().filter(|(peer, _)| decree.promises.contains_key(peer));
        Some((proposal, promised.collect()))
    }

    /// How the next view is found to be unsteady.
    fn steadiness<'a>(&self, now: Time, seat: &'a Seat) -> Steadiness<'a> {
        let is_unsteady = seat.view.is_unsteady();
        if self.is_flawed(FlawKind::NeverDamps) || (self.is_flawed(FlawKind::DampsForEver) && is_unsteady) {
            return Steadiness::Said(is_unsteady);
        }
        Steadiness::Seen(&seat.link_failures, now)
    }

    pub(in crate::membership) fn spoil(&self, decree: &Decree, proposal: &mut Proposal) {
        let held = decree.promises.values().map(|promised| promised.progress).filter(|progress| progress.has_state);
        if let (Some(oldest), true) = (held.map(|progress| progress.step).min(), self.is_flawed(FlawKind::TakesOldest))
        {
            proposal.resume.step = oldest;
        }
        if self.is_flawed(FlawKind::NeverSyncs) {
            proposal.resume.syncing.clear();
        }
        if self.is_flawed(FlawKind::VotesAtOnce) {
            proposal.view = proposal.view.clone().with_newcomers([]);
        }
    }
}

/// A state: its step, and by which view that was committed.
type Held = (u64, Lineage);

/// The states that are here, with the one that is brought.
fn held(decree: &Decree, brought: Option<Held>) -> impl Iterator<Item = Held> + '_ {
    let held = decree.promises.values().map(|promised| promised.progress).filter(|progress| progress.has_state);
    held.map(|progress| (progress.step, progress.lineage)).chain(brought)
}

/// Whether this member of the view that was made so had a vote in the view before.
fn voted_before(origin: &Proposal, peer: PeerId) -> bool {
    let joined = origin.joiners.iter().any(|joiner| joiner.contact.peer == peer);
    origin.view.votes(peer) && !joined && !origin.reasons.contains(&Reason::Votes(peer))
}

/// How many voters of the view before are not in the view that was made so.
fn voters_gone(origin: &Proposal) -> usize {
    let stayed = origin.view.voters().filter(|peer| voted_before(origin, *peer)).count();
    (origin.of as usize).saturating_sub(stayed)
}

/// Whether those voters of `view` that are away were a quorum of it; with two-thirds quorums, together with those who are here and
/// may lie about what they hold.
pub(in crate::membership) fn could_have_decided(view: &View, is_away: impl Fn(&PeerId) -> bool) -> bool {
    let away: BTreeSet<PeerId> = view.voters().filter(|peer| is_away(peer)).collect();
    let hidden = if view.quorum == Quorum::TwoThirds { view.most_hostile() } else { 0 };
    view.has_quorum(&away) || (hidden > 0 && view.quorum.is_met(away.len() + hidden, view.voter_count(), true))
}
