//! One task that owns the swarm and the membership machine: takes in what happens, does what the machine asks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use libp2p::swarm::SwarmEvent;
use starling_collective::LayoutConfig;
use starling_topology::message::MAX_MEMBERS;
use starling_topology::{
    Envelope, Event, Evidence, Gate, Input, Membership, Output, PeerId, Ring, Time, Timer, View, ViewId,
};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::control::Link;
use crate::error::NodeError;
use crate::event::{NetworkEvent, RingFailure};
use crate::identity::to_libp2p;
use crate::network::Network;
use crate::report::{Observer, Report};
use crate::ring::{self, RingConfig, RingHandle, Traffic};
use crate::state_transfer;
use crate::trainer::{Command, TrainerEvent, TrainerHandle};

/// How often we tell the swarm where we are.
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(30);
/// Ring streams that came before we knew their view.
const MAX_EARLY: usize = 8;
/// Joiners that may wait for the state at a time: as many as a view has members.
const MAX_ASKERS: usize = MAX_MEMBERS;
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
    /// Training or the state's transfer failed.
    Failed(NodeError),
}

/// What the loop needs to know of the run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoopConfig {
    pub(crate) max_stall: Duration,
    pub(crate) elements: usize,
    pub(crate) max_state_bytes: usize,
    pub(crate) layout: LayoutConfig,
    pub(crate) in_flight: u32,
}

pub(crate) struct EventLoop {
    network: Network,
    membership: Membership,
    trainer: TrainerHandle,
    observer: Arc<dyn Observer>,
    config: LoopConfig,
    began: Instant,
    timers: BTreeMap<Timer, Time>,
    links: BTreeMap<PeerId, Link>,
    /// Peers whose control stream to us is open, and how many they have opened.
    readers: BTreeMap<PeerId, usize>,
    ring: Option<RingHandle>,
    /// Ring streams of views that we have yet to install.
    early: Vec<(PeerId, ViewId, libp2p::Stream)>,
    fetching: Option<JoinHandle<()>>,
    /// Of the newest fetch. An older one's outcome may still be on its way.
    fetch_number: u64,
    /// Joiners that wait for the state; the trainer has been asked for it if there are any.
    askers: Vec<oneshot::Sender<Arc<Vec<u8>>>>,
    traffic: Arc<Traffic>,
    /// The last committed step that the trainer told of.
    step: u64,
    world_size: u32,
}

/// What is left when the loop has ended.
pub(crate) struct Ended {
    pub(crate) end: End,
    pub(crate) trainer: TrainerHandle,
    pub(crate) traffic: Arc<Traffic>,
    pub(crate) world_size: u32,
}

impl EventLoop {
    pub(crate) fn new(
        network: Network,
        membership: Membership,
        trainer: TrainerHandle,
        config: LoopConfig,
        observer: Arc<dyn Observer>,
    ) -> Self {
        Self {
            network,
            membership,
            trainer,
            observer,
            config,
            began: Instant::now(),
            timers: BTreeMap::new(),
            links: BTreeMap::new(),
            readers: BTreeMap::new(),
            ring: None,
            early: Vec::new(),
            fetching: None,
            fetch_number: 0,
            askers: Vec::new(),
            traffic: Arc::default(),
            step: 0,
            world_size: 0,
        }
    }

    fn now(&self) -> Time {
        Time::ZERO + self.began.elapsed()
    }

    /// Runs until the machine has ended, then lets the last messages go out.
    pub(crate) async fn run(mut self, stop: CancellationToken) -> Ended {
        let end = self.work(stop).await;
        // Whoever waits for the ring must see it closed, and the trainer must not wait for it either.
        self.ring = None;
        if let Some(fetching) = self.fetching.take() {
            fetching.abort();
        }
        let evaluate = matches!(end, End::Event(Event::Complete { .. } | Event::Left) | End::LeftAlone);
        // A trainer that hangs takes no command; nobody waits for it then.
        let _ = tokio::time::timeout(LINGER, self.trainer.commands.send(Command::Stop { evaluate })).await;
        self.linger().await;
        Ended { end, trainer: self.trainer, traffic: self.traffic, world_size: self.world_size }
    }

