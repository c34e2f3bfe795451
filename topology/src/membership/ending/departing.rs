//! Leaving in order: a member that the others let go stays until some of those who go on without it know that they do.
//!
//! Who leaves gives its seat up by the decree that lets it go. If those who have decided that all leave at once, and what they have
//! sent is lost with their connections, those who stay wait for votes that nobody can give any more. Where nobody is known to know,
//! the seat is kept.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::id::{Generation, PeerId, ViewId};
use crate::membership::Membership;
use crate::membership::decree::installing::Decided;
use crate::membership::interface::{Event, HoldPosition, Timer};
use crate::message::Body;
use crate::time::Time;

/// So many are told at a time, and at most so many have to say that they know.
const MAX_TOLD: usize = 8;

/// Whether a member leaves, and how far it has got.
#[derive(Debug)]
pub(in crate::membership) enum Leaving {
    /// It stays.
    No,
    /// It was told to leave, and asks the others to let it go.
    Wanted,
    /// They have let it go, and not enough of them know.
    Departing(Box<Departing>),
}

impl Leaving {
    /// It is to leave, if it doesn't yet.
    pub(in crate::membership) fn begin(&mut self) {
        if matches!(self, Self::No) {
            *self = Self::Wanted;
        }
    }

    /// Whether it was told to leave.
    pub(in crate::membership) fn is_wanted(&self) -> bool {
        !matches!(self, Self::No)
    }
}

/// The others have decided to go on without us, as we asked.
#[derive(Debug)]
pub(in crate::membership) struct Departing {
    decided: Decided,
    /// Those who stay and have said that they know.
    know: BTreeSet<PeerId>,
    /// Those of them to whom we have lost the connection: they may come back, and not know.
    gone: BTreeSet<PeerId>,
    /// How often others were told.
    times: usize,
    since: Time,
}

impl Departing {
    /// Whether enough of those who stay know: one that lies about it is not alone among them.
    fn is_known(&self) -> bool {
        let Decided { proposal, certificate, .. } = &self.decided;
        certificate.is_none() || self.know.len() > (proposal.view.members().len() / 3).min(MAX_TOLD - 1)
    }

    /// Whether nobody is left who could say so.
    fn is_deserted(&self, now: Time, max_stall: Duration) -> bool {
        let mut stay = self.decided.proposal.view.members().iter();
        let waits = max_stall / if stay.all(|peer| self.gone.contains(peer)) { 4 } else { 1 };
        now - self.since >= waits
    }
}

impl Membership {
    /// Whether the others have let us go: then this machine ends by itself soon.
    pub fn departs(&self) -> bool {
        matches!(self.leaving, Leaving::Departing(_))
    }

    /// They have let us go. Whatever else we wanted to have decided has no use any more.
    pub(in crate::membership) fn depart(&mut self, now: Time, decided: Decided) {
        self.seat.iter_mut().for_each(|seat| (seat.decree, seat.takeover_at) = (None, None));
        let (know, gone) = (BTreeSet::new(), BTreeSet::new());
        self.leaving = Leaving::Departing(Box::new(Departing { decided, know, gone, times: 0, since: now }));
        self.hold(HoldPosition::Now);
        self.tell_those_who_stay(now);
    }

    /// Tells some of those who stay what was decided, or waits no longer.
    pub(in crate::membership) fn tell_those_who_stay(&mut self, now: Time) {
        let (max_stall, pause) = (self.config.max_stall, self.config.heartbeat_interval());
        let Leaving::Departing(departing) = &mut self.leaving else { return };
        if departing.is_known() || departing.is_deserted(now, max_stall) {
            return self.go();
        }
        let stay = departing.decided.proposal.view.members().iter().filter(|peer| !departing.know.contains(peer));
        let stay: Vec<PeerId> = stay.copied().collect();
        let first = departing.times * MAX_TOLD % stay.len().max(1);
        departing.times += 1;
        for peer in stay.iter().cycle().skip(first).take(stay.len().min(MAX_TOLD)) {
            self.tell_decision(*peer);
        }
        self.set_timer(Timer::Goodbye, now + pause);
    }

    fn tell_decision(&mut self, to: PeerId) {
        let Leaving::Departing(departing) = &self.leaving else { return };
        let Decided { proposal, certificate, fork, .. } = &departing.decided;
        let (contacts, chain) = (self.contacts_for(to, proposal), self.chain_for(to, proposal));
        let (proposal, certificate, fork) = (proposal.clone(), certificate.clone(), *fork);
        self.send(to, Body::Install { proposal, certificate, contacts, fork, chain });
    }

    /// While we leave: somebody says something in the view called `view`, of that generation. Whoever is not there yet is told.
    pub(in crate::membership) fn hear_of_departure(
        &mut self,
        now: Time,
        from: PeerId,
        (generation, view): (Generation, ViewId),
    ) {
        let Leaving::Departing(departing) = &mut self.leaving else { return };
        let ours = &departing.decided.proposal.view;
        if !ours.contains(from) {
            return;
        }
        departing.gone.remove(&from);
        if view == ours.id() || generation > ours.generation {
            departing.know.insert(from);
            if departing.is_known() {
                self.go();
            }
        } else if self.may_answer(now, from) {
            self.tell_decision(from);
        }
    }

    /// While we leave: the connection to one of them is lost.
    pub(in crate::membership) fn note_gone(&mut self, peer: PeerId) {
        if let Leaving::Departing(departing) = &mut self.leaving {
            departing.gone.insert(peer);
        }
    }

    /// Ends, and gives the seat up if those who stay know.
    pub(in crate::membership) fn go(&mut self) {
        let Leaving::Departing(departing) = std::mem::replace(&mut self.leaving, Leaving::Wanted) else { return };
        let is_known = departing.is_known();
        let members = departing.decided.proposal.view.members();
        self.end(Event::Left { stayed: if is_known { members.to_vec() } else { Vec::new() } });
    }
}
