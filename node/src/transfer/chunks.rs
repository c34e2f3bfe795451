//! The side that asks, whatever it asks for: manifests, and then the chunks of one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::io;
use std::time::Duration;

use futures::{AsyncRead, AsyncWrite};
use starling_run::snapshot::CHUNK_BYTES;
use starling_topology::{Digest, PeerId};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::{REPLY_OVERHEAD, Reply, Request, decode, encode};
use crate::frame;

/// Donors that chunks are asked of at a time.
pub(crate) const MAX_DONORS: usize = 8;
/// How often a donor is asked again for a manifest that it will have.
const ASK_AGAIN: Duration = Duration::from_millis(20);
/// How often a donor may fail before it is left alone.
const MAX_FAILURES: u32 = 3;

/// A donor with its stream, if one is open.
pub(super) type Donor<S> = (PeerId, Option<S>);

/// What is put together from chunks.
pub(super) trait Whole: Send {
    /// The distinct chunks that are not here yet, in the order in which they are best asked for.
    fn missing(&self) -> Vec<Digest>;

    /// Takes a chunk that is missing, and whose hash is right. Returns how many more bytes are here.
    ///
    /// # Errors
    /// Why nothing can come of the whole: the donor is not to blame.
    fn insert(&mut self, chunk: Vec<u8>) -> impl Future<Output = Result<u64, String>> + Send;
}

/// A question for a manifest.
#[derive(Debug, Clone, Copy)]
pub(super) struct Question {
    pub(super) request: Request,
    /// The longest manifest, in bytes.
    pub(super) longest: usize,
    /// How long one answer may take.
    pub(super) stall: Duration,
    /// How long a donor may say that it will have it.
    pub(super) patience: Duration,
    /// How long the others may take once one has answered, if one answer is enough.
    pub(super) grace: Option<Duration>,
}

/// Who named which manifest.
pub(super) struct Answers<M, S> {
    /// Those with the most donors first.
    pub(super) manifests: Vec<(M, Vec<Donor<S>>)>,
    /// How many donors named one.
    pub(super) answered: usize,
    /// Why one of the others did not.
    pub(super) reason: String,
}

/// Asks all `donors` for their manifests; `read` turns bytes into one that may be what is wanted.
pub(super) async fn manifests<M, S, Open>(
    open: &impl Fn(PeerId) -> Open,
    donors: &[PeerId],
    question: Question,
    read: impl Fn(&[u8]) -> io::Result<M> + Clone + Send + Sync + 'static,
) -> Answers<M, S>
where
    M: PartialEq + Send + 'static,
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    Open: Future<Output = io::Result<S>> + Send + 'static,
{
    let mut asked = JoinSet::new();
    for donor in donors.iter().copied() {
        let (opening, read) = (open(donor), read.clone());
        asked.spawn(async move {
            let answer = async {
                let mut stream = opening.await?;
                let bytes = manifest_of(&mut stream, question).await?;
                io::Result::Ok((stream, read(&bytes)?))
            };
            (donor, answer.await)
        });
    }
    let mut manifests: Vec<(M, Vec<Donor<S>>)> = Vec::new();
    let (mut answered, mut reason) = (0, "there is no donor".to_owned());
    let mut deadline: Option<Instant> = None;
    loop {
        let joined = tokio::select! {
            joined = asked.join_next() => joined,
            () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => None,
        };
        match joined {
            None => break,
            Some(Ok((donor, Ok((stream, manifest))))) => {
                answered += 1;
                deadline = deadline.or_else(|| question.grace.map(|grace| Instant::now() + grace));
                match manifests.iter_mut().find(|(other, _)| *other == manifest) {
                    Some((_, donors)) => donors.push((donor, Some(stream))),
                    None => manifests.push((manifest, vec![(donor, Some(stream))])),
                }
            }
            Some(Ok((donor, Err(error)))) => {
                reason = error.to_string();
                tracing::info!(?donor, reason, "a donor did not say what it has");
            }
            Some(Err(error)) => reason = error.to_string(),
        }
    }
    manifests.sort_by_key(|(_, donors)| std::cmp::Reverse(donors.len()));
    Answers { manifests, answered, reason }
}

