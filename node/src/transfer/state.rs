//! The replicated state: what most donors say that it is.

use std::future::{Future, ready};
use std::io;
use std::time::Duration;

use futures::{AsyncRead, AsyncWrite};
use starling_run::snapshot::MAX_SNAPSHOT_MANIFEST_BYTES;
use starling_run::{Assembly, ReplicatedState, SnapshotManifest};
use starling_topology::{Digest, Generation, Lineage, PeerId, RunId};

use super::Request;
use super::chunks::{self, MAX_DONORS, Question, Whole};

/// What is asked for.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) run: RunId,
    /// The view that the joiner entered with.
    pub(crate) generation: Generation,
    pub(crate) step: u64,
    /// Its lineage.
    pub(crate) lineage: Lineage,
    /// No state of the run is longer, in bytes.
    pub(crate) max_bytes: u64,
    pub(crate) donors: Vec<PeerId>,
    /// How long one answer may take.
    pub(crate) stall: Duration,
}

/// Fetches a state. `open` connects to a donor; `progress` is told how many bytes are here, and of how many.
///
/// # Errors
/// Why it can't be had.
pub(crate) async fn fetch<S, Open>(
    open: impl Fn(PeerId) -> Open,
    wanted: Wanted,
    mut progress: impl FnMut(u64, u64),
) -> Result<Box<ReplicatedState>, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    Open: Future<Output = io::Result<S>> + Send + 'static,
{
    let Wanted { run, generation, step, lineage, max_bytes, mut donors, stall } = wanted;
    donors.truncate(MAX_DONORS);
    let request = Request::Manifest { generation, step };
    // A donor takes its snapshot between two steps, and a step may take as long as a stall.
    let patience = 2 * stall;
    let question = Question { request, longest: MAX_SNAPSHOT_MANIFEST_BYTES, stall, patience, grace: None };
    let read = move |bytes: &[u8]| {
        let manifest = SnapshotManifest::decode(bytes).map_err(io::Error::other)?;
        let is_wanted = (manifest.run, manifest.step, manifest.lineage) == (run, step, lineage);
        if is_wanted { Ok(manifest) } else { Err(io::Error::other("it named another state")) }
    };
    let answers = chunks::manifests(&open, &donors, question, read).await;
    let (manifest, idle) = answers.manifests.into_iter().next().ok_or(answers.reason)?;
    if 2 * idle.len() <= answers.answered {
        return Err(format!("the donors' states after step {step} differ"));
    }
    let (id, of, mut here) = (manifest.id(), manifest.bytes, 0);
    let mut assembly = Assembly::new(manifest, max_bytes).map_err(|error| error.to_string())?;
    let counted = |more| {
        here += more;
        progress(here, of);
    };
    chunks::fetch(&open, idle, id, &mut assembly, stall, counted).await?;
    // Hashing a large state takes a while; nothing else may wait for it.
    let assembled = tokio::task::spawn_blocking(move || assembly.finish()).await;
    let state = assembled.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
    Ok(Box::new(state))
}

impl Whole for Assembly {
    fn missing(&self) -> Vec<Digest> {
        self.missing()
    }

    fn insert(&mut self, chunk: Vec<u8>) -> impl Future<Output = Result<u64, String>> + Send {
        let length = chunk.len() as u64;
        ready(self.insert(chunk).map(|()| length).map_err(|error| error.to_string()))
    }
}
