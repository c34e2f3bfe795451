//! That a view was decided, shown to somebody who was not there: who accepted it, with their signatures.
//!
//! ```text
//!   view 4: {A, B, C} --accepted by A, B--> view 5: {A, B, D} --accepted by A, D--> view 6 ...
//! ```
//!
//! Whoever knows the members of one view that vote can check the next one: a quorum of them has signed that it accepts it. So a chain
//! of such links leads from the view that a peer was in last to the one that the run has come to, and nobody's word has to be
//! believed on the way (L. Lamport, D. Malkhi, L. Zhou, "Reconfiguring a State Machine", 2010, has the chain; signed
//! accepts as a proof are those of M. Castro, B. Liskov, "Practical Byzantine Fault Tolerance", 1999).

use std::collections::{BTreeSet, VecDeque};
use std::fmt::Debug;

use serde::{Deserialize, Serialize};

use crate::error::Violation;
use crate::id::{Generation, PeerId, ViewId};
use crate::message::MAX_MEMBERS;
use crate::view::View;
use crate::view::lineage::Lineage;
use crate::vote::proposal::{Ballot, JoinRequest, Proposal};

/// The most links of a chain that one message carries.
pub const MAX_LINKS: usize = 64;
/// The longest chain that one message carries, in encoded bytes, and that a member keeps.
pub const MAX_CHAIN_BYTES: usize = 256 * 1024;
/// What a signature says first, so that no other message of ours can be taken for it.
const PURPOSE: &[u8] = b"starling accepts a view 1";

/// Signs for this peer, and checks what others have signed: Ed25519 (RFC 8032) in the node, where a [`PeerId`] is the public
/// key. Both are functions of their arguments alone.
pub trait Signer: Debug + Send {
    /// This peer's signature of `statement`.
    fn sign(&self, statement: &[u8]) -> [u8; 64];

    /// Whether `signature` is that of `signer` under `statement`.
    fn is_signed(&self, signer: PeerId, statement: &[u8], signature: &[u8; 64]) -> bool;

    /// By what this peer may join, for [`Self::is_invited`] and [`Self::admits`] elsewhere. At most [`crate::vote::proposal::MAX_PASS_BYTES`].
    fn pass(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Whether whoever founded the run has ever invited this joiner. All peers find the same: who proposes one that is not
    /// invited breaks the rules.
    fn is_invited(&self, joiner: &JoinRequest) -> bool {
        let _ = joiner;
        true
    }

    /// Whether all of these may join now, as far as this peer knows. What it knows, others need not: it does not accept what
    /// is proposed, and nobody is blamed for it.
    fn admits(&self, joiners: &[JoinRequest]) -> bool {
        let _ = joiners;
        true
    }

    /// Which of these newcomers of `view`, all of which have contributed, may have a vote in the next one, as far as this peer knows.
    /// In the order in which they come: those first that have room. A quorum has to find so.
    fn may_vote(&self, newcomers: Vec<PeerId>, view: &View) -> Vec<PeerId> {
        let _ = view;
        newcomers
    }
}

/// A signature as it goes over the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireSignature([u8; 32], [u8; 32]);

impl From<[u8; 64]> for WireSignature {
    fn from(bytes: [u8; 64]) -> Self {
        let (first, second) = bytes.split_at(32);
        let half = |half: &[u8]| half.try_into().expect("invariant: half of 64 bytes");
        Self(half(first), half(second))
    }
}

impl WireSignature {
    pub(crate) fn bytes(&self) -> [u8; 64] {
        let mut bytes = [0; 64];
        bytes[..32].copy_from_slice(&self.0);
        bytes[32..].copy_from_slice(&self.1);
        bytes
    }
}

/// What a member signs when it accepts a proposal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Acceptance {
    parent: ViewId,
    ballot: Ballot,
    view: ViewId,
    terms: Terms,
}

impl Acceptance {
    /// That of `proposal`, which follows `parent`, in `ballot`.
    pub(crate) fn of(parent: ViewId, ballot: Ballot, proposal: &Proposal) -> Self {
        Self { parent, ballot, view: proposal.view.id(), terms: Terms::of(proposal) }
    }

    fn statement(&self) -> Vec<u8> {
        let mut statement = Vec::with_capacity(PURPOSE.len() + 144);
        statement.extend_from_slice(PURPOSE);
        statement.extend_from_slice(&self.parent.0);
        statement.extend_from_slice(&self.ballot.attempt.to_le_bytes());
        statement.extend_from_slice(&self.ballot.proposer.0);
        statement.extend_from_slice(&self.view.0);
        statement.extend_from_slice(&self.terms.resumed.to_le_bytes());
        statement.extend_from_slice(&self.terms.hash);
        statement
    }

