//! Many bytes on a stream: their length (u64, big-endian), then the bytes.

use std::io;
use std::time::Duration;

use futures::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

/// Each piece must get through within the stall limit, which sets a minimum rate.
const PIECE_BYTES: usize = 64 * 1024;

/// Writes `bytes` and flushes.
pub(crate) async fn write(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8], stall: Duration) -> io::Result<()> {
    stream.write_all(&(bytes.len() as u64).to_be_bytes()).await?;
    for piece in bytes.chunks(PIECE_BYTES) {
        timeout(stall, stream.write_all(piece)).await??;
    }
    timeout(stall, stream.flush()).await?
}

/// Reads at most `max` bytes. Memory grows with what has arrived, not with what the sender claims.
pub(crate) async fn read(stream: &mut (impl AsyncRead + Unpin), max: usize, stall: Duration) -> io::Result<Vec<u8>> {
    let mut length = [0; 8];
    timeout(stall, stream.read_exact(&mut length)).await??;
    let length = usize::try_from(u64::from_be_bytes(length)).unwrap_or(usize::MAX);
    if length > max {
        let message = format!("{length} bytes where at most {max} are possible");
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    let mut bytes = Vec::new();
    let mut piece = vec![0; PIECE_BYTES];
    while bytes.len() < length {
        let wanted = PIECE_BYTES.min(length - bytes.len());
        let read = timeout(stall, stream.read(&mut piece[..wanted])).await??;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes.extend_from_slice(&piece[..read]);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STALL: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn many_bytes_survive_the_trip() {
        let bytes: Vec<u8> = (0..3 * PIECE_BYTES + 5).map(|at| at as u8).collect();
        let mut wire = Vec::new();
        write(&mut wire, &bytes, STALL).await.expect("a Vec takes all");
        assert_eq!(read(&mut wire.as_slice(), bytes.len(), STALL).await.expect("whole"), bytes);
        let error = read(&mut &wire[..wire.len() - 1], bytes.len(), STALL).await.expect_err("cut");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[tokio::test]
    async fn a_claim_beyond_the_cap_is_refused_before_a_byte_is_kept() {
        let error = read(&mut u64::MAX.to_be_bytes().as_slice(), 1024, STALL).await.expect_err("too long");
        assert!(error.to_string().contains("at most 1024"), "{error}");
    }
}
