//! The task: sets up all links of a view, then runs one operation after the other.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use futures::future::{Either, pending};
use futures::stream::{FuturesUnordered, StreamExt};
use libp2p::Stream;
use libp2p_stream::Control;
use starling_collective::{
    Buffer as _, Execution, Layout, LinkLoad, OperationKey, Schedule, SlotLayout, SumLimit, Violation, Workspace,
};
use starling_run::CallDecision;
use starling_topology::{PeerId, Rank, StallReport, ViewId};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use super::operations::{Chosen, Operations, owned};
use super::spin_policy::SpinPolicy;
use super::{Completion, Operation, Own, ReducerConfig, ResultSink};
use crate::credentials::identity::to_libp2p;
use crate::learner::contribution::Contribution;
use crate::member::event::NetworkEvent;
use crate::net::streams;
use starling_engine::CommitGate;
use starling_links::{
    BrokenLink, Connection, ConnectionCount, IncomingLink, IncomingLinkSet, LinkConfig, LinkFailure, OutgoingLink,
    OutgoingLinkSet, greeting,
};

pub(super) struct ReduceTask {
    /// `None` where all operations are all-reduces.
    pub(super) operations: Option<Operations>,
    pub(super) layout: Layout,
    pub(super) schedule: Schedule,
    /// How large numbers may be that come.
    pub(super) magnitudes: SumLimit,
    /// What members may say of themselves.
    pub(super) slots: SlotLayout,
    /// The plan's name.
    pub(super) plan: String,
    /// Why it is that one.
    pub(super) reason: String,
    /// Those whom this member sends to, in order of rank, and those from whom it receives.
    pub(super) receivers: Vec<PeerId>,
    pub(super) senders: Vec<PeerId>,
    pub(super) view: ViewId,
    /// Memory for payloads that wait for their turn.
    pub(super) spare: Vec<Vec<u8>>,
    pub(super) spin_policy: SpinPolicy,
    pub(super) config: ReducerConfig,
    pub(super) results: Arc<dyn ResultSink>,
    pub(super) gate: watch::Receiver<CommitGate>,
    pub(super) events: mpsc::Sender<NetworkEvent>,
}

/// Connections over long ways to all whom a member sends to.
const MAX_CONNECTIONS: usize = 64;

/// Over how many connections a member sends to one of `receivers`.
///
/// Connections share what they have in common in equal parts, so a link has as many as its part: with one for each, the hubs of a
/// star would wait for each other, because what goes between them is twice as much as what goes between a hub and any other.
fn connection_count(load: LinkLoad, receivers: usize) -> ConnectionCount {
    let most = u8::try_from(MAX_CONNECTIONS / receivers.max(1)).unwrap_or(u8::MAX).clamp(1, ConnectionCount::MOST);
    match load {
        LinkLoad::Even => ConnectionCount { near: 1, far: most },
        LinkLoad::Single => ConnectionCount { near: 1, far: (most / 2).max(1) },
        LinkLoad::Double => ConnectionCount { near: 2, far: most.max(2) },
    }
}

/// A link's stream, and the direct connections that replace it, if any came about.
type Linked = (Stream, Vec<Connection>);

impl ReduceTask {
    pub(super) async fn run(
        mut self,
        control: Control,
        incoming: mpsc::Receiver<(PeerId, Stream)>,
        mut operations: mpsc::Receiver<Operation>,
    ) {
        // Tasks of links: aborted with this one, when the set is dropped.
        let mut tasks = JoinSet::new();
        let (mut outgoing_links, mut incoming_links) = self.link(control, incoming, &mut tasks).await;
        let linked = NetworkEvent::Linked {
            view: self.view,
            plan: self.plan.clone(),
            reason: self.reason.clone(),
            from: incoming_links.transports(),
            to: outgoing_links.transports(),
        };
        // An error means that the event loop is gone, and this task with it.
        let _ = self.events.send(linked).await;
        while let Some(operation) = operations.recv().await {
            if let Err(broken_link) = self.reduce(operation, &mut incoming_links, &mut outgoing_links).await {
                self.give_up(broken_link).await;
            }
        }
    }

    /// Tells who is to blame, and waits for the end of the view. Links stay open until then: to close them would make
    /// all other neighbours blame this member.
    async fn give_up(&self, BrokenLink(peer, failure): BrokenLink) {
        let _ = self.events.send(NetworkEvent::ReductionFailed { peer, view: self.view, failure }).await;
        pending().await
    }