    pub(crate) fn sign(&self, notary: &dyn Signer) -> WireSignature {
        notary.sign(&self.statement()).into()
    }

    pub(crate) fn is_signed(&self, notary: &dyn Signer, signer: PeerId, seal: &WireSignature) -> bool {
        notary.is_signed(signer, &self.statement(), &seal.bytes())
    }
}

/// What a member signs when it accepts `proposal`, which follows the view called `parent`, in `ballot`: for those who test what
/// comes of signatures that no correct peer gives.
pub fn acceptance(parent: ViewId, ballot: Ballot, proposal: &Proposal) -> Vec<u8> {
    Acceptance::of(parent, ballot, proposal).statement()
}

/// All of a proposal but its view, in short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Terms {
    /// The step of the state that the members go on from.
    resumed: u64,
    /// The hash of all.
    hash: [u8; 32],
}

impl Terms {
    fn of(proposal: &Proposal) -> Self {
        let Proposal { view: _, resume, reasons, joiners, promised, of } = proposal;
        let terms = postcard::to_allocvec(&(resume, reasons, joiners, promised, of));
        let hash = *blake3::hash(&terms.expect("invariant: a proposal always encodes")).as_bytes();
        Self { resumed: resume.step, hash }
    }
}

/// Who accepted a view that was decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certificate {
    /// The ballot in which it was.
    pub ballot: Ballot,
    /// By signer, ascending.
    #[serde(deserialize_with = "crate::message::bounded::list::<_, _, MAX_MEMBERS>")]
    pub seals: Vec<(PeerId, WireSignature)>,
}

impl Certificate {
    /// Whether members of `parent` that are a quorum of it have accepted `proposal`.
    pub fn proves(&self, notary: &dyn Signer, parent: &View, proposal: &Proposal) -> bool {
        proposal.view.parent == Some(parent.id()) && self.is_of(notary, parent, &proposal.view, Terms::of(proposal))
    }

    /// Whether `chain` leads from `from` to the view before that of `proposal`, and its members have accepted this. What the
    /// chain says of views before `from` is left out.
    pub fn proves_after(
        &self,
        notary: &dyn Signer,
        from: &View,
        chain: &[SuccessionProof],
        proposal: &Proposal,
    ) -> bool {
        let (id, next) = (from.id(), &proposal.view);
        let begin = chain.iter().position(|link| link.view.parent == Some(id)).unwrap_or(chain.len());
        let parent = chain[begin..].last().map_or(from, |link| &link.view);
        let is_led = begin == chain.len() || leads(notary, from, &chain[begin..], parent.id());
        is_led && is_next(parent, from, next) && self.proves(notary, parent, proposal)
    }

    fn is_of(&self, notary: &dyn Signer, parent: &View, view: &View, terms: Terms) -> bool {
        let accepted = Acceptance { parent: parent.id(), ballot: self.ballot, view: view.id(), terms };
        let signers: BTreeSet<PeerId> = self.seals.iter().map(|(signer, _)| *signer).collect();
        let signs = |(signer, seal): &(PeerId, WireSignature)| {
            parent.votes(*signer) && accepted.is_signed(notary, *signer, seal)
        };
        signers.len() == self.seals.len() && parent.has_quorum(&signers) && self.seals.iter().all(signs)
    }

    pub(crate) fn validate(&self) -> Result<(), Violation> {
        validate_seals(&self.seals)
    }

    /// Whether `peer` is one of those who accepted.
    pub fn is_signed_by(&self, peer: PeerId) -> bool {
        self.seals.iter().any(|(signer, _)| *signer == peer)
    }
}

/// Whether these are by signer, ascending.
pub(crate) fn validate_seals(seals: &[(PeerId, WireSignature)]) -> Result<(), Violation> {
    let sorted = seals.len() <= MAX_MEMBERS && seals.windows(2).all(|pair| pair[0].0 < pair[1].0);
    if sorted { Ok(()) } else { Err(Violation::Uncertified) }
}

/// One step of the chain of views.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuccessionProof {
    /// The view that was decided.
    pub view: View,
    /// What was decided with it.
    terms: Terms,
    /// By whom.
    certificate: Certificate,
}

impl SuccessionProof {
    /// That to `proposal`.
    pub fn to(proposal: &Proposal, certificate: Certificate) -> Self {
        Self { view: proposal.view.clone(), terms: Terms::of(proposal), certificate }
    }

    /// The step of the state that its members go on from.
    pub(crate) fn resumed(&self) -> u64 {
        self.terms.resumed
    }

