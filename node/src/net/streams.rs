//! Opening and accepting byte streams between admitted peers.
//!
//! libp2p-stream loses streams in two rare cases, and says nothing: an incoming one that nobody is ready to take at that
//! instant, and an outgoing one that is asked for in the instant between a connection's making and its announcement. So
//! the accepting side says that it has the stream with one byte, and the opening side tries again if that does not come.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::time::Duration;

use futures::{AsyncReadExt, AsyncWriteExt, StreamExt};
use libp2p::{PeerId, Stream, StreamProtocol};
use libp2p_stream::Control;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};

const ACCEPTED: u8 = 0x2a;
/// How long one try may take before the next. A dial that takes longer goes on under the next try.
const TRY_LIMIT: Duration = Duration::from_secs(1);
/// The first is shorter: it is the one that is asked for while a connection is on its way, and so the one that gets lost.
const FIRST_TRY_LIMIT: Duration = Duration::from_millis(200);
/// The pause between two tries.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Streams of one protocol that are served for one peer at a time. One more is dropped, and its opener tries again: who comes
/// back may have one that has yet to be seen to end. Connections are limited, so streams are.
const MAX_SERVED_PER_PEER: usize = 4;

/// Opens a stream to `peer`, trying again until `limit` is over.
pub(crate) async fn open(
    control: &mut Control,
    peer: PeerId,
    protocol: &StreamProtocol,
    limit: Duration,
) -> io::Result<Stream> {
    let deadline = Instant::now() + limit;
    open_until(control, peer, protocol, || deadline).await
}

/// The same with a deadline that may be put off meanwhile.
pub(crate) async fn open_until(
    control: &mut Control,
    peer: PeerId,
    protocol: &StreamProtocol,
    deadline: impl Fn() -> Instant,
) -> io::Result<Stream> {
    let mut limit = FIRST_TRY_LIMIT;
    loop {
        let attempt = async {
            let mut stream = control.open_stream(peer, protocol.clone()).await.map_err(io::Error::other)?;
            let mut byte = [0];
            stream.read_exact(&mut byte).await?;
            if byte == [ACCEPTED] { Ok(stream) } else { Err(io::Error::other("not a starling stream")) }
        };
        let error = match timeout(limit, attempt).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => error,
            Err(_) => io::Error::new(io::ErrorKind::TimedOut, "the stream was not accepted in time"),
        };
        if Instant::now() + RETRY_PAUSE >= deadline() {
            return Err(error);
        }
        tracing::debug!(%peer, %protocol, %error, "opening a stream again");
        limit = TRY_LIMIT;
        sleep(RETRY_PAUSE).await;
    }
}

