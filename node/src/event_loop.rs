//! One task that owns the swarm and the membership machine: takes in what happens ([`inputs`]), does what the machine
//! asks ([`outputs`]).

mod inputs;
mod outputs;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use starling_collective::LayoutConfig;
use starling_topology::message::MAX_MEMBERS;
use starling_topology::{Event, Evidence, Input, Membership, Output, PeerId, Time, Timer, ViewId};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::control::Link;
use crate::error::NodeError;
use crate::identity::to_libp2p;
use crate::network::Network;
use crate::report::{Observer, Report};
use crate::ring::{RingHandle, Traffic};
use crate::trainer::{Command, TrainerHandle};

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
