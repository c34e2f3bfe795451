//! Members that bring what nobody may, or keep from one neighbour what it waits for: the others go on.

use serde_json::Value;
use starling_tests::{Peer, PeerOptions, starling};

const FLAGS: &str = "--model mlp:16 --steps 100000000 --checkpoint-every 0 --min-peers 3";
const FACTORS: &str = "STARLING_TEST_GRADIENT_FACTORS";
const WITHHELD: &str = "STARLING_TEST_WITHHELD";
/// What is said of who brings too much.
const BEYOND: &str = "can come together in this run";
/// Steps that are taken after what was done.
const MORE: u64 = 50;

/// Three that keep to the rules, and what somebody who does not joins by.
fn three(flags: &str) -> ([Peer; 3], String) {
    let founder = Peer::run(&PeerOptions::flags(&format!("{FLAGS} {flags}")));
    let ticket = founder.ticket();
    let [second, third] = [(); 2].map(|()| Peer::join(&ticket, &PeerOptions::flags("--checkpoint-every 0")));
    let peers = [founder, second, third];
    for peer in &peers {
        peer.wait_for_votes(3);
        peer.wait_for_step(1);
    }
    (peers, ticket)
}

/// One that joins them and does this.
fn joined(ticket: &str, variable: &str, value: &str) -> Peer {
    let prefix = vec!["env".to_owned(), format!("{variable}={value}")];
    Peer::join(ticket, &PeerOptions { prefix, ..PeerOptions::flags("--checkpoint-every 0") })
}

/// The first view there whose reason says so; and steps after it.
fn goes_on_after(peer: &Peer, reason: &str) -> Value {
    let view = peer.wait_for(reason, |event| {
        event["event"] == "view" && event["reason"].as_str().is_some_and(|said| said.contains(reason))
    });
    let generation = view["generation"].as_u64();
    let from = view["step"].as_u64().expect("a step") + MORE;
    peer.wait_for("steps in that view or later", |event| {
        event["event"] == "progress"
            && event["generation"].as_u64() >= generation
            && event["step"].as_u64() >= Some(from)
    });
    view
}

#[test]
fn who_brings_more_than_may_be_is_named_and_the_others_go_on() {
    let (honest, ticket) = three("--max-stall-ms 8000");
    let offender = joined(&ticket, FACTORS, "0+:1e30!");
    let name = offender.id();
    for peer in &honest {
        goes_on_after(peer, &format!("peer {name} lost: "));
    }
    offender.signal("KILL");
    drop(offender.finish());
    let mut named = 0;
    for peer in &honest {
        let misdeeds: Vec<Value> = peer.told().into_iter().filter(|event| event["event"] == "misbehaved").collect();
        assert!(misdeeds.iter().all(|event| event["peer"].as_str() == Some(&name)), "{misdeeds:?}");
        if misdeeds.iter().any(|event| event["what"].as_str().is_some_and(|what| what.contains(BEYOND))) {
            named += 1;
            let mut status = starling(peer.dir().path());
            let output = status.args(["status", "--json", "--data-dir", "state"]).output().expect("starling starts");
            let status: Value = serde_json::from_slice(&output.stdout).expect("JSON");
            assert!(status["misbehaved"][&name].is_string(), "{}", status["misbehaved"]);
        }
    }
    assert!(named > 0, "who got it first says what it was");
    for peer in honest {
        peer.signal("TERM");
        assert_eq!(peer.finish().summary()["outcome"], "left");
    }
}

#[test]
fn who_keeps_its_segments_from_one_neighbour_loses_that_link_and_steps_go_on() {
    let (honest, ticket) = three("--max-stall-ms 2000 --plan mesh");
    let victim = honest[1].id();
    let offender = joined(&ticket, WITHHELD, &format!("0:{victim}"));
    let name = offender.id();
    let ways = [(&name, &victim), (&victim, &name)].map(|(a, b)| format!("the link between peers {a} and {b} failed"));
    for peer in honest.iter().chain([&offender]) {
        let is_severed = |event: &Value| {
            let reason = event["reason"].as_str().unwrap_or_default();
            event["event"] == "view" && ways.iter().any(|way| reason.contains(way))
        };
        let view = peer.wait_for("a view without that link", is_severed);
        assert_eq!(view["members"].as_array().map(Vec::len), Some(4), "nobody leaves for it: {view}");
        goes_on_after(peer, view["reason"].as_str().expect("a text"));
    }
    offender.signal("KILL");
    drop(offender.finish());
    for peer in &honest {
        goes_on_after(peer, &format!("peer {name} lost: "));
    }
    for peer in honest {
        peer.signal("TERM");
        let outcome = peer.finish();
        assert_eq!(outcome.summary()["outcome"], "left");
        let lost =
            outcome.events.iter().find(|(_, event)| event["event"] == "evicted" || event["event"] == "misbehaved");
        assert!(lost.is_none(), "{lost:?}");
    }
}
