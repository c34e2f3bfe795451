//! A disk that hangs costs the others nothing, and its own member no more than what it could not save.

use std::sync::Arc;

use starling_tests::{FrozenDisk, Outcome, Peer, PeerOptions};
use tempfile::TempDir;

const RUN: &str = "--model mlp:64 --batch-size 64 --checkpoint-every 0 --max-stall-ms 2000";

/// Three members, of which the second has a disk that can hang; they are in one view, and take steps.
fn three(flags: &str) -> Option<([Peer; 2], Peer, FrozenDisk)> {
    let dir = Arc::new(TempDir::new().expect("a temp dir"));
    let disk = FrozenDisk::mount(&dir.path().join("state"))?;
    let first = Peer::run(&PeerOptions::flags(&format!("{RUN} {flags} --min-peers 2")));
    let member = Peer::join_in(dir, &first.ticket(), &PeerOptions::flags(""));
    let third = Peer::join(&first.ticket(), &PeerOptions::flags(""));
    for peer in [&first, &member, &third] {
        peer.wait_for_votes(3);
        peer.wait_for("a step", |event| event["event"] == "progress");
    }
    Some(([first, third], member, disk))
}

/// Waits until it has given up, thaws its disk, so that the system can end it, and says how it ended.
fn give_up(member: Peer, disk: &FrozenDisk) -> Outcome {
    member.wait_for("an error", |event| event["event"] == "failed");
    disk.thaw().expect("it was frozen");
    member.finish()
}

#[test]
fn a_disk_that_hangs_when_the_last_state_is_saved_holds_nobody_up() {
    let Some((others, member, disk)) = three("--steps 3000") else { return };
    disk.freeze().expect("it could be before");
    let ends = others.map(Peer::finish);
    assert_eq!(ends[0].summary()["digest"], ends[1].summary()["digest"]);
    for end in &ends {
        assert_eq!((&end.summary()["outcome"], &end.summary()["steps"]), (&"complete".into(), &3000.into()));
    }
    let outcome = give_up(member, &disk);
    let error = outcome.error();
    assert_eq!(outcome.status.code(), Some(1), "{error}");
    assert!(error.contains("the state after step 3000 is not saved") && error.contains("has not answered"), "{error}");
    assert!(error.contains("checkpoints") && error.contains("starling checkpoint fetch"), "{error}");
}

#[test]
fn a_member_whose_disk_hangs_in_mid_run_can_leave_and_the_others_go_on() {
    let Some((others, member, disk)) = three("--steps 10000000") else { return };
    disk.freeze().expect("it could be before");
    member.signal("INT");
    let outcome = give_up(member, &disk);
    // Its last state and its vote on the view without it wait for the same disk: whichever began first gives up first.
    let error = outcome.error();
    assert!(error.contains("not saved") || error.contains("can't store its vote"), "{error}");
    let reached = others[0].wait_for_view(2)["step"].as_u64().expect("a step");
    for peer in &others {
        peer.wait_for_view(2);
        peer.wait_for_step(reached + 1);
        peer.signal("INT");
    }
    for end in others.map(Peer::finish) {
        assert_eq!(end.summary()["outcome"], "left");
    }
}
