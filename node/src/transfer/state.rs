//! The replicated state: what most donors say that it is.

use std::future::Future;
use std::io;
use std::time::Duration;

use futures::{AsyncRead, AsyncWrite};
use starling_engine::download::DownloadConfig;
use starling_run::state::snapshot::MAX_SNAPSHOT_MANIFEST_BYTES;
use starling_run::{PartialSnapshot, ReplicatedState, SnapshotManifest};
use starling_topology::{Digest, Generation, Lineage, PeerId, RunId, ShufflePolicy};

use super::Request;
use super::chunks::{self, Whole};

/// What is asked for.
#[derive(Debug, Clone)]
pub(crate) struct StateRequest {
    pub(crate) run: RunId,
    /// The view that the joiner entered with.
    pub(crate) generation: Generation,
    pub(crate) step: u64,
    /// Its lineage.
    pub(crate) lineage: Lineage,
    /// No state of the run is longer, in bytes.
    pub(crate) max_bytes: u64,
    pub(crate) donors: Vec<PeerId>,
    /// The run's longest stall.
    pub(crate) stall: Duration,
    pub(crate) shape: Shape,
}

/// What all states of the run have in common. A learner that loads another one has to end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    /// All but the frozen ones.
    pub(crate) parameters: usize,
    pub(crate) frozen: usize,
    pub(crate) moments: usize,
    pub(crate) scalars: usize,
    /// The ledger's, as what follows.
    pub(crate) seed: u64,
    pub(crate) batch_size: u32,
    pub(crate) micro_batch: u32,
    pub(crate) shuffle: ShufflePolicy,
    /// `None` if that does not matter.
    pub(crate) samples: Option<u32>,
}

impl Shape {
    fn fits(&self, state: &ReplicatedState) -> bool {
        let ledger = &state.ledger;
        (state.parameters.len(), state.frozen.len(), state.moments.len(), state.scalars.len())
            == (self.parameters, self.frozen, self.moments, self.scalars)
            && (ledger.seed(), ledger.batch_size(), ledger.micro_batch(), ledger.shuffle())
                == (self.seed, self.batch_size, self.micro_batch, self.shuffle)
            && self.samples.is_none_or(|samples| ledger.samples() == samples)
    }
}

/// Fetches a state: the one that most donors name, or, if there is none, one that can be had whole. `open` connects to a donor;
/// `progress` is told how many bytes are here, and of how many.
///
/// # Errors
/// Why it can't be had.
pub(crate) async fn fetch<S, Open>(
    open: impl Fn(PeerId) -> Open,
    wanted: StateRequest,
    progress: impl FnMut(u64, u64),
) -> Result<Box<ReplicatedState>, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    Open: Future<Output = io::Result<S>> + Send + 'static,
{
    let mut arriving = Arriving { wanted: &wanted, assembly: None, here: 0, state: None, progress };
    chunks::fetch(&open, &wanted.donors, DownloadConfig::of_state(wanted.stall), &mut arriving).await?;
    arriving.state.ok_or_else(|| "nothing was loaded".to_owned())
}

/// A state on its way.
struct Arriving<'a, Progress> {
    wanted: &'a StateRequest,
    assembly: Option<PartialSnapshot>,
    here: u64,
    state: Option<Box<ReplicatedState>>,
    progress: Progress,
}

impl<Progress: FnMut(u64, u64)> Whole for Arriving<'_, Progress> {
    type Manifest = SnapshotManifest;

    fn question(&self) -> (Request, usize) {
        let StateRequest { generation, step, .. } = *self.wanted;
        (Request::Manifest { generation, step }, MAX_SNAPSHOT_MANIFEST_BYTES)
    }

    fn read(&self, bytes: &[u8]) -> Result<SnapshotManifest, String> {
        let StateRequest { run, step, lineage, .. } = *self.wanted;
        let manifest = SnapshotManifest::decode(bytes).map_err(|error| error.to_string())?;
        let is_wanted = (manifest.run, manifest.step, manifest.lineage) == (run, step, lineage);
        if is_wanted { Ok(manifest) } else { Err("it named another state".to_owned()) }
    }

    fn id(manifest: &SnapshotManifest) -> Digest {
        manifest.id()
    }

    async fn begin(&mut self, manifest: SnapshotManifest) -> Result<Vec<Digest>, String> {
        self.here = 0;
        let begun = PartialSnapshot::new(manifest, self.wanted.max_bytes).map_err(|error| error.to_string())?;
        Ok(self.assembly.insert(begun).missing())
    }

    async fn insert(&mut self, chunk: Vec<u8>) -> Result<(), String> {
        let Some(assembly) = &mut self.assembly else { return Ok(()) };
        self.here += chunk.len() as u64;
        assembly.insert(chunk).map_err(|error| error.to_string())?;
        (self.progress)(self.here, assembly.manifest().bytes);
        Ok(())
    }

    async fn finish(&mut self) -> Result<(), String> {
        let Some(assembly) = self.assembly.take() else { return Ok(()) };
        // Hashing a large state takes a while; nothing else may wait for it.
        let assembled = tokio::task::spawn_blocking(move || assembly.finish()).await;
        let state = assembled.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        if !self.wanted.shape.fits(&state) {
            return Err("it is of another model, optimizer or data".to_owned());
        }
        self.state = Some(Box::new(state));
        Ok(())
    }
}
