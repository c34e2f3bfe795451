//! Letting peers in: the members' side.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::error::Violation;
use crate::id::{PeerId, ViewId};
use crate::membership::Membership;
use crate::membership::flaw::FlawKind;
use crate::membership::interface::Event;
use crate::membership::seat::{MAX_RISE, Seat};
use crate::message::{Body, Evidence, RefusalReason};
use crate::time::Time;
use crate::vote::proposal::{JoinRequest, MAX_JOINERS, Reason};

/// A joiner that has not asked again for this many of its intervals is forgotten.
const PATIENCE: u32 = 8;
/// In larger views nobody is let in for whom all would have to reduce through one hub: it may be a leaf of that one. Nor would each be
/// asked again in time.
const MOST_AROUND_A_HUB: usize = 6;
/// Joiners wait for members that sync for so many of the longest stalls.
const SYNC_STALLS: u32 = 3;

/// A peer that waits to be let in.
#[derive(Debug)]
pub(in crate::membership) struct PendingJoiner {
    pub(in crate::membership) joiner: JoinRequest,
    /// When it asked us first, and after which step.
    since: Time,
    after: u64,
    asked_at: Time,
}

impl Membership {
    pub(in crate::membership) fn receive_join(
        &mut self,
        now: Time,
        from: PeerId,
        joiner: JoinRequest,
    ) -> Result<(), Violation> {
        if joiner.contact.peer != from {
            return Err(Violation::NotItself(from));
        }
        if !joiner.is_signed(self.run, &*self.notary) {
            return Err(Violation::Unsigned);
        }
        let is_taken = self.is_flawed(FlawKind::TakesGenerations);
        let (Some(seat), None) = (&self.seat, &self.join_attempt) else { return Ok(()) };
        let claimed = joiner.state.map_or(joiner.step, |(step, _)| step.max(joiner.step));
        let counted = joiner.generation.0 >= seat.view.generation.0.saturating_add(MAX_RISE);
        if (claimed > self.config.last_step || counted) && !is_taken {
            return Ok(()); // No run goes that far, and no view counts up to there.
        }
        // Without a quorum we can't know that the run is finished.
        if self.is_too_late(now, from) {
            self.send(from, Body::Refuse(RefusalReason::RunFinished));
            return Ok(());
        }
        let Some(seat) = &mut self.seat else { return Ok(()) };
        if seat.view.contains(from) {
            let of_it = |known: &&JoinRequest| known.contact.peer == from;
            let known = seat.origin.as_ref().and_then(|origin| origin.joiners.iter().find(of_it));
            let is_behind = joiner.branch == seat.view.branch && joiner.generation.next() == seat.view.generation;
            // Who was in it has heard of it, and has gone since, perhaps while this process was not there.
            let was_here = joiner.branch == seat.view.branch && joiner.generation == seat.view.generation;
            let invited = known.map_or(is_behind, |known| known.incarnation == joiner.incarnation && !was_here);
            if invited && !seat.heard.contains(&from) {
                // It asked before it heard that it is in, or still is, and followed its old view until now.
                seat.suspects.retain(|peer, evidence| *peer != from || *evidence != Evidence::Elsewhere);
                self.send_install(from, None);
                return Ok(());
            }
            if self.needs_back(&joiner) {
                self.send_install(from, Some(joiner.generation));
                return Ok(());
            }
            if self.shows_seat(from, &joiner) {
                return Ok(());
            }
            self.suspect(now, from, Evidence::Restarted);
        }
        self.admit(now, joiner);
        if let Some(seat) = &mut self.seat {
            seat.told.remove(&from); // Whoever proposes hears of it again.
        }
        Ok(())
    }

    /// Another member says that `joiner` wants to be let in. It says so itself once it hears from us: who is not there, or has
    /// not asked, is no candidate.
    pub(in crate::membership) fn look_at(&mut self, now: Time, joiner: JoinRequest) {
        if self.is_flawed(FlawKind::AdmitsIntroduced) {
            return self.admit(now, joiner);
        }
        let peer = joiner.contact.peer;
        let is_known = self.joiners.contains_key(&peer) || !self.may_answer(now, peer);
        let Some(seat) = self.seat.as_ref().filter(|_| !is_known && peer != self.me.peer) else { return };
        if !seat.view.contains(peer) || !seat.trusts(peer) {
            self.learn(joiner.contact);
            self.show_out(peer, ViewId::NONE);
        }
    }

