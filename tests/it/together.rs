//! All members end at once.

use starling_tests::{Peer, PeerOptions};

/// Members that take steps together.
fn members(count: usize) -> Vec<Peer> {
    let flags = "--model mlp:32 --batch-size 64 --steps 10000000 --checkpoint-every 100";
    let first = Peer::run(&PeerOptions::flags(&format!("{flags} --min-peers {count}")));
    let join = |_| Peer::join(&first.ticket(), &PeerOptions::flags(""));
    let mut all: Vec<_> = (1..count).map(join).collect();
    all.insert(0, first);
    for peer in &all {
        peer.wait_for_votes(count);
        peer.wait_for("a step", |event| event["event"] == "progress");
    }
    all
}

#[test]
fn members_that_are_asked_to_leave_at_once_all_leave_in_order() {
    // Each time another one is asked first; a few milliseconds lie between one and the next.
    for turn in 0..5 {
        let mut all = members(5);
        all.rotate_left(turn);
        all.iter().for_each(|peer| peer.signal("INT"));
        let ends: Vec<_> = all.into_iter().map(Peer::finish).collect();
        for end in ends {
            assert!(end.status.success(), "turn {turn}: {} {:?}", end.stderr, end.events);
            assert_eq!(end.summary()["outcome"], "left", "turn {turn}");
        }
    }
}
