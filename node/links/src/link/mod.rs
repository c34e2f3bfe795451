//! Both ends of a link for segments, over whichever transport.

pub(crate) mod links;
pub(crate) mod thread;
pub(crate) mod transport;
pub(crate) mod withheld;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use libp2p::Stream;
use starling_collective::{Buffer, Codec, SegmentHeader, Workspace};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::config::{LinkConfig, TrafficMetrics};
use crate::direct::parallel::{ParallelReceiver, ParallelSender};
use crate::error::LinkFailure;
use crate::greeting::handshake::Connection;
use crate::link::transport::Transport;
use crate::local;

/// Segments that wait between the reducer and a libp2p stream's task: 2 MiB each way at 128 KiB.
const MAX_WAITING: usize = 16;

/// How a link is made. Between links of one kind, segments are passed on without a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Over TCP connections of its own.
    Direct,
    /// Through memory.
    Local,
    /// Over a libp2p stream.
    Universal,
}

impl Kind {
    /// Whether what came is passed on with its buffer, rather than copied into the next link's memory.
    pub fn gives_buffers(self) -> bool {
        self == Self::Direct
    }
}

/// The link to another member.
#[derive(Debug)]
pub struct OutgoingLink(Sending);

#[derive(Debug)]
enum Sending {
    Direct(Box<ParallelSender>, Transport),
    /// With room for what a codec writes.
    Local(Box<local::Sender>, Vec<u8>),
    Universal {
        queue: mpsc::Sender<Vec<u8>>,
        waiting: Option<Vec<u8>>,
    },
}

impl OutgoingLink {
    /// Over `connections` if there are some, else over `stream`, by a task in `tasks`.
    pub fn new(stream: Stream, connections: Vec<Connection>, config: &LinkConfig, tasks: &mut JoinSet<()>) -> Self {
        Self::over(connections, config).unwrap_or_else(|| {
            let (queue, segments) = mpsc::channel(MAX_WAITING);
            tasks.spawn(write(stream, config.traffic.clone(), segments));
            Self(Sending::Universal { queue, waiting: None })
        })
    }

    /// Over `connections`; `None` if there are none.
    pub fn over(mut connections: Vec<Connection>, config: &LinkConfig) -> Option<Self> {
        let one = connections.pop()?;
        let transport = one.transport();
        Some(Self(match local::Sender::new(one, config) {
            Ok(sender) => Sending::Local(Box::new(sender), Vec::new()),
            Err(one) => {
                connections.push(one);
                Sending::Direct(Box::new(ParallelSender::new(connections, config)), transport)
            }
        }))
    }

    /// How its bytes travel.
    pub fn transport(&self) -> Transport {
        match &self.0 {
            Sending::Direct(_, transport) => *transport,
            Sending::Local(..) => Transport::Local,
            Sending::Universal { .. } => Transport::Universal,
        }
    }

    /// Whether a segment can be [loaded](Self::load).
    pub fn has_room(&self) -> bool {
        match &self.0 {
            Sending::Direct(sender, _) => sender.has_room(),
            Sending::Local(..) | Sending::Universal { .. } => !self.is_busy(),
        }
    }

    /// Whether a segment is on its way.
    pub fn is_busy(&self) -> bool {
        match &self.0 {
            Sending::Direct(sender, _) => sender.is_busy(),
            Sending::Local(sender, _) => sender.is_busy(),
            Sending::Universal { waiting, .. } => waiting.is_some(),
        }
    }

    /// Takes a segment of the workspace, to be sent by [`Self::flush`]. There must be room.
    pub fn load(&mut self, header: &SegmentHeader, workspace: &mut Workspace) {
        let segment = &header.segment;
        match &mut self.0 {
            Sending::Direct(sender, _) => {
                sender.load(header, header.payload_bytes as usize, |payload| workspace.write(segment, payload));
            }
            Sending::Local(sender, _) if header.codec == Codec::F32 => {
                let range = workspace.layout().range(segment);
                let range = range.expect("invariant: the machine names its own segments");
                sender.load(header, &workspace.values()[range]);
            }
            Sending::Local(sender, payload) => {
                payload.clear();
                workspace.encode(segment, payload);
                sender.load_bytes(header, payload);
            }
            Sending::Universal { waiting, .. } => {
                let mut bytes = Vec::with_capacity(SegmentHeader::BYTES + header.payload_bytes as usize);
                bytes.extend(header.to_bytes());
                workspace.encode(segment, &mut bytes);
                *waiting = Some(bytes);
            }
        }
    }

