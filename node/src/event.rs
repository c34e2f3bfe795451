//! What the network's tasks tell the event loop.

use libp2p::Stream;
use starling_topology::{Envelope, PeerId, ViewId};
use starling_train::{ReplicatedState, ResultRecord};

use crate::data::Transport;

/// One thing that happened on a stream.
#[derive(Debug)]
pub(crate) enum NetworkEvent {
    /// A peer opened its control stream to us.
    ControlOpened { peer: PeerId },
    /// A message came.
    Received { from: PeerId, envelope: Box<Envelope> },
    /// A peer's control stream ended, after its last message.
    ControlClosed { peer: PeerId },
    /// Our messages don't reach a peer.
    LinkFailed { peer: PeerId, link: u64 },
    /// A peer sent what no correct peer sends.
    Misbehaved { peer: PeerId, violation: String },
    /// A peer opened its ring stream for a view.
    RingOpened { peer: PeerId, view: ViewId, stream: Stream },
    /// Both links of a ring are there.
    RingLinked { view: ViewId, from_previous: Transport, to_next: Transport },
    /// A ring operation failed because of a neighbour.
    RingFailed { peer: PeerId, view: ViewId, failure: RingFailure },
    /// A neighbour whose ring link failed has had the time to say why.
    RingSuspected { peer: PeerId, view: ViewId },
    /// The result of our fetch of this number is here, or why not.
    ResultFetched { number: u64, result: Result<ResultRecord, String> },
    /// The state of our sync of this number is here, or why not.
    StateFetched { number: u64, state: Result<Box<ReplicatedState>, String> },
}

/// Why a ring operation failed.
#[derive(Debug)]
pub(crate) enum RingFailure {
    /// The stream broke, or could not be opened.
    Broken(String),
    /// The neighbour sent what no correct peer sends.
    Misbehaved(String),
}
