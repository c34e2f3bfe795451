//! The unit of IO: its name and its wire header; how a buffer is cut into such ([`layout`]), and what one may hold ([`limits`]).

pub mod layout;
pub mod limits;

use std::fmt;
use std::ops::Range;

use starling_topology::Rank;

use crate::codec::Codec;
use crate::error::Violation;
use crate::segment::layout::Layout;

/// Which half of the all-reduce a segment belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Contributions are added, on their way to the chunk's owner.
    ReduceScatter,
    /// The owner's result is copied, on its way to all.
    AllGather,
}

/// One segment of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId {
    /// The bucket.
    pub bucket: u32,
    /// The half of the all-reduce.
    pub phase: Phase,
    /// The chunk, counted as ranks are: a plan has one for each rank at most.
    pub chunk: Rank,
    /// The position within the chunk, in segments.
    pub segment: u32,
}

impl SegmentId {
    /// Whether it has the same elements as `other`, perhaps in the other half of the all-reduce.
    pub fn is_beside(&self, other: &Self) -> bool {
        (self.bucket, self.chunk, self.segment) == (other.bucket, other.chunk, other.segment)
    }
}

impl fmt::Display for SegmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phase = match self.phase {
            Phase::ReduceScatter => "reduce-scatter",
            Phase::AllGather => "all-gather",
        };
        write!(f, "{phase} segment {} of chunk {} of bucket {}", self.segment, self.chunk.0, self.bucket)
    }
}

/// One all-reduce of a whole flat buffer. A key is never used twice within a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationKey {
    /// The step whose gradients are averaged.
    pub step: u64,
    /// Counts the tries of one step.
    pub attempt: u32,
}

/// What precedes a segment's payload on the wire. The run and the view are bound once per stream, not per segment.
///
/// ```text
///   byte  0        8         12       16      17      18         20      24        28              32
///         | step   | attempt | bucket | phase | codec | reserved | chunk | segment | payload bytes |    little-endian
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SegmentHeader {
    /// The operation.
    pub operation: OperationKey,
    /// The segment.
    pub segment: SegmentId,
    /// How the payload is encoded.
    pub codec: Codec,
    /// How many bytes follow.
    pub payload_bytes: u32,
}

impl SegmentHeader {
    /// The length of the encoded header.
    pub const BYTES: usize = 32;

    /// The header of `segment` in `layout`, its payload plain `f32`; `None` if there is no such segment.
    pub fn new(operation: OperationKey, segment: SegmentId, layout: &Layout) -> Option<Self> {
        Self::encoded(operation, segment, layout, Codec::F32)
    }

    /// The header of `segment` in `layout` where `codec` was agreed; `None` if there is no such segment.
    pub fn encoded(operation: OperationKey, segment: SegmentId, layout: &Layout, codec: Codec) -> Option<Self> {
        let range = layout.range(&segment)?;
        let codec = layout.codec_of(&range, codec);
        let payload_bytes = payload_bytes(codec, &range);
        Some(Self { operation, segment, codec, payload_bytes })
    }

    /// The wire form.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0..8].copy_from_slice(&self.operation.step.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.operation.attempt.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.segment.bucket.to_le_bytes());
        bytes[16] = match self.segment.phase {
            Phase::ReduceScatter => 0,
            Phase::AllGather => 1,
        };
        bytes[17] = self.codec.tag();
        bytes[20..24].copy_from_slice(&self.segment.chunk.0.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.segment.segment.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.payload_bytes.to_le_bytes());
        bytes
    }

    /// Reads a header that came from another peer. Check it with [`Self::range_in`] before reading the payload.
    ///
    /// # Errors
    /// [`Violation::MalformedHeader`] if the phase or the codec is unknown, or a reserved byte is not zero.
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Result<Self, Violation> {
        let [phase, codec, reserved @ ..] = field::<4>(bytes, 16);
        let malformed = Violation::MalformedHeader { phase, codec, reserved };
        let phase = match phase {
            0 => Phase::ReduceScatter,
            1 => Phase::AllGather,
            _ => return Err(malformed),
        };
        let codec = Codec::from_tag(codec).filter(|_| reserved == [0; 2]).ok_or(malformed)?;
        let operation = OperationKey { step: u64::from_le_bytes(field(bytes, 0)), attempt: word(bytes, 8) };
        let (bucket, chunk, segment) = (word(bytes, 12), Rank(word(bytes, 20)), word(bytes, 24));
        let segment = SegmentId { bucket, phase, chunk, segment };
        Ok(Self { operation, segment, codec, payload_bytes: word(bytes, 28) })
    }

    /// The elements that the payload holds, as positions in the flat buffer, where `codec` was agreed. Bounds what a
    /// receiver reads.
    ///
    /// # Errors
    /// [`Violation::OutOfBounds`] if the layout has no such segment, [`Violation::WrongCodec`] if its payload is not encoded
    /// as agreed, [`Violation::PayloadLength`] if the declared length is not the segment's.
    pub fn range_in(&self, layout: &Layout, codec: Codec) -> Result<Range<usize>, Violation> {
        let segment = self.segment;
        let range = layout.range(&segment).ok_or(Violation::OutOfBounds { segment })?;
        let codec = layout.codec_of(&range, codec);
        if self.codec != codec {
            return Err(Violation::WrongCodec { segment, declared: self.codec, expected: codec });
        }
        let (declared, expected) = (self.payload_bytes, payload_bytes(codec, &range));
        if declared == expected { Ok(range) } else { Err(Violation::PayloadLength { segment, declared, expected }) }
    }
}

fn payload_bytes(codec: Codec, range: &Range<usize>) -> u32 {
    u32::try_from(codec.payload_bytes(range.len())).expect("invariant: a layout's segments have fewer than 2^32 bytes")
}

fn field<const N: usize>(bytes: &[u8; SegmentHeader::BYTES], at: usize) -> [u8; N] {
    std::array::from_fn(|index| bytes[at + index])
}

fn word(bytes: &[u8; SegmentHeader::BYTES], at: usize) -> u32 {
    u32::from_le_bytes(field(bytes, at))
}
