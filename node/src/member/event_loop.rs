//! One task that owns the swarm and the [`Member`]: takes in what happens ([`inputs`]), does what the member asks
//! ([`outputs`]), and goes on in new views ([`resume`]).

mod change;
mod completion;
mod data_fetch;
mod denials;
mod guests;
pub(crate) mod heads;
pub(crate) mod inputs;
mod join_wait;
mod look_back;
mod measuring;
mod outputs;
mod quorum_search;
mod resume;
mod storing;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use starling_collective::{Codec, LayoutConfig};
use starling_engine::{Member, Output, OverdueAction, StepStatus, look_interval};
use starling_links::TrafficMetrics;
use starling_run::ReducedSize;
use starling_topology::heads::repeat_interval;
use starling_topology::message::MAX_MEMBERS;
use starling_topology::plan::PlanPolicy;
use starling_topology::{Event, Evidence, Input, PeerId, RunId, StallReport, Time, Timer, View, ViewId};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::credentials::identity::{Identity, to_libp2p};
use crate::error::NodeError;
use crate::learner::trainer::{LearnerEvents, WorkClock};
use crate::member::leaf::carrier_streams::CarrierHandle;
use crate::member::prober::Prober;
use crate::member::shared_steps::{CarrierInput, SharedSteps};
use crate::member::snapshots::Snapshots;
use crate::member::twin::TwinWatch;
use crate::net::control::Link;
use crate::net::network::Network;
use crate::observe::report::{Observer, Report};
use crate::reducer::ReducerHandle;
use crate::start::dataset::arriving::ArrivingData;
use crate::store::checkpoint_writer::WriterHandle;
use crate::transfer::ChunkProviders;
use crate::transfer::providers::IncomingStreams;
use crate::transfer::state::Shape;
use change::Change;
use completion::Questions;
use data_fetch::DataFetch;
use denials::Denials;
pub(crate) use join_wait::{Books, Departure, JoinWait};
pub(crate) use look_back::LookBack;
pub(crate) use quorum_search::Quest;
use quorum_search::QuorumSearch;
use resume::Fetch;
use storing::Storing;

/// Streams for segments that came before we knew their view. One for each peer, and in a mesh all of them.
const MAX_EARLY: usize = MAX_MEMBERS;
/// How long the last messages may take to go out.
const LINGER: Duration = Duration::from_secs(2);
/// What a closing connection gets to flush its buffers.
const FLUSH: Duration = Duration::from_millis(100);

/// How a node's time in the run ended.
#[derive(Debug)]
pub(crate) enum End {
    /// The machine said so.
    Event(Event),
    /// We were asked to leave and nobody answered in time.
    LeftAlone,
    /// The run has gone on without it, and this machine has on disk what it goes on from.
    ComesBack,
    /// It takes part as a leaf from now on.
    NoPlace,
    /// Training failed.
    Failed(NodeError),
}

/// What the loop needs to know of the run.
#[derive(Debug, Clone)]
pub(crate) struct LoopConfig {
    pub(crate) run: RunId,
    pub(crate) max_stall: Duration,
    pub(crate) min_members: usize,
    /// What each member brings to a step.
    pub(crate) reduced: ReducedSize,
    pub(crate) max_state_bytes: u64,
    pub(crate) chooses: bool, // An operation for each step.
    pub(crate) layout: LayoutConfig,
    pub(crate) codec: Codec,
    pub(crate) plan: PlanPolicy,
    pub(crate) in_flight: u32,
    pub(crate) probe_links: bool,
    /// The run's.
    pub(crate) last_step: u64,
    /// Whether members may lack data of their samples.
    pub(crate) can_arrive: bool,
    /// The largest number of a contribution.
    pub(crate) most: f32,
    /// What the sum of contributions is divided by.
    pub(crate) batch_size: u32,
    /// What the run's states have in common.
    pub(crate) shape: Shape,
}

/// Whom the loop works with.
pub(crate) struct EventLoopParts {
    pub(crate) identity: Identity,
    pub(crate) network: Network,
    pub(crate) incoming: IncomingStreams,
    pub(crate) member: Member,
    pub(crate) shared_steps: Arc<SharedSteps>,
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) chunk_providers: Arc<ChunkProviders>,
    /// `None` where nothing can be handed on.
    pub(crate) leaves: Option<CarrierHandle>,
    pub(crate) books: Books,
    pub(crate) writer_handle: WriterHandle,
    pub(crate) join_wait: JoinWait,
    pub(crate) quest: Quest,
    pub(crate) twins: TwinWatch,
    /// What is to come of this member's data.
    pub(crate) rest: Option<ArrivingData>,
    pub(crate) observer: Arc<dyn Observer>,
}