/// Fetches all chunks of `whole` that are missing, whose manifest has the hash `of`. `progress` is told how many more bytes
/// are here.
///
/// # Errors
/// Why they can't be had.
pub(super) async fn fetch<S, Open>(
    open: &impl Fn(PeerId) -> Open,
    mut idle: Vec<Donor<S>>,
    of: Digest,
    whole: &mut impl Whole,
    stall: Duration,
    mut progress: impl FnMut(u64),
) -> Result<(), String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    Open: Future<Output = io::Result<S>> + Send + 'static,
{
    let mut missing = VecDeque::from(whole.missing());
    let mut failures: BTreeMap<PeerId, u32> = BTreeMap::new();
    let mut here = BTreeSet::new();
    let chunks = missing.len();
    let mut asked = JoinSet::new();
    let mut reason = String::new();
    while here.len() < chunks {
        while let (Some(chunk), true) = (missing.front().copied(), !idle.is_empty()) {
            missing.pop_front();
            let (donor, stream) = idle.remove(0);
            if failures.contains_key(&donor) {
                // It may be gone, which takes long to learn: others need not wait for it.
                missing.push_back(chunk);
            }
            let opening = stream.is_none().then(|| open(donor));
            asked.spawn(async move {
                let answer = async {
                    let mut stream = match (stream, opening) {
                        (Some(stream), _) => stream,
                        (None, Some(opening)) => opening.await?,
                        (None, None) => return Err(io::ErrorKind::NotConnected.into()),
                    };
                    match ask(&mut stream, &Request::Chunk { of, chunk }, CHUNK_BYTES, stall).await? {
                        Reply::Chunk(bytes) if *blake3::hash(&bytes).as_bytes() == chunk.0 => Ok((stream, bytes)),
                        Reply::Chunk(_) => Err(io::Error::other("it sent bytes that are not the chunk's")),
                        Reply::NotHere
                        | Reply::Later
                        | Reply::Manifest(_)
                        | Reply::Run(_)
                        | Reply::Newest { .. }
                        | Reply::View(_)
                        | Reply::Members(_)
                        | Reply::Preprocessing(_) => Err(io::Error::other("it does not hand it out any more")),
                    }
                };
                (donor, chunk, answer.await)
            });
        }
        let Some(Ok((donor, chunk, outcome))) = asked.join_next().await else {
            return Err(format!("no donor is left: {reason}"));
        };
        match outcome {
            Ok((stream, content)) => {
                idle.push((donor, Some(stream)));
                if here.insert(chunk) {
                    missing.retain(|other| *other != chunk);
                    progress(whole.insert(content).await?);
                }
            }
            Err(error) => {
                reason = error.to_string();
                tracing::info!(?donor, %chunk, reason, "a chunk did not come");
                if !here.contains(&chunk) && !missing.contains(&chunk) {
                    missing.push_front(chunk);
                }
                let failed = failures.entry(donor).or_default();
                *failed += 1;
                if *failed < MAX_FAILURES {
                    idle.push((donor, None));
                }
            }
        }
    }
    Ok(())
}

/// The bytes of a donor's manifest.
async fn manifest_of(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), question: Question) -> io::Result<Vec<u8>> {
    let Question { request, longest, stall, patience, .. } = question;
    let deadline = Instant::now() + patience;
    loop {
        match ask(stream, &request, longest, stall).await? {
            Reply::Manifest(bytes) => return Ok(bytes),
            Reply::Later if Instant::now() < deadline => sleep(ASK_AGAIN).await,
            Reply::Later => return Err(io::Error::other("it did not have it ready in time")),
            Reply::NotHere
            | Reply::Chunk(_)
            | Reply::Run(_)
            | Reply::Newest { .. }
            | Reply::View(_)
            | Reply::Members(_)
            | Reply::Preprocessing(_) => return Err(io::Error::other("it does not have it")),
        }
    }
}

/// One question and its answer, whose payload has at most `longest` bytes.
pub(super) async fn ask(
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
