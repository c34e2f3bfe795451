//! Collectives alone: all plans, operations and codecs over links that delay and reorder.
//!
//! Each run drives one `starling_collective::Execution` per rank over a timed [`wire`]. What travels is both at once: who
//! contributed, which proves that each rank was counted once, and the bytes that a real driver would send, which prove
//! that all ranks end with the same bits. Then the bytes on the wire are compared with the formula. In some runs a link
//! breaks half-way: the operation is aborted, and done again from contributions that must be as they were; in all of them
//! some segments are delivered twice and must be refused.
//!
//! [`cases`] are runs in which time counts: the cost model's promises, kept or not in virtual time.

pub mod cases;
mod fleet;
pub mod wire;

use serde::Serialize;
use starling_collective::{Codec, Layout, LayoutConfig, Operation};
use starling_topology::plan::{CostTable, GroupTable, HubSet, Link, MAX_HUBS, Plan};
use starling_topology::{Rank, WorldSize};

use crate::hardware::network::rng::Rng;
use fleet::Fleet;
use wire::Wire;

/// Many runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// How many runs.
    pub runs: u64,
    /// Operations that were aborted half-way and done again.
    pub aborted: u64,
    /// Segments that were delivered twice and refused.
    pub refused: u64,
    /// Segments that arrived.
    pub segments: u64,
    /// Segments that went on from where they lay, without a copy.
    pub passed_on: u64,
    /// Payload bytes that were sent by operations that ran to their end.
    pub bytes: u64,
    /// What did not hold, each with the run that shows it.
    pub broken: Vec<String>,
}

impl Tally {
    /// Whether everything held.
    pub fn is_good(&self) -> bool {
        self.broken.is_empty()
    }
}

/// Runs every plan with every codec, and every operation, among `world` ranks; what else there is to choose, `seed` does.
pub fn check(world: u32, seed: u64, tally: &mut Tally) {
    let mut rng = Rng::new(seed.wrapping_mul(1_000_003).wrapping_add(u64::from(world)));
    let world = WorldSize::new(world);
    for plan in plans(world, &mut rng) {
        for codec in Codec::ALL {
            run_one(world, &plan, Operation::AllReduce, codec, &mut rng, tally, seed);
        }
        let root = Rank(draw(&mut rng, 0, world.get() - 1));
        for operation in [Operation::ReduceScatter, Operation::AllGather, Operation::Broadcast { root }] {
            let codec = rng.pick(&Codec::ALL).unwrap_or_default();
            run_one(world, &plan, operation, codec, &mut rng, tally, seed);
        }
    }
}

fn run_one(
    world: WorldSize,
    plan: &Plan,
    operation: Operation,
    codec: Codec,
    rng: &mut Rng,
    tally: &mut Tally,
    seed: u64,
) {
    let (layout, costs) = (draw_layout(world, plan, rng), draw_costs(world, rng));
    let jitter_us = rng.between(0, 20_000);
    let breaks = rng.one_in(4).then(|| rng.between(0, 40 * u64::from(world.get())));
    let mut fleet = Fleet::new(plan, operation, &layout, codec, rng);
    let name = format!("{plan}, {operation:?}, {codec} among {} ranks, seed {seed}", world.get());
    let mut problems = Vec::new();
    if let Some(limit) = breaks {
        let mut wire = Wire::new(costs.clone(), None, jitter_us, rng.fork());
        fleet.run(&mut wire, Some(limit), &mut problems);
        tally.aborted += 1;
        fleet.restart();
    }
    let mut wire = Wire::new(costs, None, jitter_us, rng.fork());
    fleet.run(&mut wire, None, &mut problems);
    fleet.check(&mut problems);
    tally.runs += 1;
    tally.refused += fleet.refused;
    tally.passed_on += fleet.passed_on;
    tally.segments += fleet.delivered;
    tally.bytes += fleet.sent_bytes;
    tally.broken.extend(problems.into_iter().map(|problem| format!("{name}: {problem}")));
}

