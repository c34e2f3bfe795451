//! Networks that break and heal. They need network namespaces, and fail with the reason where those can't be made.

use std::time::Duration;

use starling_tests::chaos::{Fleet, Joining, Partition, Plan, Star};

/// The run's longest stall: short, so that silence is noticed soon.
const MAX_STALL: Duration = Duration::from_secs(2);
/// How long anything may take. Generous: the machine is shared, and nothing is measured here.
const LIMIT: Duration = Duration::from_secs(90);
const RUN: &str = "--model mlp:32 --steps 100000000";

fn heals(sides: [usize; 2], fork_after: Option<Duration>) {
    let partition = Partition { sides, fork_after, max_stall: MAX_STALL, seed: 3, run: RUN.to_owned(), logs: None };
    let verdict = partition.run().expect("it can be carried out");
    assert_eq!(verdict.broken(), &[] as &[String], "{}", verdict.to_json());
}

#[test]
fn the_smaller_side_pauses_and_comes_back() {
    heals([3, 2], None);
}

#[test]
fn of_two_equal_sides_just_one_goes_on() {
    heals([2, 2], None);
}

#[test]
fn a_side_that_forked_comes_back() {
    heals([2, 1], Some(Duration::from_secs(1)));
}

#[test]
fn a_link_that_breaks_one_way_evicts_nobody() {
    let mut fleet = Fleet::found(Plan {
        peers: 4,
        run: format!("--max-stall-ms {} {RUN}", MAX_STALL.as_millis()),
        machine: "--checkpoint-every 200".to_owned(),
        seed: 4,
        hosts: true,
        logs: None,
    })
    .expect("a fleet");
    let views: Vec<u64> = fleet.slots().iter().map(|slot| slot.said().views).collect();
    // Neighbours in the ring, so that it must be planned anew.
    let (_, ring) = fleet.slots()[0].said().view.clone().expect("a member has a view");
    let slot_of = |id: &String| fleet.slots().iter().position(|slot| slot.said().id.as_ref() == Some(id));
    let [from, to] = [0, 1].map(|rank: usize| slot_of(&ring[rank]).expect("one of ours"));
    fleet.lan().expect("it has one").cut(&[from], &[to]).expect("cut");
    let cut_at = fleet.progress_probe().step();
    let goes_on = |fleet: &Fleet| {
        let is_past = |(slot, views): (usize, &u64)| {
            let said = fleet.slots()[slot].said();
            said.views > *views && said.step > cut_at + 50 && said.is_full
        };
        fleet.are_full(4) && views.iter().enumerate().all(is_past)
    };
    fleet.wait("another ring of all four", LIMIT, goes_on).expect("they go on");
    for slot in fleet.slots() {
        assert_eq!(slot.said().evictions, 0, "each of them reaches two others");
    }
    fleet.lan().expect("it has one").mend(&[from], &[to]).expect("mended");
    fleet.settle(LIMIT).expect("all hold the same state");
    fleet.leave().expect("all leave");
    assert_eq!(fleet.broken(), &[] as &[String]);
}

#[test]
fn nobody_goes_whom_a_hub_reaches() {
    // How another hub carries on, and how soon, is shown by `chaos star`.
    let (max_stall, run) = (MAX_STALL, RUN.to_owned());
    let star = Star { peers: 4, with_second: false, max_stall, recovery: LIMIT, seed: 5, run, logs: None };
    let verdict = star.run().expect("it can be carried out");
    assert_eq!(verdict.broken(), &[] as &[String], "{}", verdict.to_json());
}

#[test]
fn a_donor_that_dies_does_not_make_a_join_begin_anew() {
    let joining = Joining {
        members: 3,
        mib: 8,
        // So slow that few steps pass meanwhile: after many, donors know no limit.
        mbit: Some(300),
        kill_donor: true,
        steps: 3,
        slower: f64::INFINITY,
        max_stall: Duration::from_secs(10),
        seed: 2,
        // Slow enough to be in the middle of it.
        machine: "--state-rate 1".to_owned(),
        logs: None,
    };
    let verdict = joining.run().expect("it can be carried out");
    assert_eq!(verdict.broken(), &[] as &[String], "{}", verdict.to_json());
}
