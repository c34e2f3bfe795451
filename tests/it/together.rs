//! All members end at once.

use std::time::Duration;

use starling_tests::{Peer, PeerOptions};

/// Members that take steps together.
fn members(count: usize) -> Vec<Peer> {
    let flags = "--model mlp:32 --batch-size 64 --steps 10000000 --checkpoint-every 100";
    let first = Peer::run(&PeerOptions::flags(&format!("{flags} --min-peers {count}")));
    let join = |_| Peer::join(&first.ticket(), &PeerOptions::flags(""));
    let mut all: Vec<_> = (1..count).map(join).collect();
    all.insert(0, first);
    for peer in &all {
        peer.wait_for_view(count);
        peer.wait_for("a step", |event| event["event"] == "progress");
    }
    all
}

#[test]
fn members_that_are_asked_to_leave_at_once_all_leave_in_order() {
    // How long after the one before each is asked, in milliseconds: none, so little that decrees are under way, and in
    // turns that begin with another each time.
    for (turn, pauses) in [[0; 5], [0; 5], [0, 3, 0, 3, 0], [1, 7, 2, 11, 5], [20, 0, 20, 0, 20]].iter().enumerate() {
        let mut all = members(5);
        all.rotate_left(turn);
        for (peer, pause) in all.iter().zip(pauses) {
            std::thread::sleep(Duration::from_millis(*pause));
            peer.signal("INT");
        }
        let ends: Vec<_> = all.into_iter().map(Peer::finish).collect();
        for end in ends {
            assert!(end.status.success(), "turn {turn}: {} {:?}", end.stderr, end.events);
            assert_eq!(end.summary()["outcome"], "left", "turn {turn}");
        }
    }
}
