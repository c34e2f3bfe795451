//! The simulator's own promises: seeds hold, seeds replay, and what is broken is noticed.

use crate::Summary;
use crate::scenario::{Scenario, Setup};
use crate::world::{replay, simulate};

#[track_caller]
fn check(scenario: Scenario, peers: u32, steps: u64, seeds: std::ops::Range<u64>) -> Summary {
    let setup = Setup { peers, steps, scenario };
    let mut summary = Summary::default();
    for seed in seeds {
        let outcome = simulate(seed, &setup);
        assert!(outcome.is_good(), "{setup:?}, seed {seed}: {:?}, stuck {:?}", outcome.broken, outcome.stuck);
        summary.add(&outcome);
    }
    summary
}

#[test]
fn mixed_runs_hold() {
    assert_eq!(check(Scenario::Mixed, 6, 12, 0..200).seeds, 200);
}

#[test]
fn every_scenario_holds_in_every_world() {
    for scenario in [Scenario::Steady, Scenario::Join, Scenario::Leave, Scenario::Crash, Scenario::Mixed] {
        for peers in 1..=8 {
            check(scenario, peers, 8, 1_000..1_010);
        }
    }
}

#[test]
fn a_steady_run_commits_all_its_steps() {
    let setup = Setup { peers: 4, steps: 9, scenario: Scenario::Steady };
    for seed in 0..10 {
        let outcome = simulate(seed, &setup);
        assert_eq!(outcome.steps, 9, "seed {seed}");
    }
}

#[test]
fn a_seed_replays_byte_for_byte() {
    for seed in 0..20 {
        let setup = Setup { peers: 5, steps: 8, scenario: Scenario::Mixed };
        let (first, trace) = replay(seed, &setup);
        let (second, again) = replay(seed, &setup);
        assert!(!trace.is_empty());
        assert_eq!(trace, again, "seed {seed}");
        assert_eq!((first.events, first.simulated), (second.events, second.simulated));
        // Telling changes nothing.
        let untold = simulate(seed, &setup);
        assert_eq!((untold.events, untold.simulated), (first.events, first.simulated));
    }
}

#[test]
fn other_seeds_are_other_runs() {
    let setup = Setup { peers: 5, steps: 8, scenario: Scenario::Mixed };
    assert_ne!(replay(1, &setup).1, replay(2, &setup).1);
}
