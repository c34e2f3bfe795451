//! Processes that are killed, stopped and started again, while the others go on.

use std::time::{Duration, Instant};

use starling_tests::chaos::{Churn, Fleet, Plan, Verdict};

/// The run's longest stall: short, so that silence is noticed soon.
const MAX_STALL: Duration = Duration::from_secs(2);
/// How long anything may take. Generous: the machine is shared, and nothing is measured here.
const LIMIT: Duration = Duration::from_secs(90);

fn plan(peers: usize, machine: &str) -> Plan {
    Plan {
        peers,
        run: format!("--max-stall-ms {} --model mlp:32 --steps 100000000", MAX_STALL.as_millis()),
        machine: format!("--checkpoint-every 200 {machine}"),
        seed: 1,
        hosts: false,
        logs: None,
    }
}

/// Waits until `count` processes share a view of just them and have taken steps in it.
fn wait_for_steps(fleet: &mut Fleet, count: usize) {
    fleet.wait(&format!("{count} members"), LIMIT, |fleet| fleet.are_full(count)).expect("they go on");
    let step = fleet.progress_probe().step();
    let newer = |fleet: &Fleet| fleet.slots().iter().filter(|slot| slot.is_awake()).all(|slot| slot.said().step > step);
    fleet.wait("steps of all", LIMIT, newer).expect("they go on");
}

/// All who are there come together with equal digests, leave, and have counted each sample once.
fn end(mut fleet: Fleet) {
    fleet.settle(LIMIT).expect("all hold the same state");
    fleet.leave().expect("all leave");
    let (is_clean, report) = fleet.audit().expect("an audit");
    assert!(is_clean, "{report}");
    assert_eq!(fleet.broken(), &[] as &[String]);
}

fn assert_kept(verdict: &Verdict) {
    assert_eq!(verdict.broken(), &[] as &[String], "{}", verdict.to_json());
}

#[test]
fn whoever_is_killed_the_others_go_on_and_it_can_come_back() {
    let mut fleet = Fleet::found(plan(5, "")).expect("a fleet");
    // The founder, through which all others came in.
    fleet.kill(0);
    wait_for_steps(&mut fleet, 4);
    // The lowest, which proposes views.
    let (_, members) = fleet.slots()[1].said().view.clone().expect("a member has a view");
    let id_of = |fleet: &Fleet, slot: usize| fleet.slots()[slot].said().id.clone();
    let lowest =
        (1..5).min_by_key(|slot| members.iter().position(|member| Some(member) == id_of(&fleet, *slot).as_ref()));
    let lowest = lowest.expect("four are left");
    fleet.kill(lowest);
    wait_for_steps(&mut fleet, 3);
    // Any other.
    let other = (1..5).find(|slot| *slot != lowest).expect("three are left");
    fleet.kill(other);
    wait_for_steps(&mut fleet, 2);
    fleet.wipe(lowest).expect("a new disk");
    for slot in [0, lowest, other] {
        fleet.start(slot).expect("it joins");
    }
    wait_for_steps(&mut fleet, 5);
    end(fleet);
}

#[test]
fn a_process_that_is_stopped_for_a_moment_or_for_long_goes_on_with_the_others() {
    let mut fleet = Fleet::found(plan(3, "")).expect("a fleet");
    fleet.stop(1);
    fleet.run_until(Instant::now() + MAX_STALL / 8);
    fleet.cont(1);
    wait_for_steps(&mut fleet, 3);
    fleet.stop(2);
    wait_for_steps(&mut fleet, 2);
    fleet.cont(2);
    let has_noticed = |fleet: &Fleet| fleet.slots()[2].said().evictions > 0;
    fleet.wait("the news that it was left out", LIMIT, has_noticed).expect("somebody tells it");
    wait_for_steps(&mut fleet, 3);
    end(fleet);
}

#[test]
fn the_last_of_four_goes_on_alone_when_it_may() {
    let mut fleet = Fleet::found(plan(4, "--fork-after 1s")).expect("a fleet");
    // One of four is no quorum. Killed one after the other, they might decide on each loss in turn.
    (0..3).for_each(|slot| fleet.stop(slot));
    (0..3).for_each(|slot| fleet.kill(slot));
    fleet.wait("a fork", LIMIT, |fleet| fleet.slots()[3].said().has_forked).expect("it goes on alone");
    wait_for_steps(&mut fleet, 1);
    for slot in [2, 0, 1] {
        fleet.start(slot).expect("it joins");
    }
    wait_for_steps(&mut fleet, 4);
    end(fleet);
}

#[test]
fn without_a_quorum_nobody_goes_on_until_the_others_are_back() {
    let mut fleet = Fleet::found(plan(4, "--fork-after never")).expect("a fleet");
    // All at once: killed one after the other on a busy machine, they leave views that go on rightly.
    (0..3).for_each(|slot| fleet.stop(slot));
    (0..3).for_each(|slot| fleet.kill(slot));
    fleet.wait("pause", LIMIT, |fleet| fleet.slots()[3].said().is_paused).expect("it pauses");
    assert!(!fleet.slots()[3].said().has_forked, "it was told never to");
}

#[test]
fn kills_and_starts_one_after_the_other_stop_nobody() {
    let churn = Churn {
        peers: 5,
        interval: Duration::from_millis(700),
        length: Duration::from_secs(12),
        max_stall: MAX_STALL,
        slack: LIMIT,
        seed: 5,
        run: "--model mlp:32 --steps 100000000".to_owned(),
        logs: None,
    };
    let verdict = churn.run().expect("it can be carried out");
    assert_kept(&verdict);
    assert!(verdict.get("kills").as_u64().is_some_and(|kills| kills > 0), "{}", verdict.to_json());
}
