//! Drives the all-reduce machine over two byte streams: one from the previous member of the ring, one to the next.
//!
//! One task owns a view's ring. The trainer thread hands it a buffer and gets it back reduced, or learns that the
//! operation was interrupted because the view changes. A reader and a writer task move bytes beside it through
//! bounded queues, so the reduction of one segment overlaps the transfer of others; what can't be sent yet waits as
//! an index, not as bytes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use libp2p::{Stream, StreamProtocol};
use libp2p_stream::Control;
use starling_collective::{
    Input, Layout, LayoutConfig, OperationKey, Output, SegmentHeader, SegmentId, Session, kernel,
};
use starling_topology::{Gate, PeerId, Ring, View, ViewId};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};

use crate::event::{NetworkEvent, RingFailure};
use crate::identity::to_libp2p;
use crate::streams;

/// Segments that wait between the ring task and its reader or writer: 2 MiB each way at 64 KiB.
const MAX_WAITING: usize = 32;

/// One bucket list to reduce: a step's gradient, already multiplied by this member's weight.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) step: u64,
    pub(crate) buffer: Vec<f32>,
    /// The sum of all members' weights.
    pub(crate) divisor: f32,
    /// Gets the weighted mean; dropped if the operation is interrupted.
    pub(crate) reply: oneshot::Sender<Vec<f32>>,
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
    pub(crate) protocol: StreamProtocol,
    pub(crate) traffic: Arc<Traffic>,
}

/// The event loop's end of a ring. Dropping it interrupts the operation under way and closes the streams.
#[derive(Debug)]
pub(crate) struct RingHandle {
    pub(crate) view: ViewId,
    pub(crate) previous: PeerId,
    gate: watch::Sender<Gate>,
    incoming: mpsc::Sender<Stream>,
    task: AbortHandle,
    /// Keeps the task, and with it both streams, while no step runs: a neighbour may still be in its last one.
    _operations: mpsc::Sender<Operation>,
}

impl RingHandle {
    /// Interrupts operations of steps that `gate` does not admit.
    pub(crate) fn hold(&self, gate: Gate) {
        self.gate.send_replace(gate);
    }

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

/// Starts the ring of `view` for the member `me`. Operations go into the returned queue.
pub(crate) fn start(
    view: &View,
    me: PeerId,
    config: RingConfig,
    control: Control,
    events: mpsc::Sender<NetworkEvent>,
) -> (RingHandle, mpsc::Sender<Operation>) {
    let ring = Ring::plan(view);
    let rank = ring.rank_of(me).expect("invariant: a member starts only its own ring");
    let (gate, gate_watch) = watch::channel(Gate::open());
    let (incoming, streams) = mpsc::channel(1);
    let (operations, queue) = mpsc::channel(1);
    let driver = Driver {
        layout: Layout::new(config.elements, ring.world_size(), config.layout),
        rank,
        next: ring.next(rank),
        previous: ring.previous(rank),
        view: view.id(),
        config,
        gate: gate_watch,
        events,
    };
    let (view, previous) = (driver.view, driver.previous);
    let task = tokio::spawn(driver.run(control, streams, queue)).abort_handle();
    (RingHandle { view, previous, gate, incoming, task, _operations: operations.clone() }, operations)
}

/// Reads a ring stream's greeting: the view that it belongs to.
pub(crate) async fn greet(stream: &mut Stream) -> std::io::Result<ViewId> {
    let mut view = [0; 32];
    stream.read_exact(&mut view).await?;
    Ok(ViewId(view))
}

struct Driver {
    layout: Layout,
    rank: starling_topology::Rank,
    next: PeerId,
    previous: PeerId,
    view: ViewId,
    config: RingConfig,
    gate: watch::Receiver<Gate>,
    events: mpsc::Sender<NetworkEvent>,
}

/// A segment as it came.
#[derive(Debug)]
struct Frame {
    header: SegmentHeader,
    payload: Vec<u8>,
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
        let limit = self.config.open_limit;
        let open = async {
            let mut stream = streams::open(control, to_libp2p(self.next), &self.config.protocol, limit).await?;
            stream.write_all(&self.view.0).await?;
            stream.flush().await?;
            std::io::Result::Ok(stream)
        };
        let broken = |peer| move |error: std::io::Error| Blame(peer, RingFailure::Broken(error.to_string()));
        let (outgoing, accepted) = tokio::join!(open, tokio::time::timeout(limit, incoming.recv()));
        let outgoing = outgoing.map_err(broken(self.next))?;
        let Ok(Some(accepted)) = accepted else {
            return Err(Blame(self.previous, RingFailure::Broken("it did not open its ring stream in time".into())));
        };