pub(crate) struct EventLoop {
    me: PeerId,
    network: Network,
    incoming: IncomingStreams,
    member: Member,
    feed: LearnerEvents,
    shared_steps: Arc<SharedSteps>,
    snapshots: Arc<Snapshots>,
    chunk_providers: Arc<ChunkProviders>,
    leaves: Option<CarrierHandle>,
    books: Books,
    join_wait: JoinWait,
    denials: Denials,
    writer_handle: WriterHandle,
    identity: Identity,
    observer: Arc<dyn Observer>,
    config: LoopConfig,
    began: Instant,
    timers: BTreeMap<Timer, Time>,
    /// The record on its way to the disk.
    storing: Storing,
    links: BTreeMap<PeerId, Link>,
    /// Of the newest link.
    link_number: u64,
    /// Peers to whom a message has not gone.
    unsent: BTreeSet<PeerId>,
    /// Peers whose control stream to us is open, and how many they have opened.
    readers: BTreeMap<PeerId, usize>,
    /// Of the view that was resumed last.
    members: Vec<PeerId>,
    reducer: Option<ReducerHandle>,
    /// None if this machine is not to measure its links.
    prober: Option<Prober>,
    /// Connected peers on this machine.
    nearby: BTreeSet<PeerId>,
    /// Streams for segments of views that we have yet to install.
    early: Vec<(PeerId, ViewId, libp2p::Stream)>,
    /// What is fetched on the way into a view.
    result: Option<Fetch>,
    state: Option<Fetch>,
    data: DataFetch,
    /// Why the next view comes.
    change: Option<Change>,
    /// A view that was resumed and that the user has yet to be told of.
    shown: Option<(View, u64)>,
    traffic: Arc<TrafficMetrics>,
    world_size: u32,
    is_forked: bool,
    /// The last view in which all links were there.
    linked: Option<ViewId>,
    /// What the reducer of a view missed when nothing moved in it last.
    awaited: Option<(ViewId, StallReport)>,
    /// To keepers, once the run is complete.
    questions: Questions,
    quorum_search: QuorumSearch,
    /// Why nothing can be computed here any more.
    failure: Option<NodeError>,
}

/// What is left when the loop has ended.
pub(crate) struct Ended {
    pub(crate) end: End,
    pub(crate) traffic: Arc<TrafficMetrics>,
    pub(crate) world_size: u32,
    pub(crate) forked: bool,
    /// Whether this peer was ever more than one that asks to be let in.
    pub(crate) took_part: bool,
    /// What the trainer is at.
    pub(crate) work_clock: WorkClock,
    /// Of a member that has left.
    pub(crate) departure: Option<Departure>,
    /// Why it had to leave.
    pub(crate) failure: Option<NodeError>,
}

impl EventLoop {
    pub(crate) fn new(parts: EventLoopParts, feed: LearnerEvents, config: LoopConfig) -> Self {
        let EventLoopParts { identity, network, incoming, member, shared_steps, snapshots, chunk_providers, .. } =
            parts;
        let EventLoopParts { leaves, books, writer_handle, join_wait, quest, twins, rest, observer, .. } = parts;
        let me = network.contact().peer;
        let (control, protocol) = (network.control(), network.protocols.probe.clone());
        let named = member.membership().contacts().map(|contact| to_libp2p(contact.peer));
        let denials = Denials::new(network.known().chain(named));
        let prober = config.probe_links.then(|| Prober::start(control, protocol, incoming.events_in.clone()));
        Self {
            me,
            network,
            incoming,
            member,
            feed,
            shared_steps,
            snapshots,
            chunk_providers,
            leaves,
            books,
            join_wait,
            denials,
            writer_handle,
            identity,
            observer,
            config,
            began: Instant::now(),
            timers: BTreeMap::new(),
            storing: Storing::default(),
            links: BTreeMap::new(),
            link_number: 0,
            unsent: BTreeSet::new(),
            readers: BTreeMap::new(),
            members: Vec::new(),
            reducer: None,
            prober,
            nearby: BTreeSet::new(),
            early: Vec::new(),
            result: None,
            state: None,
            data: DataFetch::new(rest),
            change: None,
            shown: None,
            traffic: Arc::default(),
            world_size: 0,
            is_forked: false,
            linked: None,
            awaited: None,
            questions: Questions::default(),
            quorum_search: QuorumSearch::new(quest, twins),
            failure: None,
        }
    }

