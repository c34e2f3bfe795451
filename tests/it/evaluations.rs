//! Members evaluate held-out samples together: one figure, whoever tells it.

use std::collections::BTreeMap;

use serde_json::Value;
use starling_tests::{Outcome, Peer, PeerOptions};

const FLAGS: &str = "--model mlp:16 --optimizer sgd --learning-rate 0.05 --batch-size 48 --micro-batch 8 --seed 5";

/// What was evaluated, by step, but for what the member found for itself at its end.
fn evaluated(outcome: &Outcome) -> BTreeMap<u64, Value> {
    let events = outcome.events.iter().map(|(_, event)| event).filter(|event| event["event"] == "evaluated");
    let mut found = BTreeMap::new();
    for event in events {
        let step = event["step"].as_u64().expect("a step");
        if step != outcome.summary()["steps"].as_u64().expect("a number") {
            assert!(found.insert(step, event.clone()).is_none(), "evaluated twice: {event}");
        }
    }
    found
}

/// Both with and without an end that goes by it, in which there are no more evaluations.
#[test]
fn three_members_tell_what_one_process_finds_and_two_go_on_when_one_is_killed() {
    for ends in ["", "--early-stop 1000000"] {
        let flags = format!("{FLAGS} {ends} --evaluate-every 20");
        let alone = evaluated(&Peer::run(&PeerOptions::networked(&format!("{flags} --steps 141"))).finish());
        assert_eq!(alone.keys().copied().collect::<Vec<_>>(), [20, 40, 60, 80, 100, 120, 140]);
        // Two begin: the third joins while they train, so that the first figures are of some who were not all there.
        let founder = Peer::run(&PeerOptions::networked(&format!("{flags} --min-peers 2 --steps 100000000")));
        let ticket = founder.ticket();
        let [second, third] = [(); 2].map(|()| Peer::join(&ticket, &PeerOptions::networked("")));
        third.wait_for_votes(3);
        let is_of = |event: &Value, from: u64| {
            event["event"] == "evaluated" && event["step"].as_u64().is_some_and(|step| step >= from)
        };
        third.wait_for("evaluations", |event| is_of(event, 140));
        third.signal("KILL");
        let killed = third.told();
        drop(third.finish());
        let members = [founder, second];
        members.iter().for_each(|member| _ = member.wait_for_view(2));
        let reached = members.iter().map(Peer::reached).max().expect("two");
        members.iter().for_each(|member| _ = member.wait_for("more", |event| is_of(event, reached + 40)));
        members.iter().for_each(|member| member.signal("INT"));
        let outcomes = members.map(Peer::finish);
        let [first, second] = [0, 1].map(|at| evaluated(&outcomes[at]));
        let last = *first.keys().last().expect("some").min(second.keys().last().expect("some"));
        // Either of the two that joined may be the one that came while the others trained.
        let from = *second.keys().next().expect("some");
        let between = |found: &BTreeMap<u64, Value>, from: u64| -> Vec<Value> {
            found.range(from..=last).map(|(_, event)| figures(event)).collect()
        };
        assert_eq!(between(&first, from), between(&second, from));
        let killed: Vec<Value> = killed.iter().filter(|event| event["event"] == "evaluated").map(figures).collect();
        assert!(!killed.is_empty() && killed.iter().all(|event| between(&first, 0).contains(event)), "{killed:?}");
        for (step, own) in &alone {
            // Whoever was in the first steps.
            let Some(told) = first.get(step) else { panic!("nothing of step {step}: {:?}", first.keys()) };
            let of = |event: &Value| event["loss"].as_f64().expect("a loss");
            assert!((of(told) / of(own) - 1.0).abs() < 1e-5, "{told} instead of {own}");
            for (measure, mean) in own["measures"].as_object().expect("by name") {
                let [told, own] = [&told["measures"][measure], mean].map(|mean| mean.as_f64().expect("a number"));
                assert!((told - own).abs() < 1.5 / 359.0, "{measure} is {told} instead of {own}");
            }
        }
    }
}

/// What does not depend on who says it.
fn figures(event: &Value) -> Value {
    serde_json::json!({ "step": event["step"], "loss": event["loss"], "measures": event["measures"] })
}

/// The interval is the run's: a joiner has it from there, and may insist on it.
#[test]
fn a_joiner_that_insists_on_another_interval_is_refused_by_name() {
    let founder = Peer::run(&PeerOptions::flags(&format!("{FLAGS} --evaluate-every 20 --steps 100000000")));
    let ticket = founder.ticket();
    let refused = Peer::join(&ticket, &PeerOptions::flags("--evaluate-every 30")).finish();
    let said = refused.error();
    assert!(said.contains("evaluation.every") && said.contains("30") && said.contains("20"), "{said}");
    let joiner = Peer::join(&ticket, &PeerOptions::flags("--evaluate-every 20"));
    joiner.wait_for("a figure", |event| event["event"] == "evaluated");
    [&founder, &joiner].iter().for_each(|member| member.signal("INT"));
}

/// Each step is one after an evaluation, so that whoever is killed takes a part of one along.
#[test]
fn an_evaluation_that_has_lost_a_part_is_told_by_all_who_are_left() {
    let flags = format!("{FLAGS} --evaluate-every 1 --min-peers 2 --steps 100000000");
    let founder = Peer::run(&PeerOptions::networked(&flags));
    let ticket = founder.ticket();
    let [second, third] = [(); 2].map(|()| Peer::join(&ticket, &PeerOptions::networked("")));
    let peer = third.wait_for("its start", |event| event["event"] == "started")["peer"].clone();
    third.wait_for_votes(3);
    third.wait_for("a figure", |event| event["event"] == "evaluated");
    third.signal("KILL");
    drop(third.finish());
    let missed = [&founder, &second].map(|member| {
        member.wait_for("an evaluation without figures", |event| {
            event["event"] == "unevaluated" && event["peers"].as_array().is_some_and(|peers| peers.contains(&peer))
        })
    });
    assert_eq!(missed[0]["count"], 1, "{}", missed[0]);
    assert_eq!(missed[0]["step"], missed[1]["step"]);
    [&founder, &second].iter().for_each(|member| {
        let is_later = |event: &Value| event["step"].as_u64() > missed[0]["step"].as_u64();
        member.wait_for("the next one", |event| event["event"] == "evaluated" && is_later(event));
        member.signal("INT");
    });
    // Each state has figures or has none, and is told as one of them.
    for outcome in [founder, second].map(Peer::finish) {
        let figures = evaluated(&outcome);
        let missed = outcome.events.iter().map(|(_, event)| event).filter(|event| event["event"] == "unevaluated");
        assert!(missed.filter_map(|event| event["step"].as_u64()).all(|step| !figures.contains_key(&step)));
    }
}
