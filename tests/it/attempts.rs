//! The same run is begun twice, or goes on without some of those who took its last steps.

use std::sync::Arc;

use serde_json::Value;
use starling_tests::{Outcome, Peer, PeerOptions, audit, checkpoints};
use tempfile::TempDir;

const FLAGS: &str = "--model mlp:1024 --batch-size 512 --steps 1000000 --checkpoint-every 20";
const OWN: &str = "--checkpoint-every 20";

/// A founder and two that join it, in these folders, all of them members of one view.
fn three(dirs: &[Arc<TempDir>; 3]) -> [Peer; 3] {
    let founder = Peer::run_in(dirs[0].clone(), &PeerOptions::flags(FLAGS));
    let ticket = founder.ticket();
    let join = |dir: &Arc<TempDir>| Peer::join_in(dir.clone(), &ticket, &PeerOptions::flags(OWN));
    let peers = [founder, join(&dirs[1]), join(&dirs[2])];
    peers.iter().for_each(|peer| _ = peer.wait_for_votes(3));
    peers
}

fn wait_for_stable_after(peer: &Peer, step: u64) -> u64 {
    let is_later = |event: &Value| event["event"] == "stable" && event["step"].as_u64() > Some(step);
    peer.wait_for("a stable checkpoint", is_later)["step"].as_u64().expect("a step")
}

#[test]
fn what_an_earlier_attempt_left_on_disk_wins_over_nothing_of_a_new_one() {
    let mut dirs = [(); 3].map(|()| Arc::new(TempDir::new().expect("a temp dir")));
    let first = three(&dirs);
    let left_at = wait_for_stable_after(&first[2], 600);
    for peer in first {
        peer.signal("TERM");
        assert_eq!(peer.finish().summary()["outcome"], "left");
    }
    // The founder begins anew from nothing but its key, with the same settings: to all others it is the same run.
    let key = std::fs::read(dirs[0].path().join("state/founder.key")).expect("a founder's key");
    dirs[0] = Arc::new(TempDir::new().expect("a temp dir"));
    std::fs::create_dir(dirs[0].path().join("state")).expect("made");
    std::fs::write(dirs[0].path().join("state/founder.key"), key).expect("written");
    let second = three(&dirs);
    let stable = wait_for_stable_after(&second[0], 30);
    let is_new = |event: &Value| event["event"] == "saved" && event["step"].as_u64() >= Some(stable);
    second[2].wait_for("a checkpoint of the new attempt", is_new);
    second.iter().for_each(|peer| peer.signal("KILL"));
    second.into_iter().for_each(|peer| drop(peer.finish()));
    // That the old one had come further is still to be seen.
    let (list, _) = checkpoints(&dirs[2], "ls");
    let of = |aside: bool| list.iter().filter(move |listed| listed["put_aside"] == aside);
    assert!(of(true).any(|old| old["stable"] == true && old["step"].as_u64() >= Some(left_at)), "{list:?}");
    let newest = of(false).filter_map(|new| new["step"].as_u64()).max().expect("it has saved some");
    assert!((stable..left_at).contains(&newest), "the new attempt has overtaken the old one: {list:?}");

    let third = three(&dirs);
    for peer in third {
        peer.signal("KILL");
        let views = peer.finish().events.into_iter().map(|(_, event)| event).filter(|event| event["event"] == "view");
        for view in views {
            let step = view["step"].as_u64().expect("a step");
            assert!((stable..left_at).contains(&step), "after {stable}, before {left_at}: {view}");
            assert_eq!(view["forked"], false, "{view}");
        }
    }
}

fn end(peer: Peer, signal: &str) -> Outcome {
    peer.signal(signal);
    peer.finish()
}

fn step(event: &Value) -> u64 {
    event["step"].as_u64().expect("a step")
}

/// It took steps that nobody else remembers, and its file says so.
#[test]
fn the_audit_of_one_that_never_comes_back_is_no_offence() {
    let (own, fresh) = ("--checkpoint-every 500", || Arc::new(TempDir::new().expect("a temp dir")));
    let flags = format!("--model mlp:8 --steps 100000000 --max-stall-ms 4000 {own}");
    let dirs = [(); 3].map(|()| fresh());
    let file = |slot: usize| dirs[slot].path().join("audit.jsonl");
    let options = |slot: usize, flags: &str| PeerOptions::flags(flags).with("--audit", file(slot));
    let founder = Peer::run_in(dirs[0].clone(), &options(0, &flags));
    let ticket = founder.ticket();
    let joins = |slot: usize| Peer::join_in(dirs[slot].clone(), &ticket, &options(slot, own));
    let peers = [founder, joins(1), joins(2)];
    for peer in &peers {
        peer.wait_for_votes(3);
        peer.wait_for("a stable checkpoint", |event| event["event"] == "stable" && event["signers"] == 3);
        peer.wait_for_step(peer.reached() + 300);
    }
    // At once: killed one after the other, those who are left would take its last steps with it.
    peers.iter().for_each(|peer| peer.signal("STOP"));
    peers.into_iter().for_each(|peer| drop(end(peer, "KILL")));
    let last = audit([file(2)])["last_step"].as_u64().expect("a step");
    let peers = [Peer::run_in(dirs[0].clone(), &options(0, &flags)), joins(1)];
    for peer in &peers {
        assert!(step(&peer.wait_for_view(2)) <= last, "they go on from a checkpoint");
        peer.wait_for_step(last + 1);
    }
    for peer in peers {
        assert_eq!(end(peer, "INT").summary()["outcome"], "left");
    }
    assert_eq!(audit((0..3).map(file))["samples_repeated"], 0);
}
