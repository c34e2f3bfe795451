//! The ring's order against all orders there are.

use super::{link, random, two_sites, uniform};
use crate::id::{Rank, WorldSize};
use crate::plan::{Bucket, CostTable, Estimate, MAX_EXACT, Plan, ring_cost, ring_order};

const BUCKETS: [Bucket; 3] = [
    Bucket { bytes: 4_096, segment_bytes: 1_024 },
    Bucket { bytes: 1 << 20, segment_bytes: 1 << 16 },
    Bucket { bytes: 1 << 28, segment_bytes: 1 << 16 },
];

/// All orders that begin with rank 0.
fn all_orders(world: WorldSize) -> Vec<Vec<Rank>> {
    let mut orders = vec![vec![Rank(0)]];
    for _ in 1..world.get() {
        let longer = |order: Vec<Rank>| {
            let free: Vec<Rank> = world.ranks().filter(|rank| !order.contains(rank)).collect();
            free.into_iter().map(move |rank| order.iter().copied().chain([rank]).collect::<Vec<_>>())
        };
        orders = orders.into_iter().flat_map(longer).collect();
    }
    orders
}

fn best(costs: &CostTable, bucket: Bucket) -> u64 {
    let orders = all_orders(costs.world_size());
    orders.iter().map(|order| ring_cost(costs, order, bucket)).min().expect("there is an order")
}

#[test]
fn up_to_the_bound_no_order_is_better() {
    for size in 1..=7 {
        for seed in 0..30 {
            let costs = random(size, seed);
            for bucket in BUCKETS {
                let order = ring_order(&costs, bucket);
                assert_eq!(order[0], Rank(0));
                assert_eq!(ring_cost(&costs, &order, bucket), best(&costs, bucket), "size {size}, seed {seed}");
            }
        }
    }
}

#[test]
fn a_link_that_is_down_is_avoided() {
    // Ranks lie on a circle in an order of their own; all links off the circle are down.
    let circle = [0, 4, 2, 5, 1, 3];
    let next = |rank: Rank| {
        let at = circle.iter().position(|other| *other == rank.0).expect("on the circle");
        Rank(circle[(at + 1) % circle.len()])
    };
    let only = |from, to| if next(from) == to { link(9_000, 1_000) } else { crate::plan::Link::NONE };
    let costs = CostTable::from_fn(WorldSize::new(6), only).expect("costs that can be");
    assert_eq!(ring_order(&costs, BUCKETS[1]), circle.map(Rank));
}

#[test]
fn two_sites_are_crossed_once_each_way() {
    for size in [6, 8, MAX_EXACT, MAX_EXACT + 1, 20, 32] {
        for bucket in BUCKETS {
            let order = ring_order(&two_sites(size), bucket);
            let side = |index: usize| order[index % order.len()].0 % 2;
            let crossings = (0..order.len()).filter(|index| side(*index) != side(index + 1)).count();
            assert_eq!(crossings, 2, "{order:?}");
        }
    }
}

/// By the cost model of whole plans, which knows each chunk's own way, and not the formula that the order is made by.
#[test]
fn the_order_for_two_sites_is_within_five_percent_of_the_best() {
    for bucket in BUCKETS {
        let costs = two_sites(6);
        let cost =
            |order: &[Rank]| Estimate::new(&costs.reordered(order), None, &Plan::Ring, &[1; 6], bucket).total_ns();
        let best = all_orders(costs.world_size()).iter().map(|order| cost(order)).min().expect("there is an order");
        let planned = cost(&ring_order(&costs, bucket));
        assert!(planned * 100 <= best * 105, "{planned} ns, and {best} ns would be best");
    }
}

#[test]
fn above_the_bound_an_order_is_good() {
    // Ranks lie on a line, shuffled; the best ring goes out and back, so each neighbour is near.
    for size in [MAX_EXACT + 1, 24, 48, 128] {
        let world = WorldSize::new(size);
        let place = |rank: Rank| u64::from(rank.0) * 11 % u64::from(size);
        let far = |from, to| link(100 * u32::try_from(place(from).abs_diff(place(to))).expect("small"), 1 << 27);
        let costs = CostTable::from_fn(world, far).expect("costs that can be");
        let order = ring_order(&costs, BUCKETS[0]);
        let length = |order: &[Rank]| -> u64 {
            (0..order.len()).map(|at| place(order[at]).abs_diff(place(order[(at + 1) % order.len()]))).sum()
        };
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(world.ranks()));
        let shortest = 2 * (u64::from(size) - 1);
        assert!(length(&order) * 10 <= shortest * 11, "{} hops of the line for {size} ranks", length(&order));
    }
}

#[test]
fn equal_links_keep_the_order() {
    for size in 1..=MAX_EXACT {
        assert!(ring_order(&uniform(size, 100, 1 << 20), BUCKETS[1]).into_iter().eq(WorldSize::new(size).ranks()));
    }
}
