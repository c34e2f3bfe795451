//! Links between machines that reach each other in several ways, and links of different speeds: what is measured of them changes
//! the plan. They need network namespaces, and fail with the reason where those can't be made.

use serde_json::Value;
use starling_tests::{Lan, Machine, Peer, PeerOptions};

const MEMBERS: usize = 4;
/// What hosts can send and receive, in millions of bits per second; the last one has the slow link.
const FAST: u32 = 1000;
const SLOW: u32 = 100;
/// 64 inputs, two hidden layers of 1,024, 10 classes.
const PARAMETERS: usize = 65 * 1024 + 1025 * 1024 + 1025 * 10;
/// Steps over which bytes are counted.
const STEPS: u64 = 20;

/// Of a mesh with equal chunks, each member receives 1.5 times its gradient. Who owns nothing receives it once.
#[test]
fn who_is_behind_a_slow_link_receives_less_once_that_is_measured() {
    let lan = Lan::new(MEMBERS).expect("a network");
    for host in 0..MEMBERS {
        lan.shape(host, if host + 1 == MEMBERS { SLOW } else { FAST }).expect("shaped");
    }
    let options = |host: usize, flags: &str| {
        let host = lan.host(host);
        let listen = format!("/ip4/{}/tcp/0", host.address);
        PeerOptions { prefix: host.prefix, listen: Some(listen), ..PeerOptions::flags(flags) }
    };
    // A short stall, because a view is as old as two of them before it is planned anew.
    let run = format!("--min-peers {MEMBERS} --model mlp:1024,1024 --plan mesh --max-stall-ms 2000 --steps 100000000");
    let founder = Peer::run(&options(0, &run));
    let ticket = founder.ticket();
    let joiners: Vec<Peer> = (1..MEMBERS).map(|host| Peer::join(&ticket, &options(host, ""))).collect();
    let slow = joiners.last().expect("three of them");

    let is_replanned = |event: &serde_json::Value| {
        event["event"] == "view"
            && event["reason"].as_str().is_some_and(|reason| reason.contains("links were measured"))
    };
    let view = slow.wait_for("a view with another plan", is_replanned);
    assert_eq!(view["members"].as_array().map(Vec::len), Some(MEMBERS), "nobody is lost: {view}");

    // The first steps of a view begin with new links.
    let reach = |step: u64| {
        let reached = slow.wait_for_step(step);
        (reached, lan.received(MEMBERS - 1).expect("the kernel tells"))
    };
    let (first, before) = reach(view["step"].as_u64().expect("a number") + 5);
    let (last, after) = reach(first + STEPS);
    let times = (after - before) as f64 / (last - first) as f64 / (4 * PARAMETERS) as f64;
    assert!((1.0..1.3).contains(&times), "it receives {times:.2} gradients per step");

    for peer in joiners.into_iter().chain([founder]) {
        peer.signal("INT");
        assert_eq!(peer.finish().summary()["outcome"], "left");
    }
}

/// Three members of which the first founds, each on one of these machines and listening where it does by default, take their
/// first steps with at most one change of view for each joiner, and no link between them fails.
fn three_begin(machines: [&Machine; 3]) {
    let founder = Peer::run(&machines[0].options("--min-peers 3 --steps 100 --model mlp:16"));
    let ticket = founder.ticket();
    let joiners = [1, 2].map(|number| Peer::join(&ticket, &machines[number].options("")));
    for outcome in joiners.into_iter().chain([founder]).map(Peer::finish) {
        assert_eq!(outcome.summary()["outcome"], "complete");
        let events: Vec<&Value> = outcome.events.iter().map(|(_, event)| event).collect();
        // On a slow machine the last one that came gets its vote before the end.
        let gives_votes =
            |view: &Value| view["reason"].as_str().is_some_and(|reason| reason.ends_with("has a vote now"));
        let views = events.iter().filter(|event| event["event"] == "view" && !gives_votes(event));
        assert!(views.clone().count() <= 3, "{:?}", views.collect::<Vec<_>>());
        let suspected = events.iter().find(|event| event["event"] == "suspected");
        assert_eq!(suspected, None, "{}", outcome.stderr);
    }
}

#[test]
fn members_on_a_machine_with_four_addresses_begin_at_once() {
    let machine = Machine::new(&["10.79.0.1/24", "10.79.1.1/24", "fd79::1/64"]).expect("a machine");
    three_begin([&machine; 3]);
}

#[test]
fn members_on_machines_that_share_two_networks_begin_at_once() {
    let (v4, more_v4, v6) =
        (["10.79.0.1/24", "10.79.0.2/24"], ["10.79.1.1/24", "10.79.1.2/24"], ["fd79::1/64", "fd79::2/64"]);
    for networks in [[v4, more_v4], [v4, v6]] {
        let [one, other] = Machine::pair(&networks).expect("two machines");
        three_begin([&one, &other, &one]);
    }
}
