//! From a view that carries costs to the plan that its members take.

use super::{link, random, two_sites, uniform};
use crate::id::{PeerId, Rank, RunId, WorldSize};
use crate::plan::{
    Bucket, CostTable, Estimate, GroupTable, Link, MAX_EXACT, Plan, PlanDecision, PlanPolicy, is_worth_it, view_costs,
};
use crate::view::View;
use crate::view::ring::Ring;

const LARGE: Bucket = Bucket { bytes: 64 << 20, segment_bytes: 128 << 10 };

fn peer(place: u32) -> PeerId {
    PeerId([1 + place as u8; 32])
}

fn place(peer: PeerId) -> Rank {
    Rank(u32::from(peer.0[0] - 1))
}

/// As many members as the costs have ranks, and the costs of their links by place.
fn view(costs: &CostTable) -> View {
    let size = costs.world_size().get();
    let view = View::found(RunId([0; 32]), peer(0)).succeed((0..size).map(peer));
    view.with_costs(|from, to| Some(costs.link(place(from), place(to))))
}

fn time(view: &View, costs: &CostTable, agreed: &PlanDecision) -> u64 {
    let costs = Ring::plan(view).arrange(costs);
    Estimate::new(&costs, None, &agreed.plan, &agreed.weights, LARGE).total_ns()
}

#[test]
fn the_ring_of_a_view_on_two_sites_is_within_five_percent_of_the_best() {
    let costs = two_sites(6);
    let view = view(&costs);
    let cost = |order: &[Rank]| {
        let costs = costs.reordered(order);
        Estimate::new(&costs, GroupTable::detect(&costs).as_ref(), &Plan::Ring, &[1; 6], LARGE).total_ns()
    };
    let mut orders = vec![vec![Rank(0)]];
    for _ in 1..6 {
        let longer = |order: Vec<Rank>| {
            let free: Vec<Rank> = (0..6).map(Rank).filter(|rank| !order.contains(rank)).collect();
            free.into_iter().map(move |rank| [&order[..], &[rank]].concat())
        };
        orders = orders.into_iter().flat_map(longer).collect();
    }
    let best = orders.iter().map(|order| cost(order)).min().expect("there is an order");
    let ring = Ring::plan(&view);
    let order: Vec<Rank> = ring.world_size().ranks().map(|rank| place(ring.peer(rank))).collect();
    let planned = cost(&order);
    assert!(planned * 100 <= best * 105, "{order:?} takes {planned} ns, and {best} ns would be best");
    let sorted = cost(&(0..6).map(Rank).collect::<Vec<_>>());
    assert!(planned * 2 < sorted, "{planned} ns, and {sorted} ns in sorted order, which crosses six times");
}

#[test]
fn a_hierarchy_crosses_the_slow_joint_once_each_way() {
    let sites = view(&two_sites(6));
    let ring = Ring::plan(&sites);
    let PlanDecision { plan, reason, .. } = PlanPolicy::Hierarchical.agree(&sites, LARGE);
    assert!(matches!(plan, Plan::Hierarchical(_)), "{reason}");
    let site = |rank: Rank| place(ring.peer(rank)).0 % 2;
    for chunk in (0..6).map(Rank) {
        let route = plan.route(ring.world_size(), chunk);
        let crossings = route.hops().filter(|(from, to)| site(*from) != site(*to)).count();
        assert_eq!(crossings, 2, "one sum goes over, and one result comes back");
    }
    let flat = PlanPolicy::Hierarchical.agree(&view(&uniform(6, 200, 1 << 27)), LARGE);
    assert!(flat.plan == Plan::Ring && flat.reason.contains("no sites are seen"), "{}", flat.reason);
}

#[test]
fn a_quarter_of_the_bandwidth_is_spared_all_that_can_be() {
    let slow = |from: Rank, to: Rank| link(500, if from.0 == 2 || to.0 == 2 { 3_125_000 } else { 12_500_000 });
    let costs = CostTable::from_fn(WorldSize::new(4), slow).expect("costs that can be");
    let view = view(&costs);
    let agreed = PlanPolicy::Mesh.agree(&view, LARGE);
    let equal = PlanDecision { weights: vec![1; 4], ..agreed.clone() };
    let of = |slow: u32| {
        let rank = Ring::plan(&view).rank_of(peer(2)).expect("a member").0 as usize;
        let mut weights = vec![1_000 - slow; 4];
        weights[rank] = 3 * slow;
        time(&view, &costs, &PlanDecision { weights, ..agreed.clone() })
    };
    let best = (0..=500).map(of).min().expect("there are weights");
    let (planned, equal) = (time(&view, &costs, &agreed), time(&view, &costs, &equal));
    assert!(planned * 100 <= best * 115, "{planned} ns, and {best} ns would be best");
    assert!(equal * 100 >= planned * 149, "{planned} ns, and {equal} ns with equal chunks");
}

