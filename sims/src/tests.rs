//! The simulator's own promises: seeds hold, seeds replay, and what is broken is noticed.

use std::time::Duration;

use starling_topology::{FlawKind, Quorum};

use crate::Summary;
use crate::hostile::Attack;
use crate::scenario::{Scenario, Setup};
use crate::simulation::Simulation;
use crate::sweep::canary::{PLANTS, Sabotage};
use crate::sweep::fault::{Crash, DiskFate, Fault, Kind, When};
use crate::sweep::shrink::shrink;
use crate::sweep::{Blow, blows, kills, sweep};
use crate::verdict::report::Outcome;

/// The lines of a file of runs, without its comments.
fn listed(file: &str) -> impl Iterator<Item = &str> {
    file.lines().filter(|line| !line.starts_with('#') && !line.is_empty())
}

#[track_caller]
fn check(setup: Setup, seeds: impl Iterator<Item = u64>) -> Summary {
    let mut summary = Summary::default();
    for seed in seeds {
        let outcome = Simulation::new(seed, setup).run();
        assert!(outcome.is_good(), "{setup:?}, seed {seed}: {:?}, stuck {:?}", outcome.broken, outcome.stuck);
        summary.add(&outcome);
    }
    summary
}

#[test]
fn mixed_runs_hold() {
    let summary = check(Setup::default(), 0..150);
    assert!(summary.faults > 150 && summary.views > 450, "there is something to hold against: {summary:?}");
}

#[test]
fn every_scenario_holds_in_every_world() {
    for scenario in Scenario::ALL {
        for peers in 1..=7 {
            check(Setup { peers: Some(peers), steps: 12, scenario, ..Setup::default() }, 1_000..1_004);
        }
    }
}

#[test]
fn every_scenario_holds_where_two_thirds_decide() {
    let quorum = Some(Quorum::TwoThirds);
    for scenario in Scenario::ALL {
        for peers in 1..=7 {
            check(Setup { peers: Some(peers), steps: 12, scenario, quorum, ..Setup::default() }, 2_000..2_004);
        }
    }
    let summary = check(Setup { quorum, ..Setup::default() }, 0..100);
    assert!(summary.faults > 100 && summary.views > 300, "there is something to hold against: {summary:?}");
}

/// Through all that comes otherwise, shares that are lost come back whole, and each sample once.
#[test]
fn micro_batches_are_dealt_whole_in_the_middle_of_everything() {
    let mut summary = Summary::default();
    for (seed, micro_batches) in (0..90).zip([1, 2, 3, 5, 8].into_iter().cycle()) {
        let scenario = Scenario::ALL[seed as usize % Scenario::ALL.len()];
        let simulation = Simulation::new(seed, Setup { scenario, ..Setup::default() });
        let outcome = simulation.replan(|plan| plan.micro_batches = micro_batches).run();
        assert!(outcome.is_good(), "seed {seed}: {:?}, stuck {:?}", outcome.broken, outcome.stuck);
        summary.add(&outcome);
    }
    assert!(summary.faults > 90 && summary.views > 200, "there is something to hold against: {summary:?}");
}

#[test]
fn views_are_replanned_in_the_middle_of_everything() {
    // Plans are worth a change of view some steps after the last one.
    let mut summary = Summary::default();
    for seed in 0..60 {
        let simulation = Simulation::new(seed, Setup { steps: 200, ..Setup::default() });
        let outcome = simulation.replan(|plan| plan.measures = Some(Duration::from_secs(2))).run();
        assert!(outcome.is_good(), "seed {seed}: {:?}, stuck {:?}", outcome.broken, outcome.stuck);
        summary.add(&outcome);
    }
    assert!(summary.replans > 30, "{summary:?}");
}

#[test]
fn a_hostile_minority_costs_bounded_time() {
    let setup = Setup { scenario: Scenario::Byzantine, ..Setup::default() };
    let summary = check(setup, 0..150);
    assert!(summary.views > 1_500 && summary.faults > 700, "there is something to hold against: {summary:?}");
}

#[test]
fn one_who_withholds_its_segments_costs_bounded_time() {
    let setup = Setup { scenario: Scenario::Byzantine, attack: Some(Attack::Withholds), ..Setup::default() };
    check(Setup { quorum: Some(Quorum::Majority), ..setup }, 0..60);
}

