//! How fast bytes get from one member to another: the protocol, both ends.
//!
//! The measuring end sends a length (u32, big-endian) and as many bytes; the other end answers with one byte when all have
//! come. Length 0 is a round trip. Lengths grow until a transfer takes long enough to be told from a round trip, so a slow
//! link carries little and a fast one shows what it can. The end of the stream ends it.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use libp2p::PeerId;
use starling_topology::message::MAX_MEMBERS;
use starling_topology::plan::Link;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

/// Round trips before the first bytes; the shortest counts.
const TRIPS: u32 = 4;
/// What is sent first.
const FIRST: u32 = 64 << 10;
/// By how much more is sent next.
const GROWTH: u32 = 4;
/// The most that is sent at once.
const LONGEST: u32 = 4 << 20;
/// All lengths together: a third more than the longest one.
const MOST: u32 = LONGEST / 3 * 4;
/// A transfer is long enough once it takes this many round trips: then what was sent before the first of it was confirmed
/// counts little.
const ROUND_TRIPS: u32 = 8;
/// But no shorter than this, in which a processor may have been busy elsewhere, and no longer than that: control messages wait
/// behind it.
const LONG: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(500));
/// What one transfer may take, at either end.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);
/// How soon the same member may measure again.
const PAUSE: Duration = Duration::from_secs(1);
const PIECE: usize = 64 << 10;

/// Measures the way to the other end of `stream`.
///
/// # Errors
/// If the other end is busy, or does not answer.
pub(crate) async fn measure(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<Link> {
    let piece = vec![0; PIECE];
    let mut round_trip = Duration::MAX;
    for _ in 0..TRIPS {
        round_trip = round_trip.min(timeout(LIMIT, send(stream, 0, &piece)).await??);
    }
    let long = (round_trip * ROUND_TRIPS).clamp(LONG.0, LONG.1);
    let mut length = FIRST;
    loop {
        let took = match timeout(LIMIT, send(stream, length, &piece)).await {
            Ok(took) => took?.saturating_sub(round_trip),
            // So slow a link is worth knowing, if not exactly.
            Err(_) => LIMIT,
        };
        if took >= long || length == LONGEST {
            let rate = u128::from(length) * 1_000_000_000 / took.as_nanos().max(1);
            return Ok(Link::measured(round_trip / 2, u64::try_from(rate).unwrap_or(u64::MAX)));
        }
        length *= GROWTH;
    }
}

/// How long it takes until `length` bytes are confirmed.
async fn send(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), length: u32, piece: &[u8]) -> io::Result<Duration> {
    let began = Instant::now();
    stream.write_all(&length.to_be_bytes()).await?;
    let mut left = length as usize;
    while left > 0 {
        let part = left.min(piece.len());
        stream.write_all(&piece[..part]).await?;
        left -= part;
    }
    stream.flush().await?;
    stream.read_exact(&mut [0]).await?;
    Ok(began.elapsed())
}

/// The other end, for all members. It takes bytes from one at a time: two would halve each other's rate.
#[derive(Debug)]
pub(crate) struct Sink {
    turn: Semaphore,
    /// When each was served last.
    served: Mutex<BTreeMap<PeerId, Instant>>,
}

impl Sink {
    pub(crate) fn new() -> Self {
        Self { turn: Semaphore::new(1), served: Mutex::default() }
    }

    /// Takes what `peer` sends, unless another one does, or it has just done so.
    pub(crate) async fn serve(&self, peer: PeerId, mut stream: impl AsyncRead + AsyncWrite + Unpin) {
        let Ok(_turn) = self.turn.try_acquire() else { return };
        if !self.is_due(peer) {
            return;
        }
        if let Err(error) = take(&mut stream).await {
            tracing::debug!(%peer, %error, "a probe broke off");
        }
    }

    fn is_due(&self, peer: PeerId) -> bool {
        let mut served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if served.get(&peer).is_some_and(|last| now - *last < PAUSE) {
            return false;
        }
        if served.len() >= MAX_MEMBERS {
            served.clear();
        }
        served.insert(peer, now);
        true
    }
}

/// Confirms what comes until the stream ends. Bytes and time are bounded.
async fn take(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    let (mut room, mut requests) = (MOST, 0);
    loop {
        let mut length = [0; 4];
        match timeout(LIMIT, stream.read_exact(&mut length)).await? {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
        let length = u32::from_be_bytes(length);
        requests += 1;
        let fits = length <= LONGEST && length <= room && requests <= 2 * TRIPS;
        if !fits {
            let message = format!("a probe of {length} bytes, after {} in {requests} requests", MOST - room);
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        room -= length;
        let receive = async {
            let mut left = length as usize;
            while left > 0 {
                let most = left.min(piece.len());
                match stream.read(&mut piece[..most]).await? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    some => left -= some,
                }
            }
            stream.write_all(&[0]).await?;
            stream.flush().await
        };
        timeout(LIMIT, receive).await??;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use libp2p::identity::Keypair;
    use tokio_util::compat::TokioAsyncReadCompatExt;

    use super::*;

    fn peer() -> PeerId {
        Keypair::generate_ed25519().public().to_peer_id()
    }

    #[tokio::test]
    async fn what_is_measured_is_what_a_link_can_be() {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let sink = Arc::new(Sink::new());
        let served = tokio::spawn({
            let sink = sink.clone();
            async move { sink.serve(peer(), theirs.compat()).await }
        });
        let mut ours = ours.compat();
        let link = measure(&mut ours).await.expect("the other end takes it");
        assert!(link.is_up() && link.delay_us < 1_000_000, "{link:?}");
        drop(ours);
        served.await.expect("it ends with the stream");
    }

    #[tokio::test]
    async fn who_sends_too_much_or_too_often_is_cut_off() {
        for lengths in [vec![LONGEST + 1], vec![LONGEST, LONGEST], vec![0; 2 * TRIPS as usize + 1]] {
            let (ours, theirs) = tokio::io::duplex(1 << 16);
            let taken = tokio::spawn(async move { take(&mut theirs.compat()).await });
            let mut ours = ours.compat();
            for length in lengths {
                // The last one fails, at one end or the other.
                let _ = send(&mut ours, length, &[0; PIECE]).await;
            }
            let error = taken.await.expect("no panic").expect_err("too much");
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        }
    }

    #[tokio::test]
    async fn one_is_served_at_a_time_and_nobody_twice_at_once() {
        let (sink, one, other) = (Arc::new(Sink::new()), peer(), peer());
        let (ours, theirs) = tokio::io::duplex(64);
        let first = tokio::spawn({
            let sink = sink.clone();
            async move { sink.serve(one, theirs.compat()).await }
        });
        let mut ours = ours.compat();
        send(&mut ours, 0, &[]).await.expect("it is served");
        let (second, theirs) = tokio::io::duplex(64);
        sink.serve(other, theirs.compat()).await;
        send(&mut second.compat(), 0, &[]).await.expect_err("another is being served");
        drop(ours);
        first.await.expect("it ends");
        let (again, theirs) = tokio::io::duplex(64);
        sink.serve(one, theirs.compat()).await;
        send(&mut again.compat(), 0, &[]).await.expect_err("it was served just now");
    }
}
