//! Leaves: peers that take part through a member. They die, their carriers die, and some of them are hostile: steps go on, no sample is
//! lost, and whoever keeps to the rules ends with the members' state.

use std::sync::Arc;

use serde_json::Value;
use starling_tests::{Host, Lan, LeafLiar, Peer, PeerOptions, audit, eventually};
use starling_topology::message::leaf::MAX_LEAF_BODY_BYTES;
use starling_topology::{CarrierBody, LeafBody};

const RUN: &str = "--model softmax --batch-size 256 --micro-batch 32 --checkpoint-every 0 --max-stall 4s";
/// By how much longer a micro-batch takes: long enough for who is started again meanwhile, and so that processes that share a processor are
/// as fast as alone.
const SLOW: [&str; 2] = ["env", "STARLING_TEST_DEVICE_DELAYS_MS=4+"];
/// Steps that are taken after what was said.
const MORE: u64 = 20;

fn slow(flags: &str) -> PeerOptions {
    PeerOptions { prefix: SLOW.map(str::to_owned).to_vec(), ..PeerOptions::flags(flags) }
}

fn leaf_of(ticket: &str) -> Peer {
    Peer::join(ticket, &slow("--role leaf"))
}

/// Waits until a leaf is carried for the `times`th time; by whom.
fn carried(leaf: &Peer, times: usize) -> String {
    eventually(&format!("a carrier, for the {times}. time"), || attached(leaf).get(times - 1).cloned())
}

fn attached(leaf: &Peer) -> Vec<String> {
    let told = leaf.told();
    let carriers = told.iter().filter(|event| event["event"] == "attached");
    carriers.map(|event| event["carrier"].as_str().expect("a string").to_owned()).collect()
}

/// Waits until a leaf has brought so many parts.
fn brings(leaf: &Peer, parts: u64) {
    leaf.wait_for(&format!("{parts} parts"), |event| {
        event["event"] == "leaves" && event["leaves"][0]["parts"].as_u64() >= Some(parts)
    });
}

#[test]
fn a_leaf_that_is_killed_comes_back_and_ends_with_the_members_state() {
    let audits = tempfile::TempDir::new().expect("a temp dir");
    let file = |name: &str| audits.path().join(name);
    let flags = slow(&format!("{RUN} --steps 1500 --min-peers 3")).with("--audit", file("0"));
    let founder = Peer::run(&flags);
    let ticket = founder.ticket();
    let member = |name: &str| Peer::join(&ticket, &slow("--checkpoint-every 0").with("--audit", file(name)));
    let members = [founder, member("1"), member("2")];
    members.iter().for_each(|member| _ = member.wait_for_step(1));

    let first = leaf_of(&ticket);
    let id = first.id();
    carried(&first, 1);
    brings(&first, 5);
    let dir = first.dir();
    first.signal("KILL");
    drop(first.finish());
    let gone = |event: &Value| event["event"] == "detached" && event["leaf"] == id.as_str();
    eventually("word that it is gone", || members.iter().find_map(|member| member.told().into_iter().find(gone)));

    let again = Peer::join_in(dir, &ticket, &slow("--role leaf").with("--audit", file("3")));
    carried(&again, 1);
    brings(&again, 5);
    let ends = [again].into_iter().chain(members).map(Peer::finish).collect::<Vec<_>>();
    let digest = &ends[0].summary()["digest"];
    for end in &ends {
        assert_eq!((&end.summary()["digest"], &end.summary()["outcome"]), (digest, &Value::from("complete")));
        assert_eq!(end.summary()["steps"], 1500);
        let put_out = end.events.iter().find(|(_, event)| event["event"] == "evicted");
        assert!(put_out.is_none(), "{put_out:?}");
    }
    // Each sample once, as the members alone say; the leaf's own audit is of the steps since it came back.
    let said = audit((0..3).map(|at| file(&at.to_string())));
    assert_eq!(said["steps"], 1500, "{said}");
    audit((0..4).map(|at| file(&at.to_string())));
}

