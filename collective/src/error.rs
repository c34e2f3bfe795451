//! What a peer can do wrong in a collective.

use starling_topology::Rank;
use thiserror::Error;

use crate::segment::SegmentId;

/// A segment that no correct peer sends. The sender is at fault, not us: drop its connection and abort the operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Violation {
    /// The header's phase is unknown or a reserved byte is not zero.
    #[error("sent a segment header with phase {phase} and reserved bytes {reserved:?}: is it another wire version?")]
    MalformedHeader {
        /// The phase byte.
        phase: u8,
        /// The bytes that must be zero.
        reserved: [u8; 3],
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
    /// Only the previous rank of the ring may send to us.
    #[error("rank {} sent {segment} to rank {}, which receives only from rank {}", .from.0, .rank.0, .previous.0)]
    WrongSender {
        /// Who sent it.
        from: Rank,
        /// Who got it.
        rank: Rank,
        /// Who should have sent it.
        previous: Rank,
        /// The segment.
        segment: SegmentId,
    },
    /// The layout has no such segment.
    #[error("sent {segment}, which the layout does not have: do the layouts differ?")]
    OutOfBounds {
        /// The segment.
        segment: SegmentId,
    },
    /// The schedule never brings this chunk to this rank in this phase.
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
