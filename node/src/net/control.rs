//! Membership messages between peers: one ordered stream in each direction.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::{AsyncRead, AsyncWriteExt};
use libp2p::StreamProtocol;
use libp2p_stream::Control;
use starling_topology::message::MAX_ENVELOPE_BYTES;
use starling_topology::{Envelope, PeerId};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::credentials::identity::{from_libp2p, to_libp2p};
use crate::member::event::NetworkEvent;
use crate::member::member_list::MemberList;
use crate::net::allowance::Allowance;
use crate::net::frame;
use crate::net::streams;

/// Messages that wait for one peer. One that reads so slowly is as good as lost.
const MAX_WAITING: usize = 256;

/// Of those who are no members: what all of them may be sending at a time, in bytes; a message that is so short does not count.
const FOREIGN_ROOM: usize = MAX_ENVELOPE_BYTES;
const FREE_BYTES: usize = 4096;
/// Messages that one of them may send, by all its streams, at once and per second, and how soon the next one is looked for.
const FOREIGN_BURST: u64 = 256;
const FOREIGN_PER_SECOND: u64 = 64;
const FOREIGN_PAUSE: Duration = Duration::from_millis(20);
/// Of so many it is remembered what they have sent.
const MAX_FOREIGN: usize = 1024;

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

/// What those may send who are no members.
pub(crate) struct Reception {
    members: Arc<MemberList>,
    /// For messages that are coming in, of all of them together, in bytes.
    room: Semaphore,
    /// What each of them may still send: who opens one stream after the other has no more for that.
    foreign: Mutex<BTreeMap<PeerId, Allowance>>,
    /// How long a message may take.
    limit: Duration,
}

impl Reception {
    pub(crate) fn new(members: Arc<MemberList>, limit: Duration) -> Arc<Self> {
        Arc::new(Self { members, room: Semaphore::new(FOREIGN_ROOM), foreign: Mutex::default(), limit })
    }

    /// Whether this peer, which is no member, may send one more message by now.
    fn takes_one(&self, peer: PeerId) -> bool {
        let now = Instant::now();
        // A lock poisoned by a panic elsewhere still guards sound numbers.
        let mut foreign = self.foreign.lock().unwrap_or_else(PoisonError::into_inner);
        if foreign.len() >= MAX_FOREIGN && !foreign.contains_key(&peer) {
            foreign.pop_first();
        }
        let allowance = || Allowance::new(FOREIGN_BURST, FOREIGN_PER_SECOND, now);
        foreign.entry(peer).or_insert_with(allowance).take(1, now)
    }
}

/// The other direction: hands a peer's messages to the event loop, in order, and its end after them.
pub(crate) async fn read(
    peer: libp2p::PeerId,
    mut stream: impl AsyncRead + Unpin,
    events: mpsc::Sender<NetworkEvent>,
    reception: Arc<Reception>,
) {
    let Some(from) = from_libp2p(&peer) else { return };
    if events.send(NetworkEvent::ControlOpened { peer: from }).await.is_err() {
        return;
    }
    loop {
        let is_member = reception.members.has(&from);
        while !is_member && !reception.takes_one(from) {
            tokio::time::sleep(FOREIGN_PAUSE).await;
        }
        let room = (!is_member).then_some(&reception.room);
        let read = frame::read_within(&mut stream, MAX_ENVELOPE_BYTES, reception.limit, (FREE_BYTES, room));
        let Ok(bytes) = read.await else { break };
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

#[cfg(test)]
mod tests {
    use starling_topology::{Body, Generation, RunId, ViewId};
    use tokio_util::compat::TokioAsyncReadCompatExt as _;

    use super::*;
    use crate::credentials::identity::Identity;

    /// How long it takes until so many messages have come of one who sends them all at once.
    async fn until_heard(count: u64, members: &[PeerId], peer: &Identity) -> Duration {
        let list = Arc::<MemberList>::default();
        list.enter(members);
        heard_by(&Reception::new(list, Duration::from_secs(60)), count, peer).await
    }

    /// The same by a stream of its own, where others may have been before.
    async fn heard_by(reception: &Arc<Reception>, count: u64, peer: &Identity) -> Duration {
        let (run, generation, view) = (RunId([7; 32]), Generation(0), ViewId::NONE);
        let message = Envelope { run, generation, view, body: Body::Synced }.encode();
        let mut flood = Vec::new();
        for _ in 0..count {
            frame::write(&mut flood, &message).await.expect("a Vec takes all");
        }
        let (mut sender, receiver) = tokio::io::duplex(flood.len());
        tokio::io::AsyncWriteExt::write_all(&mut sender, &flood).await.expect("room");
        let (events, mut heard) = mpsc::channel(16);
        let began = Instant::now();
        let reads = tokio::spawn(read(peer.peer_id(), receiver.compat(), events, reception.clone()));
        let is_message = |event: Option<NetworkEvent>| matches!(event, Some(NetworkEvent::Received { .. }));
        assert!(matches!(heard.recv().await, Some(NetworkEvent::ControlOpened { .. })));
        for _ in 0..count {
            assert!(is_message(heard.recv().await));
        }
        reads.abort();
        began.elapsed()
    }

    #[tokio::test]
    async fn a_flood_of_one_who_is_no_member_is_read_slowly() {
        let peer = Identity::generate();
        let took = until_heard(FOREIGN_BURST + FOREIGN_PER_SECOND, &[], &peer).await;
        // The bucket fills as time passes: on no machine it is sooner.
        assert!(took >= Duration::from_millis(950), "{took:?}");
        // Members say as much as they like.
        let member = from_libp2p(&peer.peer_id()).expect("an Ed25519 key");
        until_heard(16 * FOREIGN_BURST, &[member], &peer).await;
    }

    #[tokio::test]
    async fn who_opens_one_stream_after_the_other_is_read_as_slowly() {
        let (peer, other) = (Identity::generate(), Identity::generate());
        let reception = Reception::new(Arc::default(), Duration::from_secs(60));
        let began = Instant::now();
        for _ in 0..4 {
            heard_by(&reception, (FOREIGN_BURST + FOREIGN_PER_SECOND) / 4, &peer).await;
        }
        assert!(began.elapsed() >= Duration::from_millis(950), "{:?}", began.elapsed());
        let took = heard_by(&reception, FOREIGN_BURST / 2, &other).await;
        assert!(took < Duration::from_secs(10), "others are not kept waiting for it: {took:?}");
    }
}