/// Ring, tree, mesh, groups and hubs as they come.
fn plans(world: WorldSize, rng: &mut Rng) -> Vec<Plan> {
    let groups = rng.between(1, 6);
    let label = |rng: &mut Rng| u32::try_from(rng.between(1, groups)).expect("invariant: drawn small");
    let labels: Vec<u32> = world.ranks().map(|_| label(rng)).collect();
    let last = draw(rng, 0, world.get() - 1);
    let odds = rng.between(1, 4);
    let mut hubs: Vec<Rank> = world.ranks().filter(|rank| rank.0 == last || rng.one_in(odds)).collect();
    hubs.truncate(MAX_HUBS);
    let star = Plan::Star(HubSet::new(world, hubs).expect("invariant: drawn sorted and distinct"));
    vec![Plan::Ring, Plan::Tree, Plan::Mesh, Plan::Hierarchical(GroupTable::from_labels(&labels)), star]
}

/// From less than one element per rank to several segments per chunk, in equal or very unequal chunks.
fn draw_layout(world: WorldSize, plan: &Plan, rng: &mut Rng) -> Layout {
    let elements = if rng.one_in(6) { draw(rng, 0, world.get()) } else { draw(rng, world.get(), 600) };
    let segment = draw(rng, 1, 40);
    let bucket = draw(rng, segment, 400);
    let unequal = rng.one_in(2);
    let weight = |rng: &mut Rng| if unequal { draw(rng, 0, 9) } else { 1 };
    let mut weights: Vec<u32> = (0..plan.chunks(world)).map(|_| weight(rng)).collect();
    weights[0] = weights[0].max(1);
    let config = LayoutConfig { bucket_elements: bucket as usize, segment_elements: segment as usize };
    Layout::by_plan(elements as usize, plan, world, config, &weights)
}

fn draw_costs(world: WorldSize, rng: &mut Rng) -> CostTable {
    let links: Vec<Link> = (0..world.get() * world.get())
        .map(|_| Link { delay_us: draw(rng, 10, 80_000), bytes_per_second: rng.between(10_000, 1_000_000_000) })
        .collect();
    let at = |from: Rank, to: Rank| links[(from.0 * world.get() + to.0) as usize];
    CostTable::from_fn(world, at).expect("invariant: drawn within the bounds")
}

fn draw(rng: &mut Rng, low: u32, high: u32) -> u32 {
    u32::try_from(rng.between(u64::from(low), u64::from(high.max(low)))).expect("invariant: between two small numbers")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worlds_of_up_to_sixty_four_ranks() {
        let mut tally = Tally::default();
        for world in (1..=12).chain([16, 23, 33, 64]) {
            check(world, u64::from(world), &mut tally);
        }
        assert!(tally.is_good(), "{:#?}", tally.broken);
        assert!(tally.aborted > 0 && tally.refused > 0 && tally.passed_on > 0, "{tally:?}");
    }

    #[test]
    fn what_does_not_hold_is_noticed() {
        let (world, mut rng) = (WorldSize::new(4), Rng::new(3));
        let config = LayoutConfig { bucket_elements: 40, segment_elements: 5 };
        let layout = Layout::new(40, world, config);
        let mut fleet = Fleet::new(&Plan::Mesh, Operation::AllReduce, &layout, Codec::F32, &mut rng);
        let mut wire = Wire::new(draw_costs(world, &mut rng), None, 100, rng.fork());
        let mut problems = Vec::new();
        // Half of the operation: somebody hangs, counts and bits are wrong, bytes are missing.
        fleet.run(&mut wire, Some(20), &mut problems);
        assert_eq!(problems, Vec::<String>::new());
        fleet.check(&mut problems);
        for sign in ["hangs", "has Contributions", "other bits", "is the formula"] {
            assert!(problems.iter().any(|problem| problem.contains(sign)), "{sign}: {problems:?}");
        }
    }

    #[test]
    fn a_seed_is_all_there_is_to_replay() {
        let once = |seed| {
            let mut tally = Tally::default();
            check(5, seed, &mut tally);
            tally
        };
        assert_eq!(once(7), once(7));
        assert_ne!(once(7), once(8));
    }
}
