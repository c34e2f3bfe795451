//! What simulated peers send each other.

use starling_collective::{SegmentHeader, SegmentId};
use starling_topology::{Digest, Generation, ViewId};

use crate::contribution::Contributions;
use crate::network::Lane;

/// A message on a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// An encoded membership envelope.
    Control(Vec<u8>),
    /// A segment of a step in a view.
    Segment(Segment),
    /// "Send me your replicated state."
    StateAsked,
    /// The replicated state.
    State {
        /// The last committed step.
        step: u64,
        /// The digest after it.
        digest: Digest,
    },
    /// The sender's side of the connection has closed.
    Closed,
}

/// A segment and where it belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// The sender's generation.
    pub generation: Generation,
    /// The sender's view.
    pub view: ViewId,
    /// The step.
    pub step: u64,
    /// The segment's name.
    pub id: SegmentId,
    /// Its content.
    pub payload: Contributions,
    /// How many elements it stands for.
    pub elements: usize,
}

impl Message {
    /// The lane that it takes.
    pub fn lane(&self) -> Lane {
        match self {
            Self::Control(_) | Self::Closed => Lane::Control,
            Self::Segment(_) => Lane::Ring,
            Self::StateAsked | Self::State { .. } => Lane::State,
        }
    }

    /// How many bytes it takes on the wire, the state being `state_bytes` long.
    pub fn bytes(&self, state_bytes: u64) -> u64 {
        let length = match self {
            Self::Control(bytes) => bytes.len(),
            Self::Segment(segment) => SegmentHeader::BYTES + segment.elements * size_of::<f32>(),
            Self::StateAsked | Self::Closed => 1,
            Self::State { .. } => return state_bytes,
        };
        u64::try_from(length).unwrap_or(u64::MAX)
    }
}
