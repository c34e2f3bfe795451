//! What members say to each other: the envelope and its bodies. What these carry is in [`vote`](crate::vote), [`view`](crate::view) and
//! [`plan`](crate::plan).

pub mod bounded;
pub mod carrier;
pub mod leaf;
pub mod stall_report;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::error::Violation;
use crate::id::{Digest, Generation, PeerId, RunId, ViewId};
use crate::plan::Link;
use crate::view::MAX_COSTED;
use crate::vote::certificate::{
    Certificate, MAX_LINKS, SuccessionProof, WireSignature, validate_chain, validate_seals,
};
use crate::vote::promise::{JustifiedProposal, SignedPromise, validate_promises};
use crate::vote::proposal::{Ballot, JoinRequest, Proposal};

/// The largest view. Bounds every message.
pub const MAX_MEMBERS: usize = 1024;
/// The most addresses a contact may list.
pub const MAX_ADDRESSES: usize = 8;
/// The longest address, in bytes.
pub const MAX_ADDRESS_BYTES: usize = 160;
/// The most contacts that an outsider is told.
pub const MAX_HINTS: usize = 8;
/// The longest encoded envelope, in bytes: a decided proposal for the largest view, every contact full.
pub const MAX_ENVELOPE_BYTES: usize = 2 * 1024 * 1024;

/// Where a peer can be reached. Addresses are opaque here; the driver knows how to dial them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contact {
    /// Whose addresses they are.
    pub peer: PeerId,
    /// In the order in which they should be tried.
    #[serde(deserialize_with = "crate::message::bounded::list::<_, _, MAX_ADDRESSES>")]
    pub addresses: Vec<String>,
}

impl Contact {
    /// Whether it lists no more and no longer addresses than a contact may.
    pub fn is_bounded(&self) -> bool {
        self.validate().is_ok()
    }

    pub(crate) fn validate(&self) -> Result<(), Violation> {
        let fits = self.addresses.len() <= MAX_ADDRESSES
            && self.addresses.iter().all(|address| address.len() <= MAX_ADDRESS_BYTES);
        if fits { Ok(()) } else { Err(Violation::MalformedContact) }
    }
}

/// A message and where it belongs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    /// The run that the sender is in.
    pub run: RunId,
    /// The sender's generation; zero before it is in a view.
    pub generation: Generation,
    /// The sender's view; [`ViewId::NONE`] before it is in one.
    pub view: ViewId,
    /// What it says.
    pub body: Body,
}

