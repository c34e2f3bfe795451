//! Membership messages between peers: one ordered stream in each direction.

use std::time::Duration;

use futures::AsyncWriteExt;
use libp2p::{Stream, StreamProtocol};
use libp2p_stream::Control;
use starling_topology::message::MAX_ENVELOPE_BYTES;
use starling_topology::{Envelope, PeerId};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::event::NetworkEvent;
use crate::identity::{from_libp2p, to_libp2p};
use crate::{frame, streams};

/// Messages that wait for one peer. One that reads so slowly is as good as lost.
const MAX_WAITING: usize = 256;

/// Our direction: messages to one peer, in order. Dropping it closes the stream after the last message.
#[derive(Debug)]
pub(crate) struct Link {
    /// Tells its failure from that of an earlier one.
    pub(crate) number: u64,
    queue: mpsc::Sender<Vec<u8>>,
    /// When to give up opening the stream.
    deadline: watch::Sender<Instant>,
    pub(crate) task: JoinHandle<()>,
}

impl Link {
    /// Opens the stream in a task; messages wait until it is there. Opening and each message may take `limit`.
    pub(crate) fn open(
        mut control: Control,
        protocol: StreamProtocol,
        peer: PeerId,
        number: u64,
        limit: Duration,
        events: mpsc::Sender<NetworkEvent>,
    ) -> Self {
        let (queue, mut waiting) = mpsc::channel::<Vec<u8>>(MAX_WAITING);
        let (deadline, give_up_at) = watch::channel(Instant::now() + limit);
        let task = tokio::spawn(async move {
            let written = async {
                let mut stream =
                    streams::open_until(&mut control, to_libp2p(peer), &protocol, || *give_up_at.borrow()).await?;
                while let Some(bytes) = waiting.recv().await {
                    tokio::time::timeout(limit, frame::write(&mut stream, &bytes)).await??;
                }
                stream.close().await
            };
            if let Err(error) = written.await {
                tracing::debug!(?peer, %error, "control link failed");
                let _ = events.send(NetworkEvent::LinkFailed { peer, link: number }).await;
            }
        });
        Self { number, queue, deadline, task }
    }

    /// Gives a stream that is not open yet so much time from now.
    pub(crate) fn wait(&self, limit: Duration) {
        self.deadline.send_replace(Instant::now() + limit);
    }

    /// Queues a message; `false` if the peer has stopped reading.
    pub(crate) fn send(&self, envelope: &Envelope) -> bool {
        self.queue.try_send(envelope.encode()).is_ok()
    }

    /// Closes the stream once everything that waits is written.
    pub(crate) fn close(self) -> JoinHandle<()> {
        self.task
    }
}

/// The other direction: hands a peer's messages to the event loop, in order, and its end after them.
pub(crate) async fn read(peer: libp2p::PeerId, mut stream: Stream, events: mpsc::Sender<NetworkEvent>) {
    let Some(from) = from_libp2p(&peer) else { return };
    if events.send(NetworkEvent::ControlOpened { peer: from }).await.is_err() {
        return;
    }
    while let Ok(bytes) = frame::read(&mut stream, MAX_ENVELOPE_BYTES).await {
        let event = match Envelope::decode(&bytes) {
            Ok(envelope) => NetworkEvent::Received { from, envelope: Box::new(envelope) },
            Err(violation) => NetworkEvent::Misbehaved { peer: from, violation: violation.to_string() },
        };
        if events.send(event).await.is_err() {
            return;
        }
    }
    let _ = events.send(NetworkEvent::ControlClosed { peer: from }).await;
}
