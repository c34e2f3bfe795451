//! The side that asks: does over streams what the engine's [`Download`] says.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::time::Duration;

use futures::{AsyncRead, AsyncWrite};
use starling_engine::Download;
use starling_engine::download::{DownloadConfig, DownloadReply, DownloadRequest, Input, Output};
use starling_run::state::snapshot::CHUNK_BYTES;
use starling_topology::{Digest, PeerId, Time};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};

use super::{REPLY_OVERHEAD, Reply, Request};
use crate::credentials::identity::to_libp2p;
use crate::net::frame;

/// What is put together from chunks.
pub(super) trait Whole {
    /// What names its chunks.
    type Manifest: Clone + PartialEq;

    /// The question for a manifest, and the longest answer, in bytes.
    fn question(&self) -> (Request, usize);

    /// A manifest that may be what is wanted, and its hash.
    ///
    /// # Errors
    /// Why it can't be.
    fn read(&self, bytes: &[u8]) -> Result<Self::Manifest, String>;

    /// The hash of a manifest.
    fn id(manifest: &Self::Manifest) -> Digest;

    /// Begins to load what has this manifest. The distinct chunks that are not here yet, in the order in which they are best
    /// asked for.
    ///
    /// # Errors
    /// Why nothing can come of it.
    async fn begin(&mut self, manifest: Self::Manifest) -> Result<Vec<Digest>, String>;

    /// A manifest that is known to be what is wanted: it is begun with as soon as a donor names it.
    fn preferred(&self) -> Option<Self::Manifest> {
        None
    }

    /// This donor has handed out a chunk that was taken.
    fn served(&mut self, _donor: PeerId) {}

    /// Takes a chunk that is missing, and whose hash is right.
    ///
    /// # Errors
    /// Why nothing can come of the whole: the donor is not to blame.
    async fn insert(&mut self, chunk: Vec<u8>) -> Result<(), String>;

    /// All chunks are here.
    ///
    /// # Errors
    /// Why it is not what is wanted.
    async fn finish(&mut self) -> Result<(), String>;
}

