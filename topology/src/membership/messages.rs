//! What the members' messages lead to.

use super::{Event, MAX_REDIRECTS, Membership, Output, Phase};
use crate::error::Violation;
use crate::id::{Generation, PeerId, ViewId};
use crate::message::{Body, Contact, Envelope, Evidence, Refusal};
use crate::proposal::Proposal;
use crate::time::Time;
use crate::view::View;

impl Membership {
    pub(super) fn receive(&mut self, now: Time, from: PeerId, envelope: Envelope) -> Result<(), Violation> {
        if envelope.run != self.run {
            if matches!(envelope.body, Body::Join(_)) {
                self.send(from, Body::Refuse(Refusal::OtherRun));
                return Ok(());
            }
            return Err(Violation::OtherRun);
        }
        self.detector.heard(now, from);
        match envelope.body {
            Body::Join(contact) => return self.receive_join(now, from, contact),
            Body::Redirect(contact) => self.receive_redirect(now, from, contact),
            Body::Refuse(refusal) => {
                let (Phase::Asking { member } | Phase::Following { proposer: member, .. }) = &self.phase else {
                    return Ok(());
                };
                if self.view.is_none() && *member == from {
                    self.end(Event::Refused { from, refusal });
                }
            }
            Body::Leave => {
                if self.will_propose() && self.knows(from) {
                    self.leavers.insert(from);
                    self.begin_change(now);
                }
            }
            Body::Propose(proposal) => return self.receive_proposal(now, from, proposal),
            Body::Accept { view } => self.receive_accept(now, from, view),
            Body::Install { view } => return self.receive_install(now, from, envelope.generation, view),
            Body::Heartbeat => {}
            Body::Lost { peer, evidence } => return self.receive_lost(from, envelope.generation, peer, evidence),
            Body::Finished { step, digest } => {
                if self.is_current(from, envelope.generation)? {
                    self.finished.insert(from, (step, digest));
                    self.complete_when_all_finished(now);
                }
            }
            Body::Goodbye => self.say_gone(from),
        }
        Ok(())
    }

    /// Whether a member's message belongs to our view; one of an older view is dropped.
    fn is_current(&mut self, from: PeerId, generation: Generation) -> Result<bool, Violation> {
        let Some(view) = &self.view else { return Ok(false) };
        if generation < view.generation {
            self.tell(Event::Stale { from });
            return Ok(false);
        }
        if self.knows(from) { Ok(true) } else { Err(Violation::NotMember) }
    }

    /// Whether `peer` is in our view or in the one on offer.
    pub(super) fn knows(&self, peer: PeerId) -> bool {
        self.view.as_ref().is_some_and(|view| view.contains(peer))
            || self.offered().is_some_and(|view| view.contains(peer))
    }

    pub(super) fn offered(&self) -> Option<&View> {
        match &self.phase {
            Phase::Proposing(ballot) => Some(&ballot.proposal.view),
            Phase::Following { proposal, .. } => Some(&proposal.view),
            Phase::Asking { .. }
            | Phase::Stepping
            | Phase::Stopping
            | Phase::Gathering
            | Phase::Finishing { .. }
            | Phase::Ended => None,
        }
    }

    /// Whether the next change is ours to propose: in our view, or in the one that we are about to enter.
    pub(super) fn will_propose(&self) -> bool {
        let view =
            if let Phase::Following { proposal, .. } = &self.phase { Some(&proposal.view) } else { self.view.as_ref() };
        view.is_some_and(|view| view.proposer() == self.me.peer)
    }