#[test]
fn who_says_that_it_is_ahead_has_nobody_give_up_a_seat_or_a_state() {
    let setup = Setup { scenario: Scenario::Byzantine, attack: Some(Attack::PromisesAhead), ..Setup::default() };
    for quorum in [Quorum::Majority, Quorum::TwoThirds] {
        // In the last, views that severed the liar from one after the other forgot what these had seen of it. In the two before, a
        // founder that alone had the state handed out rotten chunks, and was left alone after a few of them each time.
        check(Setup { quorum: Some(quorum), ..setup }, (420..500).chain([594, 699, 1252]));
    }
}

#[test]
fn one_who_proposes_two_things_is_named_where_majorities_decide_and_splits_nothing_where_two_thirds_do() {
    let setup = Setup { scenario: Scenario::Byzantine, attack: Some(Attack::SplitsViews), ..Setup::default() };
    let summary = |quorum| check(Setup { quorum: Some(quorum), ..setup }, 0..60);
    assert!(summary(Quorum::Majority).convicted > 5, "views are split, and it is known by whom");
    assert_eq!(summary(Quorum::TwoThirds).convicted, 0);
}

#[test]
fn where_no_ring_leads_around_a_star_is_taken_and_steps_go_on() {
    let summary = check(Setup { scenario: Scenario::Star, ..Setup::default() }, 0..60);
    assert!(summary.stars > 300 && summary.steps > 1_200, "{} stars, {} steps", summary.stars, summary.steps);
}

#[test]
fn links_that_fail_again_and_again_are_damped_and_steps_go_on() {
    let summary = check(Setup { scenario: Scenario::Flapping, ..Setup::default() }, 0..100);
    assert!(summary.unsteady > 30 && summary.steps > 2_000, "{} unsteady, {} steps", summary.unsteady, summary.steps);
}

#[test]
fn who_lacks_data_is_done_without_and_a_run_without_any_ends_in_order() {
    let summary = check(Setup { scenario: Scenario::Arriving, ..Setup::default() }, 0..100);
    let (given_back, out_of_data) = (summary.given_back, summary.out_of_data);
    assert!(given_back > 800 && out_of_data > 1, "{given_back} shares given back, {out_of_data} runs without data");
}

#[test]
fn one_who_says_that_its_links_fail_puts_nobody_out() {
    let setup = Setup { scenario: Scenario::Byzantine, attack: Some(Attack::FailsLinks), ..Setup::default() };
    check(setup, 0..60);
}

#[test]
fn leaves_come_and_go_and_count_once() {
    let summary = check(Setup { scenario: Scenario::Leaf, ..Setup::default() }, 0..150);
    let leaves = summary.leaves;
    assert!(leaves.parts > 1_500 && leaves.backups > 500 && leaves.late > 20, "{leaves:?}");
    assert!(leaves.loaded > 400 && leaves.lost > 800 && leaves.refused > 100 && leaves.completed > 150, "{leaves:?}");
}

#[test]
fn parts_of_leaves_are_whole_micro_batches() {
    let mut parts = 0;
    for (seed, micro_batches) in (0..60).zip([1, 2, 3, 5, 8].into_iter().cycle()) {
        let simulation = Simulation::new(seed, Setup { scenario: Scenario::Leaf, ..Setup::default() });
        let outcome = simulation.replan(|plan| plan.micro_batches = micro_batches).run();
        assert!(outcome.is_good(), "seed {seed}: {:?}, stuck {:?}", outcome.broken, outcome.stuck);
        parts += outcome.leaves.parts;
    }
    assert!(parts > 100, "{parts}");
}

#[test]
fn a_large_world_holds() {
    check(Setup { peers: Some(60), steps: 6, scenario: Scenario::Churn, ..Setup::default() }, 0..1);
    let summary = check(Setup { peers: Some(200), steps: 6, scenario: Scenario::Churn, ..Setup::default() }, 0..1);
    assert!(summary.views > 4 && summary.faults > 200, "members come and go: {summary:?}");
}

#[test]
fn a_steady_run_commits_all_its_steps_and_all_complete_it() {
    for seed in 0..10 {
        let setup = Setup { peers: Some(4), steps: 9, scenario: Scenario::Steady, ..Setup::default() };
        // Else those who come first may be done before the others come.
        let outcome = Simulation::new(seed, setup).replan(|plan| plan.gated = true).run();
        assert_eq!((outcome.steps, outcome.completed), (9, 4), "seed {seed}: {:?}", outcome.broken);
    }
}