    fn now(&self) -> Time {
        Time::ZERO + self.began.elapsed()
    }

    fn instant(&self, at: Time) -> Instant {
        self.began + (at - Time::ZERO)
    }

    /// Runs until the machine has ended, then lets the last messages go out.
    pub(crate) async fn run(mut self, stop: CancellationToken) -> Ended {
        let end = self.work(stop).await;
        // Whoever waits for the reducer must see it closed, and the trainer must not wait for it either.
        (self.reducer, self.result, self.state, self.data) = (None, None, None, DataFetch::default());
        self.prober = None;
        let in_order = matches!(end, End::Event(Event::Complete { .. } | Event::Left { .. }) | End::LeftAlone);
        let took_part = self.join_wait.took_part();
        self.shared_steps.stop(in_order && took_part);
        self.linger().await;
        // What is still being written would come back after it is removed.
        let _ended = tokio::time::timeout(LINGER, self.storing.ended_if_begun()).await;
        let stayed = if let End::Event(event) = &end {
            self.member.departs(event, self.shared_steps.act(|steps| steps.last_step()))
        } else {
            None
        };
        let departure = stayed.and_then(|stayed| self.depart(stayed));
        let (traffic, world_size, forked) = (self.traffic, self.world_size, self.is_forked);
        Ended {
            end,
            traffic,
            world_size,
            forked,
            took_part,
            work_clock: self.feed.work_clock,
            departure,
            failure: self.failure,
        }
    }

    async fn work(&mut self, stop: CancellationToken) -> End {
        let stop = stop.child_token();
        let mut retell = tokio::time::interval(repeat_interval(self.config.max_stall));
        // Who stood still would spend all repeats at once.
        retell.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut look = tokio::time::interval(look_interval(self.config.max_stall));
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let (shared_steps, access) = (self.shared_steps.clone(), self.network.access.clone());
        if let Some(end) = self.on_news() {
            return end; // It was put out before it came.
        }
        loop {
            self.settle();
            if let Some(end) = self.execute_all() {
                return end;
            }
            let wake = self.timers.iter().min_by_key(|(timer, at)| (**at, **timer)).map(|(timer, at)| (*timer, *at));
            let rings_from = self.member.stood_still(self.now()).unwrap_or(Time::ZERO);
            let wake_at = wake.map(|(_, at)| self.instant(at.max(rings_from)));
            let leaves_at = self.member.leaves_at().map(|at| self.instant(at));
            let announce_at = self.network.announce_at();
            tokio::select! {
                () = sleep_until(leaves_at) => {
                    if let Some(end) = self.leave_in_vain() {
                        return end;
                    }
                }
                () = stop.cancelled(), if leaves_at.is_none() => {
                    let now = self.now();
                    self.member.ask_to_leave(now);
                    self.shared_steps.carry(CarrierInput::Leaves);
                }
                notice = shared_steps.noticed() => self.on_notice(notice),
                Some(event) = self.feed.events.recv() => {
                    if let Some(end) = self.on_trainer(event, &stop) {
                        return end;
                    }
                }
                outcome = self.storing.ended() => self.on_stored(outcome),
                Some(info) = self.writer_handle.saved.recv() => self.on_saved(&info),
                Some(event) = self.incoming.events.recv() => self.on_network(event),
                event = self.network.swarm.select_next_some() => {
                    if let Some(event) = self.network.absorb(event) {
                        self.on_swarm(event);
                    }
                    self.network.next_name().iter().for_each(|named| self.observer.report(named));
                    self.meet_keepers();
                }
                _ = look.tick() => {
                    if let Some(end) = self.look().await {
                        return end;
                    }
                }
                () = sleep_until(wake_at) => {
                    // A process that was stopped finds its timers expired and its sockets full, in any order.
                    let stood_still = self.member.stood_still(self.now()).is_some();
                    if let Some((timer, _)) = wake.filter(|_| !stood_still) {
                        self.timers.remove(&timer);
                        self.handle(Input::Expired(timer));
                    }
                }
                Some(turned) = self.network.turned.recv() => {
                    if let Some(end) = self.on_turned(&turned) {
                        return end;
                    }
                }
                () = access.news() => {
                    if let Some(end) = self.on_news() {
                        return end;
                    }
                }
                Some(mismatch) = self.incoming.mismatches.recv() => {
                    if let Some(report) = self.network.turned_away(Some(mismatch.peer), mismatch.differences) {
                        self.observer.report(&report);
                    }
                }
                () = tokio::time::sleep_until(announce_at) => self.network.announce(),
                _ = retell.tick() => {
                    self.member.repeat_heads();
                    if let Some(end) = self.denied() {
                        return end;
                    }
                    if let Some(report) = self.join_wait.wait() {
                        self.observer.report(&report);
                    }
                    if self.books.is_unwritten {
                        self.note_contacts();
                    }
                }
            }
        }
    }