    /// All links of the view.
    async fn link(
        &self,
        control: Control,
        mut incoming: mpsc::Receiver<(PeerId, Stream)>,
        tasks: &mut JoinSet<()>,
    ) -> (OutgoingLinkSet, IncomingLinkSet) {
        let mut links = FuturesUnordered::new();
        for (rank, peer) in self.schedule.receivers().iter().zip(&self.receivers) {
            let opened = self.open(*rank, *peer, control.clone());
            links.push(Either::Left(async move { (*peer, true, opened.await) }));
        }
        let mut awaited = BTreeMap::new();
        for peer in &self.senders {
            let (hand, stream) = oneshot::channel();
            awaited.insert(*peer, hand);
            let accepted = self.accept(*peer, stream);
            links.push(Either::Right(async move { (*peer, false, accepted.await) }));
        }
        let (mut opened, mut accepted) = (BTreeMap::new(), BTreeMap::new());
        loop {
            tokio::select! {
                Some((peer, stream)) = incoming.recv() => {
                    if let Some(hand) = awaited.remove(&peer) {
                        // An error means that it came too late, which is told in its place.
                        let _ = hand.send(stream);
                    }
                }
                link = links.next() => match link {
                    Some((peer, true, Ok(link))) => _ = opened.insert(peer, link),
                    Some((peer, false, Ok(link))) => _ = accepted.insert(peer, link),
                    Some((peer, _, Err(reason))) => self.give_up(BrokenLink::broken(peer, reason)).await,
                    None => break,
                },
            }
        }
        let ReducerConfig { limits, traffic, codec, .. } = &self.config;
        let longest_payload = self.layout.longest_payload(*codec);
        let config = LinkConfig { longest_payload, limits: *limits, traffic: traffic.clone() };
        let taken = |links: &mut BTreeMap<PeerId, Linked>, peer: &PeerId| {
            links.remove(peer).expect("invariant: all links were waited for")
        };
        let mut outgoing_links = OutgoingLinkSet::from_environment();
        for (rank, peer) in self.schedule.receivers().iter().zip(&self.receivers) {
            let (stream, connections) = taken(&mut opened, peer);
            outgoing_links.add(*rank, *peer, OutgoingLink::new(stream, connections, &config, tasks));
        }
        let mut incoming_links = IncomingLinkSet::default();
        for (rank, peer) in self.schedule.senders().iter().zip(&self.senders) {
            let (stream, connections) = taken(&mut accepted, peer);
            incoming_links.add(*rank, *peer, IncomingLink::new(stream, connections, &config, tasks));
        }
        (outgoing_links, incoming_links)
    }

    /// The link to `peer`.
    async fn open(&self, rank: Rank, peer: PeerId, mut control: Control) -> Result<Linked, String> {
        let ReducerConfig { open_limit: limit, protocol, endpoint, .. } = &self.config;
        let count = connection_count(self.schedule.load(rank), self.receivers.len());
        let open = async {
            let mut stream = streams::open(&mut control, to_libp2p(peer), protocol, *limit).await?;
            let connections = greeting::open(&mut stream, endpoint, peer, self.view, count, *limit).await?;
            std::io::Result::Ok((stream, connections))
        };
        // Twice: once for the stream, once for what is agreed over it.
        let opened = tokio::time::timeout(*limit * 2, open).await;
        opened.map_err(|_| "the link to it was not ready in time".to_owned())?.map_err(|error| error.to_string())
    }

    /// The link from `peer`, likewise.
    async fn accept(&self, peer: PeerId, stream: oneshot::Receiver<Stream>) -> Result<Linked, String> {
        let limit = self.config.open_limit;
        let Ok(Ok(mut stream)) = tokio::time::timeout(limit, stream).await else {
            return Err("it did not open its stream for segments in time".to_owned());
        };
        let answer = greeting::answer(&mut stream, &self.config.endpoint, peer, self.view);
        let answered = tokio::time::timeout(limit, answer).await;
        let connections = answered.map_err(|_| "it did not say how its segments come in time".to_owned())?;
        Ok((stream, connections.map_err(|error| error.to_string())?))
    }

