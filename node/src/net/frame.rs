//! Length-prefixed frames on a byte stream, and the messages that they hold.

use std::io;
use std::time::Duration;

use futures::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

/// A message's bytes.
pub(crate) fn encode(message: &impl Serialize) -> Vec<u8> {
    postcard::to_allocvec(message).expect("invariant: what is said to peers always encodes")
}

/// Reads bytes that are one message, and nothing besides.
pub(crate) fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> io::Result<T> {
    let invalid = |reason: String| io::Error::new(io::ErrorKind::InvalidData, reason);
    let (message, rest) = postcard::take_from_bytes(bytes).map_err(|error| invalid(error.to_string()))?;
    if rest.is_empty() { Ok(message) } else { Err(invalid("bytes after the message".into())) }
}

/// Writes `bytes` behind their length (u32, big-endian), and flushes.
pub(crate) async fn write(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(|_| io::Error::other("a frame of over 4 GiB"))?;
    stream.write_all(&length.to_be_bytes()).await?;
    stream.write_all(bytes).await?;
    stream.flush().await
}

/// Reads one frame of at most `max` bytes.
///
/// Memory grows with what has arrived, not with what the sender claims.
pub(crate) async fn read(stream: &mut (impl AsyncRead + Unpin), max: usize) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).await?;
    read_bytes(stream, u32::from_be_bytes(length).into(), max).await
}

/// Reads the bytes that were announced, of which at most `max` are possible. Memory grows with what has arrived, not with what the
/// sender claims. The caller sets a limit to the time for all of them: one for each read would let a sender give them byte by byte.
pub(crate) async fn read_bytes(stream: &mut (impl AsyncRead + Unpin), length: u64, max: usize) -> io::Result<Vec<u8>> {
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if length > max {
        let message = format!("{length} bytes where at most {max} are allowed");
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    let mut bytes = Vec::new();
    stream.take(length as u64).read_to_end(&mut bytes).await?;
    if bytes.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes)
}

/// Reads one frame that may begin at any time, and is then to end within `limit`. One longer than `free` bytes waits for room
/// until it is taken in.
pub(crate) async fn read_within(
    stream: &mut (impl AsyncRead + Unpin),
    max: usize,
    limit: Duration,
    (free, room): (usize, Option<&Semaphore>),
) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length[..1]).await?;
    let rest = async {
        stream.read_exact(&mut length[1..]).await?;
        let wanted = u32::from_be_bytes(length) as usize;
        let permits = u32::try_from(wanted.min(max)).unwrap_or(u32::MAX);
        let _room = match room.filter(|_| wanted > free) {
            Some(room) => Some(room.acquire_many(permits).await.map_err(io::Error::other)?),
            None => None,
        };
        read_bytes(stream, wanted as u64, max).await
    };
    tokio::time::timeout(limit, rest).await?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_frame_survives_the_trip() {
        let mut wire = Vec::new();
        write(&mut wire, b"starling").await.expect("a Vec takes all");
        assert_eq!(read(&mut wire.as_slice(), 8).await.expect("a whole frame"), b"starling");
    }

    #[tokio::test]
    async fn a_claim_beyond_the_cap_is_refused_before_a_byte_is_kept() {
        let error = read(&mut u32::MAX.to_be_bytes().as_slice(), 1024).await.expect_err("too long");
        assert!(error.to_string().contains("at most 1024"), "{error}");
    }

    /// Whoever begins a frame and never ends it would else hold memory for ever.
    #[tokio::test]
    async fn a_frame_that_does_not_end_is_given_up() {
        let (mut sender, receiver) = tokio::io::duplex(1024);
        let mut receiver = tokio_util::compat::TokioAsyncReadCompatExt::compat(receiver);
        tokio::io::AsyncWriteExt::write_all(&mut sender, &[0, 0, 0, 9, 1]).await.expect("room");
        let limit = Duration::from_millis(10);
        let error = read_within(&mut receiver, 16, limit, (16, None)).await.expect_err("no end");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn a_long_frame_waits_for_room_and_a_short_one_does_not() {
        let (mut long, mut short) = (Vec::new(), Vec::new());
        write(&mut long, &[7; 100]).await.expect("a Vec takes all");
        write(&mut short, &[7; 10]).await.expect("a Vec takes all");
        let room = Semaphore::new(100);
        let taken = room.acquire_many(1).await.expect("open");
        let limit = Duration::from_millis(10);
        read_within(&mut short.as_slice(), 100, limit, (10, Some(&room))).await.expect("short");
        let error = read_within(&mut long.as_slice(), 100, limit, (10, Some(&room))).await.expect_err("no room");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(taken);
        read_within(&mut long.as_slice(), 100, limit, (10, Some(&room))).await.expect("there is room");
        assert_eq!(room.available_permits(), 100, "it is given back");
    }

    #[tokio::test]
    async fn a_cut_frame_is_an_error() {
        let mut wire = Vec::new();
        write(&mut wire, b"starling").await.expect("a Vec takes all");
        let error = read(&mut &wire[..wire.len() - 1], 8).await.expect_err("cut");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