    /// Looks how far this member is. `Some` if it can't go on.
    async fn look(&mut self) -> Option<End> {
        let now = self.now();
        let (step, operation) = self.shared_steps.reached();
        // Links that are not there yet have a time of their own.
        let operation = operation.filter(|_| self.is_linked());
        let looked = self.member.look(
            now,
            StepStatus {
                work: self.feed.work_clock.work(),
                has_others: self.members.len() > 1,
                view: self.reducer.as_ref().map(|reducer| reducer.view),
                is_held: self.shared_steps.act(|steps| steps.is_held()),
                operation,
                moved: self.traffic.moved(),
            },
        );
        if let Some(since) = looked.stood_still {
            tracing::warn!(?since, "this process stood still");
        }
        if let Some(end) = self.look_out(now, step).await {
            return Some(end);
        }
        match looked.overdue {
            Some(OverdueAction::End) => {
                return Some(End::Failed(NodeError::Stalled { step: step + 1, limit: self.member.patience() }));
            }
            Some(OverdueAction::Warn) => self.warn_of_slowness(step + 1),
            None => {}
        }
        let waits = looked.stands.then(|| self.awaited(operation));
        self.handle(Input::Reached { step, waits });
        None
    }

    fn warn_of_slowness(&self, step: u64) {
        let limit = self.member.patience();
        let message = format!(
            "this machine has been at step {step} for over {limit:?}; beside others it would be too slow for this run: found it with \
             a larger --max-stall, or with a smaller model or batch"
        );
        self.observer.report(&Report::Warning { message });
    }

    /// Hands an input to the machine; a violation is told, and its peer suspected.
    fn handle(&mut self, input: Input) {
        let now = self.now();
        let from = match &input {
            Input::Received { from, .. } => Some(*from),
            Input::Expired(_)
            | Input::Suspected { .. }
            | Input::Held(_)
            | Input::Reached { .. }
            | Input::Starved { .. }
            | Input::Finished { .. }
            | Input::Digest { .. }
            | Input::Located(_)
            | Input::Measured { .. }
            | Input::Synced
            | Input::Withheld
            | Input::Unable
            | Input::Revoke(_)
            | Input::Persisted
            | Input::NotPersisted
            | Input::Leave => None,
        };
        if let (Err(violation), Some(peer)) = (self.member.handle(now, input), from) {
            self.misbehaved(peer, &violation.to_string());
        }
    }

    fn misbehaved(&mut self, peer: PeerId, violation: &str) {
        let name = to_libp2p(peer);
        if let Some(report) = self.network.misbehaved(name, violation.to_owned()) {
            tracing::warn!(peer = %name, violation, "peer misbehaved");
            self.observer.report(&report);
        }
        self.links.remove(&peer);
        self.suspect(peer, Evidence::Misbehaved);
        let _ = self.network.swarm.disconnect_peer_id(name);
    }

    /// Our link to the peer stays: if it lives, to close the link would make it suspect us in turn.
    fn suspect(&mut self, peer: PeerId, evidence: Evidence) {
        self.handle(Input::Suspected { peer, evidence });
    }

    /// Lets the machine's last messages reach the sockets: closes all links after them and keeps the swarm going.
    async fn linger(&mut self) {
        // Ending outputs are queued behind the event that ended the loop, never before it.
        let now = self.now();
        while let Some(output) = self.member.poll(now) {
            if let Output::Send { to, envelope } = output {
                self.send(to, &envelope);
            }
        }
        let links: Vec<_> = std::mem::take(&mut self.links).into_values().map(Link::close).collect();
        self.shared_steps.carry(CarrierInput::Leaves);
        let leaves = self.leaves.take();
        let flushed = async {
            futures::future::join_all(links).await;
            if let Some(leaves) = &leaves {
                leaves.flushed().await;
            }
            tokio::time::sleep(FLUSH).await;
        };
        let deadline = Instant::now() + LINGER;
        tokio::pin!(flushed);
        loop {
            tokio::select! {
                () = &mut flushed => return,
                () = tokio::time::sleep_until(deadline) => return,
                _ = self.network.swarm.select_next_some() => {}
                Some(_) = self.incoming.events.recv() => {}
            }
        }
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