    fn receive_join(&mut self, now: Time, from: PeerId, contact: Contact) -> Result<(), Violation> {
        if contact.peer != from {
            return Err(Violation::NotItself(contact.peer));
        }
        if matches!(self.phase, Phase::Asking { .. }) {
            return Ok(()); // We know no more than it does, and it will notice that we are silent.
        }
        let members = self.view.as_ref().map_or(0, |view| view.members().len());
        let max_members = self.config.max_members;
        if matches!(self.phase, Phase::Finishing { .. }) {
            self.send(from, Body::Refuse(Refusal::RunFinished));
        } else if self.view.as_ref().is_some_and(|view| view.contains(from)) {
            self.send(from, Body::Refuse(Refusal::AlreadyMember));
        } else if let Some(view) = &self.view
            && !self.will_propose()
        {
            // In the middle of a change this is still the old proposer: it keeps the joiner, and sends it on in `adopt`.
            if let Some(contact) = self.contacts.get(&view.proposer()).cloned() {
                self.send(from, Body::Redirect(contact));
            }
        } else if members + self.joiners.len() >= max_members && !self.joiners.contains_key(&from) {
            let max_members = u32::try_from(max_members).unwrap_or(u32::MAX);
            self.send(from, Body::Refuse(Refusal::Full { max_members }));
        } else {
            self.outputs.push_back(Output::Learn(contact.clone()));
            self.joiners.insert(from, contact);
            self.tell(Event::Joining(from));
            self.rewatch(now);
            self.offer_again(from);
            self.begin_change(now);
        }
        Ok(())
    }

    /// A joiner that asks while its view is on offer has been restarted and has not seen the offer.
    fn offer_again(&mut self, joiner: PeerId) {
        if let Phase::Proposing(ballot) = &mut self.phase
            && ballot.proposal.view.contains(joiner)
        {
            ballot.missing.insert(joiner);
            let proposal = ballot.proposal.clone();
            self.send(joiner, Body::Propose(proposal));
        }
    }

    fn receive_redirect(&mut self, now: Time, from: PeerId, contact: Contact) {
        if !matches!(self.phase, Phase::Asking { member } if member == from) {
            return;
        }
        self.redirects += 1;
        if self.redirects > MAX_REDIRECTS || contact.peer == self.me.peer {
            return self.end(Event::Lost { peer: from, evidence: Evidence::Misbehaved, reporter: None });
        }
        self.phase = Phase::Asking { member: contact.peer };
        let member = contact.peer;
        self.outputs.push_back(Output::Learn(contact));
        self.send(member, Body::Join(self.me.clone()));
        self.rewatch(now);
    }

    fn receive_proposal(&mut self, now: Time, from: PeerId, proposal: Proposal) -> Result<(), Violation> {
        if matches!(self.phase, Phase::Finishing { .. }) {
            return Ok(());
        }
        self.enter_if_installed_elsewhere(now, from, &proposal);
        // A second proposal for the same boundary asks for nothing that the first has not asked for.
        let state = (proposal.after_step, proposal.digest);
        let again = matches!(&self.phase, Phase::Following { proposal, .. }
            if (proposal.after_step, proposal.digest) == state);
        if let Some(view) = &self.view {
            if from != view.proposer() || from == self.me.peer {
                return Err(Violation::NotProposer);
            }
            if proposal.view.run != self.run
                || proposal.view.generation != view.generation.next()
                || proposal.view.parent != Some(view.id())
            {
                let (current, proposed) = (view.generation, proposal.view.generation);
                return Err(Violation::NotSuccessor { current, proposed });
            }
            if !again {
                self.outputs.push_back(Output::Hold { after: Some(proposal.after_step) });
            }
        } else {
            let (Phase::Asking { member: expected } | Phase::Following { proposer: expected, .. }) = &self.phase else {
                return Err(Violation::NotProposer);
            };
            if from != *expected || proposal.view.run != self.run || !proposal.view.contains(self.me.peer) {
                return Err(Violation::NotProposer);
            }
            if !again && self.boundary != Some(state) {
                self.boundary = None;
                self.outputs.push_back(Output::Fetch { from, step: state.0, digest: state.1 });
            }
        }
        for contact in proposal.contacts.iter().filter(|contact| contact.peer != self.me.peer) {
            self.outputs.push_back(Output::Learn(contact.clone()));
        }
        self.phase = Phase::Following { proposer: from, proposal, accepted: false };
        self.rewatch(now);
        self.accept_when_ready();
        Ok(())
    }

