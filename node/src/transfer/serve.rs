//! The donor's side.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::{AsyncRead, AsyncReadExt, AsyncWrite};
use starling_engine::SnapshotStatus;
use starling_run::SharedDataset;
use starling_topology::history::PAGE_BYTES;
use starling_topology::{Contact, Digest};
use tokio::time::timeout;

use super::data::MAX_TOLD;
use super::{Evidence, MAX_REQUEST_BYTES, Reply, Request};
use crate::member::snapshots::Snapshots;
use crate::net::frame;
use crate::transfer::checkpoint_provider::CheckpointProvider;

/// Of whom joiners are told.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    /// The members of its view.
    pub(crate) members: Vec<Contact>,
    pub(crate) keepers: Vec<Contact>,
}

/// Files that this peer hands out.
#[derive(Debug, Clone, Default)]
pub(crate) struct SharedFiles {
    /// Its data set, if its user shares it.
    pub(crate) data: Option<Arc<SharedDataset>>,
    /// What the run begins with, if its founder has given that.
    pub(crate) initial: Option<Arc<SharedDataset>>,
}

impl SharedFiles {
    /// Those with this manifest.
    fn with_id(&self, id: Digest) -> Option<Arc<SharedDataset>> {
        self.data.iter().chain(&self.initial).find(|files| files.id() == id).cloned()
    }
}

/// All that this peer hands out.
#[derive(Debug)]
pub(crate) struct ChunkProviders {
    snapshots: Arc<Snapshots>,
    pub(crate) checkpoints: Arc<CheckpointProvider>,
    files: SharedFiles,
    known: Mutex<Known>,
}

impl ChunkProviders {
    pub(crate) fn new(
        snapshots: Arc<Snapshots>,
        checkpoints: Arc<CheckpointProvider>,
        files: SharedFiles,
    ) -> Arc<Self> {
        Arc::new(Self { snapshots, checkpoints, files, known: Mutex::default() })
    }

    /// These are the members now, and the keepers.
    pub(crate) fn know(&self, members: impl Iterator<Item = Contact>, keepers: impl Iterator<Item = Contact>) {
        let known = Known { members: members.take(MAX_TOLD).collect(), keepers: keepers.take(MAX_TOLD).collect() };
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = known;
    }

    /// Whom joiners are told of.
    pub(crate) fn known(&self) -> Known {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A chunk of the snapshot or the files that have the manifest `of`, else of a checkpoint, when it may go out.
    async fn chunk(&self, of: Digest, chunk: Digest) -> io::Result<Option<Vec<u8>>> {
        if let Some(snapshot) = self.snapshots.with_id(of) {
            let Some(bytes) = snapshot.chunk(chunk) else { return Ok(None) };
            self.snapshots.wait_for_room(snapshot.manifest().step, bytes.len()).await;
            return Ok(Some(bytes.to_vec()));
        }
        let bytes = match self.files.with_id(of) {
            Some(files) => {
                let read = tokio::task::spawn_blocking(move || files.chunk(chunk)).await.map_err(io::Error::other)?;
                read.inspect_err(|error| tracing::warn!(%error, "a chunk of a shared file can't be read"))
                    .ok()
                    .flatten()
            }
            None => self.checkpoints.chunk(of, chunk).await?,
        };
        if let Some(bytes) = &bytes {
            self.checkpoints.pace.wait_for_room(bytes.len()).await;
        }
        Ok(bytes)
    }
}

/// Answers one joiner or keeper until it closes its stream, or is silent for `stall`.
pub(crate) async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    chunk_providers: Arc<ChunkProviders>,
    stall: Duration,
) -> io::Result<()> {
    let checkpoint_provider = &chunk_providers.checkpoints;
    loop {
        let request: Request = match timeout(stall, frame::read(&mut stream, MAX_REQUEST_BYTES)).await? {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            bytes => frame::decode(&bytes?)?,
        };
        let reply = match request {
            Request::Manifest { generation, step } => match chunk_providers.snapshots.after(generation, step) {
                SnapshotStatus::Nothing => Reply::NotHere,
                SnapshotStatus::Later => Reply::Later,
                SnapshotStatus::Here(snapshot) => Reply::Manifest(snapshot.manifest().encode()),
            },
            Request::Chunk { of, chunk } => {
                let mut one_more = [0];
                tokio::select! {
                    found = chunk_providers.chunk(of, chunk) => found?.map_or(Reply::NotHere, Reply::Chunk),
                    // Whoever goes away, or asks before it has been answered, takes nobody else's turn.
                    _ = stream.read(&mut one_more) => return Ok(()),
                }
            }
            Request::Run => Reply::Run(checkpoint_provider.manifest().to_vec()),
            Request::Newest => {
                let (live, looks_out, proofs) = (
                    checkpoint_provider.is_live(),
                    checkpoint_provider.looks_out(),
                    checkpoint_provider.newest().await?,
                );
                Reply::Newest { live, looks_out, evidence: proofs.iter().map(Evidence::of).collect() }
            }
            Request::Checkpoint(name) => match checkpoint_provider.checkpoint(name).await? {
                Some(bytes) => {
                    checkpoint_provider.pace.wait_for_room(bytes.len()).await;
                    Reply::Manifest(bytes)
                }
                None => Reply::NotHere,
            },
            Request::View(id) => checkpoint_provider.view(id).map_or(Reply::NotHere, |view| Reply::View(view.encode())),
            Request::Chain(question) => match checkpoint_provider.guide() {
                Some(guide) => {
                    checkpoint_provider.pace.wait_for_room(PAGE_BYTES).await;
                    Reply::Chain(guide.answer(question).await?)
                }
                None => Reply::NotHere,
            },
            Request::DataManifest => manifest_of(chunk_providers.files.data.as_deref()),
            Request::InitialManifest => manifest_of(chunk_providers.files.initial.as_deref()),
            Request::Process => Reply::Process(checkpoint_provider.incarnation(), checkpoint_provider.is_live()),
            Request::Members => Reply::Members(chunk_providers.known().members),
            Request::Preprocessing => match checkpoint_provider.preprocessing().await? {
                Some(bytes) => {
                    checkpoint_provider.pace.wait_for_room(bytes.len()).await;
                    Reply::Preprocessing(bytes)
                }
                None => Reply::NotHere,
            },
        };
        timeout(stall, frame::write(&mut stream, &frame::encode(&reply))).await??;
    }
}

fn manifest_of(files: Option<&SharedDataset>) -> Reply {
    files.map_or(Reply::NotHere, |files| Reply::Manifest(files.manifest().encode()))
}
