//! A checkpoint from other peers' disks to this one's.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::{AsyncRead, AsyncWrite};
use starling_engine::download::DownloadConfig;
use starling_run::state::snapshot::MAX_SNAPSHOT_MANIFEST_BYTES;
use starling_run::{CheckpointError, CheckpointStore, SnapshotManifest};
use starling_topology::{Digest, Head, PeerId};

use super::Request;
use super::chunks::{self, Whole};

/// What is asked for.
#[derive(Debug, Clone)]
pub(crate) struct CheckpointRequest {
    pub(crate) head: Head,
    /// No state of the run is longer, in bytes.
    pub(crate) max_bytes: u64,
    pub(crate) donors: Vec<PeerId>,
    /// The run's longest stall.
    pub(crate) stall: Duration,
}

/// Why a checkpoint can't be had.
#[derive(Debug)]
pub(crate) struct FetchError {
    pub(crate) reason: String,
    /// Whether this machine's disk did not take what came.
    pub(crate) is_disk: bool,
}

impl From<FetchError> for String {
    fn from(error: FetchError) -> Self {
        error.reason
    }
}

/// Fetches the chunks of a checkpoint that are not in `store` yet into it, and hands out its manifest, with which the store
/// [completes](CheckpointStore::complete) it. `open` connects to a donor; `progress` is told how many bytes are here, and of
/// how many.
///
/// # Errors
/// Why it can't be had. What has arrived stays.
pub(crate) async fn fetch<S, Open>(
    open: impl Fn(PeerId) -> Open,
    lacking: CheckpointRequest,
    store: &CheckpointStore,
    progress: impl FnMut(u64, u64),
) -> Result<SnapshotManifest, FetchError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    Open: Future<Output = io::Result<S>> + Send + 'static,
{
    let CheckpointRequest { head, max_bytes, donors, stall } = lacking;
    let mut arriving = Arriving { store, head, max_bytes, manifest: None, left: 0, is_disk_failing: false, progress };
    let fetched = chunks::fetch(&open, &donors, DownloadConfig::of_checkpoint(stall), &mut arriving).await;
    if let Err(reason) = fetched {
        return Err(FetchError { reason, is_disk: arriving.is_disk_failing });
    }
    let nothing = || FetchError { reason: "nothing was loaded".to_owned(), is_disk: false };
    arriving.manifest.map(Arc::unwrap_or_clone).ok_or_else(nothing)
}

/// A checkpoint on its way to the disk.
struct Arriving<'a, Progress> {
    store: &'a CheckpointStore,
    head: Head,
    max_bytes: u64,
    manifest: Option<Arc<SnapshotManifest>>,
    /// How many bytes are missing.
    left: u64,
    /// Whether the disk did not take the chunk that came last.
    is_disk_failing: bool,
    progress: Progress,
}

impl<Progress: FnMut(u64, u64)> Whole for Arriving<'_, Progress> {
    type Manifest = SnapshotManifest;

    fn question(&self) -> (Request, usize) {
        (Request::Checkpoint(self.head.manifest), MAX_SNAPSHOT_MANIFEST_BYTES)
    }

    /// The manifest, if it is the one that the head names: its name is its hash.
    fn read(&self, bytes: &[u8]) -> Result<SnapshotManifest, String> {
        let head = &self.head;
        if *blake3::hash(bytes).as_bytes() != head.manifest.0 {
            return Err("it sent another manifest".to_owned());
        }
        let manifest = SnapshotManifest::decode(bytes).map_err(|error| error.to_string())?;
        let is_its_own = (manifest.run, manifest.step, manifest.digest) == (head.run, head.step, head.digest);
        if is_its_own { Ok(manifest) } else { Err("the manifest is not of the signed state".to_owned()) }
    }

    fn id(manifest: &SnapshotManifest) -> Digest {
        manifest.id()
    }

    async fn begin(&mut self, manifest: SnapshotManifest) -> Result<Vec<Digest>, String> {
        let (bytes, most) = (manifest.bytes, self.max_bytes);
        if bytes > most {
            return Err(format!("it announces {bytes} bytes, but the run's states have at most {most}"));
        }
        let manifest = self.manifest.insert(Arc::new(manifest));
        let (store, shared) = (self.store.clone(), Arc::clone(manifest));
        let looked = tokio::task::spawn_blocking(move || store.missing(&shared)).await;
        let missing = looked.map_err(|error| error.to_string())?;
        let length = |chunk: &Digest| {
            manifest.chunks.iter().position(|place| place == chunk).map_or(0, |at| manifest.chunk_len(at))
        };
        self.left = missing.iter().map(length).sum();
        Ok(missing)
    }

    async fn insert(&mut self, chunk: Vec<u8>) -> Result<(), String> {
        let Some(manifest) = self.manifest.clone() else { return Ok(()) };
        let (store, of, length) = (self.store.clone(), manifest.bytes, chunk.len() as u64);
        let kept = tokio::task::spawn_blocking(move || store.insert(&manifest, &chunk)).await;
        let kept = kept.map_err(|error| error.to_string())?;
        self.is_disk_failing = kept.as_ref().is_err_and(CheckpointError::may_pass);
        kept.map_err(|error| error.to_string())?;
        self.left = self.left.saturating_sub(length);
        (self.progress)(of.saturating_sub(self.left), of);
        Ok(())
    }

    /// The store completes it.
    async fn finish(&mut self) -> Result<(), String> {
        Ok(())
    }
}
