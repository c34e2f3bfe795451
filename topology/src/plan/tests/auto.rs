//! What the model says, where the answer is known.

use super::{link, two_sites, uniform};
use crate::id::{Rank, WorldSize};
use crate::plan::{
    Bucket, CostTable, Estimate, GroupTable, HubSet, Plan, PlanLimit, PlanReport, WEIGHT_TOTAL, chunk_weights,
};

fn estimate(costs: &CostTable, plan: &Plan, bytes: u64) -> Estimate {
    let weights = vec![1; plan.chunks(costs.world_size()) as usize];
    Estimate::new(costs, GroupTable::detect(costs).as_ref(), plan, &weights, Bucket { bytes, segment_bytes: 1 << 16 })
}

#[test]
fn on_equal_links_the_model_is_the_textbooks() {
    for size in [2u32, 3, 4, 8, 16, 64] {
        let costs = uniform(size, 20_000, 100_000_000);
        let bytes = u64::from(size) << 20;
        let ring = estimate(&costs, &Plan::Ring, bytes);
        assert_eq!(ring.hops, 2 * (size - 1));
        assert_eq!(ring.links, if size == 2 { 1 } else { 2 });
        assert_eq!(ring.busiest_bytes, u64::from(2 * (size - 1)) << 20);
        let mesh = estimate(&costs, &Plan::Mesh, bytes);
        assert_eq!((mesh.hops, mesh.links, mesh.busiest_bytes), (2, size - 1, ring.busiest_bytes));
        let tree = estimate(&costs, &Plan::Tree, bytes);
        assert_eq!(tree.hops, 2 * size.next_power_of_two().ilog2());
        assert!(tree.links <= PlanLimit::default().links);
        // Each rank adds two children's halves at most and passes the result on to as many, besides its own.
        assert!(tree.busiest_bytes <= 2 * bytes + bytes / 2);
    }
}

#[test]
fn small_buckets_over_long_ways_take_a_tree() {
    let costs = uniform(8, 20_000, 12_500_000);
    let bucket = Bucket { bytes: 16 << 10, segment_bytes: 1 << 16 };
    let choice = PlanReport::new(&costs, bucket, PlanLimit::default());
    assert_eq!(choice.plan(), &Plan::Tree);
    assert!(choice.estimate().hops <= 2 * 3 + 1);
    let said = format!("{choice:#}");
    assert!(said.starts_with("tree for 16384 bytes: "), "{said}");
    assert!(said.contains("mesh") && said.contains("no rank may have more than 6 links"), "{said}");
}

#[test]
fn large_buckets_take_a_ring_where_a_mesh_has_too_many_links() {
    let costs = uniform(16, 100, 1_250_000_000);
    let bucket = Bucket { bytes: 1 << 28, segment_bytes: 1 << 16 };
    assert_eq!(PlanReport::new(&costs, bucket, PlanLimit::default()).plan(), &Plan::Ring);
}

#[test]
fn few_peers_take_a_mesh() {
    let costs = uniform(4, 20_000, 12_500_000);
    for bytes in [1 << 10, 1 << 16, 1 << 22] {
        let choice = PlanReport::new(&costs, Bucket { bytes, segment_bytes: 1 << 16 }, PlanLimit::default());
        assert_eq!(choice.plan(), &Plan::Mesh);
    }
}

#[test]
fn sites_take_a_hierarchy() {
    // Up to four at a site send directly, more along a ring.
    for size in [8, 12, 24] {
        let costs = two_sites(size);
        let choice = PlanReport::new(&costs, Bucket { bytes: 1 << 24, segment_bytes: 1 << 16 }, PlanLimit::default());
        assert!(matches!(choice.plan(), Plan::Hierarchical(_)), "{choice:#}");
        assert!(choice.estimate().links <= PlanLimit::default().links);
        // These ranks alternate between the sites, so that a ring which knows no sites crosses with each hop.
        assert!(choice.estimate().total_ns() < estimate(&costs, &Plan::Ring, 1 << 24).total_ns());
    }
}

