//! Single questions about a run, its views and its checkpoints.

use std::future::Future;
use std::io;
use std::time::Duration;

use futures::{AsyncRead, AsyncWrite};
use starling_engine::download::MAX_DONORS;
use starling_engine::return_engine::twin::Process;
use starling_run::data::MAX_PREPROCESSING_BYTES;
use starling_run::manifest::MAX_MANIFEST_BYTES;
use starling_run::{Manifest, PreprocessingSpec};
use starling_topology::heads::follower::MAX_BRANCHES;
use starling_topology::history::{MAX_PAGE_BYTES, ViewSearch, ViewSearchStatus};
use starling_topology::view::MAX_VIEW_BYTES;
use starling_topology::{AnchorSet, PeerId, Proof, RunId, View, ViewId};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::chunks::ask;
use super::evidence::MAX_EVIDENCE_BYTES;
use super::{Reply, Request};
use crate::member::guide::Reader;

/// For so many times the longest standstill is one led by one peer.
const WALK_STALLS: u32 = 4;

/// What a peer holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Newest {
    /// Whether it is in a view that goes on, whose members hold a newer state than any checkpoint.
    pub(crate) live: bool,
    /// Whether it is in none, and looks out for the state that it lacks.
    pub(crate) looks_out: bool,
    /// Its newest stable checkpoint of each branch, verified but for the files themselves.
    pub(crate) proofs: Vec<Proof>,
}

/// Asks what the run is.
pub(crate) async fn run(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    run: RunId,
    stall: Duration,
) -> io::Result<Manifest> {
    let Reply::Run(bytes) = ask(stream, &Request::Run, MAX_MANIFEST_BYTES, stall).await? else {
        return Err(io::Error::other("it does not say what the run is"));
    };
    let manifest = Manifest::decode(&bytes).map_err(io::Error::other)?;
    if manifest.run_id() == run { Ok(manifest) } else { Err(io::Error::other("it sent another run's manifest")) }
}

/// Asks what was done to the run's data before training. `None` if the peer does not have it.
pub(crate) async fn preprocessing(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    manifest: &Manifest,
    stall: Duration,
) -> io::Result<Option<PreprocessingSpec>> {
    let reply = ask(stream, &Request::Preprocessing, MAX_PREPROCESSING_BYTES, stall).await?;
    let Reply::Preprocessing(bytes) = reply else { return Ok(None) };
    PreprocessingSpec::decode(&bytes, &manifest.data).map(Some).map_err(io::Error::other)
}

/// Asks which of the processes of its identity a peer is.
pub(crate) async fn process(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    stall: Duration,
) -> io::Result<Process> {
    match ask(stream, &Request::Process, 0, stall).await? {
        Reply::Process(incarnation, takes_part) => Ok(Process { takes_part, incarnation }),
        _ => Err(io::Error::other("it does not say which process it is")),
    }
}

/// Asks for the newest stable checkpoints of `run`, whose last step is `steps`.
pub(crate) async fn newest(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    run: RunId,
    steps: u64,
    stall: Duration,
) -> io::Result<Newest> {
    let Reply::Newest { live, looks_out, evidence } =
        ask(stream, &Request::Newest, MAX_BRANCHES * MAX_EVIDENCE_BYTES, stall).await?
    else {
        return Err(io::Error::other("it does not say what it holds"));
    };
    let proofs = evidence.into_iter().take(MAX_BRANCHES).map(|evidence| evidence.check(run, steps));
    let proofs = proofs.collect::<Result<_, _>>().map_err(io::Error::other)?;
    Ok(Newest { live, looks_out, proofs })
}

/// Has a peer lead to a view, as far as it can, for so many times `stall` at most.
pub(crate) async fn lead(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    view_search: ViewSearch,
    stall: Duration,
) -> io::Result<ViewSearch> {
    timeout(stall * WALK_STALLS, led(stream, view_search, stall)).await.map_err(|_| io::ErrorKind::TimedOut)?
}

/// Signatures are checked outside of the async threads.
async fn led(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    mut view_search: ViewSearch,
    stall: Duration,
) -> io::Result<ViewSearch> {
    loop {
        let reply = ask(stream, &Request::Chain(view_search.question()), MAX_PAGE_BYTES, stall).await?;
        let Reply::Chain(legs) = reply else { return Ok(view_search) };
        let heard = tokio::task::spawn_blocking(move || {
            let way = view_search.hear(&Reader, legs);
            (view_search, way)
        });
        let (led, way) = heard.await.map_err(io::Error::other)?;
        match way {
            ViewSearchStatus::Ask => view_search = led,
            ViewSearchStatus::There | ViewSearchStatus::Lost => return Ok(led),
        }
    }
}

/// What a peer holds whose views it leads to, from what is known, and the ways there. What it holds besides counts for nothing: it may
/// be of its own making.
pub(crate) async fn proven(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    newest: Newest,
    mut anchors: AnchorSet,
    stall: Duration,
) -> io::Result<(Newest, Vec<ViewSearch>)> {
    let (mut proofs, mut walks) = (Vec::new(), Vec::new());
    for proof in newest.proofs {
        if anchors.view(proof.head.view).is_none() {
            let view_search = lead(stream, ViewSearch::new(anchors.clone(), proof.head.view), stall).await?;
            if !view_search.is_there() {
                tracing::info!(step = proof.head.step, "a checkpoint is of a view that nothing leads to");
                continue;
            }
            view_search.arrive(&mut anchors);
            walks.push(view_search);
        }
        proofs.push(proof);
    }
    Ok((Newest { proofs, ..newest }, walks))
}

/// Has all of these peers lead to a view; the first that does counts. `None` if nobody does.
pub(crate) async fn way<S, Open>(
    open: impl Fn(PeerId) -> Open,
    view_search: &ViewSearch,
    from: &[PeerId],
    stall: Duration,
) -> Option<ViewSearch>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    Open: Future<Output = io::Result<S>> + Send + 'static,
{
    let mut asked = JoinSet::new();
    for peer in from.iter().take(MAX_DONORS) {
        let (opening, view_search) = (open(*peer), view_search.clone());
        asked.spawn(async move {
            lead(&mut opening.await.ok()?, view_search, stall).await.ok().filter(ViewSearch::is_there)
        });
    }
    first(asked).await
}

/// The first right answer. The other questions are dropped.
async fn first<T: 'static>(mut asked: JoinSet<Option<T>>) -> Option<T> {
    while let Some(answer) = asked.join_next().await {
        if let Ok(Some(answer)) = answer {
            return Some(answer);
        }
    }
    None
}

/// Asks all of these peers who is in a view; the first right answer counts. `None` if there is none.
pub(crate) async fn view<S, Open>(
    open: impl Fn(PeerId) -> Open,
    id: ViewId,
    from: &[PeerId],
    stall: Duration,
) -> Option<View>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    Open: Future<Output = io::Result<S>> + Send + 'static,
{
    let mut asked = JoinSet::new();
    for peer in from.iter().take(MAX_DONORS) {
        let opening = open(*peer);
        asked.spawn(async move {
            let mut stream = opening.await.ok()?;
            let reply = ask(&mut stream, &Request::View(id), MAX_VIEW_BYTES, stall).await;
            let Ok(Reply::View(bytes)) = reply else { return None };
            View::decode(&bytes).ok().filter(|view| view.id() == id)
        });
    }
    first(asked).await
}
