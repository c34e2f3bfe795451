//! Drives the all-reduce machine over two links: one from the previous member of the ring, one to the next.
//!
//! One task owns a view's ring. It takes a buffer from its queue and hands it back reduced, or interrupted because
//! the view changes ([`Results`]). What can't be sent yet waits as an index, not as bytes, and sending never keeps the task from
//! receiving, so no order of delivery can block a ring.

mod greeting;
mod link;
mod patience;
mod sums;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use libp2p::{Stream, StreamProtocol};
use libp2p_stream::Control;
use starling_collective::{
    Codec, Input, Layout, LayoutConfig, OperationKey, Output, Phase, SegmentHeader, SegmentId, Session, kernel,
};
use starling_topology::{PeerId, Rank, Ring, View, ViewId};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};

use crate::data::handshake::Connection;
use crate::data::{Door, Limits};
use crate::event::{NetworkEvent, RingFailure};
use crate::exchange::Gate;
use crate::identity::to_libp2p;
use crate::streams;
pub(crate) use greeting::read_view;
use link::{Incoming, LinkConfig, Outgoing};
use patience::Patience;
pub(crate) use sums::Sums;

/// One bucket list to reduce: a step's gradient, already multiplied by this member's weight.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) step: u64,
    pub(crate) buffer: Vec<f32>,
    /// What the sum of all contributions is divided by.
    pub(crate) divisor: f32,
}

/// Where what becomes of operations goes, and what says which may go on.
pub(crate) trait Results: std::fmt::Debug + Send + Sync {
    /// What is admitted, as it changes.
    fn gate(&self) -> watch::Receiver<Gate>;

    /// The operation of `step` in `view` is complete, and `mean` its result. False if it is not admitted any more.
    fn complete(&self, view: ViewId, step: u64, mean: Vec<f32>) -> bool;

    /// Takes back the memory of an operation that was interrupted.
    fn interrupted(&self, buffer: Vec<f32>);
}

/// Bytes over ring links, headers included, over the node's life.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) sent: AtomicU64,
    pub(crate) received: AtomicU64,
}

/// What a ring needs besides its view.
#[derive(Debug, Clone)]
pub(crate) struct RingConfig {
    pub(crate) elements: usize,
    pub(crate) layout: LayoutConfig,
    pub(crate) in_flight: u32,
    pub(crate) open_limit: Duration,
    pub(crate) limits: Limits,
    pub(crate) protocol: StreamProtocol,
    pub(crate) door: Arc<Door>,
    pub(crate) traffic: Arc<Traffic>,
}

/// The event loop's end of a ring. Dropping it interrupts the operation under way and closes the streams.
#[derive(Debug)]
pub(crate) struct RingHandle {
    pub(crate) view: ViewId,
    pub(crate) previous: PeerId,
    /// The ring's queue. It also keeps the task, and with it both streams, while no step runs: a neighbour may still be
    /// in its last one.
    pub(crate) operations: mpsc::Sender<Operation>,
    incoming: mpsc::Sender<Stream>,
    task: AbortHandle,
}

impl RingHandle {
    /// Hands over the previous member's stream.
    pub(crate) fn connect(&self, stream: Stream) {
        // A second stream of the same view is none of a correct peer's; it is dropped.
        let _ = self.incoming.try_send(stream);
    }
}

impl Drop for RingHandle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Starts the ring of `view` for the member `me`.
pub(crate) fn start(
    view: &View,
    me: PeerId,
    config: RingConfig,
    results: Arc<dyn Results>,
    control: Control,
    events: mpsc::Sender<NetworkEvent>,
) -> RingHandle {
    let ring = Ring::plan(view);
    let rank = ring.rank_of(me).expect("invariant: a member starts only its own ring");
    let (incoming, streams) = mpsc::channel(1);
    let (operations, queue) = mpsc::channel(1);
    let driver = Driver {
        layout: Layout::new(config.elements, ring.world_size(), config.layout),
        rank,
        next: ring.next(rank),
        previous: ring.previous(rank),
        view: view.id(),
        config,
        gate: results.gate(),
        results,
        events,
    };
    let (view, previous) = (driver.view, driver.previous);
    let thread = driver.config.door.thread.clone();
    let task = thread.spawn(driver.run(control, streams, queue)).abort_handle();
    RingHandle { view, previous, operations, incoming, task }
}

struct Driver {
    layout: Layout,
    rank: Rank,
    next: PeerId,
    previous: PeerId,
    view: ViewId,
    config: RingConfig,
    results: Arc<dyn Results>,
    gate: watch::Receiver<Gate>,
    events: mpsc::Sender<NetworkEvent>,
}

/// Whose fault a failure is.
struct Blame(PeerId, RingFailure);

impl Driver {
    async fn run(
        mut self,
        mut control: Control,
        mut incoming: mpsc::Receiver<Stream>,
        mut operations: mpsc::Receiver<Operation>,
    ) {
        // The ring's own tasks: aborted with it, when the set is dropped.
        let mut tasks = JoinSet::new();
        if let Err(Blame(peer, failure)) = self.work(&mut tasks, &mut control, &mut incoming, &mut operations).await {
            let _ = self.events.send(NetworkEvent::RingFailed { peer, view: self.view, failure }).await;
        }
    }

