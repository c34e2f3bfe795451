//! What members promise, signed, and what a proposal rests on: who accepts it need not believe whoever proposes it.
//!
//! ```text
//!   proposal --follows from--> a quorum's promises, each signed: "this is where I stand, and I have accepted nothing"
//! ```
//!
//! A proposal is made once, from promises that tell of no other; later ballots only repeat it, with what it rested on at first.
//! So each value that may be decided is one that the rules give, of states that members have signed for (M. Castro, B. Liskov,
//! "Practical Byzantine Fault Tolerance", 1999, has proofs of that kind in its view changes).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::error::Violation;
use crate::id::{PeerId, ViewId};
use crate::message::stall_report::StallReport;
use crate::message::{Evidence, MAX_MEMBERS};
use crate::view::View;
use crate::view::mark::LostState;
use crate::vote::certificate::{Signer, WireSignature, validate_seals};
use crate::vote::proposal::{Ballot, Progress, Proposal};

/// What a signature says first, so that no other message of ours can be taken for it.
const PROMISES: &[u8] = b"starling promises 1";
const PROPOSES: &[u8] = b"starling proposes a view 1";
/// How many names all promises of a view may list together, so that a proposal that carries them fits a message.
const MAX_NAMES: usize = 8 * 1024;
/// Each promise may list so many, however large the view.
const LEAST_NAMES: usize = 8;

/// What a member says of itself when it promises.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Promise {
    /// Where it stands.
    pub progress: Progress,
    /// Members that it can't reach, sorted.
    #[serde(deserialize_with = "crate::message::bounded::list::<_, _, MAX_MEMBERS>")]
    pub unreachable: Vec<PeerId>,
    /// Members to which its link has failed of late, sorted: in an unsteady view it is used no more, if there is another way.
    #[serde(deserialize_with = "crate::message::bounded::list::<_, _, MAX_MEMBERS>")]
    pub failed: Vec<PeerId>,
    /// Members that have done what no correct peer does, as it saw itself, sorted.
    #[serde(deserialize_with = "crate::message::bounded::list::<_, _, MAX_MEMBERS>")]
    pub accused: Vec<PeerId>,
    /// Members without a vote that say they hold the state and have contributed, as it has heard from themselves, sorted.
    #[serde(deserialize_with = "crate::message::bounded::list::<_, _, MAX_MEMBERS>")]
    pub contributing: Vec<PeerId>,
    /// What it waits for in vain.
    pub missing: Option<StallReport>,
    /// Whether it votes only, and is to be left out.
    pub leaving: bool,
    /// Whether its process came back from a record since the view was installed.
    pub recovering: bool,
    /// What it has lost of what it had saved to sign it.
    pub lost: LostState,
    /// The ballot in which it accepted a proposal before, and that one's hash.
    pub accepted: Option<(Ballot, [u8; 32])>,
}

#[cfg(test)]
impl Promise {
    /// Of one that stands at `progress`, and has nothing else to say.
    pub(crate) fn at(progress: Progress) -> Self {
        Self {
            progress,
            unreachable: Vec::new(),
            failed: Vec::new(),
            accused: Vec::new(),
            contributing: Vec::new(),
            missing: None,
            leaving: false,
            recovering: false,
            lost: LostState::Nothing,
            accepted: None,
        }
    }
}

/// How many members a promise in a view of `members` may name: those that it can't reach, to which its link has failed, that it accuses,
/// waits for and says a vote is due to, together.
pub(crate) fn most_named(members: usize) -> usize {
    (MAX_NAMES / members.max(1)).clamp(LEAST_NAMES, MAX_MEMBERS)
}

/// A promise and its member's signature, of one ballot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedPromise {
    /// Whose it is.
    pub by: PeerId,
    /// What it says.
    pub promise: Promise,
    /// Its signature.
    pub seal: WireSignature,
}

impl SignedPromise {
    /// That of `by`, whose key `notary` has, of `ballot` in the view called `view`.
    pub fn new(notary: &dyn Signer, view: ViewId, ballot: Ballot, by: PeerId, promise: Promise) -> Self {
        let seal = notary.sign(&statement(PROMISES, view, ballot, &promise.encode())).into();
        Self { by, promise, seal }
    }

