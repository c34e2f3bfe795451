//! How one hostile proposer splits a view, if nobody can tell what was accepted from what is said to have been: it makes two
//! proposals of one ballot, has the first decided, hides that, and has the second proposed again.
//!
//! ```text
//!   ballot b:      its machine proposes X, by the rules, and X is decided; nobody else hears of that.
//!                  It signs Y as well, which differs from X in what it says that links cost.
//!   ballot b + 2:  it says that it accepted Y in ballot b + 1, and proposes that again: who believes it accepts.
//!   then:          one peer is told that X is decided, the others that Y is.
//! ```
//!
//! With echoes nobody believes it, as no quorum has echoed Y.

use std::collections::{BTreeMap, BTreeSet};

use starling_topology::plan::Link;
use starling_topology::vote::certificate::acceptance;
use starling_topology::vote::echo::echo;
use starling_topology::{
    Ballot, Body, Certificate, Envelope, JustifiedProposal, PeerId, Promise, Quorum, SignedPromise, Signer as _, View,
    WireSignature,
};

use super::{Liar, Said};
use crate::hardware::machine::notary::Key;

/// So often it talks in vain before it lets the truth out.
const PATIENCE: u32 = 6;

/// An attempt at it.
#[derive(Debug)]
pub(super) struct Split {
    /// The view that is to have two successors.
    view: View,
    ballot: Ballot,
    /// What loses.
    second: JustifiedProposal,
    /// Who is shown that in the first ballot.
    shown: BTreeSet<PeerId>,
    /// What nobody is to hear before all is done.
    withheld: Vec<(PeerId, Envelope)>,
    again: Option<Again>,
    talked: u32,
}

/// The second ballot.
#[derive(Debug)]
struct Again {
    ballot: Ballot,
    promises: BTreeMap<PeerId, SignedPromise>,
    proposed: bool,
    echoes: BTreeMap<PeerId, WireSignature>,
    confirmed: bool,
    seals: BTreeMap<PeerId, WireSignature>,
}

impl Liar {
    /// What becomes of what its machine says, while it is at it.
    pub(super) fn pass_while_splitting(&mut self, to: PeerId, mut envelope: Envelope) -> Said {
        if self.split.is_none() {
            self.begin_to_split(&envelope);
        }
        let me = self.me;
        let Some(split) = &mut self.split else { return vec![(to, envelope)] };
        if envelope.view != split.view.id() {
            return Vec::new(); // Its machine goes on already.
        }
        match &mut envelope.body {
            Body::Propose { ballot, justified, seal, .. } if *ballot == split.ballot && split.shown.contains(&to) => {
                **justified = split.second.clone();
                *seal = justified.seal;
            }
            Body::Install { .. } => {
                split.withheld.push((to, envelope));
                if split.again.is_some() {
                    return Vec::new();
                }
                let attempt = split.ballot.attempt.saturating_add(2);
                let ballot = Ballot { attempt, proposer: me };
                split.again = Some(Again {
                    ballot,
                    promises: BTreeMap::new(),
                    proposed: false,
                    echoes: BTreeMap::new(),
                    confirmed: false,
                    seals: BTreeMap::new(),
                });
                return self.tell_split(&Body::Prepare { ballot, boundary: None, unreachable: Vec::new() });
            }
            _ => {}
        }
        vec![(to, envelope)]
    }

    /// Its machine has something to propose that nobody has proposed before.
    fn begin_to_split(&mut self, envelope: &Envelope) {
        let Body::Propose { ballot, justified, .. } = &envelope.body else { return };
        let Some(view) = self.view.clone().filter(|view| view.id() == envelope.view) else { return };
        if justified.ballot != *ballot || ballot.proposer != self.me {
            return;
        }
        let JustifiedProposal { mut proposal, promises, excluded, .. } = (**justified).clone();
        let link =
            Link { delay_us: 1 + u32::try_from(self.rng.between(1, 1_000)).unwrap_or(1), bytes_per_second: 1 << 20 };
        proposal.view = proposal.view.with_costs(|_, _| Some(link));
        let second = JustifiedProposal::new(&self.key, envelope.view, *ballot, proposal, promises, excluded);
        let some = !self.rng.one_in(3);
        let members = view.members().to_vec();
        let shown = members.into_iter().filter(|_| some && self.rng.one_in(4)).collect();
        let withheld = Vec::new();
        self.split = Some(Split { view, ballot: *ballot, second, shown, withheld, again: None, talked: 0 });
    }

