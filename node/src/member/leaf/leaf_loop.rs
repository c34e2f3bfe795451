//! The loop of a leaf: it dials a member, hands on what that says, and downloads the state from it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use libp2p::swarm::SwarmEvent;
use starling_engine::StepEvent;
use starling_engine::leaf::leaf_engine::{LeafEvent, LossReason};
use starling_run::ReplicatedState;
use starling_topology::{CarrierBody, Digest, Generation, LeafBody, Lineage, PeerId, RunId, Time};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::carrier_link::{CarrierLink, LinkEvent};
use super::reach;
use super::search::CarrierSearch;
use super::told::name;
use super::wire::{ReadEnd, ResultShape};
use crate::access::admission::AdmissionError;
use crate::credentials::identity::to_libp2p;
use crate::error::NodeError;
use crate::learner::trainer::{LearnerEvents, TrainerEvent, WorkClock};
use crate::member::shared_steps::{LeafAction, LeafInput, SharedSteps};
use crate::net::network::Network;
use crate::net::streams;
use crate::observe::report::{LeafPaceReport, Observer, Report};
use crate::start::client::dialer::Opening;
use crate::transfer::state::{self, Shape, StateRequest};

/// Events of streams that wait for the loop.
const MAX_EVENTS: usize = 64;
/// How often the progress of a download is told.
const REPORT_INTERVAL: Duration = Duration::from_millis(250);
/// And of what was brought.
const PACE_INTERVAL: Duration = Duration::from_secs(1);
/// How long the last messages may take to go out.
const LINGER: Duration = Duration::from_secs(2);
/// What a closing connection gets to flush its buffers.
const FLUSH: Duration = Duration::from_millis(100);

/// What the loop needs to know of the run.
#[derive(Debug, Clone, Copy)]
pub(super) struct LeafLoopConfig {
    pub(super) run: RunId,
    pub(super) max_stall: Duration,
    pub(super) max_state_bytes: u64,
    /// What the run's states have in common.
    pub(super) shape: Shape,
    /// What its results do.
    pub(super) results: ResultShape,
}

/// How a leaf's time in the run ended.
#[derive(Debug)]
pub(super) enum LeafEnd {
    /// The run is complete, with this state.
    Complete(Digest),
    /// Its user wanted it to leave.
    Left,
    /// Members can dial it: it becomes one.
    Reached,
    /// Something went wrong.
    Failed(NodeError),
}

/// A download under way. Dropping it gives it up.
type Loading = (u64, AbortOnDropHandle<()>);

/// See the module.
pub(super) struct LeafLoop {
    network: Network,
    shared_steps: Arc<SharedSteps>,
    feed: LearnerEvents,
    observer: Arc<dyn Observer>,
    config: LeafLoopConfig,
    links: BTreeMap<PeerId, CarrierLink>,
    /// Of the newest link.
    link_number: u64,
    /// Links that write what is left.
    closing: JoinSet<()>,
    link_events: (mpsc::Sender<LinkEvent>, mpsc::Receiver<LinkEvent>),
    /// What comes of members' dials back.
    reaches: JoinSet<Option<(PeerId, bool)>>,
    loading: Option<Loading>,
    loaded: (mpsc::Sender<Loaded>, mpsc::Receiver<Loaded>),
    timer: Option<Time>,
    search: CarrierSearch,
    /// What it has brought, and when that was told last.
    pace: LeafPaceReport,
    told: Instant,
    /// Why nothing can be computed here any more.
    failure: Option<NodeError>,
}

/// What came of a download.
#[derive(Debug)]
struct Loaded {
    number: u64,
    state: Result<Box<ReplicatedState>, String>,
}

impl LeafLoop {
    pub(super) fn new(
        network: Network,
        shared_steps: Arc<SharedSteps>,
        feed: LearnerEvents,
        observer: Arc<dyn Observer>,
        config: LeafLoopConfig,
    ) -> Self {
        let pace = LeafPaceReport { peer: network.swarm.local_peer_id().to_string(), ..LeafPaceReport::default() };
        Self {
            network,
            shared_steps,
            feed,
            observer,
            config,
            pace,
            told: Instant::now(),
            links: BTreeMap::new(),
            link_number: 0,
            closing: JoinSet::new(),
            link_events: mpsc::channel(MAX_EVENTS),
            reaches: JoinSet::new(),
            loading: None,
            loaded: mpsc::channel(1),
            timer: None,
            search: CarrierSearch::default(),
            failure: None,
        }
    }

