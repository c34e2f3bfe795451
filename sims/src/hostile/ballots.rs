//! What a hostile member does with ballots.

use std::collections::{BTreeMap, BTreeSet};

use starling_topology::vote::certificate::acceptance;
use starling_topology::{
    Ballot, Body, Certificate, Generation, JoinRequest, JustifiedProposal, PeerId, Proposal, SignedPromise,
    Signer as _, WireSignature,
};

use super::{Liar, Own, Said};
use crate::hardware::machine::notary::Key;

impl Liar {
    pub(super) fn install(&mut self) -> Said {
        let (Some(view), Some(to)) = (self.view.clone(), self.one()) else { return Vec::new() };
        let mut proposal = self.made_up(&view);
        if let Some(joiner) = self.asked_by(to, true) {
            // It was asked to let that one in, and does so alone, into a view that none can follow.
            proposal.view = view.succeed([self.me, to]);
            proposal.view.generation.0 += 1 << self.rng.between(0, 19);
            (proposal.joiners, proposal.resume.syncing) = (vec![joiner], vec![to]);
        }
        let ballot = Ballot { attempt: self.attempt.max(1), proposer: self.me };
        let seal = self.seal(view.id(), ballot, &proposal);
        let all: Vec<(PeerId, WireSignature)> = view.voters().map(|peer| (peer, seal)).collect();
        let (certificate, fork) = match self.rng.between(0, 3) {
            0 => (None, None),
            1 => (Some(Certificate { ballot, seals: vec![(self.me, seal)] }), None),
            2 => (Some(Certificate { ballot, seals: all }), None),
            _ => {
                proposal.view.forked = true;
                (None, self.promised_by(to).or(Some(ballot)))
            }
        };
        let body = Body::Install { proposal, certificate, contacts: Vec::new(), fork, chain: Vec::new() };
        vec![(to, self.envelope(to, body))]
    }

    /// What `peer` has asked it last, or first, if it was to be let in again. Who was in no view before has nothing to hold against
    /// what it is told.
    pub(super) fn asked_by(&self, peer: PeerId, last: bool) -> Option<JoinRequest> {
        let mut asked = self.heard.iter().filter_map(|(from, envelope)| match &envelope.body {
            Body::Join(joiner) if *from == peer && joiner.generation > Generation(0) => Some(joiner.clone()),
            _ => None,
        });
        if last { asked.next_back() } else { asked.next() }
    }

    /// The last ballot that `peer` has promised, as far as was heard.
    fn promised_by(&self, peer: PeerId) -> Option<Ballot> {
        self.heard.iter().rev().find_map(|(from, envelope)| match &envelope.body {
            Body::Promise { ballot, .. } if *from == peer => Some(*ballot),
            _ => None,
        })
    }

    pub(super) fn count_ahead(&mut self, far: &[u64]) -> Said {
        let attempt = self.attempt.saturating_add(self.rng.pick(far).unwrap_or(7));
        let promised = Ballot { attempt, proposer: self.me };
        let body = if self.rng.one_in(2) {
            Body::Prepare { ballot: promised, boundary: None, unreachable: Vec::new() }
        } else {
            let proposer = self.one().unwrap_or(self.me);
            Body::Nack { ballot: Ballot { attempt: self.attempt, proposer }, promised }
        };
        self.tell(&body)
    }

    pub(super) fn open_ballot(&mut self) -> Said {
        self.attempt = self.attempt.saturating_add(1);
        let ballot = Ballot { attempt: self.attempt, proposer: self.me };
        let others = self.others();
        let unreachable = others.iter().copied().filter(|_| self.rng.one_in(6)).collect();
        let body = Body::Prepare { ballot, boundary: None, unreachable };
        others.into_iter().map(|peer| (peer, self.envelope(peer, body.clone()))).collect()
    }

