//! Chunks from several donors at once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::io;
use std::time::Duration;

use futures::{AsyncRead, AsyncWrite};
use starling_topology::{Digest, PeerId};
use starling_train::snapshot::CHUNK_BYTES;
use tokio::task::JoinSet;

use super::questions::ask;
use super::{Reply, Request};

/// Donors that are asked at a time.
pub(super) const MAX_DONORS: usize = 8;
/// How often a donor may fail before it is left alone.
const MAX_FAILURES: u32 = 3;

/// A donor with its stream, if one is open.
pub(super) type Donor<S> = (PeerId, Option<S>);

/// Gets the `missing` chunks of the snapshot named `id` from donors, and hands each to `take` once, verified.
///
/// # Errors
/// Why they can't be had.
pub(super) async fn gather<S, Open, Taken>(
    open: &impl Fn(PeerId) -> Open,
    id: Digest,
    missing: Vec<Digest>,
    mut idle: Vec<Donor<S>>,
    stall: Duration,
    mut take: impl FnMut(Vec<u8>) -> Taken,
) -> Result<(), String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    Open: Future<Output = io::Result<S>> + Send + 'static,
    Taken: Future<Output = io::Result<()>>,
{
    let chunks = missing.len();
    let mut missing = VecDeque::from(missing);
    let mut failures: BTreeMap<PeerId, u32> = BTreeMap::new();
    let mut here = BTreeSet::new();
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
                    let request = Request::Chunk { snapshot: id, chunk };
                    match ask(&mut stream, &request, CHUNK_BYTES, stall).await? {
                        Reply::Chunk(bytes) if *blake3::hash(&bytes).as_bytes() == chunk.0 => Ok((stream, bytes)),
                        Reply::Chunk(_) => Err(io::Error::other("it sent bytes that are not the chunk's")),
                        Reply::NotHere
                        | Reply::Later
                        | Reply::Manifest(_)
                        | Reply::Run(_)
                        | Reply::Newest { .. }
                        | Reply::View(_) => Err(io::Error::other("it does not hand out the state any more")),
                    }
                };
                (donor, chunk, answer.await)
            });
        }
        let Some(Ok((donor, chunk, outcome))) = asked.join_next().await else {
            return Err(format!("no donor is left: {reason}"));
        };
        let taken = match outcome {
            Ok((stream, _)) if here.contains(&chunk) => Ok(stream),
            Ok((stream, content)) => take(content).await.map(|()| stream),
            Err(error) => Err(error),
        };
        match taken {
            Ok(stream) => {
                idle.push((donor, Some(stream)));
                if here.insert(chunk) {
                    missing.retain(|other| *other != chunk);
                }
            }
            Err(error) => {
                reason = error.to_string();
                tracing::info!(?donor, %chunk, reason, "a chunk of the state did not come");
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
