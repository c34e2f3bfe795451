//! What a hostile member says of its own accord.

use std::time::Duration;

use starling_topology::plan::Link;
use starling_topology::{
    Ballot, Body, BranchPosition, Certificate, Contact, Digest, Evidence, Generation, JoinRequest, Lineage, PeerId,
    RefusalReason, SuccessionProof, ViewId,
};

use super::{Attack, Liar, Said};
use crate::hardware::machine::notary::Key;
use crate::world::RUN;

impl Liar {
    pub(super) fn say(&mut self, attack: Attack) -> Said {
        match attack {
            Attack::Installs => self.install(),
            Attack::CountsBeyond => self.count_ahead(&[u64::MAX, 1 << 40, (1 << 20) + 1]),
            Attack::CountsAhead => self.count_ahead(&[1 << 20, (1 << 20) - 1, 7]),
            Attack::OpensBallots => self.open_ballot(),
            Attack::HoldsNever => {
                let boundary =
                    if self.rng.one_in(2) { u64::MAX } else { self.step.saturating_add(self.rng.between(1, 99)) };
                let ballot = Ballot { attempt: self.attempt.saturating_add(1), proposer: self.me };
                self.tell(&Body::Prepare { ballot, boundary: Some(boundary), unreachable: Vec::new() })
            }
            Attack::ProposesTwice | Attack::ProposesAnything => self.propose(attack == Attack::ProposesTwice),
            Attack::ShowsOut => self.show_out(),
            Attack::Refuses => {
                let refusals = [
                    RefusalReason::RunFinished,
                    RefusalReason::Full { max_members: 1 },
                    RefusalReason::OtherRun,
                    RefusalReason::Quarantined { for_ms: u64::MAX },
                    RefusalReason::Withdrawn,
                ];
                let refusal = self.rng.pick(&refusals).unwrap_or(RefusalReason::RunFinished);
                self.tell(&Body::Refuse(refusal))
            }
            Attack::Leaves => {
                let (peer, evidence) = (self.me, self.evidence());
                let body = if self.rng.one_in(2) { Body::Leave } else { Body::Suspect { peer, evidence } };
                self.tell(&body)
            }
            Attack::Accuses => {
                let Some(peer) = self.one() else { return Vec::new() };
                let evidence = self.evidence();
                self.tell(&Body::Suspect { peer, evidence })
            }
            Attack::FailsLinks => {
                let Some(peer) = self.one() else { return Vec::new() };
                self.tell(&Body::Suspect { peer, evidence: Evidence::LinkFailed })
            }
            Attack::Introduces => {
                let peer = if self.rng.one_in(4) { self.one() } else { None }.unwrap_or_else(|| self.stranger());
                let joiner = self.joiner(peer);
                self.tell(&Body::Introduce(joiner))
            }
            Attack::JoinsAgain => {
                let me = self.me;
                let joiner = self.joiner(me);
                self.tell(&Body::Join(joiner))
            }
            Attack::TellsDigests => {
                let digest = Digest([u8::try_from(self.rng.between(0, 3)).unwrap_or(0); 32]);
                let step = self.step.saturating_add(self.rng.between(0, 9));
                self.tell(&Body::Digest { step, digest })
            }
            Attack::Finishes => {
                let digest = Digest([u8::try_from(self.rng.between(0, 3)).unwrap_or(0); 32]);
                let peer = if self.rng.one_in(2) { self.one() } else { None }.unwrap_or(self.me);
                let step = if self.rng.one_in(2) { self.last_step } else { self.step };
                let body = if self.rng.one_in(3) { Body::Goodbye } else { Body::Finished { peer, step, digest } };
                self.tell(&body)
            }
            Attack::Syncs => self.tell(&Body::Synced),
            Attack::Contributes => {
                let step = if self.rng.one_in(2) { self.step } else { self.number() };
                self.tell(&Body::Contributes { step })
            }
            Attack::Measures => self.measure(),
            Attack::Beats => {
                let step = self.number();
                let waiting = u32::try_from(self.number()).unwrap_or(u32::MAX);
                self.tell(&Body::Heartbeat { step, waiting })
            }
            Attack::Repeats => {
                let last = self.said.len().saturating_sub(1) as u64;
                let at = usize::try_from(self.rng.between(0, last)).unwrap_or(0);
                self.said.get(at).cloned().into_iter().collect()
            }
            Attack::Parrots => {
                let last = self.heard.len().saturating_sub(1) as u64;
                let at = usize::try_from(self.rng.between(0, last)).unwrap_or(0);
                let Some((_, envelope)) = self.heard.get(at).cloned() else { return Vec::new() };
                self.one().map(|to| (to, envelope)).into_iter().collect()
            }
            Attack::SplitsViews => self.tire_of_splitting(),
            Attack::PromisesAhead
            | Attack::EchoesTwice
            | Attack::ForgesEchoes
            | Attack::HidesEchoes
            | Attack::AcceptsFalsely
            | Attack::Conceals
            | Attack::Refutes
            | Attack::Withholds
            | Attack::WithholdsInTurn
            | Attack::IsSilent
            | Attack::Distorts
            | Attack::Misdirects => Vec::new(),
        }
    }

