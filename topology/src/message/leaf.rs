//! What a leaf says to its carrier: a peer that takes part through a member, and is none.
//!
//! Behind [`LeafBody::Gradient`] come its numbers, which no message has room for: `elements` little-endian `f32`. How many there may be the
//! receiver knows before it reads one.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::error::Violation;
use crate::id::{Digest, RunId};
use crate::ledger::{MAX_BATCH_SIZE, MAX_PART_RANGES};
use crate::view::lineage::Lineage;

/// The longest encoded message between a leaf and its carrier, in bytes: [`MAX_TOLD`](super::carrier::MAX_TOLD) contacts, each full.
pub const MAX_LEAF_BODY_BYTES: usize = 64 * 1024;

/// The state that a leaf holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeafProgress {
    /// The step after which it is.
    pub step: u64,
    /// Its lineage.
    pub lineage: Lineage,
}

/// Why a leaf does not bring what it was given to compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Error)]
pub enum DeclineReason {
    /// The step's result came first.
    #[error("the step was over before")]
    Over,
    /// It came to numbers that no contribution may have, or could not be computed.
    #[error("it could not compute it")]
    Unable,
}

/// What a leaf says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeafBody {
    /// "Let me take part through you." First, and once on a stream.
    Attach {
        /// The run.
        run: RunId,
        /// What I hold; `None`: nothing.
        progress: Option<LeafProgress>,
    },
    /// "This is the mean gradient over the samples that you gave me, and behind it the loss and other figures."
    Gradient {
        /// Of the work.
        number: u64,
        /// Its step.
        step: u64,
        /// How many samples that is the mean of.
        weight: u64,
        /// Which samples, as positions in the epoch's order.
        #[serde(deserialize_with = "crate::message::bounded::list::<_, _, MAX_PART_RANGES>")]
        ranges: Vec<Range<u32>>,
        /// How many numbers follow.
        elements: u64,
    },
    /// "You get nothing for this work from me."
    Declines {
        /// Of the work.
        number: u64,
        /// Why.
        reason: DeclineReason,
    },
    /// "I hold the state after this step."
    Applied {
        /// Of the start that led there.
        start: u64,
        /// The step.
        step: u64,
        /// The state's digest, after steps of which it is compared.
        digest: Option<Digest>,
    },
    /// "I live."
    Alive,
    /// "I need you no more."
    Detach,
}

impl LeafBody {
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
            Self::Gradient { ranges, .. } => validate_ranges(ranges)?,
            Self::Attach { .. } | Self::Declines { .. } | Self::Applied { .. } | Self::Alive | Self::Detach => {}
        }
        Ok(body)
    }
}

/// All of `bytes` as one message.
pub(super) fn read<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Violation> {
    if bytes.len() > MAX_LEAF_BODY_BYTES {
        return Err(Violation::Undecodable);
    }
    let (body, rest) = postcard::take_from_bytes::<T>(bytes).map_err(|_| Violation::Undecodable)?;
    if rest.is_empty() { Ok(body) } else { Err(Violation::Undecodable) }
}

/// Ranges of positions: some, ascending and apart, and no more samples than a batch may have.
pub(super) fn validate_ranges(ranges: &[Range<u32>]) -> Result<(), Violation> {
    let is_bounded = (1..=MAX_PART_RANGES).contains(&ranges.len());
    let is_ascending = ranges.windows(2).all(|pair| pair[0].end <= pair[1].start);
    if !is_bounded || !is_ascending || ranges.iter().any(Range::is_empty) {
        return Err(Violation::MalformedWork);
    }
    let samples: u64 = ranges.iter().map(|range| u64::from(range.end - range.start)).sum();
    if samples <= u64::from(MAX_BATCH_SIZE) { Ok(()) } else { Err(Violation::MalformedWork) }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn all() -> Vec<LeafBody> {
        let progress = Some(LeafProgress { step: 7, lineage: Lineage::NONE });
        vec![
            LeafBody::Attach { run: RunId([3; 32]), progress: None },
            LeafBody::Attach { run: RunId([3; 32]), progress },
            LeafBody::Gradient { number: 9, step: 8, weight: 6, ranges: vec![0..4, 9..11], elements: u64::MAX },
            LeafBody::Declines { number: 9, reason: DeclineReason::Unable },
            LeafBody::Applied { start: 1, step: 8, digest: Some(Digest([1; 32])) },
            LeafBody::Alive,
            LeafBody::Detach,
        ]
    }

    /// Puts one message to whatever may come over the wire.
    pub(in crate::message) fn check<T: PartialEq + std::fmt::Debug>(
        body: &T,
        bytes: &[u8],
        decode: impl Fn(&[u8]) -> Result<T, Violation>,
    ) {
        assert_eq!(decode(bytes).as_ref(), Ok(body));
        for end in 0..bytes.len() {
            assert_eq!(decode(&bytes[..end]), Err(Violation::Undecodable), "{body:?} cut at {end}");
        }
        assert_eq!(decode(&[bytes, &[0]].concat()), Err(Violation::Undecodable), "{body:?} and more");
        // Whatever comes of other bytes, it is a message or a violation, and takes no memory on their word.
        for at in 0..bytes.len() {
            for flip in [1, 0x80, 0xff] {
                let mut flipped = bytes.to_vec();
                flipped[at] ^= flip;
                let _ = decode(&flipped);
            }
        }
    }

    #[test]
    fn messages_read_back_and_others_are_refused() {
        for body in all() {
            check(&body, &body.encode(), LeafBody::decode);
        }
        assert_eq!(
            LeafBody::decode(&[9]),
            Err(Violation::Undecodable),
            "a message that there is not: it claims a vote"
        );
        assert_eq!(LeafBody::decode(&vec![4; MAX_LEAF_BODY_BYTES + 1]), Err(Violation::Undecodable));
    }

    #[test]
    fn ranges_are_ascending_apart_and_few() {
        let decode = |ranges: Vec<Range<u32>>| {
            let body = LeafBody::Gradient { number: 1, step: 1, weight: 1, ranges, elements: 1 };
            LeafBody::decode(&body.encode()).map(|_| ())
        };
        assert_eq!(decode(vec![0..1, 1..2, 7..9]), Ok(()));
        let backwards = Range { start: 4, end: 3 };
        let empty = vec![0..1, 3..3];
        for ranges in [vec![], vec![backwards], empty, vec![0..5, 4..6], vec![5..6, 0..1], vec![0..9, 9..u32::MAX]] {
            assert_eq!(decode(ranges.clone()), Err(Violation::MalformedWork), "{ranges:?}");
        }
        let many = |count: u32| (0..count).map(|at| 2 * at..2 * at + 1).collect::<Vec<_>>();
        let most = u32::try_from(MAX_PART_RANGES).expect("few");
        assert_eq!(decode(many(most)), Ok(()));
        assert_eq!(decode(many(most + 1)), Err(Violation::MalformedWork));
        assert_eq!(decode(many(most + 2)), Err(Violation::Undecodable));
    }
}