#[test]
fn a_leaf_whose_carrier_is_killed_goes_on_with_another() {
    let founder = Peer::run(&slow(&format!("{RUN} --steps 100000000 --min-peers 2")));
    let ticket = founder.ticket();
    let member = || Peer::join(&ticket, &slow("--checkpoint-every 0"));
    let mut members = vec![founder, member(), member()];
    for member in &members {
        member.wait_for_votes(3);
        member.wait_for_step(1);
    }
    let leaf = leaf_of(&ticket);
    let carrier = carried(&leaf, 1);
    brings(&leaf, 5);
    let at = members.iter().position(|member| member.id() == carrier).expect("it is a member");
    let dead = members.remove(at);
    dead.signal("KILL");
    drop(dead.finish());
    let next = carried(&leaf, 2);
    assert_ne!(next, carrier);
    brings(&leaf, 50);
    let reached = members[0].reached();
    members.iter().for_each(|member| _ = member.wait_for_step(reached + MORE));
    // Who leaves in order is no loss to anybody.
    leaf.signal("TERM");
    let left = leaf.finish();
    assert_eq!(left.summary()["outcome"], "left");
    let let_go = |event: &Value| event["event"] == "detached" && event["carrier"] == next.as_str();
    eventually("word that it has left", || members.iter().find_map(|member| member.told().into_iter().find(let_go)));
}

/// Behind a router that lets nothing in, and on a host that all can dial.
#[test]
fn whom_no_member_can_dial_takes_part_as_a_leaf_and_says_so() {
    let mut lan = Lan::new(2).expect("a network");
    let home = lan.home().expect("a home in it");
    let place = |host: Host, listen: String, flags: &str| PeerOptions {
        listen: Some(listen),
        prefix: host.prefix.into_iter().chain(SLOW.map(str::to_owned)).collect(),
        ..PeerOptions::flags(flags)
    };
    let listen = |host: &Host| format!("/ip4/{}/tcp/4001", host.address);
    let [first, second] = [0, 1].map(|number| lan.host(number));
    let run = format!("{RUN} --steps 100000000 --min-peers 2");
    let founder = Peer::run(&place(first.clone(), listen(&first), &run));
    let ticket = founder.ticket();
    let outside = Peer::join(&ticket, &place(second.clone(), listen(&second), "--checkpoint-every 0 --role auto"));
    outside.wait_for_view(2);
    outside.wait_for_step(1);
    let forwarded = format!("--role auto --announce /ip4/{}/tcp/4001", lan.host(2).address);
    let inside = Peer::join(&ticket, &place(home.clone(), listen(&home), &forwarded));
    let warned = inside.wait_for("a word on what it takes part as", |event| event["event"] == "warning");
    let message = warned["message"].as_str().unwrap_or_default();
    assert!(message.contains("no member can dial this machine") && message.contains("--announce"), "{message}");
    carried(&inside, 1);
    brings(&inside, 5);
    let reached = founder.reached();
    founder.wait_for_step(reached + MORE);
    assert!(inside.told().iter().all(|event| event["event"] != "view"), "it is no member");
    // Its router forwards a port from now on.
    lan.forward(4001).expect("the router can be told");
    let becomes = inside.wait_for("a word on what it goes on as", |event| event["event"] == "becomes");
    assert_eq!(becomes["role"], "member");
    inside.wait_for_view(3);
    let reached = inside.reached();
    inside.wait_for_step(reached + MORE);
}

/// What it rests counts as computing: it is dealt less, and the others do not wait for it.
#[test]
fn who_computes_half_of_the_time_is_dealt_less() {
    let founder = Peer::run(&slow(&format!("{RUN} --steps 100000000 --min-peers 2")));
    let gentle = Peer::join(&founder.ticket(), &slow("--duty 0.25"));
    let share = |event: &Value, id: &str| {
        let members = event["members"].as_array().cloned().unwrap_or_default();
        members.iter().find(|member| member["peer"] == id).and_then(|member| member["samples"].as_u64())
    };
    let (other, gentle) = (founder.id(), gentle.id());
    founder.wait_for("shares by speed", |event| {
        let shares = share(event, &gentle).zip(share(event, &other));
        shares.is_some_and(|(gentle, other)| gentle > 0 && gentle * 2 < other)
    });
}

#[test]
fn a_member_that_takes_no_leaves_says_so() {
    let founder = Peer::run(&slow(&format!("{RUN} --steps 100000000 --leaves 0")));
    founder.wait_for_step(1);
    let leaf = leaf_of(&founder.ticket());
    let turned = founder.wait_for("who is turned away", |event| event["event"] == "turned");
    assert_eq!(
        (&turned["peer"], &turned["reason"]),
        (&Value::from(leaf.id()), &Value::from("as a leaf: it has its 0 leaves already"))
    );
    leaf.signal("TERM");
    assert_eq!(leaf.finish().summary()["outcome"], "left");
}

