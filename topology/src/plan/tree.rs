//! Two binary trees that share the work.
//!
//! In one binary tree the leaves only send their own data, half of what the others do. With two trees, each for half of
//! the bucket, in which every rank has children in one tree at most (but for the roots), all send and receive alike, as
//! in P. Sanders, J. Speck and J. L. Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan",
//! 2009. The first tree is the in-order one that NCCL builds: a rank's lowest set bit is its height.
//!
//! ```text
//!   n = 8      0                       the second tree is the first one with all
//!              └──────4                ranks counted from the end (n even), or
//!                 2───┴───6            shifted by one (n odd): ranks with children
//!                1 3     5 7           become leaves
//! ```

use crate::id::{Rank, WorldSize};
use crate::plan::route::Route;

/// How many trees there are, and chunks of a bucket.
pub(crate) const TREES: u32 = 2;

/// Chunk `tree` goes up and down one of the two trees.
pub(crate) fn route(world: WorldSize, tree: Rank) -> Route {
    let size = world.get();
    let place = |rank: u32| match tree.0 {
        0 => rank,
        _ if size.is_multiple_of(2) => size - 1 - rank,
        _ => (rank + size - 1) % size,
    };
    // The places are those of all ranks, so the inverse is found among them.
    let mut rank_at = vec![Rank(0); size as usize];
    for rank in world.ranks() {
        rank_at[place(rank.0) as usize] = rank;
    }
    let parent = |rank: Rank| parent(place(rank.0), size).map(|place| rank_at[place as usize]);
    let tree: Vec<Option<Rank>> = world.ranks().map(parent).collect();
    Route::new(rank_at[0], tree.clone(), tree, false)
}

/// The parent of `place` in the in-order tree over `0..size`; none for place 0.
fn parent(place: u32, size: u32) -> Option<u32> {
    if place == 0 {
        return None;
    }
    let bit = place & place.wrapping_neg();
    let above = u64::from(place ^ bit) | (u64::from(bit) << 1);
    Some(u32::try_from(above).ok().filter(|above| *above < size).unwrap_or(place ^ bit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn depth(route: &Route, rank: Rank) -> u32 {
        route.up(rank).map_or(0, |parent| 1 + depth(route, parent))
    }

    #[test]
    fn a_tree_is_as_low_as_the_logarithm() {
        for world in (1..=200).map(WorldSize::new) {
            for tree in (0..TREES).map(Rank) {
                let route = route(world, tree);
                let deepest = world.ranks().map(|rank| depth(&route, rank)).max().expect("a world has ranks");
                let logarithm = world.get().next_power_of_two().trailing_zeros();
                assert!(deepest <= logarithm, "{deepest} hops among {world:?}");
                assert!(world.ranks().all(|rank| route.contributors(rank).len() <= 2));
            }
        }
    }

    #[test]
    fn no_rank_has_two_children_in_both_trees() {
        for world in (2..=200).map(WorldSize::new) {
            let [first, second] = [route(world, Rank(0)), route(world, Rank(1))];
            for rank in world.ranks() {
                let (one, other) = (first.contributors(rank).len(), second.contributors(rank).len());
                assert!(one + other <= 3, "rank {rank:?} of {world:?} adds {one} and {other} sums");
                // Only a tree's root, which has one child, can be inner in both.
                let inner_twice = one > 0 && other > 0;
                assert!(!inner_twice || first.owner() == rank || second.owner() == rank, "{rank:?} of {world:?}");
            }
            assert!(world.get() == 1 || first.owner() != second.owner());
        }
    }

    #[test]
    fn the_picture_in_the_documentation_is_right() {
        let tree = route(WorldSize::new(8), Rank(0));
        let up: Vec<Option<u32>> = (0..8).map(|rank| tree.up(Rank(rank)).map(|rank| rank.0)).collect();
        assert_eq!(up, [None, Some(2), Some(4), Some(2), Some(0), Some(6), Some(4), Some(6)]);
    }
}