/// What a message says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Body {
    /// "I want to be a member."
    Join(JoinRequest),
    /// "This peer has asked me to let it in."
    Introduce(JoinRequest),
    /// "You can't be a member, because ..."
    Refuse(RefusalReason),
    /// "I want to leave in order."
    Leave,
    /// "I can't reach this member any more."
    Suspect {
        /// The member.
        peer: PeerId,
        /// How that was seen.
        evidence: Evidence,
    },
    /// "I want to propose the next view. Take part in no lower ballot any more, and hold your steps."
    Prepare {
        /// The attempt.
        ballot: Ballot,
        /// `None`: hold at once. `Some(step)`: complete this step, drop later ones.
        boundary: Option<u64>,
        /// Members that I can't reach, sorted. If one of them says the same of me, another should propose.
        #[serde(deserialize_with = "crate::message::bounded::list::<_, _, MAX_MEMBERS>")]
        unreachable: Vec<PeerId>,
    },
    /// "I take part in no lower ballot any more, and my steps are held."
    Promise {
        /// The attempt that this answers.
        ballot: Ballot,
        /// Where I stand, signed: it is shown to others.
        promise: SignedPromise,
        /// What I accepted in an earlier one.
        accepted: Option<Box<JustifiedProposal>>,
    },
    /// "I have promised a higher ballot."
    Nack {
        /// The one that I refuse.
        ballot: Ballot,
        /// The one that I promised.
        promised: Ballot,
    },
    /// "A quorum has promised. Accept this."
    Propose {
        /// The attempt.
        ballot: Ballot,
        /// What is proposed, and what it rests on.
        justified: Box<JustifiedProposal>,
        /// If it was proposed before: this attempt's promises, by member, ascending. The one with the highest ballot tells of it.
        #[serde(deserialize_with = "crate::message::bounded::list::<_, _, MAX_MEMBERS>")]
        promises: Vec<SignedPromise>,
        /// My signature, for those who are told of it in later attempts.
        seal: WireSignature,
    },
    /// "This is what I was shown in this ballot." Where more than two thirds decide: [`crate::vote::echo`].
    Echo {
        /// The attempt.
        ballot: Ballot,
        /// My signature, for the others.
        seal: WireSignature,
    },
    /// "A quorum was shown what I have proposed. Accept it."
    Confirm {
        /// The attempt.
        ballot: Ballot,
        /// Their echoes, by signer, ascending.
        #[serde(deserialize_with = "crate::message::bounded::list::<_, _, MAX_MEMBERS>")]
        echoes: Vec<(PeerId, WireSignature)>,
    },
    /// "I accept."
    Accept {
        /// The attempt.
        ballot: Ballot,
        /// My signature, for those who were not there.
        seal: WireSignature,
    },
    /// "This is decided: go on in this view."
    Install {
        /// What is decided.
        proposal: Proposal,
        /// Who accepted it. None of a fork.
        certificate: Option<Certificate>,
        /// How to reach the members, for those who join.
        #[serde(deserialize_with = "crate::message::bounded::list::<_, _, MAX_MEMBERS>")]
        contacts: Vec<Contact>,
        /// For a view without quorum: the ballot that its members promised. Whoever promised another one since stays.
        fork: Option<Ballot>,
        /// For those who were not in the view before: what leads there from the one that they were in last, as far as is known.
        #[serde(deserialize_with = "crate::message::bounded::list::<_, _, MAX_LINKS>")]
        chain: Vec<SuccessionProof>,
    },
    /// "I live."
    Heartbeat {
        /// My last committed step, as far as I know.
        step: u64,
        /// How far it is, at least and in heartbeats, from me to a member that does not wait in vain; 0 if I don't.
        waiting: u32,
    },
    /// "I had lost you. This is where I stand."
    Hello(BranchPosition),
    /// "You are not in our view. This is where we stand."
    Outsider {
        /// Where we stand.
        branch_position: BranchPosition,
        /// Some of our members.
        #[serde(deserialize_with = "crate::message::bounded::list::<_, _, MAX_HINTS>")]
        contacts: Vec<Contact>,
        /// What leads from your view to ours, if it does.
        #[serde(deserialize_with = "crate::message::bounded::list::<_, _, MAX_LINKS>")]
        chain: Vec<SuccessionProof>,
    },
    /// "I hold the replicated state now."
    Synced,
    /// "This is my state after this step."
    Digest {
        /// The step.
        step: u64,
        /// The digest of the replicated state after it.
        digest: Digest,
    },
    /// "This member has committed the run's last step and holds this state." Told of others to those that can't hear it.
    Finished {
        /// The member.
        peer: PeerId,
        /// The last step.
        step: u64,
        /// The digest of the replicated state after it.
        digest: Digest,
    },
    /// "I have heard everybody finish and need nothing more."
    Goodbye,
    /// "This is how fast I reach other members." In views of up to [`crate::view::MAX_COSTED`].
    Measured {
        /// By receiver, sorted.
        #[serde(deserialize_with = "crate::message::bounded::list::<_, _, MAX_COSTED>")]
        links: Vec<(PeerId, Link)>,
    },
    /// "I hold the replicated state, and steps up to this one have my contributions, but no view of mine says that I vote." Said again
    /// and again until one does: what was said in a view that is over is lost.
    Contributes {
        /// My last committed step.
        step: u64,
    },
}

/// Where a peer stands: which branch of a run it follows, and how far that has come. The view and its generation are
/// the envelope's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BranchPosition {
    /// Its last committed step.
    pub step: u64,
    /// The branch that its view is on.
    pub branch: u64,
    /// The view before its view.
    pub parent: Option<ViewId>,
    /// Whether its view, or one before it, was installed without a quorum.
    pub forked: bool,
    /// Whether its steps are held for want of a quorum.
    pub paused: bool,
    /// Whether its process came back from a record since the view was installed.
    pub recovering: bool,
}

/// Why a peer can't be a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Error)]
pub enum RefusalReason {
    /// The run has committed its last step.
    #[error("the run has finished")]
    RunFinished,
    /// The view is as large as it may be.
    #[error("the run already has its {max_members} members")]
    Full {
        /// The largest allowed view.
        max_members: u32,
    },
    /// The other side's run differs.
    #[error("it is in another run")]
    OtherRun,
    /// It was lost too often, or put out for what it did.
    #[error("it was lost too often, or misbehaved; it may ask again in {for_ms} ms")]
    Quarantined {
        /// For how long, in milliseconds.
        for_ms: u64,
    },
    /// The run has never begun, and never will.
    #[error("its founder left before the first step")]
    Withdrawn,
}