    /// A number like those that are said, or one that none is like.
    pub(super) fn number(&mut self) -> u64 {
        match self.rng.between(0, 5) {
            0 => u64::MAX,
            1 => 0,
            2 => self.last_step,
            3 => self.last_step.saturating_add(1),
            4 => self.step,
            _ => self.step.saturating_add(self.rng.between(1, 40)),
        }
    }

    fn stranger(&mut self) -> PeerId {
        PeerId([u8::try_from(self.rng.between(0, 255)).unwrap_or(0); 32])
    }

    fn evidence(&mut self) -> Evidence {
        let all = [
            Evidence::Closed,
            Evidence::Silent(Duration::MAX),
            Evidence::LinkFailed,
            Evidence::Unanswered,
            Evidence::Restarted,
            Evidence::Elsewhere,
            Evidence::Misbehaved,
        ];
        self.rng.pick(&all).unwrap_or(Evidence::Closed)
    }

    fn joiner(&mut self, peer: PeerId) -> JoinRequest {
        let contact = Contact { peer, addresses: Vec::new() };
        let generation = Generation(self.number());
        let branch = self.view.as_ref().map_or(0, |view| view.branch);
        let lineage = self.view.as_ref().map_or(Lineage::NONE, Lineage::of);
        let (step, held) = (self.number(), self.number());
        let state = if self.rng.one_in(2) { Some((held, lineage)) } else { None };
        let joiner =
            JoinRequest { step, state, branch, generation, ..JoinRequest::new(contact, self.rng.between(0, 9)) };
        // Keys of its own it may have many, and no other member's.
        let others = self.others().contains(&peer);
        joiner.signed(RUN, &Key::of(if others { self.me } else { peer }))
    }

    fn measure(&mut self) -> Said {
        let mut links = Vec::new();
        for peer in self.others() {
            let delay_us = u32::try_from(self.rng.between(1, 60_000_000)).unwrap_or(1);
            let bytes_per_second = 1 << self.rng.between(0, 40);
            let link = Link { delay_us, bytes_per_second };
            if !self.rng.one_in(4) {
                links.push((peer, link));
            }
        }
        self.tell(&Body::Measured { links })
    }

    fn show_out(&mut self) -> Said {
        let Some(view) = self.view.clone() else { return Vec::new() };
        let Some(to) = self.one() else { return Vec::new() };
        let branch_position = BranchPosition {
            step: self.number(),
            branch: if self.rng.one_in(4) { self.rng.bits() } else { view.branch },
            parent: self.rng.pick(&[None, Some(view.id()), view.parent]).flatten(),
            forked: self.rng.one_in(3),
            paused: self.rng.one_in(3),
            recovering: self.rng.one_in(3),
        };
        let chain: Vec<SuccessionProof> = self
            .heard
            .iter()
            .chain(&self.said)
            .filter_map(|(_, envelope)| match &envelope.body {
                Body::Outsider { chain, .. } if !chain.is_empty() => Some(chain.clone()),
                _ => None,
            })
            .next_back()
            .unwrap_or_default();
        let mut forged = Vec::new();
        if self.rng.one_in(2) {
            let next = self.made_up(&view);
            let ballot = Ballot { attempt: 1, proposer: self.me };
            let seal = self.seal(view.id(), ballot, &next);
            let seals = if self.rng.one_in(2) {
                vec![(self.me, seal)]
            } else {
                view.voters().map(|peer| (peer, seal)).collect()
            };
            forged.push(SuccessionProof::to(&next, Certificate { ballot, seals }));
        }
        let chain = if self.rng.one_in(2) { chain } else { forged.clone() };
        let body = match self.rng.between(0, 2) {
            0 => Body::Hello(branch_position),
            _ => Body::Outsider { branch_position, contacts: Vec::new(), chain },
        };
        let mut envelope = self.envelope(to, body);
        match self.rng.between(0, 3) {
            0 => (envelope.generation, envelope.view) = (Generation(self.rng.bits()), ViewId([9; 32])),
            1 => {
                if let Some(link) = forged.first() {
                    (envelope.generation, envelope.view) = (link.view.generation, link.view.id());
                }
            }
            _ => {}
        }
        vec![(to, envelope)]
    }
}
