//! Donors that work, fail and lie.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use starling_topology::{Generation, Ledger, PeerId, RunId};
use starling_train::ReplicatedState;
use tokio_util::compat::{Compat, TokioAsyncReadCompatExt};

use super::super::{MAX_REQUEST_BYTES, Reply, Shelf, decode, encode, serve};
use super::*;
use crate::frame;
use crate::pace::Pace;
use crate::snapshots::{Found, Snapshots};

const STALL: Duration = Duration::from_secs(30);
const RUN: RunId = RunId([7; 32]);
const STEP: u64 = 12;
const GENERATION: Generation = Generation(3);

type Stream = Compat<tokio::io::DuplexStream>;

fn peer(name: u8) -> PeerId {
    PeerId([name; 32])
}

/// Of a little more than three chunks.
fn state(seed: f32) -> ReplicatedState {
    let parameters = (0..800_000).map(|at| at as f32 + seed).collect();
    let mut ledger = Ledger::new(1, 10, 5);
    ledger.assign(&[peer(1)]);
    for step in 1..=STEP {
        ledger.commit(step, &[peer(1)], &[1]);
    }
    ReplicatedState { run: RUN, step: STEP, parameters, moments: Vec::new(), scalars: Vec::new(), ledger }
}

/// A member that holds `state`.
async fn donor(state: &ReplicatedState) -> Arc<Snapshots> {
    let snapshots = Snapshots::new(Pace::new(0));
    snapshots.expect(state.step);
    snapshots.enter(GENERATION);
    snapshots.take(state.clone());
    while !matches!(snapshots.after(GENERATION, state.step), Found::Here(_)) {
        tokio::task::yield_now().await;
    }
    snapshots
}

fn wanted(donors: &[u8]) -> Wanted {
    let donors = donors.iter().map(|name| peer(*name)).collect();
    Wanted { run: RUN, generation: GENERATION, step: STEP, max_bytes: 8 << 20, donors, stall: STALL }
}

fn connect(snapshots: Arc<Snapshots>) -> Stream {
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let shelf = Shelf::new(snapshots, None, Pace::new(0));
    tokio::spawn(async move { serve(theirs.compat(), shelf, STALL).await });
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
                    Found::Here(snapshot) => Reply::Manifest(snapshot.manifest().encode()),
                    Found::Later | Found::Nothing => Reply::NotHere,
                },
                (Request::Chunk { .. }, Some(answer)) => Reply::Chunk(answer.clone()),
                (Request::Chunk { .. }, None) => return,
                (Request::DataManifest | Request::Members, _) => panic!("nobody asks that for a state"),
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
    let error = fetch(open, wanted(&[1, 2, 9]), |_, _| {}).await.expect_err("one against one");
    assert!(error.contains("differ"), "{error}");
    let error = fetch(open, wanted(&[9]), |_, _| {}).await.expect_err("nobody");
    assert!(error.contains("refused"), "{error}");
    fetch(open, wanted(&[]), |_, _| {}).await.expect_err("no donor");
}

#[tokio::test]
async fn only_the_state_that_was_asked_for_is_taken() {
    let snapshots = donor(&state(0.0)).await;
    let open = |_| opened(Ok(connect(snapshots.clone())));
    for other in [
        Wanted { run: RunId([8; 32]), ..wanted(&[1]) },
        Wanted { step: STEP + 1, ..wanted(&[1]) },
        Wanted { max_bytes: 1 << 20, ..wanted(&[1]) },
    ] {
        fetch(open, other, |_, _| {}).await.expect_err("another state");
    }
}