    async fn work(&mut self, stop: CancellationToken) -> End {
        let mut announce = tokio::time::interval(ANNOUNCE_INTERVAL);
        let mut give_up: Option<Instant> = None;
        loop {
            if let Some(end) = self.execute_all().await {
                return end;
            }
            let wake = self.timers.iter().min_by_key(|(timer, at)| (**at, **timer)).map(|(timer, at)| (*timer, *at));
            let wake_at = wake.map(|(_, at)| self.began + (at - Time::ZERO));
            tokio::select! {
                () = sleep_until(give_up) => return End::LeftAlone,
                () = stop.cancelled(), if give_up.is_none() => {
                    give_up = Some(Instant::now() + self.config.max_stall);
                    self.handle(Input::Leave);
                }
                Some(event) = self.trainer.events.recv() => {
                    if let Some(end) = self.on_trainer(event) {
                        return end;
                    }
                }
                Some(event) = self.network.events.recv() => {
                    if let Some(end) = self.on_network(event).await {
                        return end;
                    }
                }
                event = self.network.swarm.select_next_some() => {
                    if let Some(event) = self.network.absorb(event) {
                        self.on_swarm(event);
                    }
                }
                () = sleep_until(wake_at) => {
                    if let Some((timer, _)) = wake {
                        self.timers.remove(&timer);
                        if let Some(end) = self.stalled() {
                            return end;
                        }
                        self.handle(Input::Expired(timer));
                    }
                }
                Some(turned) = self.network.turned.recv() => {
                    let verb = if turned.dialed { "dialed" } else { "dialing" };
                    tracing::info!(peer = %turned.peer, verb, error = %turned.error, "not admitted");
                    if !turned.dialed {
                        let (peer, reason) = (turned.peer.to_string(), turned.error.to_string());
                        self.observer.report(&Report::Turned { peer, reason });
                    }
                }
                Some(mismatch) = self.network.mismatches.recv() => {
                    let (peer, reason) = (mismatch.peer.to_string(), mismatch.differences);
                    self.observer.report(&Report::Turned { peer, reason });
                }
                _ = announce.tick() => self.network.announce(),
            }
        }
    }

    /// A device or disk that hangs leaves this loop alive and the others waiting. Better to end: they see that at once.
    fn stalled(&self) -> Option<End> {
        let limit = self.config.max_stall * 9 / 10;
        (self.trainer.busy.duration() > limit).then(|| End::Failed(NodeError::Stalled { step: self.step + 1, limit }))
    }

    /// Hands an input to the machine; a violation is told, and its peer suspected.
    fn handle(&mut self, input: Input) {
        let now = self.now();
        let from = match &input {
            Input::Received { from, .. } => Some(*from),
            Input::Expired(_)
            | Input::Suspected { .. }
            | Input::Held { .. }
            | Input::Finished { .. }
            | Input::Leave => None,
        };
        if let (Err(violation), Some(peer)) = (self.membership.handle(now, input), from) {
            self.misbehaved(peer, &violation.to_string());
        }
    }

    fn misbehaved(&mut self, peer: PeerId, violation: &str) {
        let name = to_libp2p(peer);
        tracing::warn!(peer = %name, violation, "peer misbehaved");
        self.observer.report(&Report::Warning { message: format!("peer {name} {violation}") });
        self.suspect(peer, Evidence::Misbehaved);
        let _ = self.network.swarm.disconnect_peer_id(name);
    }

    fn suspect(&mut self, peer: PeerId, evidence: Evidence) {
        self.links.remove(&peer);
        self.handle(Input::Suspected { peer, evidence });
        if !self.membership.view().is_some_and(|view| view.contains(peer)) {
            self.network.forget(to_libp2p(peer));
        }
    }

    // --- what happens -------------------------------------------------------------------------------------------

    fn on_trainer(&mut self, event: TrainerEvent) -> Option<End> {
        match event {
            TrainerEvent::Held { step, digest } => {
                self.step = step;
                self.handle(Input::Held { step, digest });
            }
            TrainerEvent::Finished { step, digest } => {
                self.step = step;
                self.handle(Input::Finished { step, digest });
            }
            TrainerEvent::Snapshot(bytes) => {
                for asker in self.askers.drain(..) {
                    // It may have gone.
                    let _ = asker.send(bytes.clone());
                }
            }
            TrainerEvent::Failed(error) => return Some(End::Failed(error)),
        }
        None
    }

