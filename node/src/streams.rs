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
    loop {
        let attempt = async {
            let mut stream = control.open_stream(peer, protocol.clone()).await.map_err(io::Error::other)?;
            let mut byte = [0];
            stream.read_exact(&mut byte).await?;
            if byte == [ACCEPTED] { Ok(stream) } else { Err(io::Error::other("not a starling stream")) }
        };
        let error = match timeout(TRY_LIMIT, attempt).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => error,
            Err(_) => io::Error::new(io::ErrorKind::TimedOut, "the stream was not accepted in time"),
        };
        if Instant::now() + RETRY_PAUSE >= deadline() {
            return Err(error);
        }
        tracing::debug!(%peer, %protocol, %error, "opening a stream again");
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
