//! Checkpoints that members vouch for, and what a run goes on from when all of them were killed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use starling_tests::{Peer, PeerOptions, checkpoints, newest, newest_stable, starling};
use tempfile::TempDir;

/// Steps that take a few milliseconds each, and more of them than any test waits for.
const FLAGS: &str =
    "--model mlp:256,256 --batch-size 256 --steps 1000000 --checkpoint-every 20 --max-stall-ms 8000 --min-peers 2";
/// What a joiner does not have from the run.
const OWN: &str = "--checkpoint-every 20";

fn is_stable(event: &Value, signers: u64) -> bool {
    event["event"] == "stable" && event["signers"].as_u64() >= Some(signers)
}

/// Three members that have stable checkpoints, killed at once; their directories and the ticket of their run.
fn three_that_were_killed() -> ([Arc<TempDir>; 3], String) {
    let founder = Peer::run(&PeerOptions::flags(FLAGS));
    let ticket = founder.ticket();
    let [second, third] = [(); 2].map(|()| Peer::join(&ticket, &PeerOptions::flags(OWN)));
    let peers = [founder, second, third];
    peers.iter().for_each(|peer| _ = peer.wait_for_votes(3));
    let complete = |event: &Value| is_stable(event, 3);
    let first = peers.each_ref().map(|peer| peer.wait_for("a checkpoint that all have signed", complete));
    assert!(first.iter().all(|event| event["digest"] == first[0]["digest"] || event["step"] != first[0]["step"]));
    let step = first[0]["step"].as_u64();
    for peer in &peers {
        peer.wait_for("a later one", |event| is_stable(event, 2) && event["step"].as_u64() > step);
    }
    let dirs = peers.each_ref().map(Peer::dir);
    peers.iter().for_each(|peer| peer.signal("KILL"));
    peers.into_iter().for_each(|peer| drop(peer.finish()));
    (dirs, ticket)
}

fn step(value: &Value) -> u64 {
    value["step"].as_u64().expect("a step")
}

/// The step from which a peer started.
fn started(peer: &Peer) -> u64 {
    step(&peer.wait_for("its start", |event| event["event"] == "started"))
}

/// All go on, and vouch for the same states.
fn go_on_together(peers: [Peer; 3], from: u64) {
    let later = |event: &Value| is_stable(event, 3) && step(event) > from;
    let first = peers[0].wait_for("a later checkpoint that all have signed", later);
    for peer in &peers[1..] {
        let same = |event: &Value| is_stable(event, 2) && event["step"] == first["step"];
        assert_eq!(peer.wait_for("the same one", same)["digest"], first["digest"]);
    }
    for peer in peers {
        peer.signal("TERM");
        assert_eq!(peer.finish().summary()["outcome"], "left");
    }
}

#[test]
fn killed_members_go_on_from_their_newest_checkpoint_in_any_order_and_one_disk_may_be_lost() {
    let ([first, second, third], ticket) = three_that_were_killed();
    let stable = [&second, &third].map(|dir| newest_stable(dir));
    let stable = stable.iter().max_by_key(|checkpoint| step(checkpoint)).expect("two");
    assert!(stable["signers"].as_array().is_some_and(|signers| signers.len() >= 2), "{stable}");
    let held = [&second, &third].map(|dir| step(&newest(dir)));
    let newest = held[0].max(held[1]);
    std::fs::remove_dir_all(first.path().join("state")).expect("lost");

    // Nobody is where the ticket says. The third knows the run, and waits.
    let third = Peer::join_in(third, &ticket, &PeerOptions::flags(OWN));
    let ticket = third.ticket();
    let second = Peer::join_in(second, &ticket, &PeerOptions::flags(OWN));
    // The second asks the third for what is stable and newer than its own.
    assert_eq!([&second, &third].map(started), [held[0].max(step(stable)), held[1]]);
    for peer in [&second, &third] {
        let view = peer.wait_for_view(2);
        assert_eq!(step(&view), newest, "{view}");
        assert!(view["reason"].as_str().is_some_and(|reason| reason.contains("came back")), "{view}");
    }
    let first = Peer::join_in(first, &ticket, &PeerOptions::flags(OWN));
    first.wait_for_votes(3);
    go_on_together([first, second, third], newest);
}

/// The only chunk of a checkpoint: states of these tests are shorter than one.
fn chunk_of(checkpoint: &Value) -> PathBuf {
    let path = Path::new(checkpoint["path"].as_str().expect("a path"));
    let manifest: Value = serde_json::from_slice(&std::fs::read(path).expect("read")).expect("JSON");
    let chunks = manifest["chunks"].as_array().expect("a list");
    assert_eq!(chunks.len(), 1, "{manifest}");
    path.with_file_name("chunks").join(chunks[0].as_str().expect("a hash"))
}

