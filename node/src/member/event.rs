//! What the network's tasks tell the event loop.

use libp2p::Stream;
use starling_links::{LinkFailure, Transport};
use starling_run::{ReplicatedState, ResultRecord};
use starling_topology::plan::Link;
use starling_topology::{Envelope, PeerId, StallReport, ViewId};

use crate::error::NodeError;

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
    /// A peer opened its stream for segments of a view.
    SegmentsOpened { peer: PeerId, view: ViewId, stream: Stream },
    /// All links are there that the view's plan needs.
    Linked { view: ViewId, plan: String, reason: String, from: Vec<(PeerId, Transport)>, to: Vec<(PeerId, Transport)> },
    /// A reduction failed because of a neighbour.
    ReductionFailed { peer: PeerId, view: ViewId, failure: LinkFailure },
    /// Nothing moves in this member's reduction, and this is what it misses first.
    Awaits { view: ViewId, awaited: StallReport },
    /// Links were measured.
    Measured { links: Vec<(PeerId, Link)> },
    /// The result of our fetch of this number is here, or why not.
    ResultFetched { number: u64, result: Result<ResultRecord, String> },
    /// The state of our sync of this number is here, or why not.
    StateFetched { number: u64, state: Result<Box<ReplicatedState>, String> },
    /// What is missing of this machine's data can't be had.
    DataMissing { error: NodeError },
}
