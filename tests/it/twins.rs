//! A data directory that was copied while its member runs.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use starling_tests::{Peer, PeerOptions, eventually};
use tempfile::TempDir;

/// How long a member looks for another one with its identity: every second.
const LOOKS: Duration = Duration::from_secs(3);

fn copy(from: &Path, what: &str) -> Arc<TempDir> {
    let dir = Arc::new(TempDir::new().expect("a temp dir"));
    let state = dir.path().join("state");
    std::fs::create_dir(&state).expect("a folder");
    // What is pruned or renamed meanwhile is missing at one try, and not at each.
    let copies = || Command::new("cp").arg("-a").arg(from.join(what)).arg(&state).status().expect("cp runs").success();
    assert!((0..20).any(|_| copies()));
    dir
}

#[test]
fn a_second_process_with_an_identity_that_runs_ends_and_says_why() {
    let flags = "--model mlp:64 --batch-size 64 --steps 10000000 --max-stall-ms 4000";
    let first = Peer::run(&PeerOptions::flags(&format!("{flags} --min-peers 2")));
    let second = Peer::join(&first.ticket(), &PeerOptions::flags(""));
    let whole = second.wait_for_view(2);
    second.wait_for("a checkpoint", |event| event["event"] == "stable");
    for what in [".", "identity.key"] {
        let copy = copy(&second.data_dir(), what);
        let outcome = Peer::join_in(copy.clone(), &first.ticket(), &PeerOptions::flags("")).finish();
        let (error, key) = (outcome.error(), copy.path().join("state").join("identity.key"));
        assert_eq!(outcome.status.code(), Some(1), "{what}: {error}");
        assert!(error.contains(&second.id()) && error.contains(key.to_str().expect("text")), "{what}: {error}");
        assert!(error.contains("two members can't share one"), "{what}: {error}");
    }
    // The founder's own directory names the same run again.
    let copy = copy(&first.data_dir(), ".");
    let outcome = Peer::run_in(copy, &PeerOptions::flags(&format!("{flags} --min-peers 2"))).finish();
    assert!(outcome.error().contains(&first.id()), "{}", outcome.error());
    // The others did not notice.
    for peer in [first, second] {
        let reached = peer.wait_for("progress", |event| event["event"] == "progress")["step"].as_u64().expect("a step");
        peer.wait_for_step(reached + 1);
        peer.signal("INT");
        let outcome = peer.finish();
        assert_eq!(outcome.summary()["outcome"], "left");
        let views = outcome.events.iter().filter(|(_, event)| event["event"] == "view");
        let after = views.map(|(_, event)| event).skip_while(|event| event["view"] != whole["view"]);
        let is_told = |reason: &str| reason.contains("left") || reason.ends_with("has a vote now");
        let lost = after.filter(|event| event["reason"].as_str().is_some_and(|reason| !is_told(reason)));
        assert!(lost.count() <= 1, "{:?}", outcome.events);
    }
}

#[test]
fn a_copy_that_starts_while_its_member_stands_still_finds_it_later() {
    let flags = "--model mlp:64 --batch-size 64 --steps 10000000 --max-stall-ms 4000 --min-peers 2";
    let first = Peer::run(&PeerOptions::flags(flags));
    let second = Peer::join(&first.ticket(), &PeerOptions::flags(""));
    second.wait_for_view(2);
    // Without the founder, which has the casting vote, nobody is let in.
    first.signal("STOP");
    let copy = Peer::join_in(copy(&first.data_dir(), "identity.key"), &second.ticket(), &PeerOptions::flags(""));
    copy.wait_for("a process that has not found another one", |event| event["event"] == "listening");
    first.signal("CONT");
    let mut both = vec![first, copy];
    let place = eventually("the end of one of them", || both.iter().position(Peer::has_ended));
    let ended = both.swap_remove(place).finish();
    assert!(ended.error().contains("another process runs as"), "{}", ended.error());
    assert_eq!(ended.status.code(), Some(1));
    // The other one trains on.
    let other = both.remove(0);
    second.wait_for_step(second.reached() + 5);
    for peer in [other, second] {
        peer.signal("INT");
        assert_eq!(peer.finish().summary()["outcome"], "left");
    }
}

#[test]
fn a_member_without_a_quorum_that_finds_itself_goes_on() {
    let flags = "--model mlp:64 --batch-size 64 --steps 10000000 --max-stall-ms 2000 --min-peers 2";
    let first = Peer::run(&PeerOptions::flags(flags));
    let second = Peer::join(&first.ticket(), &PeerOptions::flags(""));
    second.wait_for_view(2);
    second.signal("KILL");
    let dir = second.dir();
    drop(second);
    // It listens again where it was last heard of.
    let second = Peer::join_in(dir, &first.ticket(), &PeerOptions::flags(""));
    second.wait_for_view(2);
    first.signal("STOP");
    second.wait_for("no quorum", |event| event["event"] == "paused");
    // It has looked for another process with its identity several times by then.
    let began = Instant::now();
    eventually("a few looks", || (second.has_ended() || began.elapsed() > LOOKS).then_some(()));
    assert!(!second.has_ended(), "{}", second.stderr());
    first.signal("CONT");
    second.wait_for_step(second.reached() + 5);
    for peer in [second, first] {
        peer.signal("INT");
        assert_eq!(peer.finish().summary()["outcome"], "left");
    }
}