#[test]
fn a_flipped_bit_is_named_and_the_state_comes_from_the_others() {
    let ([first, second, third], _) = three_that_were_killed();
    let damaged = newest(&second);
    let chunk = chunk_of(&damaged);
    let mut bytes = std::fs::read(&chunk).expect("read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&chunk, bytes).expect("written");
    let (verdicts, code) = checkpoints(&second, "verify");
    let wrong: Vec<&Value> = verdicts.iter().filter(|verdict| verdict["whole"] == false).collect();
    assert_eq!((wrong.len(), &wrong[0]["step"], code), (1, &damaged["step"], Some(1)));
    let newest = [&first, &third].map(|dir| step(&newest(dir))).into_iter().max().expect("two");

    let first = Peer::run_in(first, &PeerOptions::flags(FLAGS));
    let ticket = first.ticket();
    let third = Peer::join_in(third, &ticket, &PeerOptions::flags(OWN));
    // A quorum goes on without the second, which has nothing to fetch then but the state.
    for peer in [&first, &third] {
        assert_eq!(step(&peer.wait_for("a view", |event| event["event"] == "view")), newest);
    }
    let second = Peer::join_in(second, &ticket, &PeerOptions::flags(OWN));
    assert!(started(&second) < step(&damaged));
    let warning = second.wait_for("a warning", |event| event["event"] == "warning");
    let name = chunk.file_name().expect("a name").to_string_lossy().into_owned();
    assert!(warning["message"].as_str().is_some_and(|message| message.contains(&name)), "{warning}");
    second.wait_for("the others' state", |event| event["event"] == "synced");
    go_on_together([first, second, third], newest);
}

/// A member that saves after each step, and keeps one checkpoint.
fn in_a_hurry() -> Peer {
    Peer::run(&PeerOptions::flags("--model mlp:8 --steps 10000000 --checkpoint-every 1 --checkpoint-keep 1"))
}

/// What a verb of `checkpoint` says in `dir`, which must end well.
fn checkpoint(dir: &Path, flags: &[&str]) -> Value {
    let output = starling(dir).args(["checkpoint", "--json"]).args(flags).output().expect("it runs");
    assert!(output.status.success(), "{flags:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn checkpoints_are_looked_at_while_the_node_replaces_them() {
    let peer = in_a_hurry();
    let dir = peer.dir();
    peer.wait_for("a checkpoint", |event| event["event"] == "saved");
    let mut exported = BTreeSet::new();
    while exported.len() < 8 {
        let listed = checkpoint(dir.path(), &["ls", "--data-dir", "state"]);
        assert!(listed["checkpoints"].as_array().is_some_and(|list| !list.is_empty()), "{listed}");
        let verified = checkpoint(dir.path(), &["verify", "--data-dir", "state"]);
        assert_eq!(verified["damaged"], 0, "{verified}");
        let said = checkpoint(dir.path(), &["export", "--data-dir", "state", "--to", "model.safetensors"]);
        exported.insert(step(&said));
        let model = std::fs::read(dir.path().join("model.safetensors")).expect("written");
        safetensors::SafeTensors::deserialize(&model).expect("a model");
    }
    peer.signal("TERM");
    let outcome = peer.finish();
    let last = outcome.summary()["steps"].as_u64().expect("a step");
    assert!(exported.iter().all(|step| *step <= last), "{exported:?}, of {last}");
    let is_warning = |(_, event): &&(_, Value)| event["event"] == "warning";
    assert_eq!(outcome.events.iter().find(is_warning), None, "the node does not notice");
}

#[test]
fn a_checkpoint_is_fetched_though_newer_ones_take_its_place() {
    let peer = in_a_hurry();
    let stable = |event: &Value| is_stable(event, 1);
    peer.wait_for("a stable checkpoint", stable);
    let keeper = Peer::keep_in(
        Arc::new(TempDir::new().expect("a temp dir")),
        &peer.ticket(),
        &PeerOptions::flags("--checkpoint-keep 1"),
    );
    keeper.wait_for("a stable checkpoint", stable);
    for ticket in [peer.ticket(), keeper.ticket()] {
        for _ in 0..3 {
            let dir = TempDir::new().expect("a temp dir");
            let fetched = checkpoint(dir.path(), &["fetch", &ticket, "--data-dir", "state"]);
            let verified = checkpoint(dir.path(), &["verify", "--data-dir", "state"]);
            assert_eq!((&verified["checkpoints"][0]["step"], &verified["damaged"]), (&fetched["step"], &0.into()));
            // With all that it takes to use the model.
            let said = checkpoint(dir.path(), &["export", "--data-dir", "state", "--to", "model.safetensors"]);
            assert_eq!((&said["step"], &said["preprocessing"]), (&fetched["step"], &true.into()));
        }
    }
    for peer in [keeper, peer] {
        peer.signal("TERM");
        assert_eq!(peer.finish().summary()["outcome"], "left");
    }
}
