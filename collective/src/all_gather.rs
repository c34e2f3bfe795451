//! The second half: each owner's result goes round the ring and is copied.
//!
//! What each rank **sends** in each round, for four ranks:
//!
//! ```text
//!            rank 0    rank 1    rank 2    rank 3
//!   round 0  c1        c2        c3        c0          the chunk that it owns
//!   round 1  c0        c1        c2        c3
//!   round 2  c3        c0        c1        c2
//! ```
//!
//! There are `n - 1` rounds. A round names a hop; nobody waits for a round to end.

use starling_topology::{Rank, WorldSize};

use crate::layout::Layout;
use crate::reduce_scatter::minus;

/// How many rounds there are.
pub fn rounds(world: WorldSize) -> u32 {
    world.get() - 1
}

/// The chunk that `rank` sends in `round`.
pub fn sent(rank: Rank, round: u32, world: WorldSize) -> Rank {
    Rank(minus(world.next(rank).0, round, world))
}

/// The chunk that `rank` receives in `round`.
pub fn received(rank: Rank, round: u32, world: WorldSize) -> Rank {
    sent(world.previous(rank), round, world)
}

/// The round in which `rank` receives `chunk`; `None` if it never does: it owns that chunk.
pub fn round_of(rank: Rank, chunk: Rank, world: WorldSize) -> Option<u32> {
    let round = minus(rank.0, chunk.0, world);
    (round < rounds(world)).then_some(round)
}

/// How many segments of `bucket` come to `rank` in this half.
pub(crate) fn segments_received(layout: &Layout, bucket: u32, rank: Rank) -> u64 {
    let world = layout.world_size();
    (0..rounds(world)).map(|round| u64::from(layout.segments(bucket, received(rank, round, world)))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_rank_sends_the_next_receives() {
        for world in (1..=16).map(WorldSize::new) {
            for rank in world.ranks() {
                for round in 0..rounds(world) {
                    assert_eq!(received(world.next(rank), round, world), sent(rank, round, world));
                }
            }
        }
    }

    #[test]
    fn what_is_received_is_sent_in_the_next_round() {
        for world in (1..=16).map(WorldSize::new) {
            for rank in world.ranks() {
                for round in 1..rounds(world) {
                    assert_eq!(sent(rank, round, world), received(rank, round - 1, world));
                }
            }
        }
    }

    #[test]
    fn round_of_inverts_received() {
        for world in (1..=16).map(WorldSize::new) {
            for rank in world.ranks() {
                for chunk in world.ranks() {
                    let round = (0..rounds(world)).find(|round| received(rank, *round, world) == chunk);
                    assert_eq!(round_of(rank, chunk, world), round);
                }
            }
        }
    }

    #[test]
    fn a_chunk_starts_at_its_owner() {
        for world in (2..=16).map(WorldSize::new) {
            for chunk in world.ranks() {
                let owner = crate::reduce_scatter::owner(chunk, world);
                assert_eq!(sent(owner, 0, world), chunk);
                assert_eq!(round_of(owner, chunk, world), None);
            }
        }
    }

    #[test]
    fn the_table_in_the_documentation_is_right() {
        let world = WorldSize::new(4);
        let table: Vec<Vec<u32>> =
            (0..3).map(|round| world.ranks().map(|rank| sent(rank, round, world).0).collect()).collect();
        assert_eq!(table, [[1, 2, 3, 0], [0, 1, 2, 3], [3, 0, 1, 2]]);
    }
}