    /// Whether its member has signed it, for this ballot in this view.
    pub(crate) fn is_signed(&self, notary: &dyn Signer, view: ViewId, ballot: Ballot) -> bool {
        let statement = statement(PROMISES, view, ballot, &self.promise.encode());
        notary.is_signed(self.by, &statement, &self.seal.bytes())
    }

    pub(crate) fn validate(&self) -> Result<(), Violation> {
        let sorted = |peers: &[PeerId]| peers.len() <= MAX_MEMBERS && peers.windows(2).all(|pair| pair[0] < pair[1]);
        let Promise { unreachable, failed, accused, contributing, missing, .. } = &self.promise;
        let missing = missing.as_ref().map_or(&[][..], |awaited| &awaited.from);
        if [unreachable, failed, accused, contributing].into_iter().all(|peers| sorted(peers)) && sorted(missing) {
            Ok(())
        } else {
            Err(Violation::MalformedProposal)
        }
    }
}

impl Promise {
    /// Whether it names no more members than a promise in `view` may.
    pub(crate) fn is_bounded(&self, view: &View) -> bool {
        self.named() <= most_named(view.members().len())
    }

    /// How many members it names, some of them more than once.
    pub(crate) fn named(&self) -> usize {
        let missing = self.missing.as_ref().map_or(0, |awaited| awaited.from.len());
        self.unreachable.len() + self.failed.len() + self.accused.len() + self.contributing.len() + missing
    }

    /// Whether it claims more than anybody can have reached beside a member that has taken part in all steps up to `step`.
    pub(crate) fn is_beyond(&self, step: u64) -> bool {
        !self.recovering && self.progress.step > step.saturating_add(1)
    }

    fn encode(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("invariant: a promise always encodes")
    }
}

/// A proposal and what it rests on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JustifiedProposal {
    /// What is proposed.
    pub proposal: Proposal,
    /// The ballot in which it was proposed first.
    pub ballot: Ballot,
    /// The promises that it follows from, of that ballot, by member, ascending.
    #[serde(deserialize_with = "crate::message::bounded::list::<_, _, MAX_MEMBERS>")]
    pub promises: Vec<SignedPromise>,
    /// Of those who promised: whom its proposer left out, and why.
    #[serde(deserialize_with = "crate::message::bounded::list::<_, _, MAX_MEMBERS>")]
    pub excluded: Vec<(PeerId, Evidence)>,
    /// The signature of its proposer.
    pub seal: WireSignature,
    /// That of whose ballot it was proposed in last, for that ballot: nobody can say that it has accepted this in a ballot of
    /// somebody who has not proposed it there.
    pub last: WireSignature,
    /// Who has echoed it in the ballot in which it was accepted last, by signer, ascending. Nobody where majorities decide.
    #[serde(deserialize_with = "crate::message::bounded::list::<_, _, MAX_MEMBERS>")]
    pub echoes: Vec<(PeerId, WireSignature)>,
}

impl JustifiedProposal {
    /// Proposes `proposal` in `ballot`, which is that of `notary`'s key.
    pub fn new(
        notary: &dyn Signer,
        view: ViewId,
        ballot: Ballot,
        proposal: Proposal,
        promises: Vec<SignedPromise>,
        excluded: Vec<(PeerId, Evidence)>,
    ) -> Self {
        let seal = notary.sign(&statement(PROPOSES, view, ballot, &hash(&proposal))).into();
        Self { proposal, ballot, promises, excluded, seal, last: seal, echoes: Vec::new() }
    }

    /// What `notary`'s key signs when it proposes this, anew or again, in its `ballot`.
    pub fn sign(&self, notary: &dyn Signer, view: ViewId, ballot: Ballot) -> WireSignature {
        notary.sign(&statement(PROPOSES, view, ballot, &self.hash())).into()
    }

