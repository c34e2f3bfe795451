//! What a carrier says to its leaves: a member that hands on parts of its share. Behind [`CarrierBody::Result`] comes the step's result record.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::leaf::{read, validate_ranges};
use super::{Contact, at_most};
use crate::error::Violation;
use crate::id::{Digest, Generation};
use crate::ledger::MAX_PART_RANGES;
use crate::view::lineage::Lineage;

/// Of so many members a leaf is told where they are, at most.
pub const MAX_TOLD: usize = 32;

/// Why a peer can't be this member's leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Error)]
pub enum AttachRefusalReason {
    /// It has as many as it takes.
    #[error("it has its {places} leaves already")]
    Full {
        /// How many it takes.
        places: u32,
    },
    /// It holds no state, is in no view, or no step is committed.
    #[error("it can't hand anything on now")]
    NotReady,
    /// It is none itself: a leaf has no leaves.
    #[error("it is a leaf itself")]
    NoMember,
    /// Who asks is in the view.
    #[error("it takes the one that asks for a member")]
    IsMember,
    /// Who asks has misbehaved, asks too often, or was too far behind.
    #[error("it let go the one that asks for what it did; it may ask again in {for_ms} ms")]
    Misbehaved {
        /// For how long, in milliseconds.
        for_ms: u64,
    },
    /// The run has committed its last step.
    #[error("the run has finished")]
    RunFinished,
    /// The other side's run differs.
    #[error("it is in another run")]
    OtherRun,
}

/// Why a carrier lets a leaf go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Error)]
pub enum DetachReason {
    /// The carrier is in no view, or holds no state, any more.
    #[error("it can't hand anything on any more")]
    NotReady,
    /// The carrier leaves the run.
    #[error("it leaves")]
    Leaves,
    /// Nothing was heard of the leaf for long.
    #[error("it heard nothing for too long")]
    Silent,
    /// The leaf is in the carrier's view by now.
    #[error("it takes the leaf for a member")]
    IsMember,
    /// The leaf is too far behind, or did not get the state in time.
    #[error("the leaf is too far behind")]
    TooFarBehind,
}

/// What a carrier says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CarrierBody {
    /// "You are my leaf. These are members: I may be gone one day."
    Attached {
        /// Where members are.
        #[serde(deserialize_with = "crate::message::bounded::list::<_, _, MAX_TOLD>")]
        contacts: Vec<Contact>,
    },
    /// "You are not, because ..."
    Refused(AttachRefusalReason),
    /// "These are members by now."
    Members {
        /// Where members are.
        #[serde(deserialize_with = "crate::message::bounded::list::<_, _, MAX_TOLD>")]
        contacts: Vec<Contact>,
    },
    /// "The results that come next are of the steps after this one."
    Start {
        /// Counts the starts.
        number: u64,
        /// The step.
        step: u64,
        /// The lineage of the state after it.
        lineage: Lineage,
        /// My view's generation, to ask for that state with.
        generation: Generation,
        /// Whether you have to load that state: what you hold is another one.
        loads: bool,
    },
    /// "Compute the gradient over these samples of my share."
    Work {
        /// To name the answer with.
        number: u64,
        /// The step.
        step: u64,
        /// Its epoch.
        epoch: u64,
        /// The samples, as positions in the epoch's order.
        #[serde(deserialize_with = "crate::message::bounded::list::<_, _, MAX_PART_RANGES>")]
        ranges: Vec<Range<u32>>,
    },
    /// "This step is committed." Its record follows.
    Result {
        /// The step.
        step: u64,
        /// How long the record is.
        bytes: u64,
    },
    /// "My state after this step has another digest than yours." A start follows.
    Differs {
        /// The step.
        step: u64,
        /// Mine.
        digest: Digest,
    },
    /// "I live."
    Alive,
    /// "You are not my leaf any more."
    Lost(DetachReason),
    /// "The run is complete with the state after this step."
    Ended {
        /// The last step.
        step: u64,
        /// That state's digest.
        digest: Digest,
    },
}

