//! What a peer wants from its world, or tells it.

use std::rc::Rc;

use starling_engine::leaf::carrier::CarrierEvent;
use starling_engine::leaf::violation::LeafViolation;
use starling_engine::search::SearchConfig;
use starling_topology::{Event, Head, MemberResumePlan, PeerId, Progress, Proof, Record, Root, Time, Timer, ViewId};

use super::Gathered;
use crate::steps::message::Message;
use crate::steps::state::{ResultRecord, State};
use crate::verdict::invariants::{Broken, Settled};

/// What a peer wants from its world, or tells it.
#[derive(Debug)]
pub enum Effect {
    /// Put a message on a link.
    Send(PeerId, Message),
    /// Keep connections to these peers.
    Connect(Vec<PeerId>),
    /// Call [`Peer::expire`](super::Peer::expire) at that time.
    Timer(Timer, Time),
    /// Call [`Peer::ring`](super::Peer::ring) at that time.
    Alarm(Time),
    /// Call it back at that time.
    CallBack(Call, Time),
    /// Call [`Peer::take_notices`](super::Peer::take_notices) when its process gets to it.
    Notices,
    /// Ask these what they hold; then [`Peer::keeper_holds`](super::Peer::keeper_holds).
    AskKeepers(Vec<PeerId>),
    /// Search for a later checkpoint, by these terms; then [`Peer::searched`](super::Peer::searched).
    Search(SearchConfig),
    /// That search is of no use any more.
    GiveUpSearch,
    /// It ends, and its process is started again at once.
    ComeBack,
    /// It has no place among the others, and takes part as a leaf.
    NoPlace,
    /// Bad memory has spoiled an answer.
    Rotted,
    /// Call [`Peer::computed`](super::Peer::computed) with this number once the gradient is there.
    Compute(u64),
    /// Write this record to the disk, and say [`Peer::persisted`](super::Peer::persisted) or [`Peer::not_persisted`](super::Peer::not_persisted).
    Persist(Rc<Record>),
    /// Keep what led to the view of this record.
    Keep(Rc<Record>),
    /// Checkpoints that this one does not admit belong to a branch that was left.
    Root(Root),
    /// Write this state to the disk, some time.
    Save(Rc<State>),
    /// Tell these peers, if they can be reached, that it has signed a head.
    Announce(Vec<PeerId>, Box<Head>),
    /// Write beside a checkpoint that a quorum has signed it.
    Stable(Box<Proof>),
    /// It goes on in a view.
    Entered(Box<Entered>),
    /// It loaded a state from others: with this digest it was offered.
    Loaded(Rc<State>),
    /// It committed a step.
    Committed(Box<Commit>),
    /// It applied the result of a step that it had contributed to.
    Settled(Box<Settled>, Rc<ResultRecord>),
    /// It keeps so many things, of at most so many, for later.
    Keeps(&'static str, usize, usize),
    /// It got a part of a state.
    Downloads,
    /// It ends without a decision of the others, for this reason; its user starts it again.
    Ends(&'static str),
    /// Its machine told the user.
    Told(Event),
    /// A peer has sent what no correct peer sends.
    Blames(PeerId, String),
    /// Close the connection to a leaf, or to one that wanted to be one, once all is sent.
    CloseLeaf(PeerId),
    /// It has put a contribution together.
    Gathered(Gathered),
    /// What happened to its leaves.
    OfLeaves(CarrierEvent),
    /// A leaf has done what no correct one does, and was let go.
    BlamesLeaf(PeerId, LeafViolation),
    /// Something that no correct peer does.
    Broken(Broken),
}

/// What a peer is called back for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// [`Peer::look_out`](super::Peer::look_out).
    LookOut,
    /// [`Peer::look_at_end`](super::Peer::look_at_end).
    Settle,
    /// [`Peer::leave_in_vain`](super::Peer::leave_in_vain).
    Leave,
    /// [`Peer::look_for_data`](super::Peer::look_for_data).
    Data,
}

/// How a peer stood when it was told to go on in a view.
#[derive(Debug)]
pub struct Entered {
    /// The view's name.
    pub view: ViewId,
    /// What it was told.
    pub resumption: MemberResumePlan,
    /// How it stood.
    pub progress: Progress,
    /// The state that it holds now.
    pub state: Option<Rc<State>>,
    /// Whether the view was installed without a quorum of the one before.
    pub forks: bool,
}

/// A committed step.
#[derive(Debug)]
pub struct Commit {
    /// The view that it was committed in.
    pub view: ViewId,
    /// What the reduction came to.
    pub record: Rc<ResultRecord>,
    /// The state before it.
    pub before: Rc<State>,
    /// The state after it.
    pub after: Rc<State>,
}
