//! The donor's side.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::{AsyncRead, AsyncWrite};
use starling_topology::Digest;
use tokio::time::timeout;

use super::{Evidence, MAX_REQUEST_BYTES, Reply, Request, decode, encode};
use crate::frame;
use crate::shelf::Shelf;
use crate::snapshots::{Found, Snapshots};

/// Answers one joiner or keeper until it closes its stream, or is silent for `stall`.
pub(crate) async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    snapshots: Arc<Snapshots>,
    shelf: Arc<Shelf>,
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
            Request::Chunk { snapshot, chunk } => handed_out(&snapshots, &shelf, snapshot, chunk).await?,
            Request::Run => Reply::Run(shelf.manifest().to_vec()),
            Request::Newest => {
                let (live, proof) = (shelf.is_live(), shelf.newest().await?);
                Reply::Newest { live, evidence: proof.as_ref().map(Evidence::of) }
            }
            Request::Checkpoint(name) => match shelf.checkpoint(name).await? {
                Some(bytes) => {
                    shelf.pace.wait_for_room(bytes.len()).await;
                    Reply::Manifest(bytes)
                }
                None => Reply::NotHere,
            },
            Request::View(id) => shelf.view(id).map_or(Reply::NotHere, |view| Reply::View(view.encode())),
        };
        timeout(stall, frame::write(&mut stream, &encode(&reply))).await??;
    }
}

/// A chunk of a snapshot in memory, or of a checkpoint on disk.
async fn handed_out(snapshots: &Snapshots, shelf: &Arc<Shelf>, snapshot: Digest, chunk: Digest) -> io::Result<Reply> {
    if let Some(snapshot) = snapshots.with_id(snapshot) {
        let Some(bytes) = snapshot.chunk(chunk) else { return Ok(Reply::NotHere) };
        snapshots.wait_for_room(snapshot.manifest().step, bytes.len()).await;
        return Ok(Reply::Chunk(bytes.to_vec()));
    }
    let Some(bytes) = shelf.chunk(chunk).await? else { return Ok(Reply::NotHere) };
    shelf.pace.wait_for_room(bytes.len()).await;
    Ok(Reply::Chunk(bytes))
}