    /// Opens a ballot of its own, and once a few have promised it, proposes what it likes: to some another thing than to the
    /// others if `twice`.
    pub(super) fn propose(&mut self, twice: bool) -> Said {
        let Some(view) = self.view.clone() else { return Vec::new() };
        let id = view.id();
        let ready = self.own.as_ref().is_some_and(|own| own.view == id && !own.promised.is_empty());
        if !ready {
            self.attempt = self.attempt.saturating_add(1);
            let ballot = Ballot { attempt: self.attempt, proposer: self.me };
            self.shown.clear();
            self.own = Some(Own { view: id, ballot, promised: BTreeSet::new(), proposals: Vec::new() });
            let body = Body::Prepare { ballot, boundary: None, unreachable: Vec::new() };
            let members = view.members().iter().copied().filter(|peer| *peer != self.me);
            return members
                .collect::<Vec<_>>()
                .into_iter()
                .map(|peer| (peer, self.envelope(peer, body.clone())))
                .collect();
        }
        let proposals: Vec<Proposal> = (0..=u8::from(twice)).map(|_| self.made_up(&view)).collect();
        let Some(own) = &mut self.own else { return Vec::new() };
        if !own.proposals.is_empty() {
            self.own = None; // It tries again.
            return Vec::new();
        }
        let ballot = own.ballot;
        let promised: Vec<PeerId> = own.promised.iter().copied().collect();
        own.proposals = proposals.iter().map(|proposal| (proposal.clone(), BTreeMap::new())).collect();
        let seals: Vec<WireSignature> = proposals.iter().map(|proposal| self.seal(id, ballot, proposal)).collect();
        if let Some(own) = &mut self.own {
            let signed = own.proposals.iter_mut().zip(seals);
            signed.for_each(|((_, signers), seal)| _ = signers.insert(self.me, seal));
        }
        // With the promises that it has got, with some of them, or with its own alone.
        let shown: Vec<SignedPromise> = self.shown.values().filter(|_| !self.rng.one_in(4)).cloned().collect();
        let mut said = Vec::new();
        for (place, peer) in promised.into_iter().enumerate() {
            let (proposal, excluded) = (proposals[place % proposals.len()].clone(), Vec::new());
            let justified = JustifiedProposal::new(&self.key, id, ballot, proposal, shown.clone(), excluded);
            let (seal, justified, promises) = (justified.seal, Box::new(justified), Vec::new());
            said.push((peer, self.envelope(peer, Body::Propose { ballot, justified, promises, seal })));
        }
        said
    }

    /// Somebody has accepted what it proposed.
    pub(super) fn note_accepted(&mut self, from: PeerId, ballot: Ballot, seal: WireSignature) {
        let Some(own) = self.own.as_mut().filter(|own| own.ballot == ballot) else { return };
        for (proposal, signers) in &mut own.proposals {
            if seal == WireSignature::from(Key::of(from).sign(&acceptance(own.view, ballot, proposal))) {
                signers.insert(from, seal);
            }
        }
    }

    /// What was accepted by a quorum of what it proposed.
    pub(super) fn install_own(&mut self) -> Said {
        let (Some(view), Some(own)) = (&self.view, &self.own) else { return Vec::new() };
        if own.view != view.id() {
            return Vec::new();
        }
        let ballot = own.ballot;
        let is_decided = |signers: &BTreeMap<PeerId, WireSignature>| {
            view.has_quorum(&signers.keys().copied().collect::<BTreeSet<_>>())
        };
        let decided: Vec<_> = own.proposals.iter().filter(|(_, signers)| is_decided(signers)).cloned().collect();
        let (me, mut said) = (self.me, Vec::new());
        for (proposal, signers) in decided {
            let certificate =
                Some(Certificate { ballot, seals: signers.iter().map(|(peer, seal)| (*peer, *seal)).collect() });
            for peer in signers.into_keys().filter(|peer| *peer != me) {
                let (proposal, certificate) = (proposal.clone(), certificate.clone());
                let body = Body::Install { proposal, certificate, contacts: Vec::new(), fork: None, chain: Vec::new() };
                said.push((peer, self.envelope(peer, body)));
            }
        }
        said
    }
}
