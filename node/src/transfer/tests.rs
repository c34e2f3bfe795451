//! Donors that work, fail and lie.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use starling_engine::SnapshotStatus;
use starling_run::{CheckpointStore, CheckpointSummary, ReplicatedState};
use starling_topology::{
    AnchorSet, Digest, Generation, Head, Ledger, PeerId, Proof, RunId, ShufflePolicy, View, ViewHistory, ViewId,
};
use tokio_util::compat::{Compat, TokioAsyncReadCompatExt};

use super::checkpoint::{self, CheckpointRequest};
use super::questions::{Newest, newest, run};
use super::state::{Shape, StateRequest, fetch};
use super::*;
use crate::credentials::founder::FounderKey;
use crate::credentials::identity::{Identity, from_libp2p};
use crate::member::guide::Guide;
use crate::member::snapshots::Snapshots;
use crate::net::frame::{self, decode, encode};
use crate::net::rate_limiter::RateLimiter;
use crate::store::manifest_file::tests::digits;
use crate::transfer::checkpoint_provider::CheckpointProvider;

const STALL: Duration = Duration::from_secs(30);
const RUN: RunId = RunId([7; 32]);
const INCARNATION: u64 = 5;
const STEP: u64 = 12;
const GENERATION: Generation = Generation(3);

/// Without checkpoints.
pub(super) fn empty_provider() -> Arc<CheckpointProvider> {
    checkpoint_provider(store().1)
}

fn store() -> (tempfile::TempDir, CheckpointStore) {
    let dir = tempfile::tempdir().expect("a temp dir");
    let store = CheckpointStore::open(dir.path(), 3).expect("a store");
    (dir, store)
}

fn checkpoint_provider(store: CheckpointStore) -> Arc<CheckpointProvider> {
    CheckpointProvider::new(INCARNATION, &digits(), store, RateLimiter::new(0))
}

type Stream = Compat<tokio::io::DuplexStream>;

fn peer(name: u8) -> PeerId {
    PeerId([name; 32])
}

/// That of [`state`].
const SHAPE: Shape = Shape {
    parameters: 800_000,
    frozen: 0,
    moments: 0,
    scalars: 0,
    seed: 1,
    batch_size: 5,
    micro_batch: 0,
    shuffle: ShufflePolicy::Full,
    samples: Some(10),
};

/// Of a little more than three chunks.
fn state(seed: f32) -> ReplicatedState {
    let parameters = Arc::new((0..800_000).map(|at| at as f32 + seed).collect());
    let mut ledger = Ledger::new(1, 10, 5);
    ledger.assign(&[peer(1)]);
    for step in 1..=STEP {
        ledger.commit(step, &[peer(1)], &[1]);
    }
    ReplicatedState {
        run: RUN,
        step: STEP,
        lineage: starling_topology::Lineage::NONE,
        parameters,
        frozen: <_>::default(),
        moments: Vec::new(),
        scalars: Vec::new(),
        ledger,
    }
}

/// A member that holds `state`.
async fn donor(state: &ReplicatedState) -> Arc<Snapshots> {
    let snapshots = Snapshots::new(RateLimiter::new(0));
    snapshots.act(|kept| {
        kept.expect(state.step);
        kept.enter(GENERATION);
    });
    snapshots.take(state.clone());
    while !matches!(snapshots.after(GENERATION, state.step), SnapshotStatus::Here(_)) {
        tokio::task::yield_now().await;
    }
    snapshots
}

fn wanted(donors: &[u8]) -> StateRequest {
    let donors = donors.iter().map(|name| peer(*name)).collect();
    StateRequest {
        run: RUN,
        generation: GENERATION,
        step: STEP,
        lineage: starling_topology::Lineage::NONE,
        max_bytes: 8 << 20,
        donors,
        stall: STALL,
        shape: SHAPE,
    }
}

fn connect(snapshots: Arc<Snapshots>) -> Stream {
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let chunk_providers = ChunkProviders::new(snapshots, empty_provider(), SharedFiles::default());
    tokio::spawn(async move { serve(theirs.compat(), chunk_providers, STALL).await });
    ours.compat()
}

fn opened(stream: io::Result<Stream>) -> BoxFuture<'static, io::Result<Stream>> {
    Box::pin(std::future::ready(stream))
}

#[tokio::test]
async fn chunks_come_from_all_donors_and_each_once() {
    let snapshots = donor(&state(0.5)).await;
    let mut told = Vec::new();
    let open = |_| opened(Ok(connect(snapshots.clone())));
    let fetched = fetch(open, wanted(&[1, 2, 3]), |bytes, of| told.push((bytes, of))).await.expect("fetched");
    assert_eq!(*fetched, state(0.5));
    let bytes = state(0.5).encode().len() as u64;
    assert_eq!(told.len() as u64, bytes.div_ceil(1 << 20), "{told:?}");
    assert_eq!(told.last(), Some(&(bytes, bytes)));
}

