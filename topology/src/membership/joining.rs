//! Letting peers in: the members' side.

use super::Membership;
use super::planning::Candidate;
use crate::error::Violation;
use crate::id::{Generation, PeerId};
use crate::interface::Event;
use crate::message::{Body, Contact, Evidence, Refusal};
use crate::proposal::MAX_JOINERS;
use crate::time::Time;

/// A joiner that has not asked again for this many of its intervals is forgotten.
const PATIENCE: u32 = 6;

/// A peer that waits to be let in.
#[derive(Debug)]
pub(super) struct Joiner {
    candidate: Candidate,
    asked_at: Time,
}

impl Membership {
    pub(super) fn receive_join(
        &mut self,
        now: Time,
        from: PeerId,
        generation: Generation,
        contact: Contact,
        step: u64,
    ) -> Result<(), Violation> {
        if contact.peer != from {
            return Err(Violation::NotItself(from));
        }
        let me = self.me.peer;
        let (Some(seat), None) = (&self.seat, &self.asking) else { return Ok(()) };
        if self.finished.is_some() {
            self.send(from, Body::Refuse(Refusal::RunFinished));
            return Ok(());
        }
        if seat.view.contains(from) {
            let invited =
                seat.origin.as_ref().is_some_and(|origin| origin.contacts.iter().any(|contact| contact.peer == from));
            if invited && !seat.heard.contains(&from) {
                self.send_install(from); // It asked again before it heard that it is in.
                return Ok(());
            }
            self.suspect(now, from, Evidence::Restarted);
        }
        if let Some(remaining) = self.quarantine.remaining(now, from) {
            let for_ms = u64::try_from(remaining.as_millis()).unwrap_or(u64::MAX).saturating_add(1);
            self.send(from, Body::Refuse(Refusal::Quarantined { for_ms }));
            return Ok(());
        }
        let Some(seat) = &self.seat else { return Ok(()) };
        let proposer = seat.proposer(me);
        if proposer != me {
            if let Some(contact) = self.contacts.get(&proposer).cloned() {
                self.send(from, Body::Redirect(contact));
            }
            return Ok(());
        }
        let known = self.joiners.contains_key(&from);
        let present = seat.view.members().iter().filter(|peer| **peer != from && seat.trusts(**peer)).count();
        let waiting = self.joiners.len() - usize::from(known);
        if present + waiting >= self.config.max_members {
            let max_members = u32::try_from(self.config.max_members).unwrap_or(u32::MAX);
            self.joiners.remove(&from);
            self.send(from, Body::Refuse(Refusal::Full { max_members }));
            return Ok(());
        }
        let candidate = Candidate { contact, step, generation };
        self.joiners.insert(from, Joiner { candidate, asked_at: now });
        if !known {
            self.tell(Event::Joining(from));
        }
        Ok(())
    }

    /// The joiners that the next view may take in. None while a member is still syncing, so that those who serve the state
    /// serve one batch at a time.
    pub(super) fn candidates(&self) -> Vec<Candidate> {
        let Some(seat) = &self.seat else { return Vec::new() };
        if self.finished.is_some() || !(seat.syncing.is_empty() || seat.waiting) {
            return Vec::new();
        }
        let room = self.config.max_members.saturating_sub(seat.view.members().len()).min(MAX_JOINERS);
        let outside = self.joiners.iter().filter(|(peer, _)| !seat.view.contains(**peer));
        outside.take(room).map(|(_, joiner)| joiner.candidate.clone()).collect()
    }

    pub(super) fn forget_joiners(&mut self, now: Time) {
        let limit = self.config.probe_interval() * PATIENCE;
        let gone: Vec<PeerId> =
            self.joiners.extract_if(.., |_, joiner| now - joiner.asked_at > limit).map(|(peer, _)| peer).collect();
        for peer in gone {
            self.tell(Event::JoinerLost(peer));
        }
    }

    /// Joiners that wait for us learn who proposes now.
    pub(super) fn redirect_joiners(&mut self) {
        let me = self.me.peer;
        let Some(proposer) = self.seat.as_ref().map(|seat| seat.proposer(me)).filter(|proposer| *proposer != me) else {
            return;
        };
        let Some(contact) = self.contacts.get(&proposer).cloned() else { return };
        for (peer, _) in std::mem::take(&mut self.joiners) {
            self.send(peer, Body::Redirect(contact.clone()));
        }
    }
}
