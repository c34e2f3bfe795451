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
    write_pieces(stream, bytes, stall).await
}

/// The same of bytes whose length the other side knows.
pub(crate) async fn write_pieces(
    stream: &mut (impl AsyncWrite + Unpin),
    bytes: &[u8],
    stall: Duration,
) -> io::Result<()> {
    for piece in bytes.chunks(PIECE_BYTES) {
        timeout(stall, stream.write_all(piece)).await??;
    }
    timeout(stall, stream.flush()).await?
}

/// Reads how many bytes come, or whatever else stands in their place.
pub(crate) async fn announced(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<u64> {
    let mut length = [0; 8];
    stream.read_exact(&mut length).await?;
    Ok(u64::from_be_bytes(length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::frame::read_bytes;

    const STALL: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn many_bytes_survive_the_trip() {
        let bytes: Vec<u8> = (0..3 * PIECE_BYTES + 5).map(|at| at as u8).collect();
        let mut wire = Vec::new();
        write(&mut wire, &bytes, STALL).await.expect("a Vec takes all");
        let read_all = async |mut wire: &[u8]| {
            let length = announced(&mut wire).await?;
            read_bytes(&mut wire, length, bytes.len()).await
        };
        assert_eq!(read_all(&wire).await.expect("whole"), bytes);
        let error = read_all(&wire[..wire.len() - 1]).await.expect_err("cut");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[tokio::test]
    async fn a_claim_beyond_the_cap_is_refused_before_a_byte_is_kept() {
        let error = read_bytes(&mut [0_u8; 0].as_slice(), u64::MAX, 1024).await.expect_err("too long");
        assert!(error.to_string().contains("at most 1024"), "{error}");
    }
}