/// A donor that names the right manifest, then answers chunks with `answer`, which is nothing for a death.
fn failing(snapshots: Arc<Snapshots>, answer: Option<Vec<u8>>) -> Stream {
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    tokio::spawn(async move {
        let mut stream = theirs.compat();
        while let Ok(bytes) = frame::read(&mut stream, MAX_REQUEST_BYTES).await {
            let reply = match (decode::<Request>(&bytes).expect("a request"), &answer) {
                (Request::Manifest { generation, step }, _) => match snapshots.after(generation, step) {
                    SnapshotStatus::Here(snapshot) => Reply::Manifest(snapshot.manifest().encode()),
                    SnapshotStatus::Later | SnapshotStatus::Nothing => Reply::NotHere,
                },
                (Request::Chunk { .. }, Some(answer)) => Reply::Chunk(answer.clone()),
                _ => return,
            };
            frame::write(&mut stream, &encode(&reply)).await.expect("read");
        }
    });
    ours.compat()
}

#[tokio::test]
async fn what_a_donor_fails_to_hand_out_comes_from_another() {
    let snapshots = donor(&state(0.0)).await;
    for answer in [None, Some(Vec::new()), Some(vec![0; 1 << 20])] {
        let open = |donor: PeerId| {
            let snapshots = snapshots.clone();
            opened(Ok(if donor == peer(1) { connect(snapshots) } else { failing(snapshots, answer.clone()) }))
        };
        let fetched = fetch(open, wanted(&[2, 1, 3]), |_, _| {}).await.expect("fetched");
        assert_eq!(*fetched, state(0.0));
        let open = |_| opened(Ok(failing(snapshots.clone(), answer.clone())));
        fetch(open, wanted(&[2, 3]), |_, _| {}).await.expect_err("nobody hands it out");
    }
}

#[tokio::test]
async fn a_donor_that_died_is_not_waited_for() {
    let snapshots = donor(&state(0.0)).await;
    let opened_before = AtomicBool::new(false);
    let open = |donor: PeerId| -> BoxFuture<'static, io::Result<Stream>> {
        match donor {
            PeerId([1, ..]) => opened(Ok(connect(snapshots.clone()))),
            _ if opened_before.swap(true, Ordering::Relaxed) => Box::pin(std::future::pending()),
            _ => opened(Ok(failing(snapshots.clone(), None))),
        }
    };
    let fetched = fetch(open, wanted(&[2, 1]), |_, _| {}).await.expect("fetched");
    assert_eq!(*fetched, state(0.0));
}

#[tokio::test]
async fn the_state_that_most_donors_name_is_taken() {
    let (true_state, false_state) = (donor(&state(0.0)).await, donor(&state(1.0)).await);
    let open = |donor: PeerId| {
        opened(match donor {
            PeerId([1, ..]) => Ok(connect(false_state.clone())),
            PeerId([9, ..]) => Err(io::ErrorKind::ConnectionRefused.into()),
            _ => Ok(connect(true_state.clone())),
        })
    };
    let fetched = fetch(open, wanted(&[1, 2, 3, 9]), |_, _| {}).await.expect("two against one");
    assert_eq!(*fetched, state(0.0));
    let fetched = fetch(open, wanted(&[1, 2, 9]), |_, _| {}).await.expect("one against one");
    assert!([state(0.0), state(1.0)].contains(&fetched), "either, and whole");
    let error = fetch(open, wanted(&[9]), |_, _| {}).await.expect_err("nobody");
    assert!(error.contains("refused"), "{error}");
    fetch(open, wanted(&[]), |_, _| {}).await.expect_err("no donor");
}

#[tokio::test]
async fn one_donor_of_two_that_names_what_it_does_not_hand_out_keeps_nobody_out() {
    let (true_state, false_state) = (donor(&state(0.0)).await, donor(&state(1.0)).await);
    let open = |donor: PeerId| {
        let is_true = donor == peer(1);
        opened(Ok(if is_true { connect(true_state.clone()) } else { failing(false_state.clone(), None) }))
    };
    // Whichever is tried first.
    for _ in 0..8 {
        let fetched = fetch(open, wanted(&[1, 2]), |_, _| {}).await.expect("one of them hands it out");
        assert_eq!(*fetched, state(0.0));
    }
    let error = fetch(open, wanted(&[1, 2, 3]), |_, _| {}).await.expect_err("most name another one");
    assert!(error.contains("no donor is left"), "{error}");
}