    /// Who decided it.
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// Whether `peer` has signed that it accepts it.
    pub(crate) fn is_sealed_by(&self, notary: &dyn Signer, peer: PeerId) -> bool {
        let Self { view, terms, certificate } = self;
        let Some(parent) = view.parent else { return false };
        let accepted = Acceptance { parent, ballot: certificate.ballot, view: view.id(), terms: *terms };
        let seal = certificate.seals.iter().find(|(signer, _)| *signer == peer);
        seal.is_some_and(|(_, seal)| accepted.is_signed(notary, peer, seal))
    }

    /// Whether a quorum of `parent` has accepted it, if it follows that.
    pub(crate) fn is_accepted_by(&self, notary: &dyn Signer, parent: &View) -> bool {
        self.certificate.is_of(notary, parent, &self.view, self.terms)
    }

    /// Whether it leads on from `last`.
    pub(crate) fn follows(&self, notary: &dyn Signer, last: &View) -> bool {
        is_next(last, last, &self.view) && self.is_accepted_by(notary, last)
    }

    pub(crate) fn validate(&self) -> Result<(), Violation> {
        self.view.validate()?;
        self.certificate.validate()
    }

    fn bytes(&self) -> usize {
        postcard::to_allocvec(self).map_or(usize::MAX, |bytes| bytes.len())
    }
}

/// Whether `chain` leads from `from` to the view called `to`, each link proven to whoever knows the one before.
pub fn leads(notary: &dyn Signer, from: &View, chain: &[SuccessionProof], to: ViewId) -> bool {
    let mut last = from;
    for SuccessionProof { view, terms, certificate } in chain {
        if !is_next(last, from, view) || !certificate.is_of(notary, last, view, *terms) {
            return false;
        }
        last = view;
    }
    !chain.is_empty() && last.id() == to
}

/// Whether `view` may follow `last`, on the way from `from`.
fn is_next(last: &View, from: &View, view: &View) -> bool {
    let is_ours = view.run == from.run && view.branch == last.branch && view.quorum == last.quorum;
    let counts_up = view.generation > last.generation && view.forked == last.forked;
    view.parent == Some(last.id()) && is_ours && counts_up
}

pub(crate) fn validate_chain(chain: &[SuccessionProof]) -> Result<(), Violation> {
    if chain.len() > MAX_LINKS {
        return Err(Violation::Uncertified);
    }
    chain.iter().try_for_each(SuccessionProof::validate)
}

/// The last views that led to the one that this member is in, with the proofs that it has.
#[derive(Debug, Default)]
pub(crate) struct Chain {
    links: VecDeque<(SuccessionProof, usize)>,
    bytes: usize,
    /// Views before this one, those too whose successor has no proof.
    ancestors: VecDeque<ViewId>,
    /// The last views that this process has left for others that don't follow them: what it decided there it has not forgotten.
    left: VecDeque<ViewId>,
}

impl Chain {
    /// What somebody says has led to the view called `to`: it is shown to others, who check it. Nothing if it does not hang
    /// together.
    pub(crate) fn told(links: Vec<SuccessionProof>, to: Option<ViewId>) -> Self {
        let ids: Vec<ViewId> = links.iter().map(|link| link.view.id()).collect();
        let follows = links.iter().skip(1).zip(&ids).all(|(link, before)| link.view.parent == Some(*before));
        let mut chain = Self::default();
        if follows && to.is_some() && ids.last().copied() == to {
            links.into_iter().for_each(|link| chain.go_on(link.view.parent.unwrap_or(ViewId::NONE), Some(link)));
        }
        chain
    }

    /// The same, for one that was on the way, and leaves the view called `left`: what it knows itself of the way until there stays known.
    pub(crate) fn led_on(&self, left: Option<ViewId>, mut links: Vec<SuccessionProof>, to: Option<ViewId>) -> Self {
        let from = links.first().and_then(|link| link.view.parent);
        let ours = self.links.iter().position(|(link, _)| Some(link.view.id()) == from);
        let ours = ours.into_iter().flat_map(|at| self.links.range(..=at)).map(|(link, _)| link.clone());
        links.splice(..0, ours.collect::<Vec<_>>());
        // With the way there: what it decided on that it has not forgotten either.
        let way = left.into_iter().flat_map(|left| self.ancestors.iter().copied().chain([left]));
        let left = self.left.iter().copied().chain(way);
        let newest = left.clone().count().saturating_sub(MAX_LINKS);
        Self { left: left.skip(newest).collect(), ..Self::told(links, to) }
    }

