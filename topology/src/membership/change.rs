//! Changing the view, at a boundary between two steps.

use std::collections::BTreeSet;

use super::{Event, Membership, Output, Phase, Timer};
use crate::id::PeerId;
use crate::message::{Body, Refusal};
use crate::proposal::{Ballot, Proposal};
use crate::time::Time;
use crate::view::View;

impl Membership {
    /// Proposer: holds the steps, or goes on with the change if they are held already.
    pub(super) fn begin_change(&mut self, now: Time) {
        match self.phase {
            Phase::Stepping => {
                if self.will_propose() {
                    self.phase = Phase::Stopping;
                    self.outputs.push_back(Output::Hold { after: None });
                }
            }
            Phase::Gathering => self.change(now),
            // A change is under way already; the next one follows it.
            Phase::Asking { .. }
            | Phase::Stopping
            | Phase::Proposing(_)
            | Phase::Following { .. }
            | Phase::Finishing { .. }
            | Phase::Ended => {}
        }
    }

    /// Proposer, at a boundary: proposes the next view, or goes on in this one if it need not change.
    pub(super) fn change(&mut self, now: Time) {
        let (Some(view), Some((after_step, digest))) = (&self.view, self.boundary) else { return };
        if self.leaving && !self.begun {
            return self.withdraw();
        }
        let mut next: BTreeSet<PeerId> = view.members().iter().chain(self.joiners.keys()).copied().collect();
        next.retain(|peer| !self.leavers.contains(peer));
        if self.leaving {
            next.remove(&self.me.peer);
        }
        let alone = view.members().len() == 1;
        if next.is_empty() {
            if alone {
                return self.end(Event::Left);
            }
            next.insert(self.me.peer); // All leave: we see the others off, and go at the next boundary.
        }
        let (present, needed) = (next.len(), self.config.min_members);
        if !self.begun && present < needed {
            self.phase = Phase::Gathering;
            return self.tell(Event::Waiting { present, needed });
        }
        // Members that hold an offer which is now withdrawn wait for another, even if nothing changes in the end.
        let withdrawn = matches!(self.phase, Phase::Proposing(_)) && !alone;
        if next.iter().eq(view.members()) && !withdrawn {
            self.begun = true;
            self.boundary = None;
            self.phase = Phase::Stepping;
            self.outputs.push_back(Output::Step(view.clone()));
            return;
        }
        let successor = view.succeed(next.iter().copied());
        let missing: BTreeSet<PeerId> =
            view.members().iter().chain(&next).copied().filter(|peer| *peer != self.me.peer).collect();
        let contacts = next
            .iter()
            .filter_map(|peer| self.joiners.get(peer).or_else(|| self.contacts.get(peer)))
            .cloned()
            .collect();
        let proposal = Proposal { view: successor, after_step, digest, contacts };
        for peer in &missing {
            self.send(*peer, Body::Propose(proposal.clone()));
        }
        let joins = missing.iter().any(|peer| self.joiners.contains_key(peer));
        let deadline = joins.then(|| self.arm_proposal(now));
        self.phase = Phase::Proposing(Ballot { proposal, missing, deadline });
        self.rewatch(now);
        self.install_when_accepted(now);
    }

    fn arm_proposal(&mut self, now: Time) -> Time {
        let at = now + self.config.join_limit();
        self.outputs.push_back(Output::SetTimer { timer: Timer::Proposal, at });
        at
    }

    /// Proposer: joiners that live but have not accepted in time cost the members no more. Missing members are not
    /// concerned: those that hang are found by their silence, and the others need their step's time.
    pub(super) fn leave_slow_joiners_out(&mut self, now: Time) {
        let Phase::Proposing(ballot) = &self.phase else { return };
        // The timer of a proposal that has been withdrawn or installed says nothing about this one.
        if ballot.deadline.is_none_or(|deadline| now < deadline) {
            return;
        }
        let slow: Vec<PeerId> = ballot.missing.iter().copied().filter(|peer| self.joiners.contains_key(peer)).collect();
        if slow.is_empty() {
            // A member is missing. Until it is there, a joiner can be restarted, and be missing again.
            let deadline = Some(self.arm_proposal(now));
            if let Phase::Proposing(ballot) = &mut self.phase {
                ballot.deadline = deadline;
            }
            return;
        }
        let limit_ms = u64::try_from(self.config.join_limit().as_millis()).unwrap_or(u64::MAX);
        for joiner in slow {
            self.joiners.remove(&joiner);
            self.tell(Event::JoinerLost(joiner));
            self.send(joiner, Body::Refuse(Refusal::TooSlow { limit_ms }));
        }
        self.change(now);
    }

    /// The founder leaves before the first step: there is no run to hand over.
    fn withdraw(&mut self) {
        for joiner in std::mem::take(&mut self.joiners).into_keys() {
            self.send(joiner, Body::Refuse(Refusal::Withdrawn));
        }
        self.end(Event::Left);
    }

    pub(super) fn install_when_accepted(&mut self, now: Time) {
        let Phase::Proposing(ballot) = &self.phase else { return };
        if !ballot.missing.is_empty() {
            return;
        }
        let proposal = ballot.proposal.clone();
        let view = proposal.view.id();
        for peer in self.others() {
            self.send(peer, Body::Install { view });
        }
        self.adopt(now, proposal);
    }

    pub(super) fn adopt(&mut self, now: Time, proposal: Proposal) {
        let view = proposal.view;
        for contact in proposal.contacts {
            self.contacts.insert(contact.peer, contact);
        }
        self.contacts.retain(|peer, _| view.contains(*peer));
        self.joiners.retain(|peer, _| !view.contains(*peer));
        self.leavers.retain(|peer| view.contains(*peer));
        // Not cleared: a member that entered the view before us may have finished in it already.
        self.finished.retain(|peer, _| view.contains(*peer));
        self.boundary = None;
        self.begun = true;

        // Whoever asked us and now has another to ask is told so.
        if view.proposer() != self.me.peer {
            let proposer = self.contacts.get(&view.proposer()).cloned();
            for joiner in std::mem::take(&mut self.joiners).into_keys() {
                if let Some(contact) = &proposer {
                    self.send(joiner, Body::Redirect(contact.clone()));
                }
            }
            self.leavers.clear();
        }
        if !view.contains(self.me.peer) {
            return self.end(Event::Left);
        }
        self.phase = Phase::Stepping;
        self.view = Some(view.clone());
        self.rewatch(now);
        self.outputs.push_back(Output::Step(view));
        if self.leaving {
            self.leave(now);
        } else if !self.joiners.is_empty() || !self.leavers.is_empty() {
            self.begin_change(now);
        }
    }

    pub(super) fn leave(&mut self, now: Time) {
        self.leaving = true;
        match &self.phase {
            Phase::Asking { .. } => self.end(Event::Left),
            Phase::Following { .. } if self.view.is_none() => self.end(Event::Left),
            Phase::Stepping if !self.will_propose() => {
                if let Some(proposer) = self.view.as_ref().map(View::proposer) {
                    self.send(proposer, Body::Leave);
                }
            }
            // A change that is under way ends in `adopt`, which asks again.
            Phase::Stepping
            | Phase::Stopping
            | Phase::Gathering
            | Phase::Proposing(_)
            | Phase::Following { .. }
            | Phase::Finishing { .. }
            | Phase::Ended => self.begin_change(now),
        }
    }
}