    async fn on_network(&mut self, event: NetworkEvent) -> Option<End> {
        match event {
            NetworkEvent::ControlOpened { peer } => *self.readers.entry(peer).or_default() += 1,
            NetworkEvent::Received { from, envelope } => self.handle(Input::Received { from, envelope }),
            NetworkEvent::ControlClosed { peer } => {
                if let Some(open) = self.readers.get_mut(&peer) {
                    *open -= 1;
                    if *open == 0 {
                        self.readers.remove(&peer);
                        self.suspect(peer, Evidence::Closed);
                    }
                }
            }
            NetworkEvent::LinkFailed { peer } => self.suspect(peer, Evidence::LinkFailed),
            NetworkEvent::Misbehaved { peer, violation } => self.misbehaved(peer, &violation),
            NetworkEvent::RingOpened { peer, view, stream } => match &self.ring {
                Some(ring) if ring.view == view => {
                    if ring.previous == peer {
                        ring.connect(stream);
                    }
                }
                _ => {
                    // One for each peer, the newest: it has to be the next view's.
                    self.early.retain(|(other, _, _)| *other != peer);
                    if self.early.len() < MAX_EARLY {
                        self.early.push((peer, view, stream));
                    }
                }
            },
            NetworkEvent::RingFailed { peer, view, failure } => match failure {
                RingFailure::Broken(reason) => {
                    tracing::info!(peer = %to_libp2p(peer), reason, "ring link failed");
                    // A neighbour that ends because of *another's* loss closes its ring first and names that other on
                    // the control stream. It gets the time to say so before it is suspected itself.
                    let (grace, events) = (self.config.max_stall / 20, self.network.events_in.clone());
                    tokio::spawn(async move {
                        tokio::time::sleep(grace).await;
                        let _ = events.send(NetworkEvent::RingSuspected { peer, view }).await;
                    });
                }
                RingFailure::Misbehaved(violation) => self.misbehaved(peer, &violation),
            },
            NetworkEvent::RingSuspected { peer, view } => {
                if self.ring.as_ref().is_some_and(|ring| ring.view == view) {
                    self.suspect(peer, Evidence::LinkFailed);
                }
            }
            NetworkEvent::StateAsked { peer, reply } => {
                tracing::info!(peer = %to_libp2p(peer), "state asked for");
                // One question to the trainer answers all; whoever comes when too many wait sees its stream end.
                if self.askers.is_empty() {
                    let _ = self.trainer.commands.send(Command::Snapshot).await;
                }
                if self.askers.len() < MAX_ASKERS {
                    self.askers.push(reply);
                }
            }
            NetworkEvent::StateFetched { number, from, state } => {
                if number == self.fetch_number {
                    match state {
                        Ok(bytes) => {
                            let _ = self.trainer.commands.send(Command::Load { bytes }).await;
                        }
                        Err(reason) => {
                            let peer = to_libp2p(from).to_string();
                            return Some(End::Failed(NodeError::StateTransfer { peer, reason }));
                        }
                    }
                }
            }
        }
        None
    }

    fn on_swarm(&mut self, event: SwarmEvent<crate::behaviour::BehaviourEvent>) {
        match event {
            SwarmEvent::ConnectionClosed { peer_id, num_established: 0, .. } => {
                // If its control stream is open, the end of that stream comes after its last message.
                if let Some(peer) = crate::identity::from_libp2p(&peer_id)
                    && !self.readers.contains_key(&peer)
                {
                    self.suspect(peer, Evidence::Closed);
                }
            }
            SwarmEvent::OutgoingConnectionError { peer_id: Some(peer), error, .. } => {
                tracing::debug!(%peer, %error, "dial failed");
                self.network.fall_back(peer);
            }
            SwarmEvent::ConnectionEstablished { num_established, .. } if num_established.get() == 1 => {
                self.network.announce();
            }
            _ => {}
        }
    }

    // --- what the machine asks ----------------------------------------------------------------------------------

    async fn execute_all(&mut self) -> Option<End> {
        while let Some(output) = self.membership.poll() {
            match output {
                Output::Send { to, envelope } => self.send(to, &envelope),
                Output::Learn(contact) => self.network.learn(&contact),
                Output::SetTimer { timer, at } => {
                    self.timers.insert(timer, at);
                }
                Output::Hold { after } => {
                    if let (Some(step), Some(ring)) = (after, &self.ring) {
                        ring.hold(Gate::closed_after(step));
                    }
                    let _ = self.trainer.commands.send(Command::Hold { after }).await;
                }
                Output::Fetch { from, step, .. } => self.fetch(from, step),
                Output::Step(view) => self.step(&view).await,
                Output::Event(event) => {
                    if let Some(end) = self.tell(event) {
                        return Some(end);
                    }
                }
            }
        }
        None
    }

    fn send(&mut self, to: PeerId, envelope: &Envelope) {
        let peer = to_libp2p(to);
        self.network.connect(peer);
        let link = self.links.entry(to).or_insert_with(|| {
            Link::open(
                self.network.control(),
                self.network.protocols.control.clone(),
                to,
                self.config.max_stall / 2,
                self.network.events_in.clone(),
            )
        });
        if !link.send(envelope) {
            // The task has ended or the peer does not read: either way its event follows, or comes now.
            let events = self.network.events_in.clone();
            let _ = events.try_send(NetworkEvent::LinkFailed { peer: to });
        }
    }