/// How a loss was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Error)]
pub enum Evidence {
    /// Its connection closed without a leave.
    #[error("its connection closed without a leave")]
    Closed,
    /// It said nothing for this long.
    #[error("it was silent for {} ms", .0.as_millis())]
    Silent(Duration),
    /// Its link for segments failed.
    #[error("its link for segments failed")]
    LinkFailed,
    /// It did not answer when the view had to change.
    #[error("it did not answer when the view had to change")]
    Unanswered,
    /// Another process with its identity wants to join.
    #[error("another process with its identity wants to join")]
    Restarted,
    /// It follows another branch of the run, or could not catch up and joins anew.
    #[error("it does not follow this view any more")]
    Elsewhere,
    /// It sent something that no correct peer sends.
    #[error("it sent something that no correct peer sends (its name is in the log of the peer that saw it)")]
    Misbehaved,
    /// The run's founder has put it out.
    #[error("the run's founder has revoked it")]
    Revoked,
}

impl Evidence {
    /// Whether the process may be there all the same, and come back: it is cut off, follows another view, or is another one.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::Silent(_) | Self::LinkFailed | Self::Unanswered | Self::Restarted | Self::Elsewhere => true,
            Self::Closed | Self::Misbehaved | Self::Revoked => false,
        }
    }
}

impl Envelope {
    /// The canonical bytes (postcard).
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("invariant: an envelope always encodes")
    }

    /// Reads bytes that came from another peer.
    ///
    /// # Errors
    /// A [`Violation`] if the bytes are too many, are no envelope, have bytes after it, or exceed a bound.
    pub fn decode(bytes: &[u8]) -> Result<Self, Violation> {
        if bytes.len() > MAX_ENVELOPE_BYTES {
            return Err(Violation::Undecodable);
        }
        let (envelope, rest) = postcard::take_from_bytes::<Self>(bytes).map_err(|_| Violation::Undecodable)?;
        if !rest.is_empty() {
            return Err(Violation::Undecodable);
        }
        envelope.body.validate()?;
        Ok(envelope)
    }
}

impl Body {
    fn validate(&self) -> Result<(), Violation> {
        match self {
            Self::Join(joiner) | Self::Introduce(joiner) => joiner.validate(),
            Self::Prepare { unreachable, .. } => sorted(unreachable),
            Self::Promise { promise, accepted, .. } => {
                promise.validate()?;
                accepted.as_ref().map_or(Ok(()), |accepted| accepted.validate())
            }
            Self::Propose { justified, promises, .. } => {
                justified.validate()?;
                validate_promises(promises)
            }
            Self::Install { proposal, certificate, contacts, chain, fork: _ } => {
                proposal.validate()?;
                validate_chain(chain)?;
                certificate.as_ref().map_or(Ok(()), Certificate::validate)?;
                at_most(MAX_MEMBERS, contacts)
            }
            Self::Confirm { echoes, .. } => validate_seals(echoes),
            Self::Outsider { contacts, chain, .. } => {
                validate_chain(chain)?;
                at_most(MAX_HINTS, contacts)
            }
            Self::Measured { links } => {
                let sorted = links.len() <= MAX_COSTED && links.windows(2).all(|pair| pair[0].0 < pair[1].0);
                let possible = links.iter().all(|(_, link)| link.is_up() && link.is_possible());
                if sorted && possible { Ok(()) } else { Err(Violation::MalformedLinks) }
            }
            Self::Refuse(_)
            | Self::Leave
            | Self::Suspect { .. }
            | Self::Nack { .. }
            | Self::Echo { .. }
            | Self::Accept { .. }
            | Self::Heartbeat { .. }
            | Self::Hello(_)
            | Self::Synced
            | Self::Digest { .. }
            | Self::Finished { .. }
            | Self::Contributes { .. }
            | Self::Goodbye => Ok(()),
        }
    }
}

fn sorted(peers: &[PeerId]) -> Result<(), Violation> {
    let sorted = peers.len() <= MAX_MEMBERS && peers.windows(2).all(|pair| pair[0] < pair[1]);
    if sorted { Ok(()) } else { Err(Violation::MalformedProposal) }
}

fn at_most(limit: usize, contacts: &[Contact]) -> Result<(), Violation> {
    if contacts.len() > limit {
        return Err(Violation::MalformedContact);
    }
    contacts.iter().try_for_each(Contact::validate)
}
