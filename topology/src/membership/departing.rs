//! Leaving in order: a member that the others let go stays until some of those who go on without it know that they do.
//!
//! Who leaves gives its seat up by the decree that lets it go. If those who have decided that all leave at once, and what they have
//! sent is lost with their connections, those who stay wait for votes that nobody can give any more.

use std::collections::BTreeSet;

use super::Membership;
use super::installing::Decided;
use crate::id::{Generation, PeerId, ViewId};
use crate::interface::{Event, Timer};
use crate::message::Body;
use crate::time::Time;

/// So many are told at a time, and at most so many have to say that they know.
const MAX_TOLD: usize = 8;

/// The others have decided to go on without us, as we asked.
#[derive(Debug)]
pub(super) struct Departing {
    decided: Decided,
    /// Those who stay and have said that they know, or are gone themselves.
    know: BTreeSet<PeerId>,
    /// How often others were told.
    times: usize,
    until: Time,
}

impl Membership {
    /// They have let us go.
    pub(super) fn depart(&mut self, now: Time, decided: Decided) {
        let is_proven = decided.certificate.is_some() && !decided.proposal.view.members().is_empty();
        let until = now + self.config.max_stall;
        self.departing = Some(Departing { decided, know: BTreeSet::new(), times: 0, until });
        if is_proven { self.tell_those_who_stay(now) } else { self.go() }
    }

    /// Tells some of those who stay what was decided, or waits no longer.
    pub(super) fn tell_those_who_stay(&mut self, now: Time) {
        let Some(departing) = &mut self.departing else { return };
        if now >= departing.until {
            return self.go();
        }
        let Decided { proposal, certificate, fork, .. } = &departing.decided;
        let (proposal, certificate, fork) = (proposal.clone(), certificate.clone(), *fork);
        let stay: Vec<PeerId> =
            proposal.view.members().iter().filter(|peer| !departing.know.contains(peer)).copied().collect();
        let first = departing.times * MAX_TOLD % stay.len().max(1);
        let at = departing.until.min(now + self.config.heartbeat_interval());
        departing.times += 1;
        for peer in stay.iter().cycle().skip(first).take(stay.len().min(MAX_TOLD)).copied() {
            let (contacts, chain) = (self.contacts_for(peer, &proposal), self.chain_for(peer, &proposal));
            let (proposal, certificate) = (proposal.clone(), certificate.clone());
            self.send(peer, Body::Install { proposal, certificate, contacts, fork, chain });
        }
        self.set_timer(Timer::Goodbye, at);
    }

    /// While we leave: somebody says something in the view called `view`, of that generation.
    pub(super) fn hear_of_departure(&mut self, from: PeerId, (generation, view): (Generation, ViewId)) {
        let ours = self.departing.as_ref().map(|departing| &departing.decided.proposal.view);
        if ours.is_some_and(|ours| view == ours.id() || generation > ours.generation) {
            self.wait_no_more_for(from);
        }
    }

    /// While we leave: one that stays knows of it, or is gone.
    pub(super) fn wait_no_more_for(&mut self, peer: PeerId) {
        let Some(departing) = &mut self.departing else { return };
        let view = &departing.decided.proposal.view;
        if view.contains(peer) {
            departing.know.insert(peer);
            // One that lies about it is not alone among them.
            if departing.know.len() > (view.members().len() / 3).min(MAX_TOLD - 1) {
                self.go();
            }
        }
    }

    fn go(&mut self) {
        let Some(departing) = self.departing.take() else { return };
        self.end(Event::Left { stayed: departing.decided.proposal.view.members().to_vec() });
    }
}