/// Whatever one of them says, its carrier goes on and names it.
#[test]
fn a_hostile_leaf_is_named_and_let_go_and_steps_go_on() {
    // Whose results nobody applies for 64 steps is let go for that.
    let slow = ["env", "STARLING_TEST_DEVICE_DELAYS_MS=20+"].map(str::to_owned).to_vec();
    let run = "--model softmax --batch-size 64 --micro-batch 32 --steps 100000000 --checkpoint-every 0 --max-stall 3s";
    let founder = Arc::new(Peer::run(&PeerOptions { prefix: slow, ..PeerOptions::flags(run) }));
    let ticket = founder.ticket();
    founder.wait_for_step(1);
    let started = founder.wait_for("its start", |event| event["event"] == "started");
    let elements = started["parameters"].as_u64().expect("a number") + 1;
    let [before, _] = founder.memory();
    let goes_on = |what: &str| {
        let reached = founder.reached();
        assert!(founder.wait_for_step(reached + MORE) > reached, "{what}");
    };
    let named = |liar: &LeafLiar, did: &str| {
        let name = liar.name();
        founder.wait_for(&format!("that {did}"), |event| {
            let what = event["what"].as_str().unwrap_or_default();
            event["event"] == "misbehaved" && event["peer"] == name.as_str() && what.contains(did)
        });
        goes_on(did);
    };
    let numbers = |count: u64, value: f32| (0..count).flat_map(|_| value.to_le_bytes()).collect::<Vec<u8>>();
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    runtime.block_on(async {
        let no_message = "sent bytes that are not a membership message";
        let longer = u32::try_from(MAX_LEAF_BODY_BYTES + 1).expect("short").to_be_bytes();
        for bytes in [[&longer[..], &[7; 99]].concat(), vec![0xff; 99], vec![0, 0, 0, 2, 9, 9]] {
            for attaches in [false, true] {
                let mut liar = LeafLiar::beside(&ticket).await;
                if attaches {
                    liar.attach().await;
                    assert!(matches!(liar.hear().await, Some(CarrierBody::Attached { .. })));
                }
                liar.write(&bytes).await;
                liar.is_let_go().await;
                named(&liar, no_message);
            }
        }
        let mut liar = LeafLiar::beside(&ticket).await;
        liar.say(&LeafBody::Alive).await;
        liar.is_let_go().await;
        named(&liar, "said something out of turn");

        // Each of a work that it was given.
        for (count, sent, did) in [
            (elements + 1, numbers(elements + 1, 0.0), "where the run has"),
            (u64::MAX, Vec::new(), "where the run has"),
            (elements, numbers(elements, f32::NAN), "is not finite"),
            (elements, numbers(elements, f32::INFINITY), "is not finite"),
            (elements, numbers(elements, 3e38), "beyond the run's bound"),
        ] {
            let mut liar = LeafLiar::beside(&ticket).await;
            let work = liar.is_given().await;
            liar.say(&work.answer(count)).await;
            liar.write(&sent).await;
            liar.is_let_go().await;
            named(&liar, did);
            // It asks again, and is told why not.
            liar.open_again().await;
            liar.attach().await;
            let refused = liar.hear().await;
            assert!(matches!(refused, Some(CarrierBody::Refused(_))), "{refused:?}");
        }
        for (did, lie) in
            [("was not given", 0), ("for which it was given no work", 1), ("over other samples", 2), ("twice", 3)]
        {
            let mut liar = LeafLiar::beside(&ticket).await;
            let mut work = liar.is_given().await;
            match lie {
                0 => work.number += 7,
                1 => work.step += 1,
                2 => work.ranges[0].end += 1,
                _ => {
                    liar.say(&work.answer(elements)).await;
                    liar.write(&numbers(elements, 0.0)).await;
                }
            }
            liar.say(&work.answer(elements)).await;
            liar.is_let_go().await;
            named(&liar, did);
        }
        // Who begins and does not end is waited for no longer than a part may take, and let go when it has said nothing for long.
        let mut liar = LeafLiar::beside(&ticket).await;
        let work = liar.is_given().await;
        liar.say(&work.answer(elements)).await;
        liar.write(&numbers(elements / 2, 0.0)).await;
        goes_on("half a gradient");
        liar.is_let_go().await;
        goes_on("nothing more");
    });
    let [_, most] = founder.memory();
    assert!(most < before + (48 << 20), "hostile leaves take {} KiB", (most - before) >> 10);
}
