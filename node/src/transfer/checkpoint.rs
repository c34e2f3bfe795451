//! A checkpoint from other peers' disks to this one's.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::{AsyncRead, AsyncWrite};
use starling_run::snapshot::MAX_SNAPSHOT_MANIFEST_BYTES;
use starling_run::{CheckpointStore, SnapshotManifest};
use starling_topology::{Digest, Head, PeerId};

use super::Request;
use super::chunks::{self, Donor, MAX_DONORS, Question, Whole};

/// How long the other donors may take to say that they hold a checkpoint once one of them has.
const GRACE: Duration = Duration::from_secs(1);

/// What is asked for.
#[derive(Debug, Clone)]
pub(crate) struct Lacking {
    pub(crate) head: Head,
    /// No state of the run is longer, in bytes.
    pub(crate) max_bytes: u64,
    pub(crate) donors: Vec<PeerId>,
    /// How long one answer may take.
    pub(crate) stall: Duration,
}

/// Fetches the chunks of a checkpoint that are not in `store` yet into it, and hands out its manifest, with which the store
/// [completes](CheckpointStore::complete) it. `open` connects to a donor; `progress` is told how many bytes are here, and of
/// how many.
///
/// # Errors
/// Why it can't be had. What has arrived stays.
pub(crate) async fn fetch<S, Open>(
    open: impl Fn(PeerId) -> Open,
    lacking: Lacking,
    store: &CheckpointStore,
    mut progress: impl FnMut(u64, u64),
) -> Result<SnapshotManifest, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    Open: Future<Output = io::Result<S>> + Send + 'static,
{
    let (manifest, idle) = find(&open, &lacking).await?;
    let manifest = Arc::new(manifest);
    let of = manifest.bytes;
    let looked = {
        let (store, manifest) = (store.clone(), Arc::clone(&manifest));
        tokio::task::spawn_blocking(move || store.missing(&manifest)).await
    };
    let missing = looked.map_err(|error| error.to_string())?;
    let length =
        |chunk: &Digest| manifest.chunks.iter().position(|place| place == chunk).map_or(0, |at| manifest.chunk_len(at));
    let mut left: u64 = missing.iter().map(length).sum();
    let counted = |more| {
        left = left.saturating_sub(more);
        progress(of.saturating_sub(left), of);
    };
    let mut arriving = Arriving { store: store.clone(), manifest, missing };
    chunks::fetch(&open, idle, lacking.head.manifest, &mut arriving, lacking.stall, counted).await?;
    Ok(Arc::unwrap_or_clone(arriving.manifest))
}

/// A checkpoint on its way to the disk.
struct Arriving {
    store: CheckpointStore,
    manifest: Arc<SnapshotManifest>,
    missing: Vec<Digest>,
}

impl Whole for Arriving {
    fn missing(&self) -> Vec<Digest> {
        self.missing.clone()
    }

    async fn insert(&mut self, chunk: Vec<u8>) -> Result<u64, String> {
        let (store, manifest, length) = (self.store.clone(), Arc::clone(&self.manifest), chunk.len() as u64);
        let kept = tokio::task::spawn_blocking(move || store.insert(&manifest, &chunk)).await;
        kept.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        Ok(length)
    }
}

/// Asks the donors for the manifest. Its name is its hash, so one right answer is enough; those who give it are asked for
/// chunks.
async fn find<S, Open>(
    open: &impl Fn(PeerId) -> Open,
    lacking: &Lacking,
) -> Result<(SnapshotManifest, Vec<Donor<S>>), String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    Open: Future<Output = io::Result<S>> + Send + 'static,
{
    let head = lacking.head;
    let question = Question {
        request: Request::Checkpoint(head.manifest),
        longest: MAX_SNAPSHOT_MANIFEST_BYTES,
        stall: lacking.stall,
        patience: Duration::ZERO,
        grace: Some(GRACE),
    };
    let donors = &lacking.donors[..lacking.donors.len().min(MAX_DONORS)];
    let answers = chunks::manifests(open, donors, question, move |bytes| checked(&head, bytes)).await;
    let (manifest, donors) = answers.manifests.into_iter().next().ok_or(answers.reason)?;
    if manifest.bytes > lacking.max_bytes {
        return Err(format!(
            "it announces {} bytes, but the run's states have at most {}",
            manifest.bytes, lacking.max_bytes
        ));
    }
    Ok((manifest, donors))
}

/// The manifest, if it is the one that `head` names.
fn checked(head: &Head, bytes: &[u8]) -> io::Result<SnapshotManifest> {
    if *blake3::hash(bytes).as_bytes() != head.manifest.0 {
        return Err(io::Error::other("it sent another manifest"));
    }
    let manifest = SnapshotManifest::decode(bytes).map_err(io::Error::other)?;
    let is_its_own = (manifest.run, manifest.step, manifest.digest) == (head.run, head.step, head.digest);
    if is_its_own { Ok(manifest) } else { Err(io::Error::other("the manifest is not of the signed state")) }
}