#[test]
fn a_slow_member_owns_little_and_stands_at_the_edge() {
    let bucket = Bucket { bytes: 64 << 20, segment_bytes: 1 << 16 };
    let choice = PlanReport::new(&one_slow(4, 4), bucket, PlanLimit::default());
    // Nothing is faster than one bucket over its link each way.
    let optimum = link(500, 30_000_000).transfer_ns(bucket.bytes);
    assert!(choice.estimate().total_ns() * 100 <= optimum * 115, "{choice:#}");
    let mesh = choice.candidates().iter().find(|candidate| candidate.plan == Plan::Mesh).expect("it is looked at");
    assert_eq!(mesh.weights, chunk_weights(&one_slow(4, 4)));
    assert!(mesh.estimate.total_ns() * 100 <= optimum * 115, "{choice:#}");
    assert!(format!("{choice:#}").contains("which own 0 to 33 %"), "{choice:#}");
}

#[test]
fn among_few_a_mesh_is_for_small_buffers() {
    for (delay_us, rate) in [(20_000, 12_500_000), (200, 125_000_000), (20, 1_000_000_000)] {
        let costs = uniform(4, delay_us, rate);
        let plan = |bytes| {
            PlanReport::new(&costs, Bucket { bytes, segment_bytes: 128 << 10 }, PlanLimit::default()).plan().clone()
        };
        assert_eq!((plan(64 << 10), plan(256 << 20)), (Plan::Mesh, Plan::Ring));
    }
}

#[test]
fn two_peers_take_a_ring() {
    let costs = uniform(2, 20_000, 12_500_000);
    let choice = PlanReport::new(&costs, Bucket { bytes: 1 << 22, segment_bytes: 1 << 16 }, PlanLimit::default());
    assert_eq!(choice.plan(), &Plan::Ring, "{choice:#}");
}

#[test]
fn where_links_are_down_the_plan_without_them_wins() {
    let next = |from: Rank, to: Rank| (from.0 + 1) % 4 == to.0;
    let around = |from, to| if next(from, to) { link(100, 1 << 20) } else { crate::plan::Link::NONE };
    let costs = CostTable::from_fn(WorldSize::new(4), around).expect("costs that can be");
    let choice = PlanReport::new(&costs, Bucket { bytes: 1 << 20, segment_bytes: 1 << 16 }, PlanLimit::default());
    assert_eq!(choice.plan(), &Plan::Ring);
    assert!(format!("{choice:#}").contains("needs a link that is down"));
}

/// What a star costs: two hops, each rank's links are those to the hubs, and these share what comes in.
#[test]
fn a_star_is_bound_by_its_hubs() {
    for (size, hubs) in [(8u32, 1u32), (8, 3), (16, 4), (40, 16)] {
        let costs = uniform(size, 20_000, 100_000_000);
        let bytes = u64::from(size * hubs) << 20;
        let plan = Plan::Star(HubSet::detect(&costs, hubs as usize).expect("all reach all"));
        let star = estimate(&costs, &plan, bytes);
        assert_eq!((star.hops, star.links), (2, size - 1));
        // Of its own chunk to each of the others, and the rest of its contribution to the other hubs.
        let (own, others) =
            (u64::from(size - 1) * bytes / u64::from(hubs), u64::from(hubs - 1) * bytes / u64::from(hubs));
        assert_eq!(star.busiest_bytes, own + others);
        assert!(estimate(&costs, &Plan::Mesh, bytes).total_ns() <= star.total_ns());
    }
}

#[test]
fn where_no_ring_is_a_star_is_looked_at() {
    // All reach rank 2 alone, and it them.
    let through = |from: Rank, to: Rank| {
        if from.0 == 2 || to.0 == 2 { link(100, 1 << 20) } else { crate::plan::Link::NONE }
    };
    let costs = CostTable::from_fn(WorldSize::new(9), through).expect("costs that can be");
    let choice = PlanReport::new(&costs, Bucket { bytes: 1 << 20, segment_bytes: 1 << 16 }, PlanLimit::default());
    assert_eq!(choice.plan().to_string(), "star {2}", "{choice:#}");
    let whole = PlanReport::new(&uniform(9, 100, 1 << 20), Bucket { bytes: 1, segment_bytes: 1 }, PlanLimit::default());
    assert!(whole.candidates().iter().all(|candidate| !matches!(candidate.plan, Plan::Star(_))));
}