    fn fetch(&mut self, from: PeerId, step: u64) {
        tracing::info!(peer = %to_libp2p(from), step, "fetching the state");
        let fetch = state_transfer::fetch(
            self.network.control(),
            to_libp2p(from),
            self.network.protocols.state.clone(),
            self.config.max_state_bytes,
            self.config.max_stall,
        );
        let events = self.network.events_in.clone();
        self.fetch_number += 1;
        let number = self.fetch_number;
        let task = tokio::spawn(async move {
            let state = fetch.await;
            let _ = events.send(NetworkEvent::StateFetched { number, from, state }).await;
        });
        // A newer proposal's state replaces the one that is on its way.
        if let Some(older) = self.fetching.replace(task) {
            older.abort();
        }
    }

    async fn step(&mut self, view: &View) {
        let id = view.id();
        let ring = Ring::plan(view);
        let me = self.network.contact().peer;
        let rank = ring.rank_of(me).expect("invariant: the machine steps only in its own views");
        let world = ring.world_size();
        self.world_size = world.get();
        self.ring = None;
        let operations = (world.get() > 1).then(|| {
            let config = RingConfig {
                elements: self.config.elements,
                layout: self.config.layout,
                in_flight: self.config.in_flight,
                open_limit: self.config.max_stall / 2,
                protocol: self.network.protocols.ring.clone(),
                traffic: self.traffic.clone(),
            };
            self.network.connect(to_libp2p(ring.next(rank)));
            let (handle, operations) =
                ring::start(view, me, config, self.network.control(), self.network.events_in.clone());
            for (peer, view, stream) in std::mem::take(&mut self.early) {
                if peer == handle.previous && view == id {
                    handle.connect(stream);
                }
            }
            self.ring = Some(handle);
            operations
        });
        self.keep_connected(view, me);
        self.observer.report(&Report::View {
            generation: view.generation.0,
            view: id.to_string(),
            rank: rank.0,
            members: world.ranks().map(|rank| to_libp2p(ring.peer(rank)).to_string()).collect(),
            step: self.step,
        });
        let _ = self.trainer.commands.send(Command::Step { world, rank, ring: operations }).await;
    }

    /// Each member is connected to each other one, so that a death is seen by all at once. Of two, the lower dials.
    fn keep_connected(&mut self, view: &View, me: PeerId) {
        let members: BTreeSet<PeerId> = view.members().iter().copied().collect();
        for member in members.range(me..).skip(1) {
            self.network.connect(to_libp2p(*member));
        }
    }

    /// Tells the user; `Some` if the event ends the run here.
    fn tell(&mut self, event: Event) -> Option<End> {
        let name = |peer| to_libp2p(peer).to_string();
        match event {
            Event::Waiting { present, needed } => self.observer.report(&Report::Waiting { present, needed }),
            Event::Joining(peer) => self.observer.report(&Report::Joining { peer: name(peer) }),
            Event::JoinerLost(peer) => self.observer.report(&Report::JoinerLost { peer: name(peer) }),
            Event::Stale { from } => tracing::debug!(peer = name(from), "message of an older view dropped"),
            Event::Left
            | Event::Complete { .. }
            | Event::Refused { .. }
            | Event::Lost { .. }
            | Event::Diverged { .. } => {
                return Some(End::Event(event));
            }
        }
        None
    }

    // --- the end ------------------------------------------------------------------------------------------------

    /// Lets the machine's last messages reach the sockets: closes all links after them and keeps the swarm going.
    async fn linger(&mut self) {
        // Ending outputs are queued behind the event that ended the loop, never before it.
        while let Some(output) = self.membership.poll() {
            if let Output::Send { to, envelope } = output {
                self.send(to, &envelope);
            }
        }
        let links: Vec<_> = std::mem::take(&mut self.links).into_values().map(Link::close).collect();
        let flushed = async {
            futures::future::join_all(links).await;
            tokio::time::sleep(FLUSH).await;
        };
        let deadline = Instant::now() + LINGER;
        tokio::pin!(flushed);
        loop {
            tokio::select! {
                () = &mut flushed => return,
                () = tokio::time::sleep_until(deadline) => return,
                _ = self.network.swarm.select_next_some() => {}
                Some(_) = self.network.events.recv() => {}
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
