//! What simulated peers send each other.

use std::cell::OnceCell;
use std::fmt;
use std::rc::Rc;

use starling_collective::SegmentHeader;
use starling_engine::leaf::part_gradient::PartGradient;
use starling_topology::{CarrierBody, Digest, Envelope, Generation, LeafBody, Lineage, ViewId, Violation};

use crate::steps::buffer::Payload;
use crate::steps::state::{ResultRecord, State};

/// Each lane between two peers is a connection of its own: it keeps its order, and it closes alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// Membership messages.
    Control,
    /// Segments.
    Ring,
    /// Results and replicated state, for those who need them.
    State,
    /// What leaves and their carriers say to each other.
    Leaf,
}

impl Lane {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Control, Self::Ring, Self::State, Self::Leaf];
    /// Those that members have between them.
    pub const OF_MEMBERS: [Self; 3] = [Self::Control, Self::Ring, Self::State];
}

/// A message on a link.
#[derive(Debug, Clone)]
pub enum Message {
    /// A membership envelope.
    Control(Rc<Sealed>),
    /// A segment of a step in a view.
    Segment(Box<Segment>),
    /// A question with a number, as on a stream of its own.
    Asked(u64, Request),
    /// What the question of that number is answered with.
    Answered(u64, Reply),
    /// A leaf's encoded message, and the numbers behind it.
    OfLeaf(Vec<u8>, Option<LeafGradient>),
    /// A carrier's encoded message, and the record behind it.
    OfCarrier(Vec<u8>, Option<Rc<ResultRecord>>),
}

/// A gradient that a leaf sends: what stands for it, and what is to be seen of its numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LeafGradient {
    /// See [`gradient`](crate::steps::contribution::gradient).
    pub sum: u64,
    /// How many numbers there are.
    pub elements: u64,
    /// The largest of them.
    pub largest: f32,
}

impl PartGradient for LeafGradient {
    fn elements(&self) -> u64 {
        self.elements
    }

    fn first_bad(&self, most: f32) -> Option<(u64, f32)> {
        (self.largest.is_nan() || self.largest > most).then_some((0, self.largest))
    }
}

/// What a peer asks another for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// The averaged result of this step.
    Result(u64),
    /// The list of the chunks of the state after a step, with which the view of a generation goes on.
    Snapshot(Generation, u64),
    /// A chunk of that snapshot.
    Chunk(Snapshot, u32),
}

/// What it gets.
#[derive(Debug, Clone)]
pub enum Reply {
    /// A result.
    Result(Rc<ResultRecord>),
    /// What a snapshot consists of.
    Snapshot(Snapshot),
    /// A chunk.
    Chunk(Chunk),
    /// The beginning of so many bytes.
    Begins(u64),
    /// "I will have what you asked for."
    Later,
    /// "I don't have it, and won't."
    NotHeld,
}

/// An encoded envelope. In a large view hundreds get the same long one: it is read once for all of them.
#[derive(Debug)]
pub struct Sealed {
    bytes: Vec<u8>,
    read: OnceCell<Result<Envelope, Violation>>,
}

impl Sealed {
    /// An envelope as it goes over the wire.
    pub fn new(envelope: &Envelope) -> Rc<Self> {
        Rc::new(Self { bytes: envelope.encode(), read: OnceCell::new() })
    }

    /// What a receiver reads.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn open(self: Rc<Self>) -> Result<Envelope, Violation> {
        match Rc::try_unwrap(self) {
            Ok(only) => only.read.into_inner().unwrap_or_else(|| Envelope::decode(&only.bytes)),
            Err(shared) => shared.read().clone(),
        }
    }

    /// What it says.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(&self) -> &Result<Envelope, Violation> {
        self.read.get_or_init(|| Envelope::decode(&self.bytes))
    }
}

/// A state that is on offer, as its manifest describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Snapshot {
    /// The step after which it was taken.
    pub step: u64,
    /// Its lineage.
    pub lineage: Lineage,
    /// The digest of the whole.
    pub digest: Digest,
    /// How many chunks it has.
    pub chunks: u32,
}