/// Serves each incoming stream of `protocol` in a task of its own, until the swarm is gone.
///
/// # Panics
/// If the protocol is served already.
pub(crate) fn serve<F, Served>(mut control: Control, protocol: StreamProtocol, serve: F) -> JoinHandle<()>
where
    F: Fn(PeerId, Stream) -> Served + Clone + Send + 'static,
    Served: Future<Output = ()> + Send,
{
    let mut incoming = control.accept(protocol).expect("invariant: each protocol is served once");
    tokio::spawn(async move {
        let mut tasks = JoinSet::new();
        let mut served: BTreeMap<PeerId, usize> = BTreeMap::new();
        loop {
            let (peer, mut stream) = tokio::select! {
                Some(ended) = tasks.join_next() => {
                    if let Ok(peer) = ended && let Some(count) = served.get_mut(&peer) {
                        *count -= 1;
                        if *count == 0 {
                            served.remove(&peer);
                        }
                    }
                    continue;
                }
                next = incoming.next() => match next {
                    Some(next) => next,
                    None => return,
                }
            };
            let count = served.entry(peer).or_default();
            if *count >= MAX_SERVED_PER_PEER {
                continue;
            }
            *count += 1;
            let serve = serve.clone();
            tasks.spawn(async move {
                let accept = async {
                    stream.write_all(&[ACCEPTED]).await?;
                    stream.flush().await
                };
                if matches!(timeout(TRY_LIMIT, accept).await, Ok(Ok(()))) {
                    serve(peer, stream).await;
                }
                peer
            });
        }
    })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use libp2p::core::transport::{MemoryTransport, PortUse};
    use libp2p::core::upgrade::Version;
    use libp2p::core::{Endpoint, Transport as _};
    use libp2p::swarm::{
        Config, ConnectionDenied, ConnectionId, FromSwarm, NetworkBehaviour, SwarmEvent, THandler, THandlerInEvent,
        THandlerOutEvent, ToSwarm, dummy,
    };
    use libp2p::{Multiaddr, Swarm, tls, yamux};
    use tokio::sync::oneshot;

    use super::*;
    use crate::credentials::identity::Identity;

    const PROTOCOL: StreamProtocol = StreamProtocol::new("/test");

    type Opening = Pin<Box<dyn Future<Output = io::Result<Stream>> + Send>>;

    /// Begins to open a stream just as the connection comes about, when that gets lost.
    struct TooEarly(Option<(Opening, oneshot::Sender<Opening>)>);

    #[derive(NetworkBehaviour)]
    struct Both {
        streams: libp2p_stream::Behaviour,
        early: TooEarly,
    }

    impl NetworkBehaviour for TooEarly {
        type ConnectionHandler = dummy::ConnectionHandler;
        type ToSwarm = Infallible;

        fn handle_established_inbound_connection(
            &mut self,
            _: ConnectionId,
            _: PeerId,
            _: &Multiaddr,
            _: &Multiaddr,
        ) -> Result<THandler<Self>, ConnectionDenied> {
            Ok(dummy::ConnectionHandler)
        }

        fn handle_established_outbound_connection(
            &mut self,
            _: ConnectionId,
            _: PeerId,
            _: &Multiaddr,
            _: Endpoint,
            _: PortUse,
        ) -> Result<THandler<Self>, ConnectionDenied> {
            if let Some((mut opening, begun)) = self.0.take() {
                assert!(opening.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
                assert!(begun.send(opening).is_ok());
            }
            Ok(dummy::ConnectionHandler)
        }

        fn on_swarm_event(&mut self, _: FromSwarm<'_>) {}

        fn on_connection_handler_event(&mut self, _: PeerId, _: ConnectionId, event: THandlerOutEvent<Self>) {
            match event {}
        }

        fn poll(&mut self, _: &mut Context<'_>) -> Poll<ToSwarm<Self::ToSwarm, THandlerInEvent<Self>>> {
            Poll::Pending
        }
    }

    fn swarm(identity: &Identity) -> Swarm<Both> {
        let transport = MemoryTransport::default()
            .upgrade(Version::V1)
            .authenticate(tls::Config::new(identity.keypair()).expect("a certificate"))
            .multiplex(yamux::Config::default())
            .boxed();
        let behaviour = Both { streams: libp2p_stream::Behaviour::new(), early: TooEarly(None) };
        let config = Config::with_tokio_executor().with_idle_connection_timeout(Duration::from_secs(60));
        Swarm::new(transport, behaviour, identity.peer_id(), config)
    }

    /// Whether a stream whose first request is lost is there before another try would have ended.
    async fn comes_soon() -> bool {
        let (ours, theirs) = (Identity::generate(), Identity::generate());
        let (mut near, mut far) = (swarm(&ours), swarm(&theirs));
        let served = serve(far.behaviour().streams.new_control(), PROTOCOL, |_, _| async {});
        far.listen_on("/memory/0".parse().expect("an address")).expect("room");
        let address = loop {
            if let SwarmEvent::NewListenAddr { address, .. } = far.select_next_some().await {
                break address;
            }
        };
        let (mut control, peer) = (near.behaviour().streams.new_control(), theirs.peer_id());
        let opening = async move { open(&mut control, peer, &PROTOCOL, TRY_LIMIT).await };
        let (begun, opening_begun) = oneshot::channel();
        near.behaviour_mut().early.0 = Some((Box::pin(opening), begun));
        near.dial(address).expect("dialed");
        let opened = async { opening_begun.await.expect("connected").await.is_ok() };
        let driven = async {
            loop {
                tokio::select! {
                    _ = near.select_next_some() => {}
                    _ = far.select_next_some() => {}
                }
            }
        };
        let opened = tokio::select! {
            opened = opened => opened,
            () = driven => false,
        };
        served.abort();
        opened
    }

    #[tokio::test]
    async fn a_first_request_that_is_lost_is_made_again_soon() {
        // A machine may be busy for longer once, not each time.
        for _ in 0..5 {
            if comes_soon().await {
                return;
            }
        }
        panic!("it takes the time of a whole try, again and again");
    }
}