    /// Runs one operation to its end, or until the gate closes before its step.
    pub(super) async fn reduce(
        &mut self,
        operation: Operation,
        incoming_links: &mut IncomingLinkSet,
        outgoing_links: &mut OutgoingLinkSet,
    ) -> Result<(), BrokenLink> {
        let Operation { step, mut buffer, mut contribution, is_agreed, divisor, dropped } = operation;
        if let Some(contribution) = &contribution {
            buffer = contribution.room(buffer);
        }
        let workspace = Workspace::new(self.layout.clone(), self.config.codec, buffer, divisor);
        let mut workspace = workspace.within(self.magnitudes.clone()).with_slots(self.slots.clone());
        if let Some(dropped) = dropped {
            workspace = workspace.booking(dropped);
        }
        let (schedule, spare) = (self.schedule.clone(), std::mem::take(&mut self.spare));
        let key = OperationKey { step, attempt: 0 };
        let mut execution = Execution::new(key, schedule, workspace, self.config.in_flight, spare);
        let chooses = is_agreed && self.operations.is_some();
        let mut is_whole =
            self.drive(&mut execution, &mut contribution, chooses, incoming_links, outgoing_links).await?;
        let mut chosen = None;
        if is_whole && chooses {
            chosen = self.chosen(execution.buffer());
            if chosen.is_none() {
                // What others sum up has to come to its end.
                let elements = self.layout.shortened();
                execution.buffer_mut().room(0..elements).fill(0.0);
                is_whole = self.drive(&mut execution, &mut None, false, incoming_links, outgoing_links).await?;
            }
        }
        let workspace;
        (workspace, self.spare) = execution.finish();
        let is_finite = workspace.is_finite();
        let (mean, dropped) = workspace.finish();
        let completion = Completion { mean, is_finite, dropped, own: None };
        match chosen.filter(|_| is_whole) {
            Some(chosen) => {
                self.reduce_chosen((step, divisor), completion, &chosen, contribution, incoming_links, outgoing_links)
                    .await
            }
            None => {
                self.end(step, completion, is_whole);
                Ok(())
            }
        }
    }

    /// What all have chosen instead of an all-reduce; `None` if one is under way.
    fn chosen(&self, workspace: &Workspace) -> Option<Chosen> {
        let operations = self.operations.as_ref()?;
        let slots = workspace.values().len() + 1 - operations.behind();
        Some(operations.chosen(&workspace.values()[slots..])).filter(|chosen| !chosen.is_summed)
    }

    /// Runs what was chosen, as another try of the step, whose slots are `completed`.
    async fn reduce_chosen(
        &mut self,
        (step, divisor): (u64, f32),
        mut completed: Completion,
        chosen: &Chosen,
        contribution: Option<Contribution>,
        incoming_links: &mut IncomingLinkSet,
        outgoing_links: &mut OutgoingLinkSet,
    ) -> Result<(), BrokenLink> {
        let mut values = completed.mean;
        let behind = values.split_off(self.layout.shortened());
        match &contribution {
            Some(contribution) => contribution.fill(0..values.len(), &mut values),
            None => values.fill(0.0),
        }
        let (layout, links) = (self.config.layout, &self.schedule);
        let operations = self.operations.as_ref();
        let scheduled = operations.and_then(|known| known.schedule(chosen, values.len(), layout, links));
        let mut is_whole = true;
        if let Some((schedule, layout)) = scheduled {
            let workspace = Workspace::new(layout.clone(), self.config.codec, values, divisor);
            let workspace = workspace.within(self.magnitudes.clone());
            let (key, spare) = (OperationKey { step, attempt: 1 }, std::mem::take(&mut self.spare));
            let mut execution = Execution::new(key, schedule.clone(), workspace, self.config.in_flight, spare);
            // Where nothing is reduced, results come to any place.
            execution.bring(0);
            is_whole = self.drive(&mut execution, &mut None, false, incoming_links, outgoing_links).await?;
            let workspace;
            (workspace, self.spare) = execution.finish();
            completed.is_finite &= workspace.is_finite();
            (values, _) = workspace.finish();
            if chosen.agreed == CallDecision::ReduceScatter {
                let (zeros, ranges) = (vec![0.0; values.len()], owned(&schedule, &layout));
                completed.own = Some(Own { values: std::mem::replace(&mut values, zeros), ranges });
            }
        } else {
            // All hold the same of it.
            values.fill(0.0);
        }
        values.extend(behind);
        completed.mean = values;
        self.end(step, completed, is_whole);
        Ok(())
    }

    /// An operation is over. If it is not whole, or not admitted any more, the view is changing and the step will run again.
    fn end(&self, step: u64, completion: Completion, is_whole: bool) {
        if is_whole {
            self.results.complete(self.view, step, completion);
        } else {
            self.results.interrupted(self.view, step, completion.mean, completion.dropped);
        }
    }

