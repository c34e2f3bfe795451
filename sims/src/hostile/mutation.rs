//! What a hostile member makes of what its machine says.

use starling_topology::{
    Ballot, Body, Digest, Envelope, Generation, JustifiedProposal, PeerId, SignedPromise, StallReport, ViewId,
};

use super::{Attack, Liar, Said};
use crate::world::RUN;

/// Of so many messages one is changed.
const ODDS: u64 = 3;

impl Liar {
    pub(super) fn distort(&mut self, attack: Attack, to: PeerId, envelope: Envelope) -> Said {
        match attack {
            Attack::IsSilent if self.silent_to.contains(&to) => Vec::new(),
            Attack::Misdirects if self.rng.one_in(ODDS) => {
                self.one().map(|other| (other, envelope)).into_iter().collect()
            }
            Attack::SplitsViews => self.pass_while_splitting(to, envelope),
            Attack::ForgesEchoes if self.rng.one_in(ODDS) => vec![(to, self.forge_echoes(envelope))],
            Attack::HidesEchoes => self.hide_echoes(to, envelope),
            Attack::Distorts if self.rng.one_in(ODDS) => vec![(to, self.mutate(envelope))],
            Attack::PromisesAhead
            | Attack::AcceptsFalsely
            | Attack::Conceals
            | Attack::FailsLinks
            | Attack::Contributes
            | Attack::Refutes => {
                vec![(to, self.promise_falsely(attack, envelope))]
            }
            _ => vec![(to, envelope)],
        }
    }

    fn promise_falsely(&mut self, attack: Attack, mut envelope: Envelope) -> Envelope {
        let Body::Promise { ballot: of, promise: signed, accepted } = &mut envelope.body else { return envelope };
        let (of, promise) = (*of, &mut signed.promise);
        match attack {
            Attack::PromisesAhead => {
                let progress = &mut promise.progress;
                progress.step = progress.step.saturating_add(self.rng.between(0, 20)).min(self.last_step);
                (progress.has_state, progress.has_result) = (!self.rng.one_in(4), self.rng.one_in(2));
            }
            Attack::Conceals => (promise.accepted, *accepted) = (None, None),
            Attack::FailsLinks => {
                let members = self.view.as_ref().map_or(&[][..], starling_topology::View::members);
                promise.failed = members.iter().copied().filter(|_| self.rng.one_in(2)).take(4).collect();
            }
            Attack::Contributes => {
                let members = self.view.as_ref().map_or(&[][..], starling_topology::View::members);
                let all = !self.rng.one_in(2);
                promise.contributing = members.iter().copied().filter(|_| all && self.rng.one_in(2)).take(8).collect();
            }
            Attack::AcceptsFalsely => {
                let attempt = of.attempt.saturating_sub(self.rng.between(0, 1));
                let proposer = if self.rng.one_in(2) { of.proposer } else { self.me };
                let made_up = self.view.clone().map(|view| {
                    let (ballot, proposal) = (Ballot { attempt, proposer }, self.made_up(&view));
                    let promises = self.shown.values().cloned().collect();
                    (ballot, JustifiedProposal::new(&self.key, view.id(), ballot, proposal, promises, Vec::new()))
                });
                promise.accepted = made_up.as_ref().map(|(ballot, justified)| (*ballot, justified.hash()));
                *accepted = made_up.map(|(_, justified)| Box::new(justified));
            }
            _ => {
                let promised = Ballot { attempt: of.attempt.saturating_add(1), proposer: self.me };
                envelope.body = Body::Nack { ballot: of, promised };
                return envelope;
            }
        }
        *signed = SignedPromise::new(&self.key, envelope.view, of, self.me, promise.clone());
        envelope
    }

    fn mutate(&mut self, mut envelope: Envelope) -> Envelope {
        let (number, other) = (self.number(), self.one().unwrap_or(self.me));
        match self.rng.between(0, 7) {
            0 => envelope.generation = Generation(number),
            1 => envelope.view = self.before.back().map_or(ViewId::NONE, starling_topology::View::id),
            _ => {}
        }
        let coin = self.rng.one_in(2);
        let earlier = self.asked_by(other, coin);
        match &mut envelope.body {
            Body::Join(joiner) | Body::Introduce(joiner) => {
                if coin {
                    joiner.step = number
                } else {
                    joiner.generation = Generation(number)
                }
                *joiner = joiner.clone().signed(RUN, &self.key);
            }
            Body::Suspect { peer, .. } => *peer = other,
            Body::Prepare { ballot, boundary, unreachable } => {
                if coin {
                    *boundary = Some(number)
                } else {
                    *unreachable = vec![other]
                }
                ballot.attempt = ballot.attempt.saturating_add(number & 3);
            }
            Body::Promise { ballot, promise: signed, .. } => {
                let promise = &mut signed.promise;
                match number % 9 {
                    8 => promise.failed = vec![other],
                    7 => promise.contributing = if coin { vec![other] } else { Vec::new() },
                    6 => promise.missing = Some(StallReport { step: self.step, place: number, from: vec![other] }),
                    0 => promise.progress.lineage.generation = Generation(number),
                    1 => promise.unreachable = vec![other],
                    2 => promise.accused = vec![other],
                    3 => promise.leaving = coin,
                    4 => promise.recovering = coin,
                    _ => promise.progress.has_result = coin,
                }
                *signed = SignedPromise::new(&self.key, envelope.view, *ballot, self.me, promise.clone());
            }
            Body::Nack { promised, .. } => promised.attempt = number,
            Body::Propose { ballot, justified, seal, .. } => {
                let mut proposal = justified.proposal.clone();
                match (number % 3, earlier) {
                    (0, _) => ballot.attempt = number,
                    // A process of it that is gone may have asked for that.
                    (1, Some(earlier)) => {
                        proposal.joiners.retain(|joiner| joiner.contact.peer != earlier.contact.peer);
                        proposal.joiners.push(earlier);
                    }
                    _ => proposal.promised = 1,
                }
                proposal.resume.donors.retain(|_| coin);
                let (promises, excluded) = (justified.promises.clone(), justified.excluded.clone());
                **justified = JustifiedProposal::new(&self.key, envelope.view, *ballot, proposal, promises, excluded);
                *seal = justified.seal;
            }
            Body::Accept { ballot, .. } | Body::Echo { ballot, .. } => ballot.attempt = number,
            Body::Confirm { echoes, .. } => drop(echoes.pop()),
            Body::Install { proposal, certificate, .. } => {
                if coin {
                    *certificate = None
                } else {
                    proposal.resume.step = number
                }
            }
            Body::Contributes { step } => *step = number,
            Body::Heartbeat { step, waiting } => {
                if coin {
                    *step = number
                } else {
                    *waiting = u32::MAX
                }
            }
            Body::Hello(branch_position) | Body::Outsider { branch_position, .. } => {
                if coin {
                    branch_position.step = number
                } else {
                    branch_position.paused = !branch_position.paused
                }
            }
            Body::Digest { digest, step } => {
                if coin {
                    *digest = Digest([1; 32])
                } else {
                    *step = number
                }
            }
            Body::Finished { digest, peer, .. } => {
                if coin {
                    *digest = Digest([1; 32])
                } else {
                    *peer = other
                }
            }
            Body::Measured { links } => {
                links.pop();
            }
            Body::Refuse(_) | Body::Leave | Body::Synced | Body::Goodbye => {}
        }
        envelope
    }
}
