//! The donor's side.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::{AsyncRead, AsyncWrite};
use starling_topology::{Contact, Digest};
use starling_train::SharedData;
use tokio::time::timeout;

use super::data::MAX_TOLD;
use super::{MAX_REQUEST_BYTES, Reply, Request, decode, encode};
use crate::frame;
use crate::pace::Pace;
use crate::snapshots::{Found, Snapshots};

/// What this member hands out.
#[derive(Debug)]
pub(crate) struct Shelf {
    snapshots: Arc<Snapshots>,
    /// Its data set, if its user shares it.
    data: Option<Arc<SharedData>>,
    pace: Arc<Pace>,
    /// The members of its view.
    members: Mutex<Vec<Contact>>,
}

impl Shelf {
    pub(crate) fn new(snapshots: Arc<Snapshots>, data: Option<Arc<SharedData>>, pace: Arc<Pace>) -> Arc<Self> {
        Arc::new(Self { snapshots, data, pace, members: Mutex::default() })
    }

    /// These are the members now.
    pub(crate) fn know(&self, members: impl Iterator<Item = Contact>) {
        *self.members.lock().unwrap_or_else(PoisonError::into_inner) = members.take(MAX_TOLD).collect();
    }

    fn members(&self) -> Vec<Contact> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A chunk of whatever has the manifest `of`, when it may go out.
    async fn chunk(&self, of: Digest, chunk: Digest) -> Option<Vec<u8>> {
        if let Some(snapshot) = self.snapshots.with_id(of) {
            let bytes = snapshot.chunk(chunk)?;
            self.snapshots.wait_for_room(snapshot.manifest().step, bytes.len()).await;
            return Some(bytes.to_vec());
        }
        let data = self.data.clone().filter(|data| data.id() == of)?;
        let read = tokio::task::spawn_blocking(move || data.chunk(chunk)).await.ok()?;
        let bytes =
            read.inspect_err(|error| tracing::warn!(%error, "a chunk of the data set can't be read")).ok()??;
        self.pace.wait_for_room(bytes.len()).await;
        Some(bytes)
    }
}

/// Answers one joiner until it closes its stream, or is silent for `stall`.
pub(crate) async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    shelf: Arc<Shelf>,
    stall: Duration,
) -> io::Result<()> {
    loop {
        let request: Request = match timeout(stall, frame::read(&mut stream, MAX_REQUEST_BYTES)).await? {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            bytes => decode(&bytes?)?,
        };
        let reply = match request {
            Request::Manifest { generation, step } => match shelf.snapshots.after(generation, step) {
                Found::Nothing => Reply::NotHere,
                Found::Later => Reply::Later,
                Found::Here(snapshot) => Reply::Manifest(snapshot.manifest().encode()),
            },
            Request::Chunk { of, chunk } => shelf.chunk(of, chunk).await.map_or(Reply::NotHere, Reply::Chunk),
            Request::DataManifest => {
                shelf.data.as_ref().map_or(Reply::NotHere, |data| Reply::Manifest(data.manifest().encode()))
            }
            Request::Members => Reply::Members(shelf.members()),
        };
        timeout(stall, frame::write(&mut stream, &encode(&reply))).await??;
    }
}