    /// Runs an execution to its end, or that of its last bucket; true, unless the gate closes before its step.
    async fn drive(
        &mut self,
        execution: &mut Execution<Workspace>,
        contribution: &mut Option<Contribution>,
        last_alone: bool,
        incoming_links: &mut IncomingLinkSet,
        outgoing_links: &mut OutgoingLinkSet,
    ) -> Result<bool, BrokenLink> {
        let step = execution.key().step;
        let last = execution.buffer().layout().buckets().saturating_sub(1);
        self.spin_policy.begin(Instant::now());
        // Far less than what anybody calls a standstill, which takes an eighth of the longest stall at least.
        let quiet = self.config.open_limit / 8;
        let mut idle = pin!(tokio::time::sleep(quiet));
        loop {
            let ready = contribution.as_ref().map_or(0, |coming| self.layout.bucket_from(coming.ready_from()));
            let ready = if last_alone { ready.max(last) } else { ready };
            let all_brought = execution.bring_wanted(ready, |workspace, range| {
                if let Some(contribution) = contribution {
                    contribution.fill(range.clone(), workspace.room(range));
                }
            });
            if all_brought && !last_alone {
                *contribution = None; // Its memory is free for the next one.
            }
            execution.hand_over(|workspace, range| {
                self.results.offer(self.view, step, range.start, &workspace.values()[range])
            });
            // Until nothing waits or the links are busy: nothing else wakes this task to send what waits. Asked once for all
            // that follows: a local link can become free at any time, and whoever then neither ends nor waits for it
            // sleeps for ever.
            let blocked = outgoing_links.load(execution);
            let is_over = if last_alone { execution.has_done(last) } else { execution.is_done() };
            if is_over && !blocked {
                return Ok(true);
            }
            let looks_again = self.spin_policy.looks_again(Instant::now());
            tokio::select! {
                biased;
                changed = self.gate.wait_for(|gate| !gate.admits(step)) => {
                    // An error means that nobody wants results any more, and this task with it.
                    drop(changed);
                    return Ok(false);
                }
                () = idle.as_mut() => {
                    if self.spin_policy.idle(Instant::now()) >= quiet {
                        let awaited = awaited(step, execution, &self.senders);
                        // If there is no room for it, it is said again.
                        let _ = self.events.try_send(NetworkEvent::Awaits { view: self.view, awaited });
                    }
                    idle.as_mut().reset(tokio::time::Instant::now() + quiet);
                }
                sent = outgoing_links.flush(!looks_again), if blocked => {
                    sent?;
                    self.spin_policy.progressed(Instant::now());
                }
                received = incoming_links.next(step, if last_alone { execution.last_due() } else { execution.due() }, !looks_again) => {
                    let from = incoming_links.from(received?);
                    let peer = from.peer;
                    let failed = |violation: Violation| {
                        let said = format!("step {step}: {violation}");
                        let failure = if violation.is_blameless() { LinkFailure::Broken } else { LinkFailure::Misbehaved };
                        BrokenLink(peer, failure(said))
                    };
                    let kind = from.link.kind();
                    let (header, payload) = from.link.segment();
                    let taken = execution.take(from.rank, header, payload, &outgoing_links.after(step, kind));
                    if let Some((to, header)) = taken.map_err(failed)? {
                        outgoing_links.pass_on(to, &header, &mut from.link);
                    }
                    self.spin_policy.progressed(Instant::now());
                }
                () = progress(contribution), if execution.wanted().is_some() => self.spin_policy.progressed(Instant::now()),
                () = step_aside(), if looks_again => {}
            }
        }
    }
}

/// What is missing first in `execution`, the operation of `step`, and from which of its `senders`; nothing, if it waits for those
/// who are to take what it sends.
fn awaited(step: u64, execution: &Execution<Workspace>, senders: &[PeerId]) -> StallReport {
    let Some((place, from)) = execution.missing() else { return StallReport::nothing(step) };
    let owes = |(rank, peer): (&Rank, &PeerId)| from.contains(rank).then_some(*peer);
    let mut from: Vec<PeerId> = execution.schedule().senders().iter().zip(senders).filter_map(owes).collect();
    from.sort_unstable();
    StallReport { step, place, from }
}

/// Lets other tasks of this thread run, and other threads that wait for this core: a member's that works on what this one
/// waits for may be among them.
async fn step_aside() {
    std::thread::yield_now();
    tokio::task::yield_now().await;
}

/// Waits until more of the contribution is there.
async fn progress(contribution: &mut Option<Contribution>) {
    match contribution {
        Some(contribution) => contribution.progressed().await,
        None => pending().await,
    }
}
