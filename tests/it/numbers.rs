//! Gradients that explode: nobody exits, nothing that is saved is lost, and everybody knows.

use std::sync::Arc;

use serde_json::Value;
use starling_tests::{Peer, PeerOptions, checkpoints, newest_stable};
use tempfile::TempDir;

const FACTORS: &str = "STARLING_TEST_GRADIENT_FACTORS";
const SAVING: &str = "--checkpoint-every 20";
const FLAGS: &str = "--model mlp:16 --steps 100000000 --checkpoint-every 20 --min-peers 3 --max-stall-ms 8000";
/// By when all three are in the view.
const STEP: u64 = 40;

/// A member whose gradients are multiplied so.
fn exploding(factors: &str, flags: &str) -> PeerOptions {
    PeerOptions { prefix: vec!["env".to_owned(), format!("{FACTORS}={factors}")], ..PeerOptions::flags(flags) }
}

/// Three members, the second of which is such a one, of a run with this bound.
fn three(factors: &str, bound: &str, flags: &str) -> [Peer; 3] {
    let prefix = vec!["env".to_owned(), format!("STARLING_COLLECTIVE_BOUND={bound}")];
    let founder = Peer::run(&PeerOptions { prefix, ..PeerOptions::flags(&format!("{FLAGS} {flags}")) });
    let ticket = founder.ticket();
    let second = Peer::join(&ticket, &exploding(factors, SAVING));
    [founder, second, Peer::join(&ticket, &PeerOptions::flags(SAVING))]
}

fn step(event: &Value) -> u64 {
    event["step"].as_u64().expect("a step")
}

/// The first event of this kind that is of `STEP` or later.
fn told(peer: &Peer, kind: &str) -> Value {
    peer.wait_for(kind, |event| event["event"] == kind && step(event) >= STEP)
}

/// A stable checkpoint, after so many steps more.
fn goes_on(peer: &Peer, more: u64) {
    let later = |event: &Value| event["event"] == "stable" && step(event) > STEP + more;
    peer.wait_for("a stable checkpoint", later);
}

/// All are killed, and come back.
fn all_come_back(peers: [Peer; 3]) {
    let dirs = peers.each_ref().map(Peer::dir);
    peers.iter().for_each(|peer| peer.signal("KILL"));
    peers.into_iter().for_each(|peer| drop(peer.finish()));
    start_again(dirs);
}

/// Every checkpoint on these disks is one, and their members go on from the newest.
fn start_again(dirs: [Arc<TempDir>; 3]) {
    for dir in &dirs {
        let (verdicts, code) = checkpoints(dir, "verify");
        assert!(code == Some(0) && verdicts.iter().all(|verdict| verdict["whole"] == true), "{verdicts:?}");
    }
    let from = dirs.each_ref().map(|dir| step(&newest_stable(dir))).into_iter().max().expect("three");
    let [first, second, third] = dirs;
    let first = Peer::run_in(first, &PeerOptions::flags(FLAGS));
    let ticket = first.ticket();
    let others = [second, third].map(|dir| Peer::join_in(dir, &ticket, &PeerOptions::flags(SAVING)));
    for peer in others.iter().chain([&first]) {
        peer.wait_for_step(from + 50);
    }
}

/// Squared, it is beyond all finite numbers; the parameters themselves would not show it.
#[test]
fn one_batch_that_explodes_costs_adamw_one_step_and_nothing_else() {
    let peers = three(&format!("{STEP}:1e23"), "1e24", "--optimizer adamw");
    let skips = peers.each_ref().map(|peer| told(peer, "skipped"));
    for skip in &skips {
        assert_eq!((step(skip), &skip["in_row"], &skip["total"]), (STEP, &1.into(), &1.into()), "{skip}");
        assert_eq!(skip["reason"], skips[0]["reason"]);
        assert!(skip["reason"].as_str().is_some_and(|reason| reason.contains("next optimizer moments")), "{skip}");
    }
    peers.iter().for_each(|peer| goes_on(peer, 200));
    let progress = one_joins(&peers);
    assert_eq!(progress["skipped"], 1, "who comes later knows, too: {progress}");
    all_come_back(peers);
}

/// Another one gets the state, and leaves. What it told of its steps first.
fn one_joins(peers: &[Peer; 3]) -> Value {
    let joiner = Peer::join(&peers[0].ticket(), &PeerOptions::flags(SAVING));
    joiner.wait_for("the state", |event| event["event"] == "synced");
    let progress = joiner.wait_for("its progress", |event| event["event"] == "progress");
    joiner.signal("TERM");
    assert_eq!(joiner.finish().summary()["outcome"], "left");
    progress
}

#[test]
fn a_gradient_beyond_the_bound_stays_with_who_computed_it() {
    for (factor, optimizer) in [("1e30", "adamw"), ("3e38", "sgd"), ("nan", "momentum")] {
        others_compute(factor, optimizer);
    }
}

fn others_compute(factor: &str, optimizer: &str) {
    let peers = three(&format!("{STEP}:{factor}"), "1e12", &format!("--optimizer {optimizer}"));
    let culprit = peers[1].id();
    for peer in &peers {
        let given_up = told(peer, "gave_up");
        assert_eq!((step(&given_up), given_up["peer"].as_str()), (STEP, Some(culprit.as_str())), "{given_up}");
    }
    let warned = peers[1].wait_for("a warning", |event| event["event"] == "warning");
    let message = warned["message"].as_str().unwrap_or_default();
    assert!(message.contains(&format!("step {STEP}: the ")) && message.contains("are given back"), "{message}");
    peers.iter().for_each(|peer| goes_on(peer, 200));
    assert_eq!(one_joins(&peers)["skipped"], 0, "no step was lost");
    let is_accusation = |event: &Value| event["event"] == "misbehaved";
    assert!(!peers.iter().any(|peer| peer.told().iter().any(is_accusation)), "nobody is taken for hostile");
    all_come_back(peers);
}

/// What doesn't go away by itself ends the run, in order, and loses nothing.
#[test]
fn a_run_that_explodes_for_good_stops_and_says_what_to_change() {
    let factors = format!("{STEP}+:inf");
    let founder = Peer::run(&exploding(&factors, FLAGS));
    let ticket = founder.ticket();
    let others = [(); 2].map(|()| Peer::join(&ticket, &exploding(&factors, SAVING)));
    let [second, third] = others;
    let peers = [founder, second, third];
    let dirs = peers.each_ref().map(Peer::dir);
    let dropped = told(&peers[0], "dropped");
    assert!(dropped["samples"].as_array().is_some_and(|samples| !samples.is_empty()), "{dropped}");
    let last = STEP + 7;
    for peer in peers {
        let outcome = peer.finish();
        let error = outcome.error();
        assert!(error.contains(&format!("after step {last} the run has stopped: 8 updates in a row")), "{error}");
        assert!(error.contains("--from") && error.contains("learning rate"), "{error}");
    }
    for dir in &dirs {
        let (list, _) = checkpoints(dir, "ls");
        assert!(list.iter().any(|checkpoint| step(checkpoint) == last), "the last finite state is saved: {list:?}");
    }
    // Once the cause is gone.
    start_again(dirs);
}