    async fn work(
        &mut self,
        tasks: &mut JoinSet<()>,
        control: &mut Control,
        incoming: &mut mpsc::Receiver<Stream>,
        operations: &mut mpsc::Receiver<Operation>,
    ) -> Result<(), Blame> {
        let broken = |peer| move |reason: String| Blame(peer, RingFailure::Broken(reason));
        let (opened, accepted) = tokio::join!(self.open(control), self.accept(incoming));
        let (opened, accepted) = (opened.map_err(broken(self.next))?, accepted.map_err(broken(self.previous))?);
        let RingConfig { limits, traffic, .. } = &self.config;
        let config = LinkConfig { longest_payload: self.longest_payload(), limits: *limits, traffic: traffic.clone() };
        let mut outgoing = Outgoing::new(opened.0, opened.1, &config, tasks);
        let mut incoming = Incoming::new(accepted.0, accepted.1, &config, tasks);
        let (from_previous, to_next) = (incoming.transport(), outgoing.transport());
        let linked = NetworkEvent::RingLinked { view: self.view, from_previous, to_next };
        // An error means that the event loop is gone, and this task with it.
        let _ = self.events.send(linked).await;

        while let Some(operation) = operations.recv().await {
            self.reduce(operation, &mut incoming, &mut outgoing).await?;
        }
        Ok(())
    }

    /// The link to the next member: its stream, and the direct connection that replaces it, if one came about.
    async fn open(&self, control: &mut Control) -> Result<(Stream, Option<Connection>), String> {
        let RingConfig { open_limit: limit, protocol, door, .. } = &self.config;
        let open = async {
            let mut stream = streams::open(control, to_libp2p(self.next), protocol, *limit).await?;
            let connection = greeting::open(&mut stream, door, self.next, self.view, *limit).await?;
            std::io::Result::Ok((stream, connection))
        };
        // Twice: once for the stream, once for what is agreed over it.
        let opened = tokio::time::timeout(*limit * 2, open).await;
        opened.map_err(|_| "its ring link was not ready in time".to_owned())?.map_err(|error| error.to_string())
    }

    /// The link from the previous member, likewise.
    async fn accept(&self, incoming: &mut mpsc::Receiver<Stream>) -> Result<(Stream, Option<Connection>), String> {
        let limit = self.config.open_limit;
        let Ok(Some(mut stream)) = tokio::time::timeout(limit, incoming.recv()).await else {
            return Err("it did not open its ring stream in time".to_owned());
        };
        let answer = greeting::answer(&mut stream, &self.config.door, self.previous, self.view);
        let answered = tokio::time::timeout(limit, answer).await;
        let connection = answered.map_err(|_| "it did not say how its segments come in time".to_owned())?;
        Ok((stream, connection.map_err(|error| error.to_string())?))
    }

    fn longest_payload(&self) -> usize {
        self.config.layout.segment_elements * size_of::<f32>()
    }

    /// Runs one operation to its end, or until the gate closes before its step.
    async fn reduce(
        &mut self,
        mut operation: Operation,
        incoming: &mut Incoming,
        outgoing: &mut Outgoing,
    ) -> Result<(), Blame> {
        let key = OperationKey { step: operation.step, attempt: 0 };
        let mut session = Session::new(self.layout.clone(), self.rank, self.config.in_flight);
        let mut sends = Sends::default();
        let from = self.layout.world_size().previous(self.rank);
        let misbehaved = |violation: String| {
            Blame(self.previous, RingFailure::Misbehaved(format!("step {}: {violation}", key.step)))
        };
        session.handle(Input::Start).map_err(|violation| misbehaved(violation.to_string()))?;
        execute(&mut session, &mut operation, &mut [], &mut sends, false).map_err(misbehaved)?;
        let mut patience = Patience::new(Instant::now());
        loop {
            // Until nothing waits or the link is busy: nothing else wakes this task to send what waits.
            while !outgoing.is_busy()
                && let Some(segment) = sends.pop()
            {
                let range = self.layout.range(&segment).expect("invariant: the machine names its own segments");
                let header = SegmentHeader::new(key, segment, &self.layout);
                let header = header.expect("invariant: the machine names its own segments");
                outgoing.load(&header, &operation.buffer[range]);
            }
            // One answer for all that follows: whoever neither ends nor waits for the link would sleep for ever.
            let blocked = outgoing.is_busy() || !sends.is_empty();
            if session.is_done() && !blocked {
                // If it is not admitted any more, the view is changing and the step will run again.
                self.results.complete(self.view, operation.step, operation.buffer);
                return Ok(());
            }
            let looks_again = patience.looks_again(Instant::now());
            tokio::select! {
                biased;
                changed = self.gate.wait_for(|gate| !gate.admits(operation.step)) => {
                    // An error means that nobody wants results any more, and this task with it.
                    drop(changed);
                    self.results.interrupted(operation.buffer);
                    return Ok(());
                }
                sent = outgoing.flush(!looks_again), if blocked => {
                    sent.map_err(|reason| Blame(self.next, RingFailure::Broken(reason)))?;
                    patience.progressed(Instant::now());
                }
                // Once done, what comes belongs to the next step.
                received = incoming.next(!looks_again), if !session.is_done() => {
                    received.map_err(|failure| Blame(self.previous, failure))?;
                    let may_pass_on = outgoing.can_pass_on(incoming);
                    let (header, payload) = incoming.segment();
                    take(&mut session, from, key, header, payload).map_err(misbehaved)?;
                    let passes = execute(&mut session, &mut operation, payload, &mut sends, may_pass_on);
                    if passes.map_err(misbehaved)? {
                        outgoing.pass_on(incoming);
                    }
                    patience.progressed(Instant::now());
                }
                () = tokio::task::yield_now(), if looks_again => {}
            }
        }
    }
}

