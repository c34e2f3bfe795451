//! Hands the replicated state from a member to a joiner.

use std::io;
use std::time::Duration;

use futures::{AsyncReadExt, AsyncWriteExt};
use libp2p::{PeerId, Stream, StreamProtocol};
use libp2p_stream::Control;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::event::NetworkEvent;
use crate::identity::from_libp2p;
use crate::streams;

/// Unit of transfer. Each must arrive within the stall limit, which sets a minimum rate.
const PIECE_BYTES: usize = 64 * 1024;

/// Answers one joiner: the state's length (u64, big-endian), then its bytes.
pub(crate) async fn serve(peer: PeerId, mut stream: Stream, events: mpsc::Sender<NetworkEvent>, stall: Duration) {
    let Some(peer) = from_libp2p(&peer) else { return };
    let (reply, state) = oneshot::channel();
    if events.send(NetworkEvent::StateAsked { peer, reply }).await.is_err() {
        return;
    }
    let sent = async {
        let bytes = timeout(stall, state).await?.map_err(io::Error::other)?;
        stream.write_all(&(bytes.len() as u64).to_be_bytes()).await?;
        for piece in bytes.chunks(PIECE_BYTES) {
            timeout(stall, stream.write_all(piece)).await??;
        }
        stream.close().await
    };
    if let Err(error) = io::Result::<()>::from(sent.await) {
        tracing::warn!(?peer, %error, "a joiner did not get the whole state");
    }
}

/// Fetches the state from `donor`: at most `max` bytes.
pub(crate) async fn fetch(
    mut control: Control,
    donor: PeerId,
    protocol: StreamProtocol,
    max: usize,
    stall: Duration,
) -> Result<Vec<u8>, String> {
    let fetched = async {
        let mut stream = streams::open(&mut control, donor, &protocol, stall).await?;
        let mut length = [0; 8];
        timeout(stall, stream.read_exact(&mut length)).await??;
        let length = usize::try_from(u64::from_be_bytes(length)).unwrap_or(usize::MAX);
        if length > max {
            return Err(io::Error::other(format!("a state of {length} bytes where at most {max} are possible")));
        }
        // Memory grows with what has arrived, not with what the donor claims.
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
    };
    fetched.await.map_err(|error: io::Error| error.to_string())
}