    /// This member goes from the view called `from` to its successor; `link` proves that one. A fork has none, and nobody is
    /// led through it.
    pub(crate) fn go_on(&mut self, from: ViewId, link: Option<SuccessionProof>) {
        self.ancestors.push_back(from);
        if self.ancestors.len() > MAX_LINKS {
            self.ancestors.pop_front();
        }
        let Some(link) = link else {
            (self.links, self.bytes) = (VecDeque::new(), 0);
            return;
        };
        let bytes = link.bytes();
        self.bytes = self.bytes.saturating_add(bytes);
        self.links.push_back((link, bytes));
        while self.links.len() > MAX_LINKS || (self.bytes > MAX_CHAIN_BYTES && self.links.len() > 1) {
            let (_, bytes) = self.links.pop_front().expect("invariant: more than one");
            self.bytes -= bytes;
        }
    }

    /// What leads on from the view called `view`; empty if that is not known.
    pub(crate) fn from(&self, view: ViewId) -> Vec<SuccessionProof> {
        let after = self.links.iter().position(|(link, _)| link.view.parent == Some(view));
        after.map_or_else(Vec::new, |at| self.links.range(at..).map(|(link, _)| link.clone()).collect())
    }

    /// All that leads to the view called `last`.
    pub(crate) fn until(&self, last: Option<ViewId>) -> Vec<SuccessionProof> {
        self.links_until(last).cloned().collect()
    }

    /// The views on the way to the one called `last`, and that one, as far as they are known.
    pub(crate) fn before(&self, last: Option<ViewId>) -> impl Iterator<Item = &View> + Clone {
        self.links_until(last).map(|link| &link.view)
    }

    /// Whether the state after `step` of this lineage is one that the views on the way to the one called `last` came through: one of them
    /// committed it, and none that followed went back behind it.
    pub(crate) fn came_through(&self, step: u64, lineage: Lineage, last: Option<ViewId>) -> bool {
        let is_of = |view: &View| view.generation == lineage.generation && Lineage::of(view) == lineage;
        let mut links = self.links_until(last).skip_while(|link| !is_of(&link.view));
        links.next().is_some_and(|link| link.resumed() < step) && links.all(|link| link.resumed() >= step)
    }

    fn links_until(&self, last: Option<ViewId>) -> impl Iterator<Item = &SuccessionProof> + Clone {
        self.links.iter().map(|(link, _)| link).take_while(move |link| link.view.parent != last)
    }

    /// What leads on from the first link that `peer` has signed, and that link, for one that does not know that it did.
    pub(crate) fn signed_by(&self, peer: PeerId) -> Vec<SuccessionProof> {
        let links = self.links.iter().map(|(link, _)| link);
        links.skip_while(|link| !link.certificate.is_signed_by(peer)).cloned().collect()
    }

    /// Whether `link`, which is decided, leads from a view on the way to this member's to another one than the way does; and if so,
    /// the link of the way beside it.
    pub(crate) fn beside(&self, notary: &dyn Signer, link: &SuccessionProof) -> Option<&SuccessionProof> {
        let at = self.links.iter().position(|(ours, _)| ours.view.parent == link.view.parent)?;
        let ours = self.links.get(at).map(|(ours, _)| ours).filter(|ours| ours.view != link.view)?;
        let before = at.checked_sub(1).and_then(|before| self.links.get(before)).map(|(before, _)| &before.view);
        // Who has decided one thing there could decide another.
        let is_decided = match before {
            Some(before) => link.certificate.is_of(notary, before, &link.view, link.terms),
            None => ours.certificate.seals.iter().all(|(signer, _)| link.is_sealed_by(notary, *signer)),
        };
        (is_decided && link.view.run == ours.view.run).then_some(ours)
    }

    /// Whether `link` leads from a view on the way to this member's to another one than the way does, as it says itself. Of links that
    /// hang together one does at most.
    pub(crate) fn parts_with(&self, link: &SuccessionProof) -> bool {
        self.links.iter().any(|(ours, _)| ours.view.parent == link.view.parent && ours.view != link.view)
    }

    /// What leads from a view of `generation`, or of the first one later than that which is known, to the one before `next`.
    pub(crate) fn since(&self, generation: Generation, next: &View) -> Vec<SuccessionProof> {
        let links = self.links.iter().map(|(link, _)| link);
        let between = |link: &&SuccessionProof| {
            link.view.branch == next.branch
                && link.view.generation > generation
                && link.view.generation < next.generation
        };
        links.filter(between).cloned().collect()
    }

    /// Whether this process has left the view called `view` for one that does not follow it.
    pub(crate) fn has_left(&self, view: ViewId) -> bool {
        self.left.contains(&view)
    }

    /// Whether the view called `view` came before this member's.
    pub(crate) fn came_from(&self, view: ViewId) -> bool {
        self.ancestors.contains(&view)
    }
}