#[test]
fn a_seed_replays_byte_for_byte() {
    for seed in 0..10 {
        let simulation = Simulation::new(seed, Setup::default());
        let first = simulation.clone().told().run();
        assert!(!first.trace.is_empty());
        assert_eq!(first, simulation.clone().told().run(), "seed {seed}");
        // Telling changes nothing.
        let untold = simulation.run();
        assert_eq!((untold.events, untold.simulated), (first.events, first.simulated));
    }
}

#[test]
fn other_seeds_are_other_runs() {
    let trace = |seed| Simulation::new(seed, Setup::default()).told().run().trace;
    assert_ne!(trace(1), trace(2));
}

#[test]
fn regressions_stay_fixed() {
    let mut replayed = 0;
    for line in listed(include_str!("../regressions.txt")) {
        // As it was when it showed the bug, and with links that are measured besides.
        for measures in [None, Some(Duration::from_secs(1))] {
            let outcome = regression(line).replan(|plan| plan.measures = measures).run();
            assert!(outcome.is_good(), "{line}: {:?}, stuck {:?}", outcome.broken, outcome.stuck);
        }
        replayed += 1;
    }
    assert!(replayed > 0, "the file has regressions in it");
}

/// The run of a line like `--seed 17 --peers 4 --scenario crash --only 3,5  # why`.
fn regression(line: &str) -> Simulation {
    let (arguments, why) = line.split_once('#').expect("a line says why");
    assert!(!why.trim().is_empty(), "{line}");
    let words: Vec<&str> = arguments.split_whitespace().collect();
    let value = |name: &str| words.iter().position(|word| *word == name).map(|at| words[at + 1]);
    let number = |name: &str| value(name).map(|text| text.parse::<u64>().expect("a number"));
    let scenario = value("--scenario").map(|text| clap::ValueEnum::from_str(text, false).expect("a scenario"));
    let default = Setup::default();
    let setup = Setup {
        peers: number("--peers").map(|peers| u32::try_from(peers).expect("there are few")),
        steps: number("--steps").unwrap_or(default.steps),
        scenario: scenario.unwrap_or(default.scenario),
        attack: value("--attack").map(|text| clap::ValueEnum::from_str(text, false).expect("an attack")),
        quorum: value("--quorum").map(|text| text.parse().expect("a rule")),
    };
    let simulation = Simulation::new(number("--seed").expect("a line has a seed"), setup);
    match value("--only") {
        Some(places) => {
            let kept: Vec<usize> = places.split(',').map(|place| place.parse().expect("a place")).collect();
            simulation.only(&kept)
        }
        None => simulation,
    }
}

#[test]
fn whoever_is_killed_at_any_message_of_a_small_world_the_run_goes_on() {
    for peers in 2..=3 {
        let all = kills(peers, Some(16));
        let swept = sweep(&all);
        assert_eq!((swept.runs, swept.failures), (all.len() as u64, Vec::<String>::new()), "{peers} peers");
    }
}

#[test]
fn whatever_strikes_a_member_in_whatever_phase_the_run_goes_on() {
    let all: Vec<Blow> = (2..=3).flat_map(blows).collect();
    let swept = blows::strike(&all);
    assert_eq!(swept.failures, Vec::<String>::new());
    assert!(swept.coverage.seen() > 200, "{:?}", swept.coverage.missing());
}

/// All die at one step, and most of them come back first, without their checkpoints, or without the newest one: what the two who kept
/// theirs hold is stable.
fn most_lose_their_checkpoints(seed: u64) -> Simulation {
    let setup = Setup { peers: Some(5), scenario: Scenario::Steady, ..Setup::default() };
    let lost = [DiskFate::CheckpointsLost, DiskFate::Torn, DiskFate::SavedLost][usize::try_from(seed % 3).unwrap_or(0)];
    Simulation::new(seed, setup).replan(|plan| {
        (plan.min_members, plan.fork_after, plan.keepers, plan.words) = (1, None, 0, false);
        plan.gated = true; // Else it is over before.
        for seat in 0..5 {
            let (fate, down) = if seat < 3 { (lost, 1) } else { (DiskFate::Kept, 20) };
            let crash = Crash { down: Duration::from_secs(down), power: false, fate, at_record: None };
            let when = When::After { step: 20, delay: Duration::from_millis(400 + seat as u64) };
            plan.faults.push(Fault { when, kind: Kind::Crash(seat, crash) });
        }
    })
}