/// A chunk of a snapshot.
#[derive(Debug, Clone)]
pub struct Chunk {
    /// The snapshot that it is said to belong to.
    pub of: Snapshot,
    /// Which chunk it is.
    pub index: u32,
    /// What it is a chunk of.
    pub state: Rc<State>,
    /// Whether its bytes still hash to what the manifest says.
    pub intact: bool,
}

/// A segment and where it belongs.
#[derive(Debug, Clone)]
pub struct Segment {
    /// The sender's generation.
    pub generation: Generation,
    /// The sender's view.
    pub view: ViewId,
    /// Its header.
    pub header: SegmentHeader,
    /// Its content.
    pub payload: Payload,
}

impl Segment {
    /// The step whose gradients it is of.
    pub fn step(&self) -> u64 {
        self.header.operation.step
    }
}

impl Message {
    /// The lane that it takes.
    pub fn lane(&self) -> Lane {
        match self {
            Self::Control(_) => Lane::Control,
            Self::Segment(_) => Lane::Ring,
            Self::Asked(..) | Self::Answered(..) => Lane::State,
            Self::OfLeaf(..) | Self::OfCarrier(..) => Lane::Leaf,
        }
    }

    /// How many bytes it takes on the wire, a result having `result_bytes` and a chunk of a state `chunk_bytes`.
    pub fn bytes(&self, result_bytes: u64, chunk_bytes: u64) -> u64 {
        let length = match self {
            Self::Control(sealed) => sealed.bytes.len(),
            Self::Segment(segment) => SegmentHeader::BYTES + segment.payload.bytes.len(),
            Self::OfLeaf(bytes, gradient) => {
                let numbers = gradient.map_or(0, |gradient| gradient.elements.min(1 << 20) * 4);
                return numbers + bytes.len() as u64;
            }
            Self::OfCarrier(bytes, None) => bytes.len(),
            Self::OfCarrier(bytes, Some(_)) => return result_bytes + bytes.len() as u64,
            Self::Answered(_, Reply::Result(_)) => return result_bytes,
            Self::Answered(_, Reply::Chunk(_)) => return chunk_bytes,
            Self::Answered(_, Reply::Snapshot(_)) => 64,
            Self::Asked(..) | Self::Answered(_, Reply::Begins(_) | Reply::Later | Reply::NotHeld) => 16,
        };
        u64::try_from(length).unwrap_or(u64::MAX)
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Control(sealed) => match sealed.read() {
                Ok(envelope) => write!(f, "generation {}: {:?}", envelope.generation, envelope.body),
                Err(violation) => violation.fmt(f),
            },
            Self::Segment(segment) => {
                let SegmentHeader { operation, segment: id, .. } = segment.header;
                write!(f, "generation {}, step {}: {id}", segment.generation, operation.step)
            }
            Self::Asked(_, Request::Result(step)) => write!(f, "asks for the result of step {step}"),
            Self::Asked(_, Request::Snapshot(_, step)) => write!(f, "asks for the state of step {step}"),
            Self::Asked(_, Request::Chunk(snapshot, index)) => {
                write!(f, "asks for chunk {index} of the state of step {}", snapshot.step)
            }
            Self::Answered(_, Reply::Result(record)) => write!(f, "result of step {}", record.step),
            Self::Answered(_, Reply::Snapshot(snapshot)) => write!(f, "offers the state of step {}", snapshot.step),
            Self::Answered(_, Reply::Chunk(chunk)) => {
                let intact = if chunk.intact { "" } else { ", rotten" };
                write!(f, "chunk {} of the state of step {}{intact}", chunk.index, chunk.of.step)
            }
            Self::Answered(_, Reply::Begins(bytes)) => write!(f, "begins to send {bytes} bytes"),
            Self::Answered(_, Reply::Later) => f.write_str("will have it"),
            Self::Answered(_, Reply::NotHeld) => f.write_str("does not have it"),
            Self::OfLeaf(bytes, _) => match LeafBody::decode(bytes) {
                Ok(body) => write!(f, "{body:?}"),
                Err(violation) => write!(f, "{violation}"),
            },
            Self::OfCarrier(bytes, _) => match CarrierBody::decode(bytes) {
                Ok(body) => write!(f, "{body:?}"),
                Err(violation) => write!(f, "{violation}"),
            },
        }
    }
}
