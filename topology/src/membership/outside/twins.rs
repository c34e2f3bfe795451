//! Two processes with one identity: somebody has copied a member's data directory, or its key, and started it elsewhere. Each is
//! taken for the other, come back after a crash, so whoever asks to be let in puts the other out, and so on for ever.
//!
//! Of the two, the one goes that was started before, as what they ask tells ([`JoinRequest::incarnation`]). That is signed, and stays good
//! when its process is gone; so that no member which has kept it ends a process that was started since, a seat which an *earlier* one
//! asked for is asked back. It is proven by one of these:
//!
//! * its own signature of what this process has not said: nobody else can make that;
//! * a chain of certificates from its own view to one that has a seat for its identity which this process has not kept, or which a
//!   later one has asked for: a quorum has decided that. If the other one was let in there, it has also been heard there, as somebody
//!   says whom this process has asked.
//!
//! What one peer says never ends it. What a process *before* this one has said does not either, whatever has become of the disk: that
//! is why only what follows a view counts that this process was let in to, or took a step in ([`Seat`]). Who came
//! back to its seat and has done neither may be shown what that process had said, and is told [`Event::SetBack`].

use crate::id::PeerId;
use crate::membership::Membership;
use crate::membership::decree::installing::Decided;
use crate::membership::flaw::FlawKind;
use crate::membership::interface::Event;
use crate::membership::seat::Seat;
use crate::vote::certificate::SuccessionProof;
use crate::vote::proposal::JoinRequest;

/// So often is one who asks shown that another process of it has the seat. It goes when it is shown that for the second time: the first
/// may have been on its way to the other one, which may be gone by now.
const MAX_SHOWN: u32 = 4;

impl Membership {
    /// Our own signature, of a view that we are in or of one that follows it, and not by what we know that we have said.
    pub(in crate::membership) fn tell_signed(&mut self, by: PeerId) {
        match self.is_in_our_seat() {
            true => self.end(Event::Twin { by }),
            false => self.tell_forgotten(by),
        }
    }

    fn is_in_our_seat(&self) -> bool {
        self.seat.as_ref().is_some_and(|seat| seat.ours_since.is_some()) && !self.is_flawed(FlawKind::IgnoresTwin)
    }

    /// Takes in what shows that our seat is another process's by now. False if `decided` doesn't.
    pub(in crate::membership) fn meets_twin(&mut self, by: PeerId, decided: &Decided) -> bool {
        if !self.is_in_our_seat() || !self.is_a_twins(decided) {
            return false;
        }
        let Decided { proposal, .. } = decided;
        let joined = proposal.joiners.iter().find(|joiner| joiner.contact.peer == self.me.peer);
        let is_later = |joiner: &JoinRequest| {
            joiner.incarnation > self.config.incarnation && joiner.is_signed(self.run, &*self.notary)
        };
        let is_sure = match (joined.map(is_later), &mut self.join_attempt) {
            (None, _) => true, // It has promised since.
            (Some(true), Some(join_attempt)) => join_attempt.note_replaced(proposal.view.id()),
            // We ask on, until the seat is ours again.
            (Some(false), Some(_)) => false,
            (Some(_), None) => return false,
        };
        if is_sure {
            self.end(Event::Twin { by });
        }
        true
    }

    /// Whether it is proven that our identity has a seat in the view of `decided` which is not this process's: another one was let in,
    /// or has promised to stay.
    fn is_a_twins(&self, decided: &Decided) -> bool {
        let Decided { proposal, certificate, chain, fork: _ } = decided;
        let (me, view) = (self.me.peer, &proposal.view);
        let (Some(seat), Some(certificate)) = (&self.seat, certificate) else { return false };
        let joined = proposal.joiners.iter().find(|joiner| joiner.contact.peer == me);
        let has_stayed = || match view.parent == Some(seat.id) {
            // Nobody stays who has promised nothing.
            true => seat.acceptor.promised.is_none(),
            // Only who has promised in the view before stays, and in none after ours have we been.
            false => view.generation > seat.view.generation,
        };
        let is_another = |joiner: &JoinRequest| joiner.incarnation != self.config.incarnation;
        let is_anothers = view.contains(me) && joined.map_or_else(has_stayed, is_another);
        is_anothers && certificate.proves_after(&*self.notary, &seat.view, chain, proposal)
    }

    /// Ends if one of `links` was decided beside our own way, with our signature though not by us, and gives way to no other: of two
    /// such ways the one with the lower view there goes on with us.
    pub(in crate::membership) fn gives_way_to_twin(&mut self, by: PeerId, links: &[SuccessionProof]) -> bool {
        let Some(since) = self.seat.as_ref().and_then(|seat| seat.ours_since).filter(|_| self.is_in_our_seat()) else {
            return false;
        };
        let gives_way = self.signed_parting(links).is_some_and(|link| {
            let ours = self.chain.beside(&*self.notary, link).map(|ours| &ours.view);
            ours.is_some_and(|ours| ours.generation > since && link.view.id() < ours.id())
        });
        if gives_way {
            self.end(Event::Twin { by });
        }
        gives_way
    }

    /// Shows a peer that asks to be let in, though another process of it has been let in since it was here and has spoken in this view,
    /// how that came: it may be the one whose seat that was. Who asks yet again has had none, or its disk was set back.
    pub(in crate::membership) fn shows_seat(&mut self, to: PeerId, joiner: &JoinRequest) -> bool {
        let Some(seat) = &mut self.seat else { return false };
        let Some((since, incarnation)) = seat.let_in.get(&to).copied() else { return false };
        let has_seat = incarnation != joiner.incarnation && seat.heard.contains(&to);
        let was_here = joiner.branch == seat.view.branch && joiner.generation.0 > 0 && joiner.generation < since;
        if !has_seat || !was_here {
            return false;
        }
        let times = seat.shown_seated.entry(to).or_default();
        *times += 1;
        let shows = *times <= MAX_SHOWN;
        if shows {
            self.send_install(to, Some(joiner.generation));
        }
        shows
    }
}

impl Seat {
    /// This process takes part here.
    pub(in crate::membership) fn note_ours(&mut self) {
        self.ours_since.get_or_insert(self.view.generation);
    }
}