    /// Whether [`Self::pass_on`] would take a segment now that came over a link of `kind`.
    pub fn can_pass_on(&self, kind: Kind) -> bool {
        match (&self.0, kind) {
            (Sending::Direct(sender, _), Kind::Direct) => sender.can_pass_on(),
            (Sending::Local(sender, _), Kind::Local) => !sender.is_busy(),
            (Sending::Direct(..) | Sending::Local(..) | Sending::Universal { .. }, _) => false,
        }
    }

    /// Takes the payload that came last, or what it is now, as the segment that `header` names, to be sent by
    /// [`Self::flush`].
    ///
    /// # Panics
    /// If [`Self::can_pass_on`] says no.
    pub fn pass_on(&mut self, header: &SegmentHeader, from: &mut IncomingLink) {
        match (&mut self.0, &mut from.0) {
            (Sending::Direct(sender, _), Receiving::Direct(receiver, _)) => sender.pass_on(header, receiver),
            (Sending::Local(sender, _), Receiving::Local(receiver)) => {
                let (_, payload) = receiver.segment();
                sender.load_bytes(header, payload);
            }
            _ => panic!("segments are passed on between links of one kind only"),
        }
    }

    /// Sends what is on its way, at least until there is room. Can be cancelled and called again. Without `may_sleep` the caller
    /// looks again by itself.
    ///
    /// # Errors
    /// Why the link is broken.
    pub async fn flush(&mut self, may_sleep: bool) -> Result<(), String> {
        match &mut self.0 {
            Sending::Direct(sender, _) => {
                sender.flush().await.map_err(|error| format!("its direct connection ended: {error}"))
            }
            Sending::Local(sender, _) => {
                sender.flush(may_sleep).await.map_err(|error| format!("its local link ended: {error}"))
            }
            Sending::Universal { queue, waiting } => {
                let slot = queue.reserve().await.map_err(|_| "its stream for segments closed".to_owned())?;
                if let Some(bytes) = waiting.take() {
                    slot.send(bytes);
                }
                Ok(())
            }
        }
    }
}

/// The link from another member.
#[derive(Debug)]
pub struct IncomingLink(Receiving);

#[derive(Debug)]
enum Receiving {
    Direct(Box<ParallelReceiver>, Transport),
    Local(Box<local::Receiver>),
    Universal { queue: mpsc::Receiver<Result<Frame, LinkFailure>>, current: Frame },
}

impl IncomingLink {
    /// Over `connections` if there are some, else over `stream`, by a task in `tasks`.
    pub fn new(stream: Stream, connections: Vec<Connection>, config: &LinkConfig, tasks: &mut JoinSet<()>) -> Self {
        Self::over(connections, config).unwrap_or_else(|| {
            let (frames, queue) = mpsc::channel(MAX_WAITING);
            tasks.spawn(read(stream, config.longest_payload, config.traffic.clone(), frames));
            Self::of(queue)
        })
    }

    /// Over `connections`; `None` if there are none.
    pub fn over(mut connections: Vec<Connection>, config: &LinkConfig) -> Option<Self> {
        let one = connections.pop()?;
        let transport = one.transport();
        Some(Self(match local::Receiver::new(one, config) {
            Ok(receiver) => Receiving::Local(Box::new(receiver)),
            Err(one) => {
                connections.push(one);
                Receiving::Direct(Box::new(ParallelReceiver::new(connections, config)), transport)
            }
        }))
    }

    /// What comes out of this queue.
    fn of(queue: mpsc::Receiver<Result<Frame, LinkFailure>>) -> Self {
        Self(Receiving::Universal { queue, current: Frame { header: [0; SegmentHeader::BYTES], payload: Vec::new() } })
    }

