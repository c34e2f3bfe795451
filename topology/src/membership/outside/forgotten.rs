//! What others can show that we have said and our record does not know: the disk was set back to an earlier moment, or another
//! process has our identity. Whoever says something stores that first, so no crash and no full disk leads there.
//!
//! One kind of it shows without a signature: who came back to a view of its own alone, and hears of a later one of its branch, has
//! decided that one itself. Nobody else could. It asks to be let in there.
//!
//! Such a member may have voted twice. It changes nothing of what it does then: what it has forgotten, nobody can give back to it.
//! But its user is told, once, as no rule about votes holds any more where that goes on.

use crate::id::PeerId;
use crate::membership::Membership;
use crate::membership::decree::installing::Decided;
use crate::membership::flaw::FlawKind;
use crate::membership::interface::Event;
use crate::time::Time;
use crate::view::View;
use crate::vote::certificate::{Certificate, SuccessionProof};
use crate::vote::promise::{JustifiedProposal, SignedPromise};
use crate::vote::proposal::{Ballot, Proposal};

/// So many links of one chain are looked at for our signature: whoever likes may say that it is there.
const MAX_LOOKED_AT: usize = 16;

impl Membership {
    /// Looks for promises of ours, signed, that are of later ballots than we know of, in what was proposed in `ballot`.
    pub(in crate::membership) fn look_for_promises(
        &mut self,
        by: PeerId,
        ballot: Ballot,
        justified: &JustifiedProposal,
        promises: &[SignedPromise],
    ) {
        let me = self.me.peer;
        let Some(seat) = &self.seat else { return };
        let has_mine = |promises: &[SignedPromise]| promises.iter().any(|signed| signed.by == me);
        let given = [(ballot, promises), (justified.ballot, &justified.promises[..])];
        let given = given.into_iter().filter(|(_, promises)| has_mine(promises)).map(|(ballot, _)| ballot);
        if given.max() > seat.acceptor.promised {
            self.tell_signed(by);
        }
    }

    /// Looks whether we have accepted what follows our view, by a certificate that holds, in a later ballot than we know of.
    pub(in crate::membership) fn look_for_acceptance(&mut self, by: PeerId, certificate: &Certificate) {
        let Some(seat) = &self.seat else { return };
        let known = seat.acceptor.accepted.as_ref().map(|(ballot, _)| *ballot);
        if certificate.is_signed_by(self.me.peer) && Some(certificate.ballot) > known {
            self.tell_signed(by);
        }
    }

    /// Looks for acceptances of ours in a chain that leads on from our view, and holds.
    pub(in crate::membership) fn look_along(&mut self, by: PeerId, chain: &[SuccessionProof]) {
        let Some((next, later)) = chain.split_first() else { return };
        self.look_for_acceptance(by, next.certificate());
        if later.iter().any(|link| link.certificate().is_signed_by(self.me.peer)) {
            self.tell_signed(by);
        }
    }

    /// Others have taken us into the view of `proposal`. If we did not ask them to, we promised it, in a view that we were in.
    pub(in crate::membership) fn look_for_seat(&mut self, by: PeerId, proposal: &Proposal) {
        let asked = proposal.joiners.iter().any(|joiner| joiner.contact.peer == self.me.peer);
        let follows = self.seat.as_ref().is_some_and(|seat| proposal.view.parent == Some(seat.id));
        if !asked && !follows {
            self.tell_forgotten(by);
        }
    }

    /// The last view of `links` that we have accepted in a view that we don't know to have been in, or decided alone, or beside
    /// the one that our own way led through: our own signature shows it. We came back to an earlier one.
    pub(in crate::membership) fn what_we_decided(&self, links: &[SuccessionProof]) -> Option<View> {
        let me = self.me.peer;
        let seat = self.seat.as_ref().filter(|seat| self.came_back && !seat.view.forked)?;
        let is_alone = seat.view.members() == [me];
        let follows = |link: &SuccessionProof| {
            let view = &link.view;
            let is_ours = view.branch == seat.view.branch && !view.forked;
            // Of a view that we have been through we know what was decided there, if not by whom else.
            let is_past = view.parent.is_some_and(|parent| self.chain.came_from(parent) || self.chain.has_left(parent));
            let may_follow = view.generation > seat.view.generation && (is_alone || view.parent != Some(seat.id));
            is_ours && ((may_follow && !is_past) || self.went_beside(link))
        };
        let shows = |link: &&SuccessionProof| follows(link) && link.is_sealed_by(&*self.notary, me);
        let claimed = links.iter().rev().filter(|link| link.certificate().is_signed_by(me));
        claimed.take(MAX_LOOKED_AT).find(shows).map(|link| link.view.clone())
    }

    /// Whether `link` was decided beside our own way, and both by us: nobody else who decided the one has decided the other, so it is
    /// we who have voted twice.
    fn went_beside(&self, link: &SuccessionProof) -> bool {
        let me = self.me.peer;
        let Some(ours) = self.chain.beside(&*self.notary, link).map(SuccessionProof::certificate) else { return false };
        let is_only_mine = |(signer, _): &(PeerId, _)| *signer == me || !ours.is_signed_by(*signer);
        ours.is_signed_by(me) && link.certificate().seals.iter().all(is_only_mine)
    }

    /// Where `links` leave our own way, if that is signed in our name. Whoever likes may say so: one signature is looked at, and not one
    /// of each link.
    pub(in crate::membership) fn signed_parting<'a>(
        &self,
        links: &'a [SuccessionProof],
    ) -> Option<&'a SuccessionProof> {
        let parting = links.iter().find(|link| self.chain.parts_with(link));
        parting.filter(|link| link.is_sealed_by(&*self.notary, self.me.peer))
    }

    /// Whether one of `links` that we have signed went beside our own way.
    pub(in crate::membership) fn have_gone_beside(&self, links: &[SuccessionProof]) -> bool {
        self.came_back && self.signed_parting(links).is_some_and(|link| self.went_beside(link))
    }

    /// The same of a view that is installed, and what led to it.
    pub(in crate::membership) fn what_we_signed(&self, decided: &Decided) -> Option<View> {
        let certificate = decided.certificate.as_ref().filter(|it| it.is_signed_by(self.me.peer));
        let link = certificate.map(|it| SuccessionProof::to(&decided.proposal, it.clone()));
        link.and_then(|link| self.what_we_decided(&[link])).or_else(|| self.what_we_decided(&decided.chain))
    }

    /// We are shown a view that followed from ours by our own decision, which our record does not know: we ask to be let in there.
    pub(in crate::membership) fn follow_what_we_decided(
        &mut self,
        now: Time,
        from: PeerId,
        members: &[PeerId],
        decided: View,
    ) {
        if self.doubts.believes(now) && !self.is_outside() {
            self.tell_forgotten(from);
            self.go_outside(now, from, members);
            self.note_follower(Some(decided));
            self.forfeit();
        }
    }

    /// We are outside, since we have decided what we don't remember: what we said where we were is worth nothing, and whoever needs our vote
    /// there goes on with nobody.
    pub(in crate::membership) fn forfeit(&mut self) {
        self.join_attempt.iter_mut().for_each(|join_attempt| join_attempt.forfeits = true);
    }

    pub(in crate::membership) fn tell_forgotten(&mut self, by: PeerId) {
        if !std::mem::replace(&mut self.has_forgotten, true) && !self.is_flawed(FlawKind::HidesSetBack) {
            self.tell(Event::SetBack { by });
        }
    }
}
