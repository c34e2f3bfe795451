//! The joiner's side.

use std::future::{Future, ready};
use std::io;
use std::time::Duration;

use futures::{AsyncRead, AsyncWrite};
use starling_topology::{Generation, PeerId, RunId};
use starling_train::snapshot::MAX_SNAPSHOT_MANIFEST_BYTES;
use starling_train::{Assembly, ReplicatedState, SnapshotManifest};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::gather::{Donor, MAX_DONORS, gather};
use super::questions::ask;
use super::{Reply, Request};

/// How often a donor is asked again for a manifest that it will have.
const ASK_AGAIN: Duration = Duration::from_millis(20);

/// What is asked for.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) run: RunId,
    /// The view that the joiner entered with.
    pub(crate) generation: Generation,
    pub(crate) step: u64,
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
    let (manifest, idle) = agree(&open, &wanted).await?;
    let (id, of) = (manifest.id(), manifest.bytes);
    let mut assembly = Assembly::new(manifest, wanted.max_bytes).map_err(|error| error.to_string())?;
    let (missing, mut bytes) = (assembly.missing(), 0);
    let take = |content: Vec<u8>| {
        let length = content.len() as u64;
        let taken = assembly.insert(content).map_err(io::Error::other);
        if taken.is_ok() {
            bytes += length;
            progress(bytes, of);
        }
        ready(taken)
    };
    gather(&open, id, missing, idle, wanted.stall, take).await?;
    // Hashing a large state takes a while; nothing else may wait for it.
    let assembled = tokio::task::spawn_blocking(move || assembly.finish()).await;
    let state = assembled.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
    Ok(Box::new(state))
}

/// Asks the donors for their manifests; the one that most of those who answered name, and who they are.
async fn agree<S, Open>(
    open: &impl Fn(PeerId) -> Open,
    wanted: &Wanted,
) -> Result<(SnapshotManifest, Vec<Donor<S>>), String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    Open: Future<Output = io::Result<S>> + Send + 'static,
{
    let mut asked = JoinSet::new();
    for donor in wanted.donors.iter().copied().take(MAX_DONORS) {
        let (opening, wanted) = (open(donor), wanted.clone());
        asked.spawn(async move {
            let answer = async {
                let mut stream = opening.await?;
                let manifest = manifest_of(&mut stream, &wanted).await?;
                io::Result::Ok((stream, manifest))
            };
            (donor, answer.await)
        });
    }
    let mut answers: Vec<(SnapshotManifest, Vec<Donor<S>>)> = Vec::new();
    let (mut answered, mut reason) = (0, "there is no donor".to_owned());
    while let Some(joined) = asked.join_next().await {
        match joined {
            Ok((donor, Ok((stream, manifest)))) => {
                answered += 1;
                match answers.iter_mut().find(|(other, _)| *other == manifest) {
                    Some((_, donors)) => donors.push((donor, Some(stream))),
                    None => answers.push((manifest, vec![(donor, Some(stream))])),
                }
            }
            Ok((donor, Err(error))) => {
                reason = error.to_string();
                tracing::info!(?donor, reason, "a donor did not say what its state is");
            }
            Err(error) => reason = error.to_string(),
        }
    }
    let most = answers.into_iter().max_by_key(|(_, donors)| donors.len());
    let (manifest, donors) = most.ok_or(reason)?;
    if 2 * donors.len() <= answered {
        return Err(format!("the donors' states after step {} differ", wanted.step));
    }
    Ok((manifest, donors))
}

async fn manifest_of(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    wanted: &Wanted,
) -> io::Result<SnapshotManifest> {
    // A donor takes its snapshot between two steps, and a step may take as long as a stall.
    let deadline = Instant::now() + 2 * wanted.stall;
    loop {
        let request = Request::Manifest { generation: wanted.generation, step: wanted.step };
        match ask(stream, &request, MAX_SNAPSHOT_MANIFEST_BYTES, wanted.stall).await? {
            Reply::Manifest(bytes) => {
                let manifest = SnapshotManifest::decode(&bytes).map_err(io::Error::other)?;
                let is_wanted = manifest.run == wanted.run && manifest.step == wanted.step;
                return if is_wanted { Ok(manifest) } else { Err(io::Error::other("it named another state")) };
            }
            Reply::Later if Instant::now() < deadline => sleep(ASK_AGAIN).await,
            Reply::Later => return Err(io::Error::other("its state did not become ready in time")),
            Reply::NotHere | Reply::Chunk(_) | Reply::Run(_) | Reply::Newest { .. } | Reply::View(_) => {
                return Err(io::Error::other("it does not have the state"));
            }
        }
    }
}
