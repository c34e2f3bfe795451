//! What a member asks of a proposal before it accepts it: its proposer's word is not enough.

use std::collections::BTreeMap;

use crate::error::Violation;
use crate::id::PeerId;
use crate::membership::Membership;
use crate::membership::decree::proposal_inputs::{donor, follows};
use crate::membership::flaw::FlawKind;
use crate::membership::seat::Seat;
use crate::message::Evidence;
use crate::time::Time;
use crate::vote::certificate::WireSignature;
use crate::vote::echo;
use crate::vote::promise::{JustifiedProposal, SignedPromise, are_a_quorums};
use crate::vote::proposal::{Ballot, JoinRequest};

impl Membership {
    /// Checks a promise that answers our `ballot`, and what its member has `accepted` before.
    pub(in crate::membership) fn check_promise(
        &self,
        seat: &Seat,
        ballot: Ballot,
        signed: &SignedPromise,
        accepted: Option<&JustifiedProposal>,
    ) -> Result<(), Violation> {
        let names = signed.promise.accepted.map(|(_, hash)| hash);
        let has_no_say = !seat.view.votes(signed.by) && names.is_some();
        if !signed.promise.is_bounded(&seat.view)
            || has_no_say
            || names != accepted.map(JustifiedProposal::hash)
            || !signed.is_signed(&*self.notary, seat.id, ballot)
        {
            return Err(Violation::MalformedProposal);
        }
        let Some((claim, accepted)) = signed.promise.accepted.zip(accepted) else { return Ok(()) };
        // Who accepted it in a later ballot would not have promised this one. The others would blame us for passing that on.
        if claim.0 >= ballot || accepted.ballot > claim.0 {
            return Err(Violation::MalformedProposal);
        }
        if !self.is_echoed(seat, claim, accepted) || !self.is_proposed(seat, claim.0, accepted) {
            return Err(Violation::Unjustified);
        }
        // Who proposes it again must not be the one that the others blame.
        if !seat.may_be_followed_by(&accepted.proposal, self.config.last_step) {
            return Err(Violation::NotSuccessor);
        }
        self.check_grounds(seat, accepted)
    }

    /// Whether a quorum has echoed what was `accepted`, in the ballot in which a member says that it accepted that; where
    /// majorities decide, whether nobody is said to have echoed anything.
    fn is_echoed(&self, seat: &Seat, (ballot, hash): (Ballot, [u8; 32]), accepted: &JustifiedProposal) -> bool {
        match seat.view.quorum.echoes() {
            _ if self.is_flawed(FlawKind::BelievesClaims) => true,
            true => echo::are_a_quorums(&*self.notary, &seat.view, ballot, &hash, &accepted.echoes),
            false => accepted.echoes.is_empty(),
        }
    }

    /// Whether that was proposed in the ballot in which a member says that it accepted it: else who makes a ballot up has what lost
    /// decided once more.
    fn is_proposed(&self, seat: &Seat, ballot: Ballot, accepted: &JustifiedProposal) -> bool {
        accepted.is_proposed(&*self.notary, &seat.view, ballot, &accepted.last)
    }

    /// Checks that a proposal is one that its first proposer was free to make.
    fn check_grounds(&self, seat: &Seat, justified: &JustifiedProposal) -> Result<(), Violation> {
        let flaws = [
            FlawKind::IgnoresAccepted,
            FlawKind::TakesOldest,
            FlawKind::NeverSyncs,
            FlawKind::DecidesAlone,
            FlawKind::VotesAtOnce,
            FlawKind::NeedsRing,
            FlawKind::SparesNobody,
        ];
        if flaws.into_iter().any(|flaw| self.is_flawed(flaw)) {
            return Ok(());
        }
        let excluded: BTreeMap<PeerId, Evidence> = justified.excluded.iter().copied().collect();
        let (origin, proposal) = (seat.origin.as_ref(), &justified.proposal);
        let follows = || follows(&self.config, &seat.view, origin, &justified.grounds(), &excluded, proposal);
        let asks = |joiner: &JoinRequest| self.notary.is_invited(joiner) && joiner.is_signed(self.run, &*self.notary);
        let invited = || justified.proposal.joiners.iter().all(asks);
        let is_sound = justified.is_signed(&*self.notary, &seat.view) && invited() && follows();
        if is_sound { Ok(()) } else { Err(Violation::Unjustified) }
    }

    /// Checks what is proposed in `ballot`: anew, or again, because one of these `promises` tells of it.
    pub(in crate::membership) fn check_proposal(
        &self,
        seat: &Seat,
        ballot: Ballot,
        (justified, seal): (&JustifiedProposal, &WireSignature),
        promises: &[SignedPromise],
    ) -> Result<(), Violation> {
        let again = justified.ballot != ballot;
        let told = || promises.iter().filter_map(|signed| signed.promise.accepted);
        // Of one ballot two may be told, if its proposer lied: either will do, but for one that was echoed there is none beside.
        let (highest, hash) = (told().map(|(ballot, _)| ballot).max(), justified.hash());
        let is_highest =
            |(told, other): &(Ballot, [u8; 32])| Some(*told) == highest && *other == hash && *told < ballot;
        let is_told = match told().find(is_highest) {
            Some(claim) => {
                again && self.is_echoed(seat, claim, justified) && self.is_proposed(seat, claim.0, justified)
            }
            None => !again && justified.echoes.is_empty() && justified.last == justified.seal,
        };
        let is_signed = justified.is_proposed(&*self.notary, &seat.view, ballot, seal);
        let are_theirs =
            again != promises.is_empty() && (!again || are_a_quorums(&*self.notary, &seat.view, ballot, promises));
        if !is_told || !are_theirs || !is_signed || justified.ballot > ballot {
            return Err(Violation::Unjustified);
        }
        self.check_grounds(seat, justified)
    }