    /// How its bytes travel.
    pub fn transport(&self) -> Transport {
        match &self.0 {
            Receiving::Direct(_, transport) => *transport,
            Receiving::Local(_) => Transport::Local,
            Receiving::Universal { .. } => Transport::Universal,
        }
    }

    /// How it is made.
    pub fn kind(&self) -> Kind {
        match &self.0 {
            Receiving::Direct(..) => Kind::Direct,
            Receiving::Local(_) => Kind::Local,
            Receiving::Universal { .. } => Kind::Universal,
        }
    }

    /// Waits for a segment of the operation of `step`. Can be cancelled and called again, until it fails. Without `may_sleep`
    /// the caller looks again by itself.
    ///
    /// # Errors
    /// Why the link is broken, or what the other member did wrong.
    pub async fn next(&mut self, step: u64, may_sleep: bool) -> Result<(), LinkFailure> {
        match &mut self.0 {
            Receiving::Local(receiver) => {
                let ended = |error| LinkFailure::Broken(format!("its local link ended: {error}"));
                receiver.next(may_sleep).await.map_err(ended)
            }
            Receiving::Direct(receiver, _) => {
                // A record that can't be opened may be a stranger's doing: it breaks the link, and accuses nobody.
                let ended = |error| LinkFailure::Broken(format!("its direct connection ended: {error}"));
                receiver.next(step).await.map_err(ended)
            }
            Receiving::Universal { queue, current } => {
                let closed = || LinkFailure::Broken("its stream for segments closed".to_owned());
                *current = queue.recv().await.ok_or_else(closed)??;
                Ok(())
            }
        }
    }

    /// The header and payload that came last.
    pub fn segment(&mut self) -> (&[u8; SegmentHeader::BYTES], &mut [u8]) {
        match &mut self.0 {
            Receiving::Direct(receiver, _) => receiver.segment(),
            Receiving::Local(receiver) => receiver.segment(),
            Receiving::Universal { current, .. } => (&current.header, &mut current.payload),
        }
    }
}

/// A segment as it came over a stream.
#[derive(Debug)]
struct Frame {
    header: [u8; SegmentHeader::BYTES],
    payload: Vec<u8>,
}

/// Moves whole segments from the stream into the queue, until either ends.
async fn read(
    mut stream: Stream,
    longest: usize,
    traffic: Arc<TrafficMetrics>,
    frames: mpsc::Sender<Result<Frame, LinkFailure>>,
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

async fn read_frame(stream: &mut (impl AsyncRead + Unpin), longest: usize) -> Result<Frame, LinkFailure> {
    let broken = |error: std::io::Error| LinkFailure::Broken(format!("its stream for segments ended: {error}"));
    let mut header = [0; SegmentHeader::BYTES];
    stream.read_exact(&mut header).await.map_err(broken)?;
    let parsed = SegmentHeader::from_bytes(&header);
    let parsed = parsed.map_err(|violation| LinkFailure::Misbehaved(violation.to_string()))?;
    let length = parsed.payload_bytes as usize;
    if length > longest {
        let claim = format!("announced a segment of {length} bytes where at most {longest} are allowed");
        return Err(LinkFailure::Misbehaved(claim));
    }
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload).await.map_err(broken)?;
    Ok(Frame { header, payload })
}

/// Moves encoded segments from the queue into the stream, flushing whenever the queue runs dry.
async fn write(mut stream: Stream, traffic: Arc<TrafficMetrics>, mut segments: mpsc::Receiver<Vec<u8>>) {
    while let Some(bytes) = segments.recv().await {
        let written = async {
            stream.write_all(&bytes).await?;
            if segments.is_empty() { stream.flush().await } else { Ok(()) }
        };
        // The reader of a broken link sees it too; the reducer learns it from the closed queue.
        if written.await.is_err() {
            return;
        }
        traffic.sent.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    }
    let _ = stream.close().await;
}

#[cfg(test)]
mod tests;
