//! A member that changes what the others say of themselves.

use starling_tests::{Peer, PeerOptions};

const OTHERS: &str = "STARLING_TEST_OTHERS_SLOTS";
const FLAGS: &str = "--model mlp:16 --steps 100000000 --checkpoint-every 0 --min-peers 3 --max-stall-ms 8000";
const REFUSED: &str = "it can't have said that here";

/// Of three who train, and one that joins them and says this of each of them from its first contribution on.
fn is_named_and_left_out(number: &str) {
    let founder = Peer::run(&PeerOptions::flags(FLAGS));
    let ticket = founder.ticket();
    let saves = PeerOptions::flags("--checkpoint-every 0");
    let others = [(); 2].map(|()| Peer::join(&ticket, &saves));
    founder.wait_for_step(1);
    let prefix = vec!["env".to_owned(), format!("{OTHERS}=0:{number}")];
    let offender = Peer::join(&ticket, &PeerOptions { prefix, ..saves });
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
        for (_, event) in outcome.events.iter().filter(|(_, event)| event["event"] == "warning") {
            let message = event["message"].as_str().unwrap_or_default();
            if message.contains(REFUSED) {
                assert!(message.starts_with(&format!("peer {name} ")), "{message}");
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
