//! The joiner's side.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::io;
use std::time::Duration;

use futures::{AsyncRead, AsyncWrite};
use starling_topology::{Digest, PeerId, RunId};
use starling_train::{CHUNK_BYTES, ReplicatedState, SnapshotManifest};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::{REPLY_OVERHEAD, Reply, Request, decode, encode};
use crate::frame;

/// Donors that are asked at a time.
const MAX_DONORS: usize = 8;
/// How often a donor is asked again for a manifest that it will have.
const ASK_AGAIN: Duration = Duration::from_millis(20);
/// How often a donor may fail before it is left alone.
const MAX_FAILURES: u32 = 3;

/// What is asked for.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) run: RunId,
    pub(crate) step: u64,
    /// No state of the run is longer, in bytes.
    pub(crate) max_bytes: usize,
    /// The digest of the state after `step` that is at hand already, if it is the right one.
    pub(crate) ours: Option<Digest>,
    pub(crate) donors: Vec<PeerId>,
    /// How long one answer may take.
    pub(crate) stall: Duration,
}

/// What came of it.
#[derive(Debug)]
pub(crate) enum Fetched {
    /// The donors hold the state that is at hand already.
    Ours,
    /// Theirs.
    State(Box<ReplicatedState>),
}

/// Fetches a state. `open` connects to a donor; `progress` is told how many bytes are here, and of how many.
///
/// # Errors
/// Why it can't be had.
pub(crate) async fn fetch<S, Open>(
    open: impl Fn(PeerId) -> Open + Clone + Send + 'static,
    wanted: Wanted,
    progress: impl Fn(u64, u64),
) -> Result<Fetched, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    Open: Future<Output = io::Result<S>> + Send,
{
    let (manifest, mut idle) = agree(open.clone(), &wanted).await?;
    if wanted.ours == Some(manifest.digest) {
        return Ok(Fetched::Ours);
    }
    let id = manifest.id();
    let mut missing: VecDeque<u32> = (0..u32::try_from(manifest.chunks.len()).unwrap_or(u32::MAX)).collect();
    let mut chunks: Vec<Vec<u8>> = vec![Vec::new(); missing.len()];
    let mut failures: BTreeMap<PeerId, u32> = BTreeMap::new();
    let (mut left, mut bytes) = (missing.len(), 0);
    let mut asked = JoinSet::new();
    let mut reason = String::new();
    while left > 0 {
        while let (Some(index), true) = (missing.front().copied(), !idle.is_empty()) {
            missing.pop_front();
            let (donor, stream) = idle.remove(0);
            let (open, stall) = (open.clone(), wanted.stall);
            asked.spawn(async move {
                let chunk = async {
                    let mut stream = match stream {
                        Some(stream) => stream,
                        None => open(donor).await?,
                    };
                    let request = Request::Chunk { snapshot: id, index };
                    match ask(&mut stream, &request, CHUNK_BYTES, stall).await? {
                        Reply::Chunk(chunk) => Ok((stream, chunk)),
                        Reply::NotHere | Reply::Later | Reply::Manifest(_) => {
                            Err(io::Error::other("it does not hand out the state any more"))
                        }
                    }
                };
                (donor, index, chunk.await)
            });
        }
        let Some(Ok((donor, index, outcome))) = asked.join_next().await else {
            return Err(format!("no donor is left: {reason}"));
        };
        let verified = outcome.and_then(|(stream, chunk)| {
            manifest.verify(index as usize, &chunk).map_err(io::Error::other)?;
            Ok((stream, chunk))
        });
        match verified {
            Ok((stream, chunk)) => {
                bytes += chunk.len() as u64;
                chunks[index as usize] = chunk;
                left -= 1;
                idle.push((donor, Some(stream)));
                progress(bytes, manifest.bytes);
            }
            Err(error) => {
                reason = error.to_string();
                tracing::info!(?donor, index, reason, "a chunk of the state did not come");
                missing.push_front(index);
                let failed = failures.entry(donor).or_default();
                *failed += 1;
                if *failed < MAX_FAILURES {
                    idle.push((donor, None));
                }
            }
        }
    }
    // Hashing a large state takes a while; nothing else may wait for it.
    let assembled = tokio::task::spawn_blocking(move || manifest.assemble(&chunks)).await;
    let state = assembled.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
    Ok(Fetched::State(Box::new(state)))
}

/// A donor with its stream, if one is open.
type Donor<S> = (PeerId, Option<S>);

/// Asks the donors for their manifests; the one that most of those who answered name, and who they are.
async fn agree<S, Open>(
    open: impl Fn(PeerId) -> Open + Clone + Send + 'static,
    wanted: &Wanted,
) -> Result<(SnapshotManifest, Vec<Donor<S>>), String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    Open: Future<Output = io::Result<S>> + Send,
{
    let mut asked = JoinSet::new();
    for donor in wanted.donors.iter().copied().take(MAX_DONORS) {
        let (open, wanted) = (open.clone(), wanted.clone());
        asked.spawn(async move {
            let answer = async {
                let mut stream = open(donor).await?;
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
    let longest = SnapshotManifest::max_encoded_len(wanted.max_bytes);
    loop {
        let request = Request::Manifest { step: wanted.step };
        match ask(stream, &request, longest, wanted.stall).await? {
            Reply::Manifest(bytes) => {
                let manifest = SnapshotManifest::decode(&bytes).map_err(io::Error::other)?;
                let fits = manifest.run == wanted.run
                    && manifest.step == wanted.step
                    && manifest.bytes <= wanted.max_bytes as u64;
                return if fits { Ok(manifest) } else { Err(io::Error::other("it named another state")) };
            }
            Reply::Later if Instant::now() < deadline => sleep(ASK_AGAIN).await,
            Reply::Later => return Err(io::Error::other("its state did not become ready in time")),
            Reply::NotHere | Reply::Chunk(_) => return Err(io::Error::other("it does not have the state")),
        }
    }
}

/// One question and its answer, whose payload has at most `longest` bytes.
async fn ask(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    request: &Request,
    longest: usize,
    stall: Duration,
) -> io::Result<Reply> {
    let exchange = async {
        frame::write(stream, &encode(request)).await?;
        decode(&frame::read(stream, longest + REPLY_OVERHEAD).await?)
    };
    timeout(stall, exchange).await?
}