#[tokio::test]
async fn only_the_state_that_was_asked_for_is_taken() {
    let snapshots = donor(&state(0.0)).await;
    let open = |_| opened(Ok(connect(snapshots.clone())));
    for other in [
        StateRequest { run: RunId([8; 32]), ..wanted(&[1]) },
        StateRequest { step: STEP + 1, ..wanted(&[1]) },
        StateRequest { max_bytes: 1 << 20, ..wanted(&[1]) },
        StateRequest { shape: Shape { parameters: 800_001, ..SHAPE }, ..wanted(&[1]) },
        StateRequest { shape: Shape { moments: 1, ..SHAPE }, ..wanted(&[1]) },
        StateRequest { shape: Shape { seed: 2, ..SHAPE }, ..wanted(&[1]) },
        StateRequest { shape: Shape { samples: Some(11), ..SHAPE }, ..wanted(&[1]) },
    ] {
        fetch(open, other, |_, _| {}).await.expect_err("another state");
    }
}

/// Asks a peer with these checkpoints.
fn connect_to(checkpoint_provider: &Arc<CheckpointProvider>) -> Stream {
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let chunk_providers =
        ChunkProviders::new(Snapshots::new(RateLimiter::new(0)), checkpoint_provider.clone(), SharedFiles::default());
    tokio::spawn(async move { serve(theirs.compat(), chunk_providers, STALL).await });
    ours.compat()
}

fn head(info: &CheckpointSummary, view: &View) -> Head {
    Head { run: RUN, step: STEP, view: view.id(), digest: info.digest, manifest: info.id }
}

fn lacking(head: Head, donors: &[u8]) -> CheckpointRequest {
    let donors = donors.iter().map(|name| peer(*name)).collect();
    CheckpointRequest { head, max_bytes: 8 << 20, donors, stall: STALL }
}

#[tokio::test]
async fn a_checkpoint_comes_from_several_and_what_is_here_is_not_asked_for_again() {
    let ((_theirs, held), (_ours, store)) = (self::store(), self::store());
    let info = held.save(state(0.5)).expect("saved");
    let manifest = held.manifest(info.id).expect("read").expect("there");
    let checkpoint_provider = checkpoint_provider(held.clone());
    store.insert(&manifest, &held.read_chunk(manifest.chunks[2]).expect("intact")).expect("kept");
    let view = View::found(RUN, peer(1));
    let snapshots = donor(&state(0.5)).await;
    let open = |donor: PeerId| {
        opened(match donor {
            PeerId([9, ..]) => Err(io::ErrorKind::ConnectionRefused.into()),
            PeerId([8, ..]) => Ok(failing(snapshots.clone(), Some(vec![0; 9]))),
            _ => Ok(connect_to(&checkpoint_provider)),
        })
    };
    let mut told = Vec::new();
    let wanted = lacking(head(&info, &view), &[9, 8, 1, 2]);
    let fetched = checkpoint::fetch(open, wanted, &store, |bytes, of| told.push((bytes, of))).await.expect("fetched");
    assert_eq!(fetched, manifest);
    assert_eq!((told.len(), told.last()), (manifest.chunks.len() - 1, Some(&(info.bytes, info.bytes))), "{told:?}");
    assert_eq!(store.complete(&fetched).expect("whole").digest, info.digest);
    assert_eq!(store.load(None).expect("loaded"), state(0.5));
}

#[tokio::test]
async fn only_the_checkpoint_that_was_signed_is_taken() {
    let ((_theirs, held), (_ours, store)) = (self::store(), self::store());
    let info = held.save(state(0.5)).expect("saved");
    let checkpoint_provider = checkpoint_provider(held);
    let open = |_| opened(Ok(connect_to(&checkpoint_provider)));
    let right = head(&info, &View::found(RUN, peer(1)));
    for (wrong, part) in [
        (lacking(Head { manifest: Digest([9; 32]), ..right }, &[1]), "does not have"),
        (lacking(Head { digest: Digest([9; 32]), ..right }, &[1]), "not of the signed state"),
        (lacking(Head { step: STEP + 1, ..right }, &[1]), "not of the signed state"),
        (CheckpointRequest { max_bytes: 1 << 20, ..lacking(right, &[1]) }, "at most"),
        (lacking(right, &[]), "no donor"),
    ] {
        let error = checkpoint::fetch(open, wrong, &store, |_, _| {}).await.expect_err("refused");
        assert!(error.reason.contains(part) && !error.is_disk, "{error:?}");
    }
    // Whoever answers with something else.
    for reply in [Reply::Manifest(b"nonsense".to_vec()), Reply::Chunk(Vec::new()), Reply::Later] {
        let open = |_| {
            let (ours, theirs) = tokio::io::duplex(64 * 1024);
            let reply = reply.clone();
            tokio::spawn(async move {
                let mut stream = theirs.compat();
                while frame::read(&mut stream, MAX_REQUEST_BYTES).await.is_ok() {
                    frame::write(&mut stream, &encode(&reply)).await.expect("read");
                }
            });
            opened(Ok(ours.compat()))
        };
        checkpoint::fetch(open, lacking(right, &[1, 2]), &store, |_, _| {}).await.expect_err("refused");
    }
    assert!(store.verify().expect("read").is_empty());
}

