//! What a decree decides: the next view, and how its members go on.

use serde::{Deserialize, Serialize};

use crate::error::Violation;
use crate::id::{Generation, PeerId, RunId};
use crate::message::{Contact, Evidence, MAX_MEMBERS};
use crate::view::View;
use crate::view::lineage::Lineage;
use crate::vote::certificate::{Signer, WireSignature};

/// The most peers that a proposal names as sources of a result or of the state.
pub const MAX_SOURCES: usize = 16;
/// The most joiners that one decree takes in.
pub const MAX_JOINERS: usize = 64;
/// The longest pass that a joiner shows, in bytes.
pub const MAX_PASS_BYTES: usize = 256;
/// The most reasons that a proposal tells.
pub const MAX_REASONS: usize = 2 * MAX_MEMBERS;

/// An attempt at a decree. Ordered by attempt, then by proposer, so no two proposers ever share one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Ballot {
    /// Counts up.
    pub attempt: u64,
    /// Whose attempt it is.
    pub proposer: PeerId,
}

/// Where a member stands while its steps are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Progress {
    /// The last committed step; 0 before the first.
    pub step: u64,
    /// That of the state after it.
    pub lineage: Lineage,
    /// Whether it holds the replicated state after `step`. False while the state is still being downloaded.
    pub has_state: bool,
    /// Whether it holds the averaged result of `step`.
    pub has_result: bool,
}

/// How the members of the next view go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResumePlan {
    /// The last step that counts as committed; the next one is reduced in the new view.
    pub step: u64,
    /// The lineage of the state after it that counts: [`Progress::lineage`].
    pub lineage: Lineage,
    /// Members that hold the averaged result of `step`, of this lineage, sorted.
    #[serde(deserialize_with = "crate::message::bounded::list::<_, _, MAX_SOURCES>")]
    pub holders: Vec<PeerId>,
    /// Members that hold the replicated state after `step`, or will once they have applied its result. Sorted.
    #[serde(deserialize_with = "crate::message::bounded::list::<_, _, MAX_SOURCES>")]
    pub donors: Vec<PeerId>,
    /// Members that need the replicated state, sorted: those that hold another one as well.
    #[serde(deserialize_with = "crate::message::bounded::list::<_, _, MAX_MEMBERS>")]
    pub syncing: Vec<PeerId>,
}

/// What a joiner's signature says first, so that no other message of ours can be taken for it.
const PURPOSE: &[u8] = b"starling asks to be let in 1";

/// A peer that wants to be a member. It has signed that: nobody asks for another one, or says of it what it has not said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinRequest {
    /// Where to reach it.
    pub contact: Contact,
    /// Which of its processes asked: [`crate::Config::incarnation`].
    pub incarnation: u64,
    /// Its last committed step: 0 if it holds the run's initial state.
    pub step: u64,
    /// Step and lineage of the replicated state that it still holds from a view that it was in.
    pub state: Option<(u64, Lineage)>,
    /// The branch of the last view that it was in; 0 if it was in none.
    pub branch: u64,
    /// The generation of that view.
    pub generation: Generation,
    /// By what it may come: opaque here, [`crate::Signer::admits`] judges it.
    #[serde(deserialize_with = "crate::message::bounded::list::<_, _, MAX_PASS_BYTES>")]
    pub pass: Vec<u8>,
    /// Its signature of all this: [`Self::signed`].
    pub seal: WireSignature,
}

impl JoinRequest {
    /// This process of a peer that was in no view and holds the run's initial state; yet to be signed.
    pub fn new(contact: Contact, incarnation: u64) -> Self {
        let (generation, seal) = (Generation(0), WireSignature::from([0; 64]));
        Self { contact, incarnation, step: 0, state: None, branch: 0, generation, pass: Vec::new(), seal }
    }

    /// Signs what it says, to be let in to `run`.
    pub fn signed(self, run: RunId, notary: &dyn Signer) -> Self {
        Self { seal: notary.sign(&self.statement(run)).into(), ..self }
    }

    /// Whether it has said this itself.
    pub(crate) fn is_signed(&self, run: RunId, notary: &dyn Signer) -> bool {
        notary.is_signed(self.contact.peer, &self.statement(run), &self.seal.bytes())
    }

