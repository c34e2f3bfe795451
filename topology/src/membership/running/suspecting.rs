//! What speaks for the loss of a member, and what speaks against it.

use crate::id::PeerId;
use crate::membership::Membership;
use crate::membership::ending::finishing::Finish;
use crate::membership::flaw::FlawKind;
use crate::membership::interface::{Event, HoldPosition};
use crate::membership::seat::Stage;
use crate::message::{Body, Evidence};
use crate::time::Time;

impl Membership {
    /// We have seen something ourselves.
    pub(in crate::membership) fn suspect(&mut self, now: Time, peer: PeerId, evidence: Evidence) {
        if matches!(evidence, Evidence::Closed | Evidence::Misbehaved | Evidence::Revoked)
            && self.joiners.remove(&peer).is_some()
        {
            self.tell(Event::JoinerLost(peer));
        }
        let ignored = matches!(evidence, Evidence::Silent(_)) && self.is_flawed(FlawKind::IgnoresSilence);
        if peer == self.me.peer || ignored {
            return;
        }
        if self.is_outside() {
            // Who is outside votes on, and keeps nobody from putting out one that it saw break the rules itself.
            let seat = self.seat.as_mut().filter(|seat| evidence == Evidence::Misbehaved && seat.view.contains(peer));
            seat.into_iter().for_each(|seat| _ = seat.accused.insert(peer));
            return;
        }
        let finished = self.finished.is_some();
        let (me, step) = (self.me.peer, self.reached);
        let Some(seat) = &mut self.seat else { return };
        if !seat.view.contains(peer) {
            return;
        }
        if evidence == Evidence::Misbehaved {
            seat.accused.insert(peer);
        }
        if seat.view.is_severed(me, peer) {
            return;
        }
        if finished && seat.gone.contains(&peer) {
            return; // It has said goodbye, and so may go.
        }
        let before = seat.suspects.get(&peer).copied();
        if before.is_some_and(|before| before.outlasts_messages() && !evidence.outlasts_messages()) {
            return;
        }
        seat.suspects.insert(peer, evidence);
        match (before, evidence) {
            (_, Evidence::Restarted) => seat.note_restarted(peer),
            (Some(Evidence::LinkFailed | Evidence::Restarted), _) => {}
            (_, Evidence::LinkFailed) => seat.note_broken(now, peer, step),
            _ => {}
        }
        if before.is_none() {
            self.tell(Event::Suspected { peer, evidence, reporter: None });
        }
        self.propose_if_promised(now);
    }

    /// Nobody gave us the result that some say they hold. Their word moves nobody out of the view: we doubt them, and ask for a
    /// view that goes on from what there is without them. Where it has no link from us to any of them we ask for one all the same,
    /// and keep our state and our seat: those who could have the result tell then that they did go on.
    ///
    /// Of fewer than four voters one accuser is enough to put others out. There most of them are not wrong all at once: it is the links
    /// to us that fail, and after another try it is we who go.
    pub(in crate::membership) fn miss_result(&mut self, now: Time) {
        let me = self.me.peer;
        let Some(seat) = &self.seat else { return };
        let holders = seat.origin.iter().flat_map(|origin| &origin.resume.holders).copied();
        let holders: Vec<PeerId> = holders.filter(|peer| *peer != me).collect();
        let voters = holders.iter().filter(|peer| seat.view.votes(**peer)).count();
        let are_most = seat.view.most_hostile() == 0 && 2 * voters > seat.view.voter_count();
        let evidence = if are_most { Evidence::LinkFailed } else { Evidence::Misbehaved };
        let is_doubted = |peer: &PeerId| {
            !seat.view.is_severed(me, *peer) && !(are_most && (seat.accused.contains(peer) || !seat.trusts(*peer)))
        };
        let doubted: Vec<PeerId> = holders.into_iter().filter(is_doubted).collect();
        for peer in doubted {
            self.suspect(now, peer, evidence);
        }
        self.held_since.get_or_insert(now);
        self.hold(HoldPosition::Now);
    }

    /// Another member has seen something.
    pub(in crate::membership) fn receive_suspect(&mut self, now: Time, from: PeerId, peer: PeerId, evidence: Evidence) {
        if peer == from && evidence == Evidence::Elsewhere {
            return self.suspect(now, peer, Evidence::Elsewhere);
        }
        let me = self.me.peer;
        let Some(seat) = &mut self.seat else { return };
        let is_believed = !seat.view.is_severed(from, peer) && !seat.accused.contains(&from);
        if peer == me || !seat.view.contains(peer) || !is_believed {
            return;
        }
        // It has our promise and leaves it to us, whose turn would come after that of others who may reach nobody.
        let has_promise = seat.acceptor.promised.is_some_and(|ballot| ballot.proposer == from);
        let is_ours = peer == from && evidence == Evidence::LinkFailed && has_promise;
        let is_known = is_ours || seat.suspicion_reports.knows(from, peer);
        if !is_known && !self.reports.take(now, from, self.config.call_limit()) {
            return; // Who has said so before of those who were there after all.
        }
        seat.asked |= is_ours;
        if seat.suspicion_reports.report(from, peer, evidence) {
            self.tell(Event::Suspected { peer, evidence, reporter: Some(from) });
        }
        if is_ours {
            self.take_over_at(now);
        }
        self.propose_if_promised(now);
    }

    /// A member has spoken in our view: it lives, and we can hear it.
    pub(in crate::membership) fn note_alive(&mut self, now: Time, from: PeerId) {
        let Some(seat) = &mut self.seat else { return };
        seat.heard.insert(from);
        seat.detector.heard(now, from);
        if seat.suspects.get(&from).is_none_or(|evidence| evidence.outlasts_messages()) {
            return;
        }
        seat.suspects.remove(&from);
        seat.told.remove(&from);
        if let Some(decree) = seat.decree.as_ref().filter(|decree| decree.stage == Stage::Promising) {
            let (ballot, boundary, unreachable) = (decree.ballot, decree.boundary, seat.unreachable(self.me.peer));
            self.send(from, Body::Prepare { ballot, boundary, unreachable });
        }
        self.watch(now);
        self.tell_again(from);
    }

    /// What we said while the connection was gone is lost.
    fn tell_again(&mut self, to: PeerId) {
        if let Some(Finish { step, digest, .. }) = self.finished {
            let peer = self.me.peer;
            self.send(to, Body::Finished { peer, step, digest });
        }
        if self.synced {
            self.send(to, Body::Synced);
        }
        self.tell_row_again(to);
    }

    /// Watches our neighbours, but for those that we suspect already.
    pub(in crate::membership) fn watch(&mut self, now: Time) {
        let me = self.me.peer;
        let Some(seat) = &mut self.seat else { return };
        let mut watched = seat.neighbours(me);
        watched.retain(|peer| !seat.suspects.contains_key(peer));
        seat.detector.watch(now, watched);
    }
}

impl Evidence {
    /// Whether it holds even if the peer is heard again: a broken link does not mend within a view, and what a
    /// process has lost or done stays so.
    pub(in crate::membership) fn outlasts_messages(self) -> bool {
        match self {
            Self::LinkFailed | Self::Restarted | Self::Elsewhere | Self::Misbehaved | Self::Revoked => true,
            Self::Closed | Self::Silent(_) | Self::Unanswered => false,
        }
    }
}