    pub(super) fn accept_when_ready(&mut self) {
        let Phase::Following { proposer, proposal, accepted } = &mut self.phase else { return };
        let Some((step, ours)) = self.boundary else { return };
        if step < proposal.after_step {
            return;
        }
        let (proposer, view, theirs) = (*proposer, proposal.view.id(), proposal.digest);
        *accepted = (step, ours) == (proposal.after_step, theirs);
        if *accepted {
            self.send(proposer, Body::Accept { view });
        } else {
            self.end(Event::Diverged { peer: proposer, step, ours, theirs });
        }
    }

    fn receive_accept(&mut self, now: Time, from: PeerId, view: ViewId) {
        // An answer to a withdrawn proposal is late, not wrong.
        if let Phase::Proposing(ballot) = &mut self.phase
            && ballot.proposal.view.id() == view
        {
            ballot.missing.remove(&from);
            self.install_when_accepted(now);
        }
    }

    /// If the view that we have accepted gives the next proposer, its proposal can overtake the old proposer's
    /// "install": they come over different links. It says as much: nobody proposes out of a view that is not installed.
    fn enter_if_installed_elsewhere(&mut self, now: Time, from: PeerId, next: &Proposal) {
        if let Phase::Following { proposer, proposal, accepted: true } = &self.phase
            && *proposer != from
            && proposal.view.proposer() == from
            && next.view.run == self.run
            && next.view.generation == proposal.view.generation.next()
            && next.view.parent == Some(proposal.view.id())
        {
            let proposal = proposal.clone();
            self.adopt(now, proposal);
        }
    }

    fn receive_install(
        &mut self,
        now: Time,
        from: PeerId,
        generation: Generation,
        view: ViewId,
    ) -> Result<(), Violation> {
        if let Phase::Following { proposer, proposal, accepted: true } = &self.phase
            && *proposer == from
            && proposal.view.id() == view
        {
            let proposal = proposal.clone();
            self.adopt(now, proposal);
            return Ok(());
        }
        // Overtaken by the next proposal: we are in that view, or beyond it.
        if self.view.as_ref().is_some_and(|view| generation < view.generation) {
            self.tell(Event::Stale { from });
            return Ok(());
        }
        Err(Violation::UnknownView)
    }

    /// A loss is a member's last word, so it counts in whichever generation it was said: its sender may have seen the
    /// loss just before, or just after, it entered the view that we are in.
    fn receive_lost(
        &mut self,
        from: PeerId,
        generation: Generation,
        peer: PeerId,
        evidence: Evidence,
    ) -> Result<(), Violation> {
        let speaks_for_us = match &self.view {
            Some(view) => view.contains(from) || (generation > view.generation && self.knows(from)),
            None => match &self.phase {
                Phase::Asking { member } => *member == from,
                // A member's loss ends the run that we are about to enter; another joiner's word is not a member's.
                Phase::Following { proposer, proposal, .. } => {
                    let member = proposal.view.contains(from) && generation.next() >= proposal.view.generation;
                    *proposer == from || member
                }
                Phase::Stepping
                | Phase::Stopping
                | Phase::Gathering
                | Phase::Proposing(_)
                | Phase::Finishing { .. }
                | Phase::Ended => false,
            },
        };
        if !speaks_for_us {
            return self.is_current(from, generation).map(|_| ());
        }
        if matches!(self.phase, Phase::Finishing { parting: true, .. }) {
            self.say_gone(from); // All have finished: nothing can be lost any more.
        } else if peer != self.me.peer {
            // Passed on, so that whoever sees us go knows already whose loss it is.
            self.spread(peer, evidence, Some(from));
        }
        Ok(())
    }
}