#[test]
fn what_most_have_lost_and_others_hold_is_waited_for() {
    let (mut caught, mut caught_unknown) = (0, 0);
    for seed in 0..90 {
        let outcome = most_lose_their_checkpoints(seed).run();
        assert!(outcome.is_good(), "seed {seed}: {:?}, stuck {:?}", outcome.broken, outcome.stuck);
        let flawed = most_lose_their_checkpoints(seed).with_sabotage(Sabotage::Machine(FlawKind::HidesLoss)).run();
        let goes_back = |outcome: &Outcome| outcome.broken.iter().any(|broken| broken.invariant == "stable_survives");
        caught += u32::from(goes_back(&flawed));
        let flawed = most_lose_their_checkpoints(seed).with_sabotage(Sabotage::TakesLostForNothing).run();
        caught_unknown += u32::from(goes_back(&flawed));
    }
    // Who has none at all does not claim the first state either.
    assert!(caught > 5, "{caught} of 90 go back without a word if nobody says what is lost");
    assert!(caught_unknown > 0, "nobody goes back without a word if a lost note says nothing");
}

#[test]
fn planted_faults_are_found() {
    for plant in PLANTS {
        let catch = plant.find(2_000);
        assert!(catch.caught.is_some(), "{:?} got by in {} seeds", catch.sabotage, catch.seeds);
    }
}

#[test]
fn a_failing_run_is_cut_down() {
    let plant = PLANTS.iter().find(|plant| plant.scenario == Scenario::Crash).expect("one of them is");
    let (seed, _) = plant.find(400).caught.expect("it is found");
    let setup = Setup { scenario: plant.scenario, ..Setup::default() };
    let simulation = Simulation::new(seed, setup).with_sabotage(plant.sabotage);
    let shrunk = shrink(&simulation, 100).expect("it fails");
    let again = simulation.only(&shrunk.kept).run();
    assert_eq!(again.failure(), Some(shrunk.failure));
    assert!(shrunk.kept.len() <= shrunk.of);
}

/// The first member is alone for some steps, others join, all die, and it comes back first, with its disk as it was before.
fn the_first_is_set_back(seed: u64) -> Simulation {
    let setup = Setup { peers: Some(3), scenario: Scenario::Steady, ..Setup::default() };
    Simulation::new(seed, setup).replan(|plan| {
        (plan.founders, plan.min_members, plan.fork_after) = (1, 1, None);
        (plan.keepers, plan.words, plan.gated) = (0, false, true);
        for seat in 1..3 {
            let when = When::After { step: 2, delay: Duration::from_millis(10 * seat as u64) };
            plan.faults.push(Fault { when, kind: Kind::Join(seat) });
        }
        for seat in 0..3 {
            let (fate, down) = if seat == 0 { (DiskFate::SetBack, 1) } else { (DiskFate::Kept, 15 + seat as u64) };
            let crash = Crash { down: Duration::from_secs(down), power: false, fate, at_record: None };
            let when = When::After { step: 14, delay: Duration::from_millis(seat as u64) };
            plan.faults.push(Fault { when, kind: Kind::Crash(seat, crash) });
        }
    })
}

#[test]
fn who_has_its_disk_is_not_led_away_by_one_that_was_set_back() {
    let is_led_away = |outcome: &Outcome| outcome.broken.iter().any(|broken| broken.invariant == "led_away");
    let mut caught = 0;
    for seed in 0..120 {
        let outcome = the_first_is_set_back(seed).run();
        assert!(outcome.is_good(), "seed {seed}: {:?}, stuck {:?}", outcome.broken, outcome.stuck);
        let sabotage = Sabotage::Machine(FlawKind::CountsDoubleSigners);
        caught += usize::from(is_led_away(&the_first_is_set_back(seed).with_sabotage(sabotage).run()));
    }
    assert!(caught > 0, "nobody is led away where what those say counts who have signed twice");
}
