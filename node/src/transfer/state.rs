//! The replicated state: what most donors say that it is.

use std::cmp::Reverse;
use std::future::{Future, ready};
use std::io;
use std::time::Duration;

use futures::{AsyncRead, AsyncWrite};
use starling_run::snapshot::MAX_SNAPSHOT_MANIFEST_BYTES;
use starling_run::{Assembly, ReplicatedState, SnapshotManifest};
use starling_topology::{Digest, Generation, Lineage, PeerId, RunId};

use super::Request;
use super::chunks::{self, Answers, Donor, MAX_DONORS, Question, Whole};
use crate::identity::to_libp2p;

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
    pub(crate) shape: Shape,
}

/// What all states of the run have in common. A learner that loads another one has to end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) parameters: usize,
    pub(crate) moments: usize,
    pub(crate) scalars: usize,
    /// The ledger's, as what follows.
    pub(crate) seed: u64,
    pub(crate) batch_size: u32,
    /// `None` if that does not matter.
    pub(crate) samples: Option<u32>,
}

impl Shape {
    fn fits(&self, state: &ReplicatedState) -> bool {
        let ledger = &state.ledger;
        (state.parameters.len(), state.moments.len(), state.scalars.len())
            == (self.parameters, self.moments, self.scalars)
            && (ledger.seed(), ledger.batch_size()) == (self.seed, self.batch_size)
            && self.samples.is_none_or(|samples| ledger.samples() == samples)
    }
}

/// Fetches a state: the one that most donors name. If there is none, whichever can be had whole, those that more donors name
/// first: one liar of two donors must keep nobody out, and who has loaded a wrong state learns that from the members' next
/// digest. `open` connects to a donor; `progress` is told how many bytes are here, and of how many.
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
    let Answers { mut manifests, answered, mut reason } = ask(&open, &wanted).await;
    if manifests.first().is_some_and(|(_, idle)| 2 * idle.len() > answered) {
        manifests.truncate(1);
    } else {
        warn_of(&manifests, wanted.step);
        // A liar may answer first each time: who comes again begins with another one.
        manifests.sort_by_cached_key(|(_, idle)| (Reverse(idle.len()), rand::random::<u64>()));
    }
    for (manifest, idle) in manifests {
        match load(&open, manifest, idle, &wanted, &mut progress).await {
            Ok(state) => return Ok(Box::new(state)),
            Err(error) => reason = error,
        }
        tracing::warn!(step = wanted.step, reason, "a state that donors named did not come whole");
    }
    Err(reason)
}

/// Asks all donors what the state is.
async fn ask<S, Open>(open: &impl Fn(PeerId) -> Open, wanted: &Wanted) -> Answers<SnapshotManifest, S>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    Open: Future<Output = io::Result<S>> + Send + 'static,
{
    let Wanted { run, generation, step, lineage, stall, .. } = *wanted;
    let donors = &wanted.donors[..wanted.donors.len().min(MAX_DONORS)];
    let request = Request::Manifest { generation, step };
    // A donor takes its snapshot between two steps, and a step may take as long as a stall.
    let patience = 2 * stall;
    let question = Question { request, longest: MAX_SNAPSHOT_MANIFEST_BYTES, stall, patience, grace: None };
    let read = move |bytes: &[u8]| {
        let manifest = SnapshotManifest::decode(bytes).map_err(io::Error::other)?;
        let is_wanted = (manifest.run, manifest.step, manifest.lineage) == (run, step, lineage);
        if is_wanted { Ok(manifest) } else { Err(io::Error::other("it named another state")) }
    };
    chunks::manifests(open, donors, question, read).await
}

/// Lets the user see who named what.
fn warn_of<S>(manifests: &[(SnapshotManifest, Vec<Donor<S>>)], step: u64) {
    for (manifest, idle) in manifests {
        let donors: Vec<String> = idle.iter().map(|(donor, _)| to_libp2p(*donor).to_string()).collect();
        let donors = donors.join(", ");
        tracing::warn!(step, digest = %manifest.digest, donors, "donors differ about the state; these name this one");
    }
}

/// Loads the state that `manifest` is of.
async fn load<S, Open>(
    open: &impl Fn(PeerId) -> Open,
    manifest: SnapshotManifest,
    idle: Vec<Donor<S>>,
    wanted: &Wanted,
    progress: &mut impl FnMut(u64, u64),
) -> Result<ReplicatedState, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    Open: Future<Output = io::Result<S>> + Send + 'static,
{
    let (id, of, mut here) = (manifest.id(), manifest.bytes, 0);
    let mut assembly = Assembly::new(manifest, wanted.max_bytes).map_err(|error| error.to_string())?;
    let counted = |more| {
        here += more;
        progress(here, of);
    };
    chunks::fetch(open, idle, id, &mut assembly, wanted.stall, counted).await?;
    // Hashing a large state takes a while; nothing else may wait for it.
    let assembled = tokio::task::spawn_blocking(move || assembly.finish()).await;
    let state = assembled.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
    if wanted.shape.fits(&state) { Ok(state) } else { Err("it is of another model, optimizer or data".to_owned()) }
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