    /// Has a peer wait to be let in, unless it can't be.
    pub(in crate::membership) fn admit(&mut self, now: Time, joiner: JoinRequest) {
        let peer = joiner.contact.peer;
        let is_invited = self.notary.is_invited(&joiner) && self.notary.admits(std::slice::from_ref(&joiner));
        let may = peer != self.me.peer && !self.revoked.contains(&peer) && is_invited;
        let Some(seat) = self.seat.as_ref().filter(|_| may) else { return };
        // Who waits spares the others a change of view in the midst of their steps. Where these take none for want of members, nobody
        // is spared anything by more than the first quarantine.
        let most = if seat.waiting { self.config.quarantine() } else { Duration::MAX };
        if let Some(remaining) = self.quarantine.remaining(now, peer, most) {
            let for_ms = u64::try_from(remaining.as_millis()).unwrap_or(u64::MAX).saturating_add(1);
            return self.send(peer, Body::Refuse(RefusalReason::Quarantined { for_ms }));
        }
        let first = self.joiners.get(&peer).map(|waiting| (waiting.since, waiting.after));
        let known = first.is_some();
        let present = seat.view.members().iter().filter(|member| **member != peer && seat.trusts(**member)).count();
        let waiting = self.joiners.len() - usize::from(known);
        if present + waiting >= self.config.max_members {
            let max_members = u32::try_from(self.config.max_members).unwrap_or(u32::MAX);
            self.joiners.remove(&peer);
            return self.send(peer, Body::Refuse(RefusalReason::Full { max_members }));
        }
        let (since, after) = first.unwrap_or((now, self.reached));
        self.joiners.insert(peer, PendingJoiner { joiner, since, after, asked_at: now });
        if !known {
            self.tell(Event::Joining(peer));
        }
    }

    /// The joiners that the next view may take in. None while a member is still syncing, so that those who serve the state
    /// serve one batch at a time; but one that takes long, or computes for minutes before it looks at its state, keeps
    /// nobody out for good.
    pub(in crate::membership) fn candidates(&self, now: Time) -> impl Iterator<Item = &JoinRequest> {
        let limit = self.config.max_stall * SYNC_STALLS;
        let is_new = |seat: &Seat| now - seat.entered < limit;
        let is_busy = |seat: &Seat| !seat.syncing.is_empty() && !seat.waiting && is_new(seat);
        // Who comes late to the end has no time to wait.
        let waits = self.finished.is_none() && self.seat.as_ref().is_some_and(is_busy);
        self.admitted().filter(move |joiner| !waits && !self.is_in_the_way(now, joiner.contact.peer))
    }

    /// Whether one that may be let in has asked us for so long that the proposer, who lets it in behind the step under way, does not
    /// hear it: there may be no link between those two. Then we do, who hear it, if we reach all the others: else no plan may go with it.
    pub(in crate::membership) fn is_passed_over(&self, now: Time) -> bool {
        let Some(seat) = &self.seat else { return false };
        let is_hub = seat.severed_from(self.me.peer).next().is_none();
        let has_waited = |joiner: &JoinRequest| {
            self.joiners.get(&joiner.contact.peer).is_some_and(|waiting| {
                let is_behind = seat.waiting || self.reached > waiting.after.saturating_add(1);
                // Who has asked once may be gone.
                waiting.asked_at > waiting.since && now - waiting.since >= self.config.max_stall && is_behind
            })
        };
        is_hub && seat.view.members().len() <= MOST_AROUND_A_HUB && self.candidates(now).any(has_waited)
    }

    /// Whether our view left this peer out because no ring went with it, and has taken no step since: that one comes first.
    fn is_in_the_way(&self, now: Time, peer: PeerId) -> bool {
        // At the end nobody needs a ring any more, and who comes late has no time to wait.
        let Some(seat) = self.seat.as_ref().filter(|seat| !seat.waiting && self.finished.is_none()) else {
            return false;
        };
        let was_left_out = Reason::Lost { peer, evidence: Evidence::LinkFailed };
        let is_new = now - seat.entered < self.config.max_stall && self.reached <= seat.least();
        is_new && seat.origin.as_ref().is_some_and(|origin| origin.reasons.contains(&was_left_out))
    }

    /// The joiners that wait, as many as there is room for.
    pub(in crate::membership) fn admitted(&self) -> impl Iterator<Item = &JoinRequest> {
        let open = |seat: &&Seat| !self.is_parting() || seat.paused.is_some();
        self.seat.as_ref().filter(open).into_iter().flat_map(|seat| {
            let room = self.config.max_members.saturating_sub(seat.view.members().len()).min(MAX_JOINERS);
            let outside = self.joiners.iter().filter(|(peer, _)| !seat.view.contains(**peer));
            outside.take(room).map(|(_, waiting)| &waiting.joiner)
        })
    }

    /// Members that have given no vote here and ask to be let in: they came back without having heard of this view.
    pub(in crate::membership) fn strayed(&self, promised: &BTreeSet<PeerId>) -> impl Iterator<Item = &JoinRequest> {
        let strays = |seat: &Seat, peer| seat.view.contains(peer) && !seat.trusts(peer) && !promised.contains(&peer);
        let strays = move |peer| self.seat.as_ref().is_some_and(|seat| strays(seat, peer));
        self.joiners.iter().filter(move |(peer, _)| strays(**peer)).map(|(_, waiting)| &waiting.joiner)
    }

    pub(in crate::membership) fn forget_joiners(&mut self, now: Time) {
        let limit = self.config.probe_interval() * PATIENCE;
        let gone: Vec<PeerId> =
            self.joiners.extract_if(.., |_, waiting| now - waiting.asked_at > limit).map(|(peer, _)| peer).collect();
        for peer in gone {
            self.tell(Event::JoinerLost(peer));
        }
    }
}
