//! Costs come from other peers.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::{link, random, two_sites, uniform};
use crate::id::{Rank, WorldSize};
use crate::message::MAX_MEMBERS;
use crate::plan::{
    Bucket, CostError, CostTable, GroupTable, Link, PlanLimit, PlanReport, WEIGHT_TOTAL, chunk_weights, ring_order,
};

#[test]
fn costs_that_cannot_be_are_refused() {
    let good = || Vec::from(uniform(3, 100, 1_000));
    assert!(CostTable::new(good()).is_ok());
    for length in [0, 2, 3, 5, 8, 10, (MAX_MEMBERS + 1) * (MAX_MEMBERS + 1)] {
        assert_eq!(CostTable::new(vec![Link::NONE; length]), Err(CostError::NotSquare(length)));
    }
    for bad in [link(60_000_001, 1), link(0, (1 << 40) + 1), link(u32::MAX, u64::MAX)] {
        let mut links = good();
        links[5] = bad;
        assert_eq!(CostTable::new(links), Err(CostError::OutOfRange { from: 1, to: 2, link: bad }));
    }
    for (at, bad) in [(4, link(0, 1)), (4, link(1, 0)), (1, link(7, 0))] {
        let mut links = good();
        links[at] = bad;
        let (from, to) = (at as u32 / 3, at as u32 % 3);
        assert_eq!(CostTable::new(links), Err(CostError::NotCanonical { from, to }));
    }
}

#[test]
fn costs_travel_and_are_checked_on_arrival() {
    let costs = random(5, 3);
    let bytes = postcard::to_allocvec(&costs).expect("costs are plain data");
    assert_eq!(postcard::from_bytes::<CostTable>(&bytes), Ok(costs));
    let bytes = postcard::to_allocvec(&vec![link(0, 1)]).expect("links are plain data");
    assert!(postcard::from_bytes::<CostTable>(&bytes).is_err(), "a link from a rank to itself");
}

#[test]
fn reordering_moves_both_ends() {
    let costs = random(4, 1);
    let order = [2, 0, 3, 1].map(Rank);
    let moved = costs.reordered(&order);
    for from in costs.world_size().ranks() {
        for to in costs.world_size().ranks() {
            assert_eq!(moved.link(from, to), costs.link(order[from.0 as usize], order[to.0 as usize]));
        }
    }
}

#[test]
fn sites_are_found_where_there_are_any() {
    for size in 4..=24 {
        let groups = GroupTable::detect(&two_sites(size)).expect("two sites");
        let sites: Vec<Vec<u32>> = groups.iter().map(|site| site.iter().map(|rank| rank.0).collect()).collect();
        let expected = [0, 1].map(|parity| (0..size).filter(|rank| rank % 2 == parity).collect::<Vec<u32>>());
        assert_eq!(sites, expected);
        assert_eq!(groups.world_size(), WorldSize::new(size));
        assert_eq!(GroupTable::detect(&uniform(size, 5_000, 1_000_000)), None);
    }
    assert_eq!(GroupTable::detect(&uniform(1, 0, 1)), None);
    assert_eq!(GroupTable::detect(&uniform(2, 0, 1)), None);
}

#[test]
fn three_sites_of_different_size() {
    let site = |rank: Rank| [0, 0, 0, 1, 2, 2, 0][rank.0 as usize];
    let between = |from, to| if site(from) == site(to) { link(200, 1 << 27) } else { link(20_000, 1 << 24) };
    let costs = CostTable::from_fn(WorldSize::new(7), between).expect("costs that can be");
    assert_eq!(GroupTable::detect(&costs).expect("three sites").to_string(), "{0 1 2 6} {3} {4 5}");
}

/// Any costs that pass the checks, with links that are down, dead slow or instant.
fn any_costs() -> impl Strategy<Value = CostTable> {
    let any_link = prop_oneof![
        3 => (0u32..=60_000_000, 1u64..=1 << 40).prop_map(|(delay, rate)| link(delay, rate)),
        1 => Just(Link::NONE),
        1 => Just(link(0, 1)),
        1 => Just(link(0, 1 << 40)),
    ];
    (1u32..=9, proptest::collection::vec(any_link, 81)).prop_map(|(size, links)| {
        let at = |from: Rank, to: Rank| links[(from.0 * 9 + to.0) as usize];
        CostTable::from_fn(WorldSize::new(size), at).expect("within the bounds")
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, rng_seed: RngSeed::Fixed(5), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_costs_there_is_a_plan(costs in any_costs(), bytes in any::<u64>(), segment_bytes in any::<u64>()) {
        let bucket = Bucket { bytes: bytes >> 8, segment_bytes };
        let order = ring_order(&costs, bucket);
        let costs = costs.reordered(&order);
        let choice = PlanReport::new(&costs, bucket, PlanLimit::default());
        prop_assert_eq!(choice.weights().len(), choice.plan().chunks(costs.world_size()) as usize);
        let said = format!("{choice:#}");
        prop_assert!(said.contains("ring"));
        prop_assert_eq!(&choice, &PlanReport::new(&costs, bucket, PlanLimit::default()));
        let weights = chunk_weights(&costs);
        prop_assert_eq!(weights.len(), costs.world_size().get() as usize);
        prop_assert_eq!(weights.iter().sum::<u32>(), WEIGHT_TOTAL);
    }
}
