//! Members come, leave, and are lost.

use starling_tests::{Peer, PeerOptions};

/// Steps that take a few milliseconds each, and more of them than any test waits for.
const LONG: &str = "--model mlp:256,256 --batch-size 256 --steps 1000000 --checkpoint-every 0";

fn founder(flags: &str) -> Peer {
    Peer::run(&PeerOptions::flags(&format!("{LONG} {flags}")))
}

fn joiner(founder: &Peer, flags: &str) -> Peer {
    Peer::join(&founder.ticket(), &PeerOptions::flags(flags))
}

#[test]
fn peers_join_between_steps_and_leave_in_order() {
    let first = founder("");
    first.wait_for_view(1);
    first.wait_for_step(1);
    let second = joiner(&first, "");
    // The joiner enters at the boundary where the founder stood, with its state.
    let entered = second.wait_for_view(2);
    assert!(entered["step"].as_u64().is_some_and(|step| step > 0), "{entered}");
    assert_eq!(first.wait_for_view(2)["view"], entered["view"]);
    // A third joins through the second, which passes it on if it is not the one to propose.
    let third = Peer::join(&second.ticket(), &PeerOptions::default());
    let views = [&first, &second, &third].map(|peer| peer.wait_for_view(3)["view"].clone());
    assert_eq!(views[0], views[1]);
    assert_eq!(views[0], views[2]);
    let reached = third.wait_for("progress", |event| event["event"] == "progress")["step"].as_u64();

    // The founder leaves first: nobody is special.
    first.signal("TERM");
    let left = first.finish();
    assert_eq!(left.summary()["outcome"], "left");
    let [a, b] = [&second, &third].map(|peer| {
        peer.wait_for("a view without the founder", |event| event["event"] == "view" && event["generation"] == 4)
    });
    assert_eq!(a["view"], b["view"]);
    assert!(a["step"].as_u64() >= reached, "{a}");
    second.signal("INT");
    assert_eq!(second.finish().summary()["outcome"], "left");
    third.wait_for("its own view", |event| event["event"] == "view" && event["generation"] == 5);
    third.signal("TERM");
    assert_eq!(third.finish().summary()["outcome"], "left");
}

#[test]
fn a_peer_that_joins_late_ends_with_the_same_bits() {
    let first = Peer::run(&PeerOptions::flags("--model mlp:256,256 --batch-size 256 --steps 1200"));
    first.wait_for_step(1);
    let second = joiner(&first, "");
    let entered = second.wait_for_view(2)["step"].as_u64().expect("a step");
    assert!(entered > 0 && entered < 1200, "entered at {entered}");
    let (first, second) = (first.finish(), second.finish());
    assert_eq!(first.summary()["digest"], second.summary()["digest"]);
    assert_eq!(second.summary()["steps"], 1200);
}

#[test]
fn all_others_end_and_name_a_member_that_was_killed() {
    let first = founder("--min-peers 4");
    let mut others: Vec<Peer> = (0..3).map(|_| joiner(&first, "")).collect();
    first.wait_for_view(4);
    first.wait_for_step(1);
    let victim = others.remove(1);
    let name = victim.id();
    victim.signal("KILL");
    drop(victim);
    for peer in others.into_iter().chain([first]) {
        let outcome = peer.finish();
        let error = outcome.error().to_owned();
        assert!(error.contains(&format!("peer {name} is lost")), "{error}");
        assert!(error.contains("connection closed"), "{error}");
        assert!(error.contains("--resume"), "{error}");
        assert_eq!(outcome.status.code(), Some(1));
    }
}

#[test]
fn all_others_end_and_name_a_member_that_hangs() {
    let first = founder("--min-peers 3 --max-stall-ms 2000");
    // The others have it from the run.
    let others = [(); 2].map(|()| joiner(&first, ""));
    first.wait_for_view(3);
    first.wait_for_step(1);
    let [victim, other] = others;
    let name = victim.id();
    victim.signal("STOP");
    for peer in [other, first] {
        let error = peer.finish().error().to_owned();
        assert!(error.contains(&format!("peer {name} is lost")), "{error}");
        assert!(error.contains("silent for"), "{error}");
    }
}

#[test]
fn members_go_on_when_a_joiner_dies_on_the_way() {
    let first = founder("");
    first.wait_for_step(1);
    let dying = joiner(&first, "");
    dying.wait_for("its start", |event| event["event"] == "started");
    dying.signal("KILL");
    drop(dying);
    // Wherever the kill fell, the founder either never saw it, dropped it, or had it as a member for an instant.
    // In the first two cases it goes on; the third is a loss like any other, and is told as one.
    let second = joiner(&first, "");
    let outcome = second.wait_for("an answer", |event| event["event"] == "view" || event["event"] == "finished");
    assert_eq!(outcome["event"], "view");
    second.signal("TERM");
    assert_eq!(second.finish().summary()["outcome"], "left");
}

#[test]
fn a_peer_that_left_is_not_dialed_for_ever() {
    let first = Peer::run(&PeerOptions::flags(&format!("{LONG} -vv")));
    first.wait_for_step(1);
    let second = joiner(&first, "");
    second.wait_for_view(2);
    second.signal("TERM");
    second.finish().summary();
    first.wait_for("its own view", |event| event["event"] == "view" && event["generation"] == 3);
    // Kademlia looks around when somebody new comes, and may try the one that left.
    let third = joiner(&first, "");
    third.wait_for_view(2);
    third.wait_for_step(
        third.wait_for("progress", |event| event["event"] == "progress")["step"].as_u64().unwrap_or(0) + 50,
    );
    first.signal("TERM");
    let log = first.finish().stderr;
    assert!(log.contains("starling_node"), "the log is there: {log}");
    assert!(log.matches("dial failed").count() < 20, "{log}");
    third.signal("TERM");
    third.finish().summary();
}