    /// Runs until the machine has ended, then lets the last messages go out; what the trainer is at, for whoever waits for it.
    pub(super) async fn run(mut self, stop: CancellationToken) -> (LeafEnd, WorkClock) {
        let end = self.work(stop).await;
        self.loading = None;
        self.tell_pace();
        self.shared_steps.stop(!matches!(end, LeafEnd::Failed(_) | LeafEnd::Reached));
        self.linger().await;
        let end = match (end, self.failure) {
            (LeafEnd::Left, Some(error)) => LeafEnd::Failed(error),
            (end, _) => end,
        };
        (end, self.feed.work_clock)
    }

    async fn work(&mut self, stop: CancellationToken) -> LeafEnd {
        let (shared_steps, access) = (self.shared_steps.clone(), self.network.access.clone());
        let (stop, mut is_leaving) = (stop.child_token(), false);
        loop {
            let until = self.timer.map(|at| Instant::from_std(shared_steps.instant(at)));
            let expires = async {
                match until {
                    Some(until) => sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // What the machine has said is done before it hears more: an event is of what it was.
                biased;
                action = shared_steps.asked_by_leaf() => {
                    if let Some(end) = self.execute(action) {
                        return end;
                    }
                }
                () = stop.cancelled(), if !is_leaving => {
                    is_leaving = true;
                    shared_steps.follow(LeafInput::Leaves);
                }
                () = expires => {
                    self.timer = None;
                    shared_steps.follow(LeafInput::Expired);
                }
                Some(event) = self.link_events.1.recv() => self.on_link(event),
                Some(loaded) = self.loaded.1.recv() => self.on_loaded(loaded),
                Some(reach) = self.reaches.join_next() => {
                    if let Ok(Some((peer, reached))) = reach {
                        shared_steps.follow(LeafInput::Reach { peer, reached });
                    }
                }
                event = self.feed.events.recv() => match event {
                    Some(TrainerEvent::Unable(error)) => {
                        self.failure = Some(error);
                        stop.cancel();
                    }
                    Some(TrainerEvent::Failed(error)) => return LeafEnd::Failed(error),
                    // It says so before it ends, unless it panicked, which is told where it is waited for.
                    None => return LeafEnd::Left,
                },
                notice = shared_steps.noticed() => {
                    // Digests go to the carrier by another way.
                    if notice == StepEvent::Synced {
                        self.observer.report(&Report::Synced { step: shared_steps.progress().step });
                    }
                }
                event = self.network.swarm.select_next_some() => {
                    if let Some(SwarmEvent::ConnectionEstablished { peer_id, .. }) = self.network.absorb(event) {
                        self.network.greet(peer_id);
                    }
                    self.network.next_name().iter().for_each(|named| self.observer.report(named));
                    while self.network.next_keeper().is_some() {}
                }
                Some(turned) = self.network.turned.recv() => {
                    if turned.error == AdmissionError::PutOut {
                        return LeafEnd::Failed(NodeError::Revoked);
                    }
                    if let Some(report) = self.network.turned_away(turned.news(), turned.error.to_string()) {
                        self.observer.report(&report);
                    }
                }
                () = access.news() => {
                    self.network.look_at_guests();
                    access.keep();
                }
            }
        }
    }

    /// Does what the machine asks; `Some` if it has ended.
    fn execute(&mut self, action: LeafAction) -> Option<LeafEnd> {
        match action {
            LeafAction::Send { to, body, numbers } => self.send(to, body, numbers),
            // Nobody dials a leaf, and it serves no stream of that kind.
            LeafAction::Refuse { to, body } => tracing::debug!(?to, ?body, "a leaf has no leaves"),
            LeafAction::Close(peer) => self.close(peer),
            LeafAction::Load { from, number, generation, step, lineage } => {
                self.loading = Some((number, self.load(from, number, generation, (step, lineage))));
            }
            LeafAction::StopLoading => self.loading = None,
            LeafAction::SetTimer(at) => self.timer = Some(at),
            LeafAction::AskReach(peer) => self.ask_reach(peer),
            LeafAction::Join => return Some(LeafEnd::Reached),
            LeafAction::Fault { carrier, violation } => {
                let what = format!("{violation}; this leaf asks another member to carry it");
                if let Some(report) = self.network.misbehaved(to_libp2p(carrier), what) {
                    self.observer.report(&report);
                }
            }
            LeafAction::Event(event) => self.tell(event),
            LeafAction::End(event) => return Some(self.end(event)),
        }
        None
    }

    fn send(&mut self, to: PeerId, body: LeafBody, numbers: Vec<f32>) {
        if matches!(body, LeafBody::Attach { .. }) {
            self.open(to);
            if let Some(message) = self.search.ask(Instant::now(), self.config.max_stall) {
                self.observer.report(&Report::Warning { message });
            }
        }
        if let LeafBody::Gradient { weight, .. } = &body {
            (self.pace.parts, self.pace.samples) = (self.pace.parts + 1, self.pace.samples + weight);
            if self.told.elapsed() >= PACE_INTERVAL {
                self.tell_pace();
            }
        }
        let Some(link) = self.links.get(&to) else { return };
        if !link.send(body, numbers) {
            self.close(to);
            self.shared_steps.follow(LeafInput::Closed(to));
        }
    }

    /// Has a member dial this machine. One that can't be asked says nothing.
    fn ask_reach(&mut self, peer: PeerId) {
        self.learn(peer);
        let asked = reach::ask(&mut self.network, peer, self.config.max_stall);
        self.reaches.spawn(async move { Some((peer, asked.await.ok()?)) });
    }

    fn learn(&mut self, peer: PeerId) {
        let contacts = self.shared_steps.carriers();
        contacts.iter().filter(|contact| contact.peer == peer).for_each(|contact| self.network.learn(contact));
    }

    /// A new stream; what was said on one before counts no more.
    fn open(&mut self, to: PeerId) {
        self.close(to);
        self.learn(to);
        let peer = to_libp2p(to);
        self.network.abandon_dial(peer, self.config.max_stall / 8);
        self.network.connect(peer);
        self.link_number += 1;
        let link = CarrierLink::open(
            self.network.control(),
            self.network.protocols.leaf.clone(),
            (to, self.link_number),
            (self.config.results, self.config.max_stall),
            self.link_events.0.clone(),
        );
        self.links.insert(to, link);
    }

    fn close(&mut self, peer: PeerId) {
        if let Some(link) = self.links.remove(&peer) {
            let task = link.close();
            self.closing.spawn(async move { _ = task.await });
        }
        while self.closing.try_join_next().is_some() {}
    }

    fn on_link(&mut self, event: LinkEvent) {
        let LinkEvent { peer: from, number, what } = event;
        if self.links.get(&from).is_none_or(|link| link.number != number) {
            return;
        }
        let input = match what {
            Ok((body, result)) => {
                if let CarrierBody::Refused(reason) = body {
                    tracing::info!(?from, %reason, "not carried there");
                    self.search.note_refusal(reason.to_string());
                }
                LeafInput::Received { from, body, result }
            }
            Err(ReadEnd::Faulty(violation)) => LeafInput::Faulted { from, violation },
            Err(ReadEnd::Closed(error)) => {
                tracing::debug!(?from, %error, "the stream to a carrier has ended");
                LeafInput::Closed(from)
            }
            Err(ReadEnd::Unwanted) => LeafInput::Closed(from),
        };
        if !matches!(input, LeafInput::Received { .. }) {
            self.close(from);
        }
        self.shared_steps.follow(input);
    }

    fn load(
        &self,
        from: PeerId,
        number: u64,
        generation: Generation,
        (step, lineage): (u64, Lineage),
    ) -> AbortOnDropHandle<()> {
        let LeafLoopConfig { run, max_stall, max_state_bytes, shape, .. } = self.config;
        let wanted = StateRequest {
            run,
            generation,
            step,
            lineage,
            max_bytes: max_state_bytes,
            donors: vec![from],
            stall: max_stall,
            shape,
        };
        let (control, protocol) = (self.network.control(), self.network.protocols.state.clone());
        let open = move |peer| -> Opening {
            let (mut control, protocol) = (control.clone(), protocol.clone());
            Box::pin(async move { streams::open(&mut control, to_libp2p(peer), &protocol, max_stall / 2).await })
        };
        let (observer, shared_steps, loaded) =
            (self.observer.clone(), self.shared_steps.clone(), self.loaded.0.clone());
        AbortOnDropHandle::new(tokio::spawn(async move {
            let mut told: Option<Instant> = None;
            let progress = |bytes, of| {
                shared_steps.follow(LeafInput::Downloads);
                if bytes == of || told.is_none_or(|told| told.elapsed() >= REPORT_INTERVAL) {
                    told = Some(Instant::now());
                    observer.report(&Report::Syncing { step, bytes, of });
                }
            };
            let state = state::fetch(open, wanted, progress).await;
            let _ = loaded.send(Loaded { number, state }).await;
        }))
    }

    /// A download has ended, unless it is not wanted any more.
    fn on_loaded(&mut self, Loaded { number, state }: Loaded) {
        if self.loading.take_if(|(wanted, _)| *wanted == number).is_none() {
            return;
        }
        match state {
            Ok(state) => _ = self.shared_steps.act(|steps| steps.arrive(number, state)),
            Err(reason) => {
                tracing::info!(reason, "the state can't be had there");
                self.shared_steps.follow(LeafInput::NotLoaded);
            }
        }
    }

    fn tell_pace(&mut self) {
        self.told = Instant::now();
        self.observer.report(&Report::Leaves { leaves: vec![self.pace.clone()] });
    }

    fn tell(&mut self, event: LeafEvent) {
        let leaf = self.pace.peer.clone();
        match event {
            LeafEvent::Attached(carrier) => {
                self.search.end();
                self.pace.is_attached = true;
                self.observer.report(&Report::Attached { leaf, carrier: name(carrier) });
                self.tell_pace();
            }
            LeafEvent::Lost { carrier, reason } => {
                self.pace.is_attached = false;
                let reason = lost(reason);
                self.observer.report(&Report::Detached { leaf, carrier: name(carrier), reason });
                self.tell_pace();
            }
            LeafEvent::Differs { step } => {
                let message = format!(
                    "this leaf held another state than its carrier after step {step}, whose it loads: this machine may compute wrongly; check its memory and its starling release"
                );
                self.observer.report(&Report::Warning { message });
            }
            LeafEvent::Complete { .. } | LeafEvent::Finished | LeafEvent::NoCarrier | LeafEvent::Left => {}
        }
    }

    fn end(&self, event: LeafEvent) -> LeafEnd {
        match event {
            LeafEvent::Complete { digest, .. } => LeafEnd::Complete(digest),
            LeafEvent::Finished => LeafEnd::Failed(NodeError::FinishedWithoutLeaf),
            LeafEvent::NoCarrier => {
                let members = self.shared_steps.carriers().iter().map(|contact| name(contact.peer)).collect();
                LeafEnd::Failed(NodeError::NoCarrier { members, answer: self.search.answer() })
            }
            LeafEvent::Left | LeafEvent::Attached(_) | LeafEvent::Lost { .. } | LeafEvent::Differs { .. } => {
                LeafEnd::Left
            }
        }
    }

    /// Lets the last messages reach the sockets: closes all links after them and keeps the swarm going.
    async fn linger(&mut self) {
        let mut links: Vec<JoinHandle<()>> =
            std::mem::take(&mut self.links).into_values().map(CarrierLink::close).collect();
        let mut closing = std::mem::take(&mut self.closing);
        let flushed = async {
            while closing.join_next().await.is_some() {}
            futures::future::join_all(links.iter_mut()).await;
            tokio::time::sleep(FLUSH).await;
        };
        let deadline = Instant::now() + LINGER;
        tokio::pin!(flushed);
        loop {
            tokio::select! {
                () = &mut flushed => return,
                () = sleep_until(deadline) => return,
                _ = self.network.swarm.select_next_some() => {}
                Some(_) = self.link_events.1.recv() => {}
            }
        }
    }
}

/// Why a leaf and its carrier have parted, as the leaf says.
fn lost(reason: LossReason) -> String {
    match reason {
        LossReason::Closed => "the stream to it has closed".to_owned(),
        LossReason::Refused(reason) => format!("it takes no leaf: {reason}"),
        LossReason::LetGo(reason) => format!("it let this leaf go: {reason}"),
        LossReason::Silent => "nothing was heard of it for too long".to_owned(),
        LossReason::NoStep => "no step was committed there for too long".to_owned(),
        LossReason::NoState => "the state could not be had from it".to_owned(),
        LossReason::TooFarBehind => "this leaf is too far behind its results".to_owned(),
        LossReason::Faulty => "it did what no correct carrier does".to_owned(),
    }
}
