//! A member that changes what the others say of themselves.

use std::sync::Arc;

use starling_tests::{Peer, PeerOptions};
use tempfile::TempDir;

const OTHERS: &str = "STARLING_TEST_OTHERS_SLOTS";
const FLAGS: &str = "--model mlp:16 --steps 100000000 --checkpoint-every 0 --min-peers 3 --max-stall-ms 8000";
const KEY: &str = "identity.key";
const REFUSED: &str = "it can't have said that here";

/// One that adds this to what others say.
fn saying(number: &str, options: PeerOptions) -> PeerOptions {
    PeerOptions { prefix: vec!["env".to_owned(), format!("{OTHERS}=0:{number}")], ..options }
}

/// Of three who train, and one that joins them and says this of each of them from its first contribution on.
fn is_named_and_left_out(number: &str) {
    let founder = Peer::run(&PeerOptions::flags(FLAGS));
    let ticket = founder.ticket();
    let saves = PeerOptions::flags("--checkpoint-every 0");
    let others = [(); 2].map(|()| Peer::join(&ticket, &saves));
    founder.wait_for_step(1);
    let offender = Peer::join(&ticket, &saying(number, saves));
    let name = offender.id();
    let [second, third] = others;
    let honest = [founder, second, third];
    for peer in &honest {
        let lost = format!("peer {name} lost: ");
        let view = peer.wait_for(&format!("a view without it, {number}"), |event| {
            event["event"] == "view" && event["reason"].as_str().is_some_and(|reason| reason.contains(&lost))
        });
        let since = view["step"].as_u64().expect("a step");
        peer.wait_for("steps after that", |event| {
            event["event"] == "progress" && event["step"].as_u64().is_some_and(|step| step > since + 200)
        });
    }
    offender.signal("KILL");
    drop(offender.finish());
    let mut named = 0;
    for peer in honest {
        peer.signal("TERM");
        let outcome = peer.finish();
        assert_eq!(outcome.summary()["outcome"], "left");
        for (_, event) in outcome.events.iter().filter(|(_, event)| event["event"] == "misbehaved") {
            if event["what"].as_str().is_some_and(|what| what.contains(REFUSED)) {
                assert_eq!(event["peer"].as_str(), Some(name.as_str()), "{event}");
                named += 1;
            }
        }
    }
    assert!(named > 0, "who got it first says what it was: {number}");
}

#[test]
fn who_changes_what_others_say_is_named_and_they_go_on() {
    // As if they had no state, as if they were the fastest there are, and what is no number at all.
    for number in ["-1048576", "4194304", "nan"] {
        is_named_and_left_out(number);
    }
}

/// Round a ring of three, one finishes the sums in which the slots are: what it adds there is a possible word. The two that pass
/// them on before are refused. Each of these three keys is each of the three once.
#[test]
fn a_word_that_is_changed_into_another_is_noticed_by_whose_it_is() {
    let flags = "--model mlp:16 --steps 100000000 --checkpoint-every 0 --min-peers 3 --plan ring --max-stall-ms 8000";
    let fresh = || [(); 3].map(|()| Arc::new(TempDir::new().expect("a temp dir")));
    let (mut ranks, mut dirs) = (Vec::new(), fresh());
    for _ in 0..3 {
        let founder = Peer::run_in(dirs[0].clone(), &PeerOptions::flags(flags));
        let (ticket, saves) = (founder.ticket(), PeerOptions::flags("--checkpoint-every 0"));
        let second = Peer::join_in(dirs[1].clone(), &ticket, &saves);
        let offender = Peer::join_in(dirs[2].clone(), &ticket, &saying("8", saves));
        let view = founder.wait_for_votes(3);
        let ring = view["members"].as_array().expect("a list");
        let rank = ring.iter().position(|member| *member == offender.id()).expect("a member");
        if rank == 1 {
            for peer in [&founder, &second] {
                let told = peer.wait_for("a word", |event| event["event"] == "rewritten");
                assert_ne!(told["said"], told["told"], "{told}");
                peer.wait_for_step(told["step"].as_u64().expect("a step") + 200);
            }
        } else {
            let next = [&founder, &second].into_iter().find(|peer| ring[(rank + 1) % 3] == peer.id());
            next.expect("one of the two")
                .wait_for("a refusal", |event| event["what"].as_str().is_some_and(|what| what.contains(REFUSED)));
        }
        ranks.push(rank);
        for peer in [founder, second, offender] {
            peer.signal("KILL");
            drop(peer.finish());
        }
        // The same keys, and nothing else, in other places.
        let next = fresh();
        for (place, dir) in dirs.iter().enumerate() {
            let [from, to] = [dir, &next[(place + 1) % 3]].map(|dir| dir.path().join("state"));
            std::fs::create_dir(&to).expect("a directory");
            std::fs::copy(from.join(KEY), to.join(KEY)).expect("a key");
        }
        dirs = next;
    }
    ranks.sort_unstable();
    assert_eq!(ranks, [0, 1, 2]);
}
