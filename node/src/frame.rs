//! Length-prefixed frames on a byte stream.

use std::io;

use futures::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

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
    let length = u32::from_be_bytes(length) as usize;
    if length > max {
        let message = format!("a frame of {length} bytes where at most {max} are allowed");
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    let mut bytes = Vec::new();
    stream.take(length as u64).read_to_end(&mut bytes).await?;
    if bytes.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes)
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

    #[tokio::test]
    async fn a_cut_frame_is_an_error() {
        let mut wire = Vec::new();
        write(&mut wire, b"starling").await.expect("a Vec takes all");
        let error = read(&mut &wire[..wire.len() - 1], 8).await.expect_err("cut");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
