//! The donor's side.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use super::{MAX_REQUEST_BYTES, Reply, Request, decode, encode};
use crate::frame;
use crate::snapshots::{Found, Snapshots};

/// Answers one joiner until it closes its stream, or is silent for `stall`.
pub(crate) async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    snapshots: Arc<Snapshots>,
    stall: Duration,
) -> io::Result<()> {
    loop {
        let request: Request = match timeout(stall, frame::read(&mut stream, MAX_REQUEST_BYTES)).await? {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            bytes => decode(&bytes?)?,
        };
        let reply = match request {
            Request::Manifest { generation, step } => match snapshots.after(generation, step) {
                Found::Nothing => Reply::NotHere,
                Found::Later => Reply::Later,
                Found::Here(snapshot) => Reply::Manifest(snapshot.manifest().encode()),
            },
            Request::Chunk { snapshot, chunk } => {
                let snapshot = snapshots.with_id(snapshot);
                let found =
                    snapshot.as_ref().and_then(|snapshot| Some((snapshot.manifest().step, snapshot.chunk(chunk)?)));
                match found {
                    Some((step, chunk)) => {
                        snapshots.wait_for_room(step, chunk.len()).await;
                        Reply::Chunk(chunk.to_vec())
                    }
                    None => Reply::NotHere,
                }
            }
        };
        timeout(stall, frame::write(&mut stream, &encode(&reply))).await??;
    }
}