    fn statement(&self, run: RunId) -> Vec<u8> {
        let Self { contact, incarnation, step, state, branch, generation, pass, seal: _ } = self;
        let said = postcard::to_allocvec(&(contact, incarnation, step, state, branch, generation, pass));
        [PURPOSE, &run.0, &said.expect("invariant: a joiner always encodes")].concat()
    }

    /// Checks one that came from elsewhere.
    pub(crate) fn validate(&self) -> Result<(), Violation> {
        if self.pass.len() > MAX_PASS_BYTES {
            return Err(Violation::MalformedProposal);
        }
        self.contact.validate()
    }
}

/// Why the view changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    /// A member is lost.
    Lost {
        /// The member.
        peer: PeerId,
        /// How that was seen.
        evidence: Evidence,
    },
    /// A peer joined.
    Joined(PeerId),
    /// A member left in order.
    Left(PeerId),
    /// The link between these two members failed. They try it anew, unless the view says that they are severed.
    Severed(PeerId, PeerId),
    /// A member's process is gone and another one with its identity wants to join.
    Restarted(PeerId),
    /// A member has a vote from now on: it holds the state and has contributed, or it is there to go on when nobody else is.
    Votes(PeerId),
    /// The members had no quorum for too long.
    Forked,
    /// Members came back from their records.
    Recovered,
    /// The same members agreed on newer costs of their links.
    Replanned,
    /// The steps of the same members stood still, or had stopped for somebody who is there after all: they begin anew.
    StoodStill,
    /// Links have failed again and again: those that have are used no more for a while.
    Unsteady,
    /// No link has failed for long, or those that had are of members that are gone: all are used again.
    Steady,
}

impl Reason {
    /// Whom it is about, if it is about one peer.
    pub fn peer(&self) -> Option<PeerId> {
        match self {
            Self::Lost { peer, .. }
            | Self::Joined(peer)
            | Self::Left(peer)
            | Self::Restarted(peer)
            | Self::Votes(peer) => Some(*peer),
            Self::Severed(..)
            | Self::Forked
            | Self::Recovered
            | Self::Replanned
            | Self::StoodStill
            | Self::Unsteady
            | Self::Steady => None,
        }
    }

    /// Who was a member before and is none any more, if it is about that.
    pub fn gone(&self) -> Option<PeerId> {
        self.peer().filter(|_| !matches!(self, Self::Joined(_) | Self::Votes(_)))
    }
}

/// The next view and how its members go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    /// The next view.
    pub view: View,
    /// How its members go on.
    pub resume: ResumePlan,
    /// Why the view changes.
    #[serde(deserialize_with = "crate::message::bounded::list::<_, _, MAX_REASONS>")]
    pub reasons: Vec<Reason>,
    /// Who joins.
    #[serde(deserialize_with = "crate::message::bounded::list::<_, _, MAX_JOINERS>")]
    pub joiners: Vec<JoinRequest>,
    /// How many of the current view's voters promised.
    pub promised: u32,
    /// How many voters the current view has.
    pub of: u32,
}

impl Proposal {
    /// Whether its view is the first one of a fork, and says so: those in it alone have decided that.
    pub(crate) fn forks(&self) -> bool {
        self.view.forked && self.reasons.contains(&Reason::Forked)
    }

    /// Checks a proposal that came from another peer or from a file.
    ///
    /// # Errors
    /// A [`Violation`] if it exceeds a bound, or names as source, as syncing or as joiner who is not in its view.
    pub fn validate(&self) -> Result<(), Violation> {
        self.view.validate()?;
        let ResumePlan { holders, donors, syncing, .. } = &self.resume;
        let listed = [(holders, MAX_SOURCES), (donors, MAX_SOURCES), (syncing, MAX_MEMBERS)];
        for (peers, limit) in listed {
            let sorted = peers.windows(2).all(|pair| pair[0] < pair[1]);
            if peers.len() > limit || !sorted || !peers.iter().all(|peer| self.view.contains(*peer)) {
                return Err(Violation::MalformedProposal);
            }
        }
        if self.reasons.len() > MAX_REASONS || self.joiners.len() > MAX_JOINERS {
            return Err(Violation::MalformedProposal);
        }
        self.joiners.iter().try_for_each(JoinRequest::validate)
    }
}