impl CarrierBody {
    /// The canonical bytes (postcard).
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("invariant: a message always encodes")
    }

    /// Reads bytes that came from another peer.
    ///
    /// # Errors
    /// A [`Violation`] if the bytes are too many, are no such message, have bytes after it, or exceed a bound.
    pub fn decode(bytes: &[u8]) -> Result<Self, Violation> {
        let body: Self = read(bytes)?;
        match &body {
            Self::Attached { contacts } | Self::Members { contacts } => at_most(MAX_TOLD, contacts)?,
            Self::Work { ranges, .. } => validate_ranges(ranges)?,
            Self::Refused(_)
            | Self::Start { .. }
            | Self::Result { .. }
            | Self::Differs { .. }
            | Self::Alive
            | Self::Lost(_)
            | Self::Ended { .. } => {}
        }
        Ok(body)
    }
}

#[cfg(test)]
mod tests {
    use super::super::leaf::tests::check;
    use super::super::{MAX_ADDRESS_BYTES, MAX_ADDRESSES};
    use super::*;
    use crate::id::PeerId;
    use crate::message::leaf::MAX_LEAF_BODY_BYTES;

    fn contact(byte: u8) -> Contact {
        Contact { peer: PeerId([byte; 32]), addresses: vec!["x".repeat(MAX_ADDRESS_BYTES); MAX_ADDRESSES] }
    }

    fn all() -> Vec<CarrierBody> {
        let start = |loads| CarrierBody::Start {
            number: 2,
            step: 40,
            lineage: Lineage::NONE,
            generation: Generation(4),
            loads,
        };
        vec![
            CarrierBody::Attached { contacts: vec![] },
            CarrierBody::Refused(AttachRefusalReason::Misbehaved { for_ms: 7 }),
            CarrierBody::Refused(AttachRefusalReason::NoMember),
            CarrierBody::Members { contacts: vec![contact(1)] },
            start(true),
            start(false),
            CarrierBody::Work { number: 9, step: 41, epoch: 3, ranges: vec![0..4, 9..11] },
            CarrierBody::Result { step: 41, bytes: u64::MAX },
            CarrierBody::Differs { step: 41, digest: Digest([5; 32]) },
            CarrierBody::Alive,
            CarrierBody::Lost(DetachReason::Leaves),
            CarrierBody::Ended { step: 50, digest: Digest([5; 32]) },
        ]
    }

    #[test]
    fn messages_read_back_and_others_are_refused() {
        for body in all() {
            check(&body, &body.encode(), CarrierBody::decode);
        }
        assert_eq!(CarrierBody::decode(&[250]), Err(Violation::Undecodable));
    }

    #[test]
    fn contacts_and_ranges_have_bounds() {
        let decode = |contacts| CarrierBody::decode(&CarrierBody::Attached { contacts }.encode()).map(|_| ());
        let most: Vec<Contact> = (0..32).map(contact).collect();
        assert!(CarrierBody::Attached { contacts: most.clone() }.encode().len() <= MAX_LEAF_BODY_BYTES);
        assert_eq!(decode(most.clone()), Ok(()));
        assert_eq!(decode((0..33).map(contact).collect()), Err(Violation::MalformedContact));
        assert_eq!(decode((0..34).map(contact).collect()), Err(Violation::Undecodable));
        let long = Contact { addresses: vec!["x".repeat(MAX_ADDRESS_BYTES + 1)], ..contact(1) };
        assert_eq!(decode(vec![long]), Err(Violation::MalformedContact));
        let work = CarrierBody::Work { number: 1, step: 1, epoch: 0, ranges: vec![0..1, 3..3] };
        assert_eq!(CarrierBody::decode(&work.encode()), Err(Violation::MalformedWork));
    }
}