/// Hubs of unlike bandwidth own chunks in proportion to what they have left, as in a mesh.
#[test]
fn hubs_own_what_their_links_allow() {
    let costs = one_slow(6, 4);
    let bucket = Bucket { bytes: 64 << 20, segment_bytes: 1 << 16 };
    let plan = Plan::Star(HubSet::new(costs.world_size(), [0, 3, 4].map(Rank).to_vec()).expect("hubs that can be"));
    let time = |weights: &[u32]| Estimate::new(&costs, None, &plan, weights, bucket).total_ns();
    let Plan::Star(hubs) = &plan else { unreachable!("it is a star") };
    let weights = hubs.weights(&costs);
    assert_eq!(weights.iter().sum::<u32>(), WEIGHT_TOTAL);
    assert!(weights[0] < weights[1] && weights[1].abs_diff(weights[2]) <= 1, "{weights:?}");
    assert!(time(&weights) < time(&[1; 3]), "{weights:?}");
    assert_eq!(HubSet::detect(&costs, 2), HubSet::new(costs.world_size(), [1, 2].map(Rank).to_vec()).ok());
}

/// Rank 0 with a fraction of the others' bandwidth, both ways.
fn one_slow(size: u32, slower: u64) -> CostTable {
    let rate = 120_000_000;
    let slow = |from: Rank, to: Rank| link(500, if from.0 == 0 || to.0 == 0 { rate / slower } else { rate });
    CostTable::from_fn(WorldSize::new(size), slow).expect("costs that can be")
}

/// The time of a mesh's busiest rank in units of a bucket over a fast link, from the weights alone.
fn busiest(size: u32, slower: f64, weights: &[u32]) -> f64 {
    let time = |(rank, weight): (usize, &u32)| {
        let share = f64::from(*weight) / f64::from(WEIGHT_TOTAL);
        (1.0 + f64::from(size - 2) * share) * if rank == 0 { slower } else { 1.0 }
    };
    weights.iter().enumerate().map(time).fold(0.0, f64::max)
}

#[test]
fn chunks_follow_bandwidth() {
    for (size, slower) in [(3, 2), (4, 4), (8, 2), (8, 3), (16, 2)] {
        let weights = chunk_weights(&one_slow(size, slower));
        assert_eq!(weights.iter().sum::<u32>(), WEIGHT_TOTAL);
        let ours = busiest(size, slower as f64, &weights);
        // All others share what is left alike, so the slow rank's weight is all there is to choose.
        let best = (0..=WEIGHT_TOTAL / size).map(|slow| {
            let mut weights = vec![(WEIGHT_TOTAL - slow) / (size - 1); size as usize];
            weights[0] = slow;
            busiest(size, slower as f64, &weights)
        });
        let best = best.fold(f64::INFINITY, f64::min);
        assert!(ours <= best * 1.001, "{ours} for {size} ranks, one {slower} times slower, where {best} is best");
    }
    assert_eq!(chunk_weights(&uniform(4, 500, 1 << 20)), [WEIGHT_TOTAL / 4; 4]);
}

#[test]
fn a_rank_with_a_quarter_of_the_bandwidth_is_spared_all_that_can_be() {
    let costs = one_slow(4, 4);
    let bucket = Bucket { bytes: 64 << 20, segment_bytes: 1 << 16 };
    let of = |weights: &[u32]| Estimate::new(&costs, None, &Plan::Mesh, weights, bucket);
    let weights = chunk_weights(&costs);
    assert!(weights[0] <= 1, "it owns nothing");
    let (equal, weighted) = (of(&[1; 4]), of(&weights));
    // It must send its contribution and receive the result: one bucket each way, where equal chunks are one and a half.
    // So one and a half times is the bound, whatever the plan.
    let ratio = equal.transfer_ns * 1_000 / weighted.transfer_ns;
    assert!((1_495..=1_505).contains(&ratio), "{ratio} thousandths");
}