#[test]
fn whoever_was_not_measured_is_taken_for_ordinary() {
    let slow = |from: Rank, to: Rank| {
        let newcomer = from.0 == 3 || to.0 == 3;
        if newcomer { Link::NONE } else { link(40_000, 1_000_000 + u64::from(from.0)) }
    };
    let costs = CostTable::from_fn(WorldSize::new(4), slow).expect("costs that can be");
    let known = view_costs(&view(&costs));
    assert_eq!(known.link(Rank(3), Rank(0)), link(40_000, 1_000_001));
    // One direction stands for both.
    let one_way = |from: Rank, to: Rank| if from.0 < to.0 { link(7, 1_000) } else { Link::NONE };
    let costs = CostTable::from_fn(WorldSize::new(3), one_way).expect("costs that can be");
    let severed = view(&costs).with_severed([(peer(0), peer(1))]);
    let known = view_costs(&severed);
    assert_eq!(known.link(Rank(2), Rank(0)), link(7, 1_000));
    assert_eq!((known.link(Rank(0), Rank(1)), known.link(Rank(1), Rank(0))), (Link::NONE, Link::NONE));
}

#[test]
fn a_ring_by_costs_leads_around_severed_pairs() {
    for seed in 0..60 {
        for size in [4, 6, 9, MAX_EXACT + 1] {
            let whole = view(&random(size, seed));
            let pair = (peer(seed as u32 % size), peer((1 + seed as u32 / 7) % size));
            let view = whole.clone().with_severed([pair]);
            let ring = Ring::plan(&view);
            for rank in ring.world_size().ranks() {
                assert!(!view.is_severed(ring.peer(rank), ring.next(rank)), "size {size}, seed {seed}");
            }
        }
    }
}

#[test]
fn only_a_much_better_plan_is_worth_a_change() {
    let bare = view(&uniform(6, 200, 1 << 27));
    let sites = view(&two_sites(6));
    assert!(is_worth_it(PlanPolicy::Ring, LARGE, &bare, &sites), "six crossings become two");
    assert!(!is_worth_it(PlanPolicy::Ring, LARGE, &sites, &sites), "and stay two");
    assert!(!is_worth_it(PlanPolicy::Ring, LARGE, &sites, &bare), "on equal links all orders are equal");
    // Nor is what is soon done anyway, but for long ways.
    let small = Bucket { bytes: 10 << 10, ..LARGE };
    let apart = |delay_us: u32| {
        let between = |from: Rank, to: Rank| link(if from.0 % 2 == to.0 % 2 { 100 } else { delay_us }, 125_000_000);
        view(&CostTable::from_fn(WorldSize::new(6), between).expect("costs that can be"))
    };
    assert!(!is_worth_it(PlanPolicy::Ring, small, &apart(100), &apart(200)));
    assert!(is_worth_it(PlanPolicy::Ring, small, &apart(100), &apart(1_000)));
    // The slow member's rate falls by a tenth: its chunk should be smaller, but what that brings is little.
    let slower = |rate: u64| {
        let slow = move |from: Rank, to: Rank| link(500, if from.0 == 2 || to.0 == 2 { rate } else { 12_500_000 });
        view(&CostTable::from_fn(WorldSize::new(4), slow).expect("costs that can be"))
    };
    assert!(!is_worth_it(PlanPolicy::Mesh, LARGE, &slower(9_000_000), &slower(8_100_000)));
    assert!(is_worth_it(PlanPolicy::Mesh, LARGE, &slower(12_500_000), &slower(3_125_000)));
}

/// Measured rates are all different. Members compute this on their event loops.
#[test]
fn where_no_two_links_are_alike_there_is_a_ring_soon() {
    for size in [MAX_EXACT, 32] {
        let rate =
            |from: Rank, to: Rank| link(200 + from.0 * 7 % 5, 90_000_000 + u64::from(from.0 * 7_919 + to.0 * 104_729));
        let view = view(&CostTable::from_fn(WorldSize::new(size), rate).expect("costs that can be"));
        assert_eq!(Ring::plan(&view).world_size().get(), size);
    }
}
