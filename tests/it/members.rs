//! Members come, leave, die, hang and come back; the run goes on.

use starling_tests::{Peer, PeerOptions, audit};

/// Steps that take a few milliseconds each, and more of them than any test waits for.
const LONG: &str = "--model mlp:256,256 --batch-size 256 --steps 1000000 --checkpoint-every 0";
/// As many as it takes to lose one and to take one in, of a model that keeps any machine busy for some seconds.
const SOME: &str = "--model mlp:512,512 --batch-size 512 --steps 600";

fn founder(flags: &str) -> Peer {
    Peer::run(&audited(flags))
}

fn joiner(founder: &Peer, flags: &str) -> Peer {
    Peer::join(&founder.ticket(), &audited(flags))
}

/// Every peer writes who contributed what, in its own directory.
fn audited(flags: &str) -> PeerOptions {
    PeerOptions::networked(flags).with("--audit", "audit.jsonl")
}

/// Waits for the end of all, who must have finished with one digest, and checks the audit files of these and of `gone`.
fn finish(peers: Vec<Peer>, gone: &[Peer]) {
    let dirs: Vec<_> = peers.iter().chain(gone).map(Peer::dir).collect();
    let outcomes: Vec<_> = peers.into_iter().map(Peer::finish).collect();
    for outcome in &outcomes {
        assert_eq!(outcome.summary()["outcome"], "complete");
        assert_eq!(outcome.summary()["digest"], outcomes[0].summary()["digest"]);
    }
    let report = audit(dirs.iter().map(|dir| dir.path().join("audit.jsonl")));
    assert_eq!((&report["samples_lost"], &report["samples_repeated"]), (&0.into(), &0.into()), "{report}");
    assert_eq!((&report["first_step"], &report["steps"]), (&1.into(), &outcomes[0].summary()["steps"]), "{report}");
}

/// Waits until `peer` is in a view that came because `lost` was lost, in the way that `how` says.
fn wait_for_loss(peer: &Peer, lost: &str, how: &str) {
    let reason = format!("peer {lost} lost: ");
    let view = peer.wait_for(&reason, |event| {
        event["event"] == "view" && event["reason"].as_str().is_some_and(|text| text.contains(&reason))
    });
    assert!(view["reason"].as_str().is_some_and(|text| text.contains(how)), "{view}");
    let generation = view["generation"].as_u64();
    peer.wait_for("a step in the next view", |event| {
        event["event"] == "progress" && event["generation"].as_u64() >= generation
    });
}

#[test]
fn peers_join_between_steps_and_leave_in_order() {
    let first = founder(LONG);
    first.wait_for_view(1);
    first.wait_for_step(1);
    let second = joiner(&first, "");
    let entered = second.wait_for_view(2);
    assert_eq!(first.wait_for_view(2)["view"], entered["view"]);
    second.wait_for("the state", |event| event["event"] == "synced" || event["event"] == "progress");
    // A third joins through the second, which passes it on if it is not the one to propose.
    let third = Peer::join(&second.ticket(), &PeerOptions::networked(""));
    let views = [&first, &second, &third].map(|peer| peer.wait_for_view(3)["view"].clone());
    assert_eq!(views[0], views[1]);
    assert_eq!(views[0], views[2]);
    let reached = third.wait_for("progress", |event| event["event"] == "progress")["step"].as_u64();

    // The founder leaves first: nobody is special.
    first.signal("TERM");
    assert_eq!(first.finish().summary()["outcome"], "left");
    let without = |peer: &Peer| {
        peer.wait_for("a view without the founder", |event| {
            event["event"] == "view" && event["reason"].as_str().is_some_and(|text| text.contains(" left"))
        })
    };
    let (a, b) = (without(&second), without(&third));
    assert_eq!(a["view"], b["view"]);
    assert!(a["step"].as_u64() >= reached, "{a}");
    second.signal("INT");
    assert_eq!(second.finish().summary()["outcome"], "left");
    third.wait_for("its own view", |event| {
        event["event"] == "view" && event["members"].as_array().is_some_and(|list| list.len() == 1)
    });
    third.signal("TERM");
    assert_eq!(third.finish().summary()["outcome"], "left");
}

#[test]
fn a_peer_that_joins_late_ends_with_the_same_bits() {
    let first = founder(SOME);
    first.wait_for_step(1);
    let second = joiner(&first, "");
    second.wait_for_view(2);
    finish(vec![first, second], &[]);
}

#[test]
fn the_others_go_on_without_a_member_that_was_killed_and_another_joins() {
    let first = founder(&format!("{SOME} --min-peers 3"));
    let mut others: Vec<Peer> = (0..3).map(|_| joiner(&first, "")).collect();
    first.wait_for_votes(4);
    let victim = others.remove(1);
    victim.wait_for("a step", |event| event["event"] == "progress");
    victim.signal("KILL");
    for peer in others.iter().chain([&first]) {
        wait_for_loss(peer, &victim.id(), "connection closed");
    }
    let late = joiner(&others[0], "");
    late.wait_for("the state", |event| event["event"] == "synced");
    finish(others.into_iter().chain([first, late]).collect(), &[victim]);
}

