//! What a carrier's machine is told, and what it asks.

use std::ops::Range;
use std::time::Duration;

use starling_topology::{CarrierBody, Contact, DetachReason, Digest, LeafBody, PeerId, RunId};

use crate::leaf::violation::LeafViolation;

/// What is the same all the time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CarrierConfig {
    /// This member.
    pub me: PeerId,
    /// The run.
    pub run: RunId,
    /// The run's longest stall.
    pub max_stall: Duration,
    /// How many numbers a gradient has: the trained parameters and the figures.
    pub elements: u64,
    /// The largest number that one may have, above or below zero.
    pub most: f32,
    /// How many leaves this member takes: 0 takes none, and more than [`MAX_LEAVES`](crate::leaf::MAX_LEAVES) are as many.
    pub places: usize,
}

/// What happened. `G` is a gradient that came from a leaf.
#[derive(Debug, Clone, PartialEq)]
pub enum Input<G> {
    /// A message of a leaf, or of a peer that wants to be one, on its newest stream.
    Received {
        /// Who sent it; the driver knows that by its connection.
        from: PeerId,
        /// What it says.
        body: LeafBody,
        /// The numbers behind a gradient, read no further than [`CarrierEngine::admits`](super::CarrierEngine::admits) says.
        gradient: Option<G>,
    },
    /// What came from a peer can't be read, or is not admitted.
    Faulted {
        /// Who sent it.
        from: PeerId,
        /// What is wrong.
        violation: LeafViolation,
    },
    /// A leaf's stream has closed.
    Closed(PeerId),
    /// Where members are, this one left out: those that leaves are told of first.
    Knows(Vec<Contact>),
    /// The learner begins with the gradient of a step: this is the member's share.
    Computes {
        /// The step.
        step: u64,
        /// Its epoch.
        epoch: u64,
        /// The share, as positions in the epoch's order.
        share: Vec<Range<u32>>,
        /// As of the ledger.
        micro_batch: u32,
    },
    /// What is put together, or will be, is void: the first step is assigned to others ([`Task::Begin`](crate::Task::Begin)).
    Void,
    /// The learner is through with [`Output::Compute`] of this number.
    Computed(u64),
    /// The state after this step is applied here; its digest after steps of which it is compared.
    Applied {
        /// The step.
        step: u64,
        /// The digest.
        digest: Digest,
    },
    /// The run is complete with this state.
    Ended {
        /// The last step.
        step: u64,
        /// The state's digest.
        digest: Digest,
    },
    /// This member leaves, and takes no leaves any more.
    Leaves,
    /// The timer that was set last has come to its time.
    Expired,
}

/// What the driver does.
#[derive(Debug, Clone, PartialEq)]
pub enum Output<G, R> {
    /// Send this over the leaf's stream, and a result behind it.
    Send {
        /// To whom.
        to: PeerId,
        /// What. [`CarrierBody::Result`] has no length yet: whoever encodes the record knows it.
        body: CarrierBody,
        /// The record behind it.
        result: Option<R>,
    },
    /// Close this peer's stream once all is sent; nothing of it counts any more.
    Close(PeerId),
    /// Forget what was put together: a new contribution begins.
    Clear,
    /// Compute the gradient over these positions of the step's share. One at a time.
    Compute {
        /// To name the answer with.
        number: u64,
        /// The positions.
        ranges: Vec<Range<u32>>,
        /// Whether a leaf was to bring it.
        is_backup: bool,
    },
    /// What is, or was, computed as this number is not wanted.
    Drop(u64),
    /// What was computed as this number counts: it is part of the contribution.
    Count(u64),
    /// So does what a leaf has brought.
    Add {
        /// The leaf.
        leaf: PeerId,
        /// Over these positions.
        ranges: Vec<Range<u32>>,
        /// How many samples that is: the weight of the mean.
        weight: u64,
        /// The mean gradient and the figures.
        gradient: G,
    },
    /// All of the share's gradient is put together: contribute it to this step.
    Whole(u64),
    /// The step is committed: what is left of its share is not wanted.
    Over(u64),
    /// Have the state after this step ready for leaves, before it changes.
    Lend(u64),
    /// No leaf needs that any more.
    Release,
    /// Say [`Input::Expired`] then; replaces the timer set before.
    SetTimer(starling_topology::Time),
    /// A peer did what no correct leaf does. Its stream is closed.
    Fault {
        /// Which one.
        leaf: PeerId,
        /// What it did.
        violation: LeafViolation,
    },
    /// For who watches.
    Event(CarrierEvent),
}

/// What happened to leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CarrierEvent {
    /// A leaf takes part from now on.
    Attached(PeerId),
    /// It takes part no more: it closed its stream, or was let go for this reason.
    Lost {
        /// The leaf.
        leaf: PeerId,
        /// Why it was let go.
        reason: Option<DetachReason>,
    },
    /// What a leaf has brought counts.
    Brought {
        /// The leaf.
        leaf: PeerId,
        /// The step.
        step: u64,
        /// How many samples it is over.
        samples: u64,
    },
    /// What a leaf owes is late, or lost, and is computed here.
    Backup {
        /// The leaf.
        leaf: PeerId,
        /// The step.
        step: u64,
    },
    /// What a leaf brought came when its step was over, or was computed here.
    Late {
        /// The leaf.
        leaf: PeerId,
        /// The step.
        step: u64,
    },
}