        let (frames_in, mut frames) = mpsc::channel(MAX_WAITING);
        let (to_writer, segments) = mpsc::channel(MAX_WAITING);
        let longest = self.longest_payload();
        tasks.spawn(read(accepted, longest, self.config.traffic.clone(), frames_in));
        tasks.spawn(write(outgoing, self.config.traffic.clone(), segments));

        while let Some(operation) = operations.recv().await {
            self.reduce(operation, &mut frames, &to_writer).await?;
        }
        Ok(())
    }

    fn longest_payload(&self) -> usize {
        self.config.layout.segment_elements * size_of::<f32>()
    }

    /// Runs one operation to its end, or until the gate closes before its step.
    async fn reduce(
        &mut self,
        mut operation: Operation,
        frames: &mut mpsc::Receiver<Result<Frame, RingFailure>>,
        writer: &mpsc::Sender<Vec<u8>>,
    ) -> Result<(), Blame> {
        let key = OperationKey { step: operation.step, attempt: 0 };
        let mut session = Session::new(self.layout.clone(), self.rank, self.config.in_flight);
        let mut sends: VecDeque<SegmentId> = VecDeque::new();
        let misbehaved = |violation: String| Blame(self.previous, RingFailure::Misbehaved(violation));
        session.handle(Input::Start).map_err(|violation| misbehaved(violation.to_string()))?;
        loop {
            while let Some(output) = session.poll() {
                execute(&mut operation, &self.layout, output, &mut sends)
                    .map_err(|violation| misbehaved(format!("step {}: {violation}", operation.step)))?;
            }
            if session.is_done() && sends.is_empty() {
                // If nobody waits for it any more, the view is changing and the step will run again.
                let _ = operation.reply.send(operation.buffer);
                return Ok(());
            }
            tokio::select! {
                biased;
                changed = self.gate.wait_for(|gate| !gate.admits(operation.step)) => {
                    // An error means that the handle is gone, and this task with it.
                    drop(changed);
                    return Ok(());
                }
                slot = writer.reserve(), if !sends.is_empty() => {
                    let Ok(slot) = slot else {
                        return Err(Blame(self.next, RingFailure::Broken("its ring stream closed".into())));
                    };
                    if let Some(segment) = sends.pop_front() {
                        slot.send(encode(&operation.buffer, &self.layout, key, segment));
                    }
                }
                // Once done, what comes belongs to the next step.
                frame = frames.recv(), if !session.is_done() => {
                    let frame = match frame {
                        Some(Ok(frame)) => frame,
                        Some(Err(failure)) => return Err(Blame(self.previous, failure)),
                        None => return Err(Blame(self.previous, RingFailure::Broken("its ring stream closed".into()))),
                    };
                    let SegmentHeader { operation: theirs, segment, .. } = frame.header;
                    if theirs != key {
                        return Err(misbehaved(format!("step {}: sent a segment of step {}", key.step, theirs.step)));
                    }
                    let expected = self.layout.range(&segment).map(|range| range.len() * size_of::<f32>());
                    if expected != Some(frame.payload.len()) {
                        return Err(misbehaved(format!("step {}: sent {segment:?} with a wrong length", key.step)));
                    }
                    let from = self.layout.world_size().previous(self.rank);
                    session
                        .handle(Input::Received { from, segment, payload: frame.payload })
                        .map_err(|violation| misbehaved(format!("step {}: {violation}", key.step)))?;
                }
            }
        }
    }
}