    fn tell_split(&self, body: &Body) -> Said {
        let Some(Split { view, .. }) = &self.split else { return Vec::new() };
        let envelope = Envelope { run: view.run, generation: view.generation, view: view.id(), body: body.clone() };
        view.members().iter().filter(|peer| **peer != self.me).map(|peer| (*peer, envelope.clone())).collect()
    }

    /// What it answers at once.
    pub(super) fn go_on_splitting(&mut self, from: PeerId, envelope: &Envelope) -> Said {
        let me = self.me;
        let Some(split) = self.split.as_mut().filter(|split| envelope.view == split.view.id()) else {
            return Vec::new();
        };
        let Some(again) = &mut split.again else { return Vec::new() };
        let (id, hash) = (envelope.view, split.second.hash());
        let is_quorum = |members: BTreeSet<PeerId>| split.view.has_quorum(&members);
        let body = match &envelope.body {
            Body::Promise { ballot, promise, .. } if *ballot == again.ballot && !again.proposed => {
                again.promises.insert(from, promise.clone());
                let own = split.second.promises.iter().find(|signed| signed.by == me);
                let Some(own) = own.map(|signed| signed.promise.clone()) else { return Vec::new() };
                // A ballot of its own, or of somebody else who has never made it: that one's signature it has not.
                let others = split.view.members();
                let proposer = if self.rng.one_in(3) { self.rng.pick(others).unwrap_or(me) } else { me };
                let claim = Ballot { attempt: split.ballot.attempt.saturating_add(1), proposer };
                let own = Promise { accepted: Some((claim, hash)), ..own };
                again.promises.insert(me, SignedPromise::new(&self.key, id, *ballot, me, own));
                if !is_quorum(again.promises.keys().copied().collect()) {
                    return Vec::new();
                }
                again.proposed = true;
                let mut justified = split.second.clone();
                justified.last = justified.sign(&self.key, id, claim);
                if split.view.quorum == Quorum::TwoThirds && self.rng.one_in(2) {
                    // Made up: its own in all places.
                    let seal: WireSignature = self.key.sign(&echo(id, claim, &hash)).into();
                    justified.echoes = split.view.voters().map(|peer| (peer, seal)).collect();
                }
                let promises = again.promises.values().cloned().collect();
                let seal = justified.sign(&self.key, id, *ballot);
                Body::Propose { ballot: *ballot, justified: Box::new(justified), promises, seal }
            }
            Body::Echo { ballot, seal } if *ballot == again.ballot && !again.confirmed => {
                let signs = |peer: PeerId| WireSignature::from(Key::of(peer).sign(&echo(id, *ballot, &hash)));
                if signs(from) != *seal {
                    return Vec::new();
                }
                again.echoes.extend([(from, *seal), (me, signs(me))]);
                if !is_quorum(again.echoes.keys().copied().collect()) {
                    return Vec::new();
                }
                again.confirmed = true;
                let echoes = again.echoes.iter().map(|(peer, seal)| (*peer, *seal)).collect();
                Body::Confirm { ballot: *ballot, echoes }
            }
            Body::Accept { ballot, seal } if *ballot == again.ballot => {
                let accepts = acceptance(id, *ballot, &split.second.proposal);
                let signs = |peer: PeerId| WireSignature::from(Key::of(peer).sign(&accepts));
                if signs(from) != *seal {
                    return Vec::new();
                }
                again.seals.extend([(from, *seal), (me, signs(me))]);
                if !is_quorum(again.seals.keys().copied().collect()) {
                    return Vec::new();
                }
                let seals = again.seals.iter().map(|(peer, seal)| (*peer, *seal)).collect();
                let (proposal, certificate) = (split.second.proposal.clone(), Certificate { ballot: *ballot, seals });
                Body::Install {
                    proposal,
                    certificate: Some(certificate),
                    contacts: Vec::new(),
                    fork: None,
                    chain: Vec::new(),
                }
            }
            Body::Nack { ballot, .. } if *ballot == again.ballot => return self.give_split_up(),
            _ => return Vec::new(),
        };
        let is_done = matches!(body, Body::Install { .. });
        let said = self.tell_split(&body);
        if !is_done {
            return said;
        }
        let first = self.give_split_up().into_iter().next();
        let victim = first.as_ref().map(|(peer, _)| *peer);
        said.into_iter().filter(|(peer, _)| Some(*peer) != victim).chain(first).collect()
    }

    /// It has waited for long enough.
    pub(super) fn tire_of_splitting(&mut self) -> Said {
        let Some(split) = &mut self.split else { return Vec::new() };
        split.talked += 1;
        if split.talked > PATIENCE { self.give_split_up() } else { Vec::new() }
    }

    fn give_split_up(&mut self) -> Said {
        self.split.take().map_or_else(Vec::new, |split| split.withheld)
    }
}
