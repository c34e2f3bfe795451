//! What a hostile member does with echoes, where there are any.

use starling_topology::vote::certificate::acceptance;
use starling_topology::vote::echo::echo;
use starling_topology::{
    Ballot, Body, Envelope, JustifiedProposal, PeerId, Quorum, SignedPromise, Signer as _, WireSignature,
};

use super::{Liar, Said};

impl Liar {
    /// Echoes and accepts whatever it is shown, whatever it has echoed and accepted before.
    pub(super) fn echo_anything(&mut self, from: PeerId, envelope: &Envelope) -> Said {
        let Body::Propose { ballot, justified, .. } = &envelope.body else { return Vec::new() };
        let (view, ballot) = (envelope.view, *ballot);
        let echoed = self.key.sign(&echo(view, ballot, &justified.hash())).into();
        let accepted = self.key.sign(&acceptance(view, ballot, &justified.proposal)).into();
        let bodies = [Body::Echo { ballot, seal: echoed }, Body::Accept { ballot, seal: accepted }];
        bodies.into_iter().map(|body| (from, Envelope { body, ..envelope.clone() })).collect()
    }

    /// Says that it has accepted what it was shown once, or that a quorum has echoed that, with echoes of its own making.
    pub(super) fn forge_echoes(&mut self, mut envelope: Envelope) -> Envelope {
        match &mut envelope.body {
            Body::Promise { ballot: of, promise: signed, accepted } => {
                let Some(mut shown) = self.shown_in(&envelope.view) else { return envelope };
                let attempt = of.attempt.saturating_sub(self.rng.between(1, 2)).max(shown.ballot.attempt);
                let proposer = if self.rng.one_in(2) { Some(shown.ballot.proposer) } else { self.one() };
                let proposer = proposer.unwrap_or(self.me);
                let claim = Ballot { attempt, proposer };
                // Where nobody echoes, it is the proposer's signature that it makes up, or has if it is its own.
                shown.last = shown.sign(&self.key, envelope.view, claim);
                if self.view.as_ref().is_some_and(|view| view.quorum == Quorum::TwoThirds) {
                    shown.echoes = self.made_up_echoes(&envelope.view, claim, &shown.hash());
                }
                let mut promise = signed.promise.clone();
                promise.accepted = Some((claim, shown.hash()));
                *accepted = Some(Box::new(shown));
                *signed = SignedPromise::new(&self.key, envelope.view, *of, self.me, promise);
            }
            Body::Confirm { ballot, echoes } if self.rng.one_in(2) => {
                let hash = [u8::try_from(self.rng.between(0, 9)).unwrap_or(0); 32];
                *echoes = self.made_up_echoes(&envelope.view, *ballot, &hash);
            }
            _ => {}
        }
        envelope
    }

    /// One of those that were proposed to it, or by it, in this view.
    fn shown_in(&mut self, view: &starling_topology::ViewId) -> Option<JustifiedProposal> {
        let all = self.heard.iter().chain(&self.said).filter_map(|(_, envelope)| match &envelope.body {
            Body::Propose { justified, .. } if envelope.view == *view => Some((**justified).clone()),
            _ => None,
        });
        let all: Vec<JustifiedProposal> = all.collect();
        let at = usize::try_from(self.rng.between(0, all.len().saturating_sub(1) as u64)).unwrap_or(0);
        all.get(at).cloned()
    }

    /// Its own echo in all places, those of another ballot, or its own alone.
    fn made_up_echoes(
        &mut self,
        view: &starling_topology::ViewId,
        ballot: Ballot,
        hash: &[u8; 32],
    ) -> Vec<(PeerId, WireSignature)> {
        let own: WireSignature = self.key.sign(&echo(*view, ballot, hash)).into();
        let others = self.heard.iter().rev().find_map(|(_, envelope)| match &envelope.body {
            Body::Confirm { echoes, .. } => Some(echoes.clone()),
            _ => None,
        });
        let voters = self.view.as_ref().map_or_else(Vec::new, |view| view.voters().collect());
        match (self.rng.between(0, 2), others) {
            (0, Some(others)) => others,
            (1, _) => vec![(self.me, own)],
            _ => voters.into_iter().map(|peer| (peer, own)).collect(),
        }
    }

    /// Says nothing of what it has accepted, and keeps echoes from some.
    pub(super) fn hide_echoes(&mut self, to: PeerId, mut envelope: Envelope) -> Said {
        match &mut envelope.body {
            Body::Promise { ballot, promise: signed, accepted } => {
                let mut promise = signed.promise.clone();
                (promise.accepted, *accepted) = (None, None);
                *signed = SignedPromise::new(&self.key, envelope.view, *ballot, self.me, promise);
            }
            Body::Echo { .. } | Body::Confirm { .. } if self.rng.one_in(2) => return Vec::new(),
            _ => {}
        }
        vec![(to, envelope)]
    }
}