/// Does to the buffer what the machine asks.
fn execute(
    operation: &mut Operation,
    layout: &Layout,
    output: Output<Vec<u8>>,
    sends: &mut VecDeque<SegmentId>,
) -> Result<(), String> {
    let range = |segment: &SegmentId| layout.range(segment).expect("invariant: the machine names its own segments");
    let non_finite = |segment: SegmentId| move |_| format!("sent a value that is not finite in {segment:?}");
    match output {
        Output::Send { segment, .. } => sends.push_back(segment),
        Output::Accumulate { segment, payload } => {
            kernel::accumulate(&mut operation.buffer[range(&segment)], &payload).map_err(non_finite(segment))?;
        }
        Output::Store { segment, payload } => {
            kernel::store(&mut operation.buffer[range(&segment)], &payload).map_err(non_finite(segment))?;
        }
        Output::Divide { segment } => kernel::divide(&mut operation.buffer[range(&segment)], operation.divisor),
        Output::BucketDone(_) | Output::Done => {}
    }
    Ok(())
}

fn encode(buffer: &[f32], layout: &Layout, operation: OperationKey, segment: SegmentId) -> Vec<u8> {
    let values = &buffer[layout.range(&segment).expect("invariant: the machine names its own segments")];
    let payload_bytes = u32::try_from(size_of_val(values)).expect("invariant: segments are short");
    let mut bytes = Vec::with_capacity(SegmentHeader::BYTES + size_of_val(values));
    bytes.extend(SegmentHeader { operation, segment, payload_bytes }.to_bytes());
    kernel::encode(values, &mut bytes);
    bytes
}

/// Moves whole segments from the stream into the queue, until either ends.
async fn read(
    mut stream: Stream,
    longest: usize,
    traffic: Arc<Traffic>,
    frames: mpsc::Sender<Result<Frame, RingFailure>>,
) {
    loop {
        let frame = read_frame(&mut stream, longest).await;
        if let Ok(frame) = &frame {
            traffic.received.fetch_add((SegmentHeader::BYTES + frame.payload.len()) as u64, Ordering::Relaxed);
        }
        let failed = frame.is_err();
        if frames.send(frame).await.is_err() || failed {
            return;
        }
    }
}

async fn read_frame(stream: &mut (impl AsyncRead + Unpin), longest: usize) -> Result<Frame, RingFailure> {
    let broken = |error: std::io::Error| RingFailure::Broken(format!("its ring stream ended: {error}"));
    let mut header = [0; SegmentHeader::BYTES];
    stream.read_exact(&mut header).await.map_err(broken)?;
    let header =
        SegmentHeader::from_bytes(&header).map_err(|violation| RingFailure::Misbehaved(violation.to_string()))?;
    let length = header.payload_bytes as usize;
    if length > longest {
        let claim = format!("announced a segment of {length} bytes where at most {longest} are allowed");
        return Err(RingFailure::Misbehaved(claim));
    }
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload).await.map_err(broken)?;
    Ok(Frame { header, payload })
}

/// Moves encoded segments from the queue into the stream, flushing whenever the queue runs dry.
async fn write(mut stream: Stream, traffic: Arc<Traffic>, mut segments: mpsc::Receiver<Vec<u8>>) {
    while let Some(bytes) = segments.recv().await {
        let written = async {
            stream.write_all(&bytes).await?;
            if segments.is_empty() { stream.flush().await } else { Ok(()) }
        };
        // The reader of a broken link sees it too; the ring task learns it from the closed queue.
        if written.await.is_err() {
            return;
        }
        traffic.sent.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    }
    let _ = stream.close().await;
}

#[cfg(test)]
mod tests;