/// Checks a segment and hands it to the machine, whose outputs then use its payload.
fn take(
    session: &mut Session<()>,
    from: Rank,
    key: OperationKey,
    header: &[u8; SegmentHeader::BYTES],
    payload: &[u8],
) -> Result<(), String> {
    let header = SegmentHeader::from_bytes(header).map_err(|violation| violation.to_string())?;
    let SegmentHeader { operation: theirs, segment, codec, payload_bytes } = header;
    if theirs != key {
        return Err(format!("sent a segment of step {}", theirs.step));
    }
    let expected = session.layout().range(&segment).map(|range| Codec::F32.payload_bytes(range.len()));
    if codec != Codec::F32 || expected != Some(payload.len()) || payload_bytes as usize != payload.len() {
        return Err(format!("sent {segment:?} with a wrong length or codec"));
    }
    session.handle(Input::Received { from, segment, payload: () }).map_err(|violation| violation.to_string())
}

/// Segments that wait until the link is free.
#[derive(Debug, Default)]
struct Sends {
    /// What came and goes on. First, because it is still in the cache, and the ring waits for it.
    onward: VecDeque<SegmentId>,
    /// This member's own chunks, which begin their way here.
    own: VecDeque<SegmentId>,
}

impl Sends {
    fn push(&mut self, segment: SegmentId, rank: Rank) {
        let is_own = segment.phase == Phase::ReduceScatter && segment.chunk == rank;
        if is_own { self.own.push_back(segment) } else { self.onward.push_back(segment) }
    }

    fn is_empty(&self) -> bool {
        self.onward.is_empty() && self.own.is_empty()
    }

    fn pop(&mut self) -> Option<SegmentId> {
        self.onward.pop_front().or_else(|| self.own.pop_front())
    }
}

/// Does to the buffer what the machine asks. The machine uses each payload at once, so it need not hold it: whatever it
/// asks to add or store is `payload`, the segment that came last.
///
/// If that segment goes on as it is, or with this member's share added, then with `may_pass_on` it is not queued: the
/// payload is what is to be sent, and the answer is true. Its sum is not kept here then; the result comes round later.
fn execute(
    session: &mut Session<()>,
    operation: &mut Operation,
    payload: &mut [u8],
    sends: &mut Sends,
    may_pass_on: bool,
) -> Result<bool, String> {
    let mut passes_on = false;
    let mut next = session.poll();
    while let Some(output) = next {
        next = session.poll();
        let layout = session.layout();
        let range = |segment: &SegmentId| layout.range(segment).expect("invariant: the machine names its own segments");
        let non_finite = |segment: SegmentId| move |_| format!("sent a value that is not finite in {segment:?}");
        let goes_on =
            |segment| may_pass_on && matches!(next, Some(Output::Send { segment: sent, .. }) if sent == segment);
        match output {
            Output::Send { segment, .. } => sends.push(segment, session.schedule().rank()),
            Output::Accumulate { segment, payload: () } if goes_on(segment) => {
                kernel::contribute(payload, &operation.buffer[range(&segment)]).map_err(non_finite(segment))?;
                (passes_on, next) = (true, session.poll());
            }
            Output::Accumulate { segment, payload: () } => {
                kernel::accumulate(&mut operation.buffer[range(&segment)], payload).map_err(non_finite(segment))?;
            }
            Output::Store { segment, payload: () } => {
                kernel::store(&mut operation.buffer[range(&segment)], payload).map_err(non_finite(segment))?;
                if goes_on(segment) {
                    (passes_on, next) = (true, session.poll());
                }
            }
            Output::Divide { segment } => kernel::divide(&mut operation.buffer[range(&segment)], operation.divisor),
            // Plain values lose nothing, and a ring never has two payloads to put before its own.
            Output::Round { .. } | Output::Prepend { .. } | Output::BucketDone(_) | Output::Done => {}
        }
    }
    Ok(passes_on)
}

#[cfg(test)]
mod tests;
