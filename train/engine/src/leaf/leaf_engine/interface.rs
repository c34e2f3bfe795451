//! What a leaf's machine is told, and what it asks.

use std::ops::Range;
use std::time::Duration;

use starling_topology::{
    AttachRefusalReason, CarrierBody, DetachReason, Digest, Generation, LeafBody, Lineage, PeerId, RunId, Time,
};

use crate::leaf::violation::LeafViolation;

/// What is the same all the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeafConfig {
    /// This peer.
    pub me: PeerId,
    /// The run.
    pub run: RunId,
    /// The run's longest stall.
    pub max_stall: Duration,
    /// How many numbers a gradient has: the trained parameters and the figures.
    pub elements: u64,
    /// How often this peer has changed its role before, if it becomes a member once members can dial it. Such a one does not
    /// look for a carrier for as long as others.
    pub role_changes: Option<u32>,
}

/// Samples whose gradient a carrier wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeafTask {
    /// To name the answer with.
    pub number: u64,
    /// The step.
    pub step: u64,
    /// Its epoch.
    pub epoch: u64,
    /// The samples, as positions in the epoch's order.
    pub ranges: Vec<Range<u32>>,
}

/// What happened. `R` is a result.
#[derive(Debug, Clone, PartialEq)]
pub enum Input<R> {
    /// A message of a member that was asked to carry it, on the stream that was opened for that.
    Received {
        /// Who sent it.
        from: PeerId,
        /// What it says.
        body: CarrierBody,
        /// The record behind a result, read and checked as others are.
        result: Option<R>,
    },
    /// What came from a member can't be read.
    Faulted {
        /// Who sent it.
        from: PeerId,
        /// What is wrong.
        violation: LeafViolation,
    },
    /// The stream to a member has closed, or could not be opened.
    Closed(PeerId),
    /// A peer wants to be this leaf's leaf.
    Asked(PeerId),
    /// A part of the state that it loads has come.
    Downloads,
    /// The state of the last [`Output::Load`] is loaded, and nothing waits to be applied to it.
    Loaded {
        /// Its digest, after steps of which it is compared.
        digest: Option<Digest>,
    },
    /// It can't be had.
    NotLoaded,
    /// The result of the last [`Output::Deliver`] is applied.
    Applied {
        /// Its step.
        step: u64,
        /// The state's digest, after steps of which it is compared.
        digest: Option<Digest>,
    },
    /// The learner is through with a [`LeafTask`].
    Computed {
        /// Of the task.
        number: u64,
        /// Whether there is a gradient: of finite numbers within the run's bound. The driver keeps it until the outputs are polled.
        is_whole: bool,
    },
    /// A member that was to dial back, as [`Output::AskReach`] says, has answered, or could not be asked: then nobody hears it.
    Reach {
        /// The member.
        peer: PeerId,
        /// Whether it got through.
        reached: bool,
    },
    /// Its user wants it to leave.
    Leaves,
    /// The timer that was set last has come to its time.
    Expired,
}

/// What the driver does.
#[derive(Debug, Clone, PartialEq)]
pub enum Output<R> {
    /// Send this to a member, over the stream to it, or over a new one if there is none: then an attach. Behind a gradient come its numbers.
    Send {
        /// To whom.
        to: PeerId,
        /// What.
        body: LeafBody,
    },
    /// Say this to a peer that wants to be this leaf's leaf, and close its stream.
    Refuse {
        /// To whom.
        to: PeerId,
        /// What.
        body: CarrierBody,
    },
    /// Close the stream to this member once all is sent.
    Close(PeerId),
    /// Have the steps [`sync`](crate::StepEngine::sync), download that state from this member as joiners do, and hand it over. It replaces
    /// one that is on its way.
    Load {
        /// The carrier.
        from: PeerId,
        /// The generation to ask with.
        generation: Generation,
        /// The step.
        step: u64,
        /// The lineage of the state after it.
        lineage: Lineage,
    },
    /// The state that is on its way is not wanted any more.
    StopLoading,
    /// Have the steps [take](crate::StepEngine::deliver) this result.
    Deliver(R),
    /// There may be a task: [`LeafEngine::next_task`](super::LeafEngine::next_task).
    Work,
    /// What is, or was, computed for the task of this number is not wanted.
    Drop(u64),
    /// Say [`Input::Expired`] then; replaces the timer set before.
    SetTimer(Time),
    /// Ask this member to dial back; then [`Input::Reach`], if it answers.
    AskReach(PeerId),
    /// Members can dial this peer by now: be a leaf no more, and ask to be let in as a member.
    Join,
    /// A member did what no correct carrier does. Its stream is closed.
    Fault {
        /// Which one.
        carrier: PeerId,
        /// What it did.
        violation: LeafViolation,
    },
    /// For who watches.
    Event(LeafEvent),
    /// It is over, for this reason.
    End(LeafEvent),
}

/// What happened to a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeafEvent {
    /// This member carries it.
    Attached(PeerId),
    /// It does no more.
    Lost {
        /// The member.
        carrier: PeerId,
        /// Why.
        reason: LossReason,
    },
    /// The state after this step was another one than the carrier's, which is loaded.
    Differs {
        /// The step.
        step: u64,
    },
    /// The run is complete, and its last state is here.
    Complete {
        /// The last step.
        step: u64,
        /// Its state's digest, as the carrier says.
        digest: Digest,
    },
    /// The run has finished without this leaf: all that it can ask are gone, or say so.
    Finished,
    /// Nobody that it knows carries it, for long.
    NoCarrier,
    /// Its user wanted it to.
    Left,
}

/// Why a leaf and its carrier, or one that it has asked, have parted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossReason {
    /// The stream closed.
    Closed,
    /// It did not carry it.
    Refused(AttachRefusalReason),
    /// It let it go.
    LetGo(DetachReason),
    /// Nothing was heard of it for long.
    Silent,
    /// It was there, and no step was committed for long.
    NoStep,
    /// The state could not be had.
    NoState,
    /// More results wait than may.
    TooFarBehind,
    /// It did what no correct carrier does.
    Faulty,
}
