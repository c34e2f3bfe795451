//! The streams between a member and its leaves: a reader and a writer for each, and one task that hands out what the machine says.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{AsyncReadExt, AsyncWriteExt};
use libp2p::{Stream, StreamProtocol};
use libp2p_stream::Control;
use starling_engine::leaf::violation::LeafViolation;
use starling_run::ResultRecord;
use starling_topology::{CarrierBody, LeafBody, PeerId, Time};
use tokio::sync::mpsc;
use tokio::time::{sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use super::told::LeavesTold;
use super::wire::{self, ReadEnd};
use crate::access::Access;
use crate::credentials::identity::from_libp2p;
use crate::member::shared_steps::{CarrierInput, CarrierOutput, SharedSteps};
use crate::net::streams;
use crate::observe::report::Observer;
use crate::transfer::result_transfer::EncodedResult;

/// Messages that wait for one leaf: more than its machine lets come together. One that reads so slowly is lost.
const MAX_WAITING: usize = 256;

/// What goes to one leaf.
type Said = (CarrierBody, Option<Arc<ResultRecord>>);

/// A leaf's newest stream.
struct OpenStream {
    number: u64,
    queue: mpsc::Sender<Said>,
    /// Nothing more is read of it.
    is_over: CancellationToken,
}

/// See the module.
pub(crate) struct CarrierStreams {
    shared_steps: Arc<SharedSteps>,
    access: Access,
    stall: Duration,
    encoded: EncodedResult,
    open: Mutex<Streams>,
    /// Those that are open, or write what is left.
    tracker: TaskTracker,
}

/// What serves a member's leaves. Dropping it ends that.
pub(crate) struct CarrierHandle {
    tracker: TaskTracker,
    _task: AbortOnDropHandle<()>,
}

impl CarrierHandle {
    /// Waits until the streams of all leaves are closed, once their machine has let them go.
    pub(crate) async fn flushed(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }
}

#[derive(Default)]
struct Streams {
    /// Counts streams.
    numbers: u64,
    of: BTreeMap<PeerId, OpenStream>,
    /// Those on which a peer has just asked: what the machine said before it heard that is for the one before.
    asking: BTreeMap<PeerId, OpenStream>,
}

impl CarrierStreams {
    /// Serves the leaves of the member `me`, and whoever wants to be one, until the handle is dropped.
    pub(crate) fn serve(
        (me, control): (PeerId, Control),
        protocol: StreamProtocol,
        (shared_steps, access): (Arc<SharedSteps>, Access),
        stall: Duration,
        observer: Arc<dyn Observer>,
    ) -> CarrierHandle {
        let (encoded, open, tracker) = (EncodedResult::default(), Mutex::default(), TaskTracker::new());
        let all = Arc::new(Self { shared_steps, access, stall, encoded, open, tracker: tracker.clone() });
        let served = all.clone();
        streams::serve(control, protocol, move |peer, stream| {
            let streams = served.clone();
            async move {
                if let Some(peer) = from_libp2p(&peer) {
                    streams.attend(peer, stream).await;
                }
            }
        });
        let told = LeavesTold::new(me, observer);
        let task = AbortOnDropHandle::new(tokio::spawn(async move { all.hand_out(told).await }));
        CarrierHandle { tracker, _task: task }
    }

    /// Speaks with one peer over a stream that it has opened.
    async fn attend(&self, peer: PeerId, stream: Stream) {
        // Who may have the state may take part through this member: it is shown nothing more.
        if !self.access.may_fetch(peer) {
            return tracing::info!(?peer, "a peer whose invitation does not hold is no leaf");
        }
        let (mut reader, mut writer) = stream.split();
        // No numbers are read of who has not asked yet.
        let admits = |body: &LeafBody| match body {
            LeafBody::Attach { .. } => Ok(Some(0)),
            _ => Err(LeafViolation::OutOfTurn),
        };
        let first = timeout(self.stall, wire::read_leaf(&mut reader, admits, self.stall)).await;
        let attach = match first {
            Ok(Ok(said @ (LeafBody::Attach { .. }, None))) => said,
            Ok(Ok(_)) => return self.fault(peer, LeafViolation::OutOfTurn),
            Ok(Err(ReadEnd::Faulty(violation))) => return self.fault(peer, violation),
            Ok(Err(ReadEnd::Closed(_) | ReadEnd::Unwanted)) | Err(_) => return,
        };
        let _tracked = self.tracker.token();
        let (queue, waiting) = mpsc::channel(MAX_WAITING);
        let (body, gradient) = attach;
        let (number, is_over) = {
            let mut streams = self.lock();
            let registered = streams.register(peer, queue);
            self.shared_steps.carry(CarrierInput::Received { from: peer, body, gradient });
            registered
        };
        let reads = async {
            tokio::select! {
                () = is_over.cancelled() => {}
                () = self.listen(peer, number, &mut reader) => {}
            }
        };
        let writes = async {
            tokio::select! {
                written = self.write(waiting, &mut writer) => {
                    if let Err(error) = written {
                        tracing::debug!(?peer, %error, "nothing more gets to a leaf");
                        self.closed(peer, number);
                    }
                }
                // What it was let go with is not kept for one that does not read.
                () = async { is_over.cancelled().await; sleep(self.stall).await } => {}
            }
        };
        futures::join!(reads, writes);
    }

    async fn read(
        &self,
        peer: PeerId,
        reader: &mut (impl futures::AsyncRead + Unpin),
    ) -> Result<(LeafBody, Option<super::numbers::PartNumbers>), ReadEnd> {
        wire::read_leaf(reader, |body| self.shared_steps.admits_of(peer, body), self.stall).await
    }

    /// Hands on what the peer says, as long as this is its newest stream.
    async fn listen(&self, peer: PeerId, number: u64, reader: &mut (impl futures::AsyncRead + Unpin)) {
        loop {
            let read = self.read(peer, reader).await;
            let input = match read {
                Ok((body, gradient)) => CarrierInput::Received { from: peer, body, gradient },
                Err(ReadEnd::Faulty(violation)) => CarrierInput::Faulted { from: peer, violation },
                Err(ReadEnd::Closed(_) | ReadEnd::Unwanted) => return self.closed(peer, number),
            };
            // No other stream of it becomes the newest between.
            let streams = self.lock();
            if !streams.is_newest(peer, number) {
                return;
            }
            let is_faulty = matches!(input, CarrierInput::Faulted { .. });
            self.shared_steps.carry(input);
            if is_faulty {
                return;
            }
        }
    }

    async fn write(
        &self,
        mut waiting: mpsc::Receiver<Said>,
        writer: &mut (impl futures::AsyncWrite + Unpin),
    ) -> std::io::Result<()> {
        while let Some((body, result)) = waiting.recv().await {
            let record = result.map(|result| self.encoded.bytes(&result));
            wire::write_carrier(writer, body, record, self.stall).await?;
        }
        timeout(self.stall, writer.close()).await?
    }

    fn fault(&self, peer: PeerId, violation: LeafViolation) {
        self.shared_steps.carry(CarrierInput::Faulted { from: peer, violation });
    }

    /// A stream has ended, or is as good as that. Of one that is not the peer's newest nobody needs to know.
    fn closed(&self, peer: PeerId, number: u64) {
        let mut streams = self.lock();
        let is_newest = streams.is_newest(peer, number);
        streams.remove(peer, number);
        if is_newest {
            self.shared_steps.carry(CarrierInput::Closed(peer));
        }
    }

    /// Hands out what the machine of this member's leaves says.
    async fn hand_out(&self, mut told: LeavesTold) {
        let mut timer: Option<Time> = None;
        loop {
            let until = timer.map(|at| tokio::time::Instant::from_std(self.shared_steps.instant(at)));
            let expires = async {
                match until {
                    Some(until) => sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            let said = tokio::select! {
                biased;
                said = self.shared_steps.said_to_leaves() => said,
                () = expires => {
                    timer = None;
                    self.shared_steps.carry(CarrierInput::Expired);
                    continue;
                }
            };
            match said {
                CarrierOutput::Send { to, body, result } => {
                    told.say(to, &body);
                    let is_answer = matches!(body, CarrierBody::Attached { .. } | CarrierBody::Refused(_));
                    let mut streams = self.lock();
                    if is_answer {
                        streams.answer(to);
                    }
                    let sent = streams.send(to, (body, result));
                    drop(streams);
                    if let Err(number) = sent {
                        self.closed(to, number);
                    }
                }
                // What waits in its queue is written before the stream is closed.
                CarrierOutput::Close(peer) => self.lock().close(peer),
                CarrierOutput::SetTimer(at) => timer = Some(at),
                CarrierOutput::Fault { leaf, violation } => told.fault(leaf, &violation),
                CarrierOutput::Event(event) => told.event(event),
                // Those are the trainer thread's, or done where they are asked.
                CarrierOutput::Clear
                | CarrierOutput::Compute { .. }
                | CarrierOutput::Drop(_)
                | CarrierOutput::Count(_)
                | CarrierOutput::Add { .. }
                | CarrierOutput::Whole(_)
                | CarrierOutput::Over(_)
                | CarrierOutput::Lend(_)
                | CarrierOutput::Release => {}
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Streams> {
        // A lock poisoned by a panic elsewhere still guards a sound map.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Streams {
    /// This is the peer's stream from now on; one before it counts no more.
    fn register(&mut self, peer: PeerId, queue: mpsc::Sender<Said>) -> (u64, CancellationToken) {
        self.numbers += 1;
        let (number, is_over) = (self.numbers, CancellationToken::new());
        let before = self.asking.insert(peer, OpenStream { number, queue, is_over: is_over.clone() });
        before.into_iter().for_each(|before| before.is_over.cancel());
        (number, is_over)
    }

    /// The peer is answered: what is said from now on is for the stream on which it has asked.
    fn answer(&mut self, peer: PeerId) {
        if let Some(asking) = self.asking.remove(&peer) {
            let before = self.of.insert(peer, asking);
            before.into_iter().for_each(|before| before.is_over.cancel());
        }
    }

    fn is_newest(&self, peer: PeerId, number: u64) -> bool {
        self.asking.get(&peer).or_else(|| self.of.get(&peer)).is_some_and(|open| open.number == number)
    }

    /// Reads nothing more of this stream of the peer, and closes it once all is written.
    fn remove(&mut self, peer: PeerId, number: u64) {
        for streams in [&mut self.asking, &mut self.of] {
            if streams.get(&peer).is_some_and(|open| open.number == number) {
                streams.remove(&peer).into_iter().for_each(|open| open.is_over.cancel());
            }
        }
    }

    /// The same of the one that the peer was answered on; of one on which it asks if there is no other: it gets no answer.
    fn close(&mut self, peer: PeerId) {
        let open = self.of.remove(&peer).or_else(|| self.asking.remove(&peer));
        open.into_iter().for_each(|open| open.is_over.cancel());
    }

    /// Has this said; the stream's number if the peer does not read.
    fn send(&self, to: PeerId, said: Said) -> Result<(), u64> {
        let Some(open) = self.of.get(&to) else { return Ok(()) };
        open.queue.try_send(said).map_err(|_| open.number)
    }
}
