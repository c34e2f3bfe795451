//! What a plan sends over each link.

use std::collections::BTreeMap;

use crate::id::{Rank, WorldSize};
use crate::plan::Plan;

/// The bytes of one all-reduce of `bytes` over each link that `plan` uses, by sender and receiver, with chunks as large as
/// `weights` says, one for each.
///
/// # Panics
/// If there is not one weight for each chunk of the plan, or all are zero.
pub fn loads(plan: &Plan, world: WorldSize, weights: &[u32], bytes: u64) -> BTreeMap<(Rank, Rank), u64> {
    let whole: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
    assert!(weights.len() == plan.chunks(world) as usize && whole > 0, "each chunk of a plan has a weight");
    let mut loads = BTreeMap::new();
    for (chunk, weight) in (0..).map(Rank).zip(weights) {
        let share = u128::from(bytes) * u128::from(*weight) / u128::from(whole);
        let share = u64::try_from(share).expect("invariant: at most all bytes");
        for hop in plan.route(world, chunk).hops() {
            *loads.entry(hop).or_default() += share;
        }
    }
    loads
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_link_carries_what_its_plan_sends_over_it() {
        let world = WorldSize::new(4);
        let ring = loads(&Plan::Ring, world, &[1; 4], 4_000);
        assert_eq!(ring.len(), 4);
        assert!(ring.iter().all(|((from, to), bytes)| world.next(*from) == *to && *bytes == 6_000), "{ring:?}");
        let mesh = loads(&Plan::Mesh, world, &[1, 1, 1, 5], 8_000);
        assert_eq!(mesh.len(), 12);
        assert_eq!((mesh[&(Rank(0), Rank(3))], mesh[&(Rank(0), Rank(1))]), (6_000, 2_000));
        let tree = loads(&Plan::Tree, world, &[1; 2], 1_000);
        assert_eq!(tree.values().sum::<u64>(), 2 * 3 * 1_000, "each way, over one link less than there are members");
    }
}