#[test]
fn the_others_go_on_without_the_founder() {
    let first = founder(&format!("{SOME} --min-peers 3"));
    let others = [(); 2].map(|()| joiner(&first, ""));
    others[0].wait_for_votes(3);
    // Two of three are a quorum, and fewer than it takes to step: they wait for a third.
    first.wait_for_step(1);
    first.signal("KILL");
    let late = joiner(&others[1], "");
    late.wait_for("the state", |event| event["event"] == "synced");
    finish(others.into_iter().chain([late]).collect(), &[first]);
}

#[test]
fn a_member_that_hangs_is_left_out_and_comes_back_by_itself() {
    let first = founder(&format!("{SOME} --min-peers 2 --max-stall-ms 2000"));
    // The others have it from the run.
    let [victim, other] = [(); 2].map(|()| joiner(&first, ""));
    // All links must be there: one that is still being made fails before anybody misses the victim.
    for peer in [&first, &victim, &other] {
        peer.wait_for_step(50);
    }
    victim.signal("STOP");
    for peer in [&other, &first] {
        wait_for_loss(peer, &victim.id(), "silent for");
    }
    victim.signal("CONT");
    victim.wait_for("the news", |event| event["event"] == "evicted");
    victim.wait_for("the state", |event| event["event"] == "synced");
    finish(vec![first, victim, other], &[]);
}

#[test]
fn all_killed_go_on_from_their_checkpoints_with_the_same_commands() {
    let flags = format!("{SOME} --min-peers 2 --checkpoint-every 20");
    let first = founder(&flags);
    let ticket = first.ticket();
    let second = joiner(&first, "--checkpoint-every 20");
    for peer in [&first, &second] {
        peer.wait_for("a checkpoint", |event| event["event"] == "saved");
        peer.signal("KILL");
    }
    let dirs = [first.dir(), second.dir()];
    drop((first, second));
    // The one that joined comes first: the member that its ticket names is not there yet.
    let second = Peer::join_in(dirs[1].clone(), &ticket, &audited("--checkpoint-every 20"));
    second.wait_for("its start", |event| event["event"] == "started");
    let first = Peer::run_in(dirs[0].clone(), &audited(&flags));
    let view = first.wait_for_view(2);
    assert!(view["step"].as_u64().is_some_and(|step| step >= 20), "from a checkpoint: {view}");
    assert!(view["reason"].as_str().is_some_and(|reason| reason.contains("records")), "{view}");
    let outcomes = [first.finish(), second.finish()];
    assert_eq!(outcomes[0].summary()["digest"], outcomes[1].summary()["digest"]);
}

#[test]
fn one_that_was_killed_comes_back_with_the_same_command() {
    // However fast the others are, the run does not end without it.
    let first = founder(&format!("{SOME} --min-peers 3"));
    let ticket = first.ticket();
    let others = [(); 2].map(|()| joiner(&first, ""));
    first.wait_for_votes(3);
    let [mut victim, other] = others;
    let lost = victim.id();
    // Twice: the others only wait in between, and the second time it needs a newer state.
    for _ in 0..2 {
        victim.wait_for("a step", |event| event["event"] == "progress");
        victim.signal("KILL");
        let dir = victim.dir();
        drop(victim);
        victim = Peer::join_in(dir, &ticket, &audited(""));
        wait_for_loss(&other, &lost, "");
        victim.wait_for("the state", |event| event["event"] == "synced");
        assert_eq!(victim.id(), lost);
    }
    finish(vec![first, other, victim], &[]);
}

#[test]
fn members_go_on_when_a_joiner_dies_on_the_way() {
    let first = founder(LONG);
    first.wait_for_step(1);
    let dying = joiner(&first, "");
    dying.wait_for("its start", |event| event["event"] == "started");
    dying.signal("KILL");
    drop(dying);
    // Wherever the kill fell: the founder never saw it, dropped it, or had it as a member for an instant.
    let second = joiner(&first, "");
    let outcome = second.wait_for("an answer", |event| event["event"] == "view" || event["event"] == "finished");
    assert_eq!(outcome["event"], "view");
    second.signal("TERM");
    assert_eq!(second.finish().summary()["outcome"], "left");
}

#[test]
fn a_peer_that_left_is_not_dialed_for_ever() {
    let first = founder(&format!("{LONG} -vv"));
    first.wait_for_step(1);
    let second = joiner(&first, "");
    let joined = second.wait_for_view(2)["generation"].as_u64();
    second.signal("TERM");
    second.finish().summary();
    first.wait_for("its own view", |event| {
        let alone = event["members"].as_array().is_some_and(|list| list.len() == 1);
        event["event"] == "view" && alone && event["generation"].as_u64() > joined
    });
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