#[tokio::test]
async fn what_a_peer_holds_counts_if_it_leads_to_its_view_from_the_founders_key() {
    let ((_dir, held), dir) = (store(), tempfile::tempdir().expect("a temp dir"));
    let (checkpoint_provider, identity, key) = (
        checkpoint_provider(held.clone()),
        Identity::generate(),
        FounderKey::load_or_create(dir.path()).expect("a key"),
    );
    let me = from_libp2p(&identity.peer_id()).expect("an Ed25519 key");
    let view = View::found(RUN, me);
    let info = held.save(state(0.5)).expect("saved");
    let head = head(&info, &view);
    held.sign(&head, &view, &[(me, identity.sign(&head.encode()))], |_, _, _| true).expect("signed");
    let guide = Guide::open(dir.path(), RUN, Some(key.public()));
    checkpoint_provider.lead_by(guide.clone());
    let asked = async |founder: Option<PeerId>| {
        let mut stream = connect_to(&checkpoint_provider);
        let newest = newest(&mut stream, RUN, STEP, STALL).await.expect("answered");
        assert_eq!(newest.proofs.len(), 1);
        let anchors = AnchorSet::of(RUN, founder, &ViewHistory::default());
        let (newest, walks) = questions::proven(&mut stream, newest, anchors, STALL).await.expect("answered");
        assert_eq!(walks.len(), newest.proofs.len());
        newest.proofs.len()
    };
    assert_eq!(asked(Some(key.public())).await, 0, "it leads nowhere");
    guide.begin(dir.path(), &view);
    assert_eq!(asked(Some(key.public())).await, 1);
    assert_eq!(asked(Some(peer(9))).await, 0, "another founder's");
    let open = |_| opened(Ok(connect_to(&checkpoint_provider)));
    let anew = guide.walk_anew(view.id());
    assert!(
        questions::way(open, &anew, &[peer(1), peer(2)], STALL).await.is_some_and(|view_search| view_search.is_there())
    );
    guide.store().expect("stored");
    assert!(Guide::open(dir.path(), RUN, Some(key.public())).anchors().view(view.id()).is_some());
}

#[tokio::test]
async fn a_peer_says_what_it_holds_of_which_run_and_who_is_in_a_view() {
    let (_dir, held) = store();
    let (checkpoint_provider, identity) = (checkpoint_provider(held.clone()), Identity::generate());
    let me = from_libp2p(&identity.peer_id()).expect("an Ed25519 key");
    let view = View::found(RUN, me);
    let ask = async |run: RunId| newest(&mut connect_to(&checkpoint_provider), run, STEP, STALL).await;
    assert_eq!(ask(RUN).await.expect("answered"), Newest { live: false, looks_out: true, proofs: Vec::new() });
    checkpoint_provider.enter(&view);
    let info = held.save(state(0.5)).expect("saved");
    let unsigned = Newest { live: true, looks_out: false, proofs: Vec::new() };
    assert_eq!(ask(RUN).await.expect("answered"), unsigned, "nobody has signed it");
    checkpoint_provider.tell(false, true);
    let head = head(&info, &view);
    let signature = (me, identity.sign(&head.encode()));
    held.sign(&head, &view, &[signature], |_, _, _| true).expect("signed");
    let proofs = vec![Proof { head, view: view.clone(), signatures: vec![signature] }];
    assert_eq!(ask(RUN).await.expect("answered"), Newest { live: false, looks_out: true, proofs: proofs.clone() });
    checkpoint_provider.tell(false, false);
    assert_eq!(ask(RUN).await.expect("answered"), Newest { live: false, looks_out: false, proofs });
    ask(RunId([8; 32])).await.expect_err("another run's");

    let open = |_| opened(Ok(connect_to(&checkpoint_provider)));
    assert_eq!(questions::view(open, view.id(), &[peer(1), peer(2)], STALL).await, Some(view));
    assert_eq!(questions::view(open, ViewId([9; 32]), &[peer(1), peer(2)], STALL).await, None);
    let id = digits().run_id();
    assert_eq!(run(&mut connect_to(&checkpoint_provider), id, STALL).await.expect("answered"), digits());
    run(&mut connect_to(&checkpoint_provider), RUN, STALL).await.expect_err("another run's");
}
