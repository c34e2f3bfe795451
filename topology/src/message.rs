//! What members say to each other. The only wire types of this crate.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::error::Violation;
use crate::id::{Digest, Generation, PeerId, RunId, ViewId};
use crate::proposal::Proposal;

/// The largest view. Bounds every message.
pub const MAX_MEMBERS: usize = 128;
/// The most addresses a contact may list.
pub const MAX_ADDRESSES: usize = 8;
/// The longest address, in bytes.
pub const MAX_ADDRESS_BYTES: usize = 160;
/// The longest encoded envelope, in bytes: a proposal for the largest view, every contact full.
pub const MAX_ENVELOPE_BYTES: usize = 256 * 1024;

/// Where a peer can be reached. Addresses are opaque here; the driver knows how to dial them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contact {
    /// Whose addresses they are.
    pub peer: PeerId,
    /// In the order in which they should be tried.
    pub addresses: Vec<String>,
}

impl Contact {
    /// Whether it lists no more and no longer addresses than a contact may.
    pub fn is_bounded(&self) -> bool {
        self.validate().is_ok()
    }

    fn validate(&self) -> Result<(), Violation> {
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
    /// What it says.
    pub body: Body,
}

/// What a message says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Body {
    /// "I want to be a member; here is where to reach me."
    Join(Contact),
    /// "Ask this member instead: it proposes the next view."
    Redirect(Contact),
    /// "You can't be a member, because ..."
    Refuse(Refusal),
    /// "I want to leave in order."
    Leave,
    /// "Complete this step, then change to this view."
    Propose(Proposal),
    /// "I stand at the proposal's boundary with this state and am ready for this view."
    Accept {
        /// The proposed view.
        view: ViewId,
    },
    /// "All have accepted: go on in this view."
    Install {
        /// The accepted view.
        view: ViewId,
    },
    /// "I live."
    Heartbeat,
    /// "A member is lost, so this run can't go on."
    Lost {
        /// The lost member.
        peer: PeerId,
        /// How that was seen.
        evidence: Evidence,
    },
    /// "I have committed the run's last step and hold this state."
    Finished {
        /// The last step.
        step: u64,
        /// The digest of the replicated state after it.
        digest: Digest,
    },
    /// "I have heard everybody finish and need nothing more."
    Goodbye,
}

/// Why a peer can't be a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Error)]
pub enum Refusal {
    /// The run has committed its last step.
    #[error("the run has finished")]
    RunFinished,
    /// The view is as large as it may be.
    #[error("the run already has its {max_members} members")]
    Full {
        /// The largest allowed view.
        max_members: u32,
    },
    /// A member with this identity is there already.
    #[error("a member with this identity is in the run already")]
    AlreadyMember,
    /// The other side's run differs.
    #[error("it is in another run")]
    OtherRun,
    /// It was offered a view, and did not accept in time.
    #[error(
        "this peer had not loaded the state and accepted its view after {limit_ms} ms, for which the members stood \
         still: join over a faster link, or found the run with a longer max_stall"
    )]
    TooSlow {
        /// How long the members waited, in milliseconds.
        limit_ms: u64,
    },
    /// The run has never begun, and never will.
    #[error("its founder left before the first step")]
    Withdrawn,
}

/// How a loss was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Error)]
pub enum Evidence {
    /// Its connection closed without a leave.
    #[error("its connection closed without a leave")]
    Closed,
    /// It said nothing for this long.
    #[error("it was silent for {} ms", .0.as_millis())]
    Silent(Duration),
    /// Its ring link failed.
    #[error("its ring link failed")]
    LinkFailed,
    /// It sent something that no correct peer sends.
    #[error("it sent something that no correct peer sends (its name is in the log of the peer that saw it)")]
    Misbehaved,
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
        match &envelope.body {
            Body::Join(contact) | Body::Redirect(contact) => contact.validate()?,
            Body::Propose(proposal) => {
                proposal.view.validate()?;
                if proposal.contacts.len() > MAX_MEMBERS {
                    return Err(Violation::MalformedContact);
                }
                proposal.contacts.iter().try_for_each(Contact::validate)?;
            }
            Body::Refuse(_)
            | Body::Leave
            | Body::Accept { .. }
            | Body::Install { .. }
            | Body::Heartbeat
            | Body::Lost { .. }
            | Body::Finished { .. }
            | Body::Goodbye => {}
        }
        Ok(envelope)
    }
}