/// Fetches all chunks of `whole` that are missing from `donors`. `open` connects to a donor.
///
/// # Errors
/// Why they can't be had.
pub(super) async fn fetch<S, Open, W>(
    open: &impl Fn(PeerId) -> Open,
    donors: &[PeerId],
    terms: DownloadConfig,
    whole: &mut W,
) -> Result<(), String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    Open: Future<Output = io::Result<S>> + Send + 'static,
    W: Whole,
{
    let began = Instant::now();
    let now = || Time::ZERO + began.elapsed();
    let mut machine = Download::new(now(), terms, donors, rand::random());
    if let Some(preferred) = whole.preferred() {
        machine.prefer(preferred);
    }
    let (manifest, longest) = whole.question();
    let mut streams: BTreeMap<PeerId, S> = BTreeMap::new();
    let mut asked = JoinSet::new();
    let mut under_way: BTreeMap<u64, (AbortHandle, Option<Digest>)> = BTreeMap::new();
    let (mut of, mut came, mut timer) = (Digest([0; 32]), (None, Vec::new()), began);
    loop {
        while let Some(output) = machine.poll() {
            match output {
                Output::Ask { number, donor, question } => {
                    let (request, longest, chunk) = match question {
                        DownloadRequest::Manifest => (manifest.clone(), longest, None),
                        DownloadRequest::Chunk(chunk) => (Request::Chunk { of, chunk }, CHUNK_BYTES, Some(chunk)),
                    };
                    let kept = streams.remove(&donor);
                    let opening = kept.is_none().then(|| open(donor));
                    let task = asked.spawn(async move {
                        let answer = async {
                            let mut stream = match (kept, opening) {
                                (Some(kept), _) => kept,
                                (None, Some(opening)) => opening.await?,
                                (None, None) => return Err(io::ErrorKind::NotConnected.into()),
                            };
                            let reply = exchange(&mut stream, &request, longest).await?;
                            io::Result::Ok((stream, reply))
                        };
                        (number, donor, answer.await)
                    });
                    under_way.insert(number, (task, chunk));
                }
                Output::GiveUp(number) => {
                    if let Some((task, _)) = under_way.remove(&number) {
                        task.abort();
                    }
                }
                Output::SetTimer(at) => timer = began + (at - Time::ZERO),
                Output::Load(manifest) => {
                    of = W::id(&manifest);
                    machine.handle(now(), whole.begin(manifest).await.map_or_else(Input::Spoiled, Input::Lacks));
                }
                Output::Take(_) => {
                    let (donor, chunk) = std::mem::take(&mut came);
                    match whole.insert(chunk).await {
                        Ok(()) => donor.into_iter().for_each(|donor| whole.served(donor)),
                        Err(reason) => machine.handle(now(), Input::Spoiled(reason)),
                    }
                }
                Output::Assemble => {
                    machine.handle(now(), whole.finish().await.map_or_else(Input::Spoiled, |()| Input::Whole));
                }
                Output::Differ(named) => {
                    for (manifest, donors) in named {
                        let donors: Vec<String> = donors.iter().map(|donor| to_libp2p(*donor).to_string()).collect();
                        let (manifest, donors) = (W::id(&manifest), donors.join(", "));
                        tracing::warn!(%manifest, donors, "donors differ about the state; these name this one");
                    }
                }
                Output::Fault { donor, reason, is_wrong: true } => {
                    tracing::warn!(donor = %to_libp2p(donor), reason, "a donor handed out what can't be right");
                }
                Output::Fault { donor, reason, is_wrong: false } => {
                    tracing::info!(donor = %to_libp2p(donor), reason, "a donor did not hand out what it was asked for");
                }
                Output::End(outcome) => return outcome,
            }
        }
        let input = tokio::select! {
            biased;
            Some(joined) = asked.join_next() => {
                // One that was given up, or that came too late for that.
                let Ok((number, donor, answer)) = joined else { continue };
                let Some((_, chunk)) = under_way.remove(&number) else { continue };
                let reply = answer.map(|(stream, reply)| {
                    streams.insert(donor, stream);
                    reply
                });
                let answer = match (reply, chunk) {
                    (Ok(Reply::Manifest(bytes)), None) => whole.read(&bytes).map_or_else(DownloadReply::Wrong, DownloadReply::Manifest),
                    (Ok(Reply::Chunk(bytes)), Some(chunk)) => {
                        let fits = *blake3::hash(&bytes).as_bytes() == chunk.0;
                        came = (Some(donor), bytes);
                        DownloadReply::Chunk { fits }
                    }
                    (Ok(Reply::Later), _) => DownloadReply::Later,
                    (Ok(Reply::NotHere), _) => DownloadReply::NotHere,
                    (
                        Ok(
                            Reply::Manifest(_)
                            | Reply::Chunk(_)
                            | Reply::Chain(_)
                            | Reply::Run(_)
                            | Reply::Newest { .. }
                            | Reply::View(_)
                            | Reply::Members(_)
                            | Reply::Preprocessing(_)
                            | Reply::Process(..),
                        ),
                        _,
                    ) => DownloadReply::Wrong("it answered another question".to_owned()),
                    (Err(error), _) if error.kind() == io::ErrorKind::InvalidData => DownloadReply::Wrong(error.to_string()),
                    (Err(error), _) => DownloadReply::Failed(error.to_string()),
                };
                Input::Answered { number, answer }
            }
            () = sleep_until(timer) => Input::Expired,
        };
        machine.handle(now(), input);
    }
}

/// One question and its answer, whose payload has at most `longest` bytes, within `limit`.
pub(super) async fn ask(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    request: &Request,
    longest: usize,
    limit: Duration,
) -> io::Result<Reply> {
    timeout(limit, exchange(stream, request, longest)).await?
}

async fn exchange(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    request: &Request,
    longest: usize,
) -> io::Result<Reply> {
    frame::write(stream, &frame::encode(request)).await?;
    frame::decode(&frame::read(stream, longest + REPLY_OVERHEAD).await?)
}
