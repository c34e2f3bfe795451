//! What a peer can do wrong in a collective.

use starling_topology::Rank;
use thiserror::Error;

use crate::codec::Codec;
use crate::segment::{OperationKey, SegmentId};
use crate::session::workspace::SegmentViolation;

/// A segment that no correct peer sends. The sender is at fault, not us: drop its connection and abort the operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Violation {
    /// The header's phase or codec is unknown, or a reserved byte is not zero.
    #[error(
        "sent a segment header with phase {phase}, codec {codec}, reserved {reserved:?}: is it another wire version?"
    )]
    MalformedHeader {
        /// The phase byte.
        phase: u8,
        /// The codec byte.
        codec: u8,
        /// The bytes that must be zero.
        reserved: [u8; 2],
    },
    /// The payload is not as long as the layout says.
    #[error("declared {declared} payload bytes for {segment}, which has {expected}: do the layouts differ?")]
    PayloadLength {
        /// The segment.
        segment: SegmentId,
        /// What the header says.
        declared: u32,
        /// What the layout says.
        expected: u32,
    },
    /// The segment is one of another operation.
    #[error("sent a segment of step {}, try {}", .operation.step, .operation.attempt)]
    OtherOperation {
        /// That operation.
        operation: OperationKey,
    },
    /// Another number of bytes came than the header says.
    #[error("declared {declared} payload bytes for {segment}, and sent {came}")]
    Incomplete {
        /// The segment.
        segment: SegmentId,
        /// What the header says.
        declared: u32,
        /// What came.
        came: usize,
    },
    /// The payload has a value that no correct peer sends.
    #[error(transparent)]
    BadSegment(#[from] SegmentViolation),
    /// The payload is encoded in another way than was agreed.
    #[error("sent {segment} as {declared}, where {expected} was agreed")]
    WrongCodec {
        /// The segment.
        segment: SegmentId,
        /// What the header says.
        declared: Codec,
        /// What was agreed.
        expected: Codec,
    },
    /// The plan does not bring this segment from this rank.
    #[error("rank {} sent {segment} to rank {}, which the plan does not bring from there", .from.0, .rank.0)]
    WrongSender {
        /// Who sent it.
        from: Rank,
        /// Who got it.
        rank: Rank,
        /// The segment.
        segment: SegmentId,
    },
    /// The layout has no such segment.
    #[error("sent {segment}, which the layout does not have: do the layouts differ?")]
    OutOfBounds {
        /// The segment.
        segment: SegmentId,
    },
    /// The plan never brings this chunk to this rank in this phase.
    #[error("sent {segment} to rank {}, where that chunk's journey begins", .rank.0)]
    Impossible {
        /// Who got it.
        rank: Rank,
        /// The segment.
        segment: SegmentId,
    },
    /// A result came before this rank's contribution to it went out.
    #[error("sent {segment} to rank {} before that rank had contributed to it", .rank.0)]
    Premature {
        /// Who got it.
        rank: Rank,
        /// The segment.
        segment: SegmentId,
    },
    /// The segment was received before.
    #[error("sent {segment} to rank {} twice", .rank.0)]
    Duplicate {
        /// Who got it.
        rank: Rank,
        /// The segment.
        segment: SegmentId,
    },
}

impl Violation {
    /// Whether a correct peer may do that: one which was let in by a liar, or has slept, is at another step, and does as it should there.
    pub fn is_blameless(&self) -> bool {
        matches!(self, Self::OtherOperation { .. })
    }
}
