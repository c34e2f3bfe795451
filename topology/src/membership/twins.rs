//! Two processes with one identity: somebody has copied a member's data directory, or its key, and started it elsewhere. Each is
//! taken for the other, come back after a crash, so whoever asks to be let in puts the other out, and so on for ever.
//!
//! Of the two, the one goes that was let in before. It is proven to it by one of these:
//!
//! * its own signature of what this process has not said: nobody else can make that;
//! * a chain of certificates from its own view to one that has a seat for its identity which this process has neither kept nor
//!   asked for: a quorum has decided that.
//!
//! What one peer says never ends it. What a process *before* this one has said does not either, whatever has become of the disk: that
//! is why only what follows a view counts that this process was let in to, or took a step in ([`super::seat::Seat`]). Who came
//! back to its seat and has done neither may be shown what that process had said, and is told [`Event::SetBack`].

use super::installing::Decided;
use super::{Membership, Steps};
use crate::flaw::Flaw;
use crate::id::PeerId;
use crate::interface::Event;
use crate::proposal::Joiner;

impl Membership {
    /// Our own signature, of a view that we are in or of one that follows it, and not by what we know that we have said.
    pub(super) fn tell_signed(&mut self, by: PeerId) {
        match self.is_in_our_seat() {
            true => self.end(Event::Twin { by }),
            false => self.tell_forgotten(by),
        }
    }

    fn is_in_our_seat(&self) -> bool {
        self.seat.as_ref().is_some_and(|seat| seat.ours) && !self.is_flawed(Flaw::IgnoresTwin)
    }

    /// Ends if `decided` shows that our seat is another process's by now.
    pub(super) fn ends_for_twin(&mut self, by: PeerId, decided: &Decided) -> bool {
        let shows = self.is_in_our_seat() && self.is_a_twins(decided);
        if shows {
            self.end(Event::Twin { by });
        }
        shows
    }

    /// Whether it is proven that our identity has a seat in the view of `decided` which is not this process's: it was let in as another
    /// one, or has promised to stay.
    fn is_a_twins(&self, decided: &Decided) -> bool {
        let Decided { proposal, certificate, chain, fork: _ } = decided;
        let (me, view) = (self.me.peer, &proposal.view);
        let (Some(seat), Some(certificate)) = (&self.seat, certificate) else { return false };
        let joined = proposal.joiners.iter().find(|joiner| joiner.contact.peer == me);
        let follows = view.parent == Some(seat.id);
        let has_stayed = || match follows {
            // Who steps has promised nothing.
            true => self.steps == Steps::Running && seat.acceptor.promised.is_none(),
            // Only who has promised in the view before stays, and in none after ours have we been.
            false => view.generation > seat.view.generation,
        };
        let is_anothers = view.contains(me)
            && joined.map_or_else(has_stayed, |joiner| joiner.incarnation != self.config.incarnation);
        is_anothers && certificate.proves_after(&*self.notary, &seat.view, chain, proposal)
    }

    /// Shows a peer that asks to be let in, though another process of it has been let in to this view and has spoken here, how that came:
    /// it may be the one whose seat that was. Once; who asks again has had none, or its disk was set back.
    pub(super) fn shows_seat(&mut self, to: PeerId, joiner: &Joiner) -> bool {
        let Some(seat) = &mut self.seat else { return false };
        let of_it = |known: &&Joiner| known.contact.peer == to;
        let known = seat.origin.as_ref().and_then(|origin| origin.joiners.iter().find(of_it));
        let has_seat = known.is_some_and(|known| known.incarnation != joiner.incarnation) && seat.heard.contains(&to);
        let was_here = joiner.branch == seat.view.branch
            && joiner.generation.0 > 0
            && joiner.generation < seat.view.generation;
        let shows = has_seat && was_here && seat.shown_seated.insert(to);
        if shows {
            self.send_install(to, Some(joiner.generation));
        }
        shows
    }
}