    /// Whether the proposer of `ballot` has proposed this in it and signed that with `seal`.
    pub(crate) fn is_proposed(&self, notary: &dyn Signer, view: &View, ballot: Ballot, seal: &WireSignature) -> bool {
        let proposes = || statement(PROPOSES, view.id(), ballot, &self.hash());
        view.contains(ballot.proposer) && notary.is_signed(ballot.proposer, &proposes(), &seal.bytes())
    }

    /// As a promise names what its member has accepted.
    pub fn hash(&self) -> [u8; 32] {
        hash(&self.proposal)
    }

    /// Whether it was proposed by whose ballot that was, from the promises of a quorum of `view`, which [leave it
    /// free](leave_free) what to propose. Whether it follows from them is another question.
    pub(crate) fn is_signed(&self, notary: &dyn Signer, view: &View) -> bool {
        leave_free(view, self.promises.iter().map(|signed| (signed.by, &signed.promise)))
            && self.is_proposed(notary, view, self.ballot, &self.seal)
            && are_a_quorums(notary, view, self.ballot, &self.promises)
    }

    /// The promises that it rests on, by member.
    pub(crate) fn grounds(&self) -> BTreeMap<PeerId, Promise> {
        self.promises.iter().map(|signed| (signed.by, signed.promise.clone())).collect()
    }

    pub(crate) fn validate(&self) -> Result<(), Violation> {
        self.proposal.validate()?;
        let excluded = self.excluded.len() <= MAX_MEMBERS && self.excluded.windows(2).all(|pair| pair[0].0 < pair[1].0);
        if !excluded || validate_seals(&self.echoes).is_err() {
            return Err(Violation::MalformedProposal);
        }
        validate_promises(&self.promises)
    }
}

/// Whether members of `view` have signed these promises of `ballot`, and those of them that vote are a quorum of it.
pub(crate) fn are_a_quorums(notary: &dyn Signer, view: &View, ballot: Ballot, promises: &[SignedPromise]) -> bool {
    let id = view.id();
    let by = promises.iter().map(|signed| signed.by).collect();
    // Who has no vote has accepted nothing.
    let may_say = |signed: &SignedPromise| view.votes(signed.by) || signed.promise.accepted.is_none();
    let counts = |signed: &SignedPromise| {
        let is_members = view.contains(signed.by) && may_say(signed);
        signed.promise.is_bounded(view) && is_members && signed.is_signed(notary, id, ballot)
    };
    view.has_quorum(&by) && promises.iter().all(counts)
}

/// Whether a proposer that holds these promises, of a quorum of `view`, need not propose what one of them has accepted: a quorum
/// among them has accepted nothing, so nothing is decided, unless one of that quorum conceals it, which its two signatures show.
/// And those who tell of something are no more than may be hostile: what they tell may be made up, to have it proposed again
/// and again. Where proposals are echoed, it can't be.
pub(crate) fn leave_free<'a>(view: &View, promises: impl Iterator<Item = (PeerId, &'a Promise)>) -> bool {
    let (told, rest): (Vec<_>, Vec<_>) = promises.partition(|(_, promise)| promise.accepted.is_some());
    let rest: BTreeSet<PeerId> = rest.into_iter().map(|(by, _)| by).collect();
    told.is_empty() || (!view.quorum.echoes() && told.len() <= view.most_hostile() && view.has_quorum(&rest))
}

pub(crate) fn validate_promises(promises: &[SignedPromise]) -> Result<(), Violation> {
    let sorted = promises.len() <= MAX_MEMBERS && promises.windows(2).all(|pair| pair[0].by < pair[1].by);
    if !sorted {
        return Err(Violation::MalformedProposal);
    }
    promises.iter().try_for_each(SignedPromise::validate)
}

fn hash(proposal: &Proposal) -> [u8; 32] {
    let bytes = postcard::to_allocvec(proposal).expect("invariant: a proposal always encodes");
    *blake3::hash(&bytes).as_bytes()
}

fn statement(purpose: &[u8], view: ViewId, ballot: Ballot, of: &[u8]) -> Vec<u8> {
    [purpose, &view.0, &ballot.attempt.to_le_bytes(), &ballot.proposer.0, of].concat()
}