    /// For how long no step has been taken here for want of a decree: not for how long somebody has wanted one.
    pub(in crate::membership) fn held_for(&self, now: Time) -> std::time::Duration {
        self.held_since.map_or(std::time::Duration::ZERO, |since| now - since)
    }

    /// Whether all are to go on from an older state that one brings of whom we don't know that it was ever a member.
    fn takes_from_a_stranger(&self, seat: &Seat, justified: &JustifiedProposal) -> bool {
        let (proposal, promises) = (&justified.proposal, justified.grounds());
        let named = |joiner: &&JoinRequest| proposal.resume.donors.contains(&joiner.contact.peer);
        let stateless = !promises.values().any(|promise| promise.progress.has_state);
        let Some(brings) = proposal.joiners.iter().find(named).filter(|_| stateless) else { return false };
        let brings = std::slice::from_ref(brings);
        donor(&seat.view, seat.origin.as_ref(), &promises, brings, &self.were_here(seat, brings)).is_none()
    }

    /// Whether we know better than what is proposed for the first time. Its proposer has broken no rule that others could see.
    /// Not for ever: some of what we know may be wrong, and others may have no other way to go on.
    pub(in crate::membership) fn objects(&self, now: Time, seat: &Seat, justified: &JustifiedProposal) -> bool {
        let JustifiedProposal { proposal, promises, excluded, .. } = justified;
        // For good: nobody needs whoever waits to be let in, what may be stable is waited for, and what a stranger brings may be anything.
        if !self.notary.admits(&proposal.joiners)
            || self.believes_nothing_of(seat, justified)
            || self.takes_from_a_stranger(seat, justified)
        {
            return true;
        }
        let heard_of = |joiner: &JoinRequest| self.joiners.get(&joiner.contact.peer).map(|it| it.joiner.incarnation);
        // Who has let in some that never were there lets in only whom we have heard ourselves.
        let is_doubted = self.doubts_joiners_of(now, justified.ballot.proposer);
        if is_doubted && !proposal.joiners.iter().all(|it| heard_of(it) == Some(it.incarnation)) {
            return true;
        }
        // Another process of it has asked us: nobody has its seat taken by one that has not asked.
        let is_another = |it: &JoinRequest| heard_of(it).is_some_and(|asked| asked != it.incarnation);
        let me = self.me.peer;
        let grounds = || promises.iter().map(|signed| &signed.promise);
        // They are sorted.
        let promise_of = |peer: PeerId| {
            promises.binary_search_by_key(&peer, |signed| signed.by).ok().map(|at| &promises[at].promise)
        };
        let stood = self.held_for(now);
        let reached = proposal.resume.step;
        // We would have had to take part in what is behind it.
        let here = seat.pledged.filter(|pledged| pledged.has_state && seat.is_steady(me));
        if here.is_some_and(|here| reached > here.step.saturating_add(1)) {
            return true;
        }
        let has_told = |peer: PeerId| {
            let joins = proposal.joiners.iter().any(|joiner| joiner.contact.peer == peer);
            joins || promise_of(peer).is_some()
        };
        let all_told = seat.view.members().iter().all(|peer| has_told(*peer));
        let all_recover = grounds().all(|promise| promise.recovering);
        let stateless = !grounds().any(|promise| promise.progress.has_state);
        // Who is not there may hold what is given up so.
        let patience = self.config.fork_after.map(|limit| limit / 2);
        if stateless && !all_told && patience.is_none_or(|patience| stood < patience) {
            return true;
        }
        let late = stood >= self.config.max_stall / 2;
        let behind = !stateless && reached < seat.least() && !all_told && !all_recover;
        let lives = |peer: PeerId| peer == me || seat.hears(now, peer, self.config.heartbeat_interval() * 3 / 2);
        let asked_of_us = seat.pledged.is_some() && !self.leaving.is_wanted() && !self.is_outside();
        let forgets = |peer: &PeerId| (*peer != me || asked_of_us) && !has_told(*peer) && lives(*peer);
        let says_so = |peer: PeerId| promise_of(peer).is_some_and(|promise| promise.recovering || promise.leaving);
        let lies =
            |peer: PeerId| here.zip(promise_of(peer)).is_some_and(|(here, promise)| promise.is_beyond(here.step));
        let slanders = |(peer, _): &(PeerId, Evidence)| {
            !says_so(*peer)
                && !lies(*peer)
                && !seat.accused.contains(peer)
                && !self.joiners.contains_key(peer)
                && seat.trusts(*peer)
                && !proposal.view.contains(*peer)
        };
        let slandered = || excluded.iter().filter(|it| slanders(it));
        // More than can be hostile are not wrong all at once, however long that goes on. Of newcomers any number may be.
        let most = seat.view.most_hostile();
        (most > 0 && slandered().filter(|(peer, _)| seat.view.votes(*peer)).count() > most)
            || (!late && proposal.joiners.iter().any(is_another))
            || (!late && (behind || slandered().next().is_some() || seat.view.members().iter().any(forgets)))
    }
}
