//! The cyclic order of a view's members.

use crate::id::{PeerId, Rank, WorldSize};
use crate::view::View;

/// A ring: each member sends to the next one and receives from the previous one.
///
/// A pure function of the view, so all members that hold one view compute one ring. The order is the sorted order of
/// peer ids; once views carry agreed link costs, the order comes from them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ring {
    order: Vec<PeerId>,
}

impl Ring {
    /// The ring of `view`.
    pub fn plan(view: &View) -> Self {
        Self { order: view.members().to_vec() }
    }

    /// How many members the ring has.
    pub fn world_size(&self) -> WorldSize {
        WorldSize::new(u32::try_from(self.order.len()).expect("invariant: members are bounded"))
    }

    /// The position of `peer`, if it is a member.
    pub fn rank_of(&self, peer: PeerId) -> Option<Rank> {
        let position = self.order.iter().position(|member| *member == peer)?;
        Some(Rank(u32::try_from(position).expect("invariant: members are bounded")))
    }

    /// The peer at `rank`.
    ///
    /// # Panics
    /// If `rank` is not in this ring.
    pub fn peer(&self, rank: Rank) -> PeerId {
        self.order[rank.0 as usize]
    }

    /// The peer that the one at `rank` sends to.
    pub fn next(&self, rank: Rank) -> PeerId {
        self.peer(self.world_size().next(rank))
    }

    /// The peer that the one at `rank` receives from.
    pub fn previous(&self, rank: Rank) -> PeerId {
        self.peer(self.world_size().previous(rank))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::RunId;

    #[test]
    fn a_ring_closes_and_depends_on_the_members_only() {
        for size in 1..=16u8 {
            let members: Vec<PeerId> = (0..size).map(|name| PeerId([name; 32])).collect();
            let founded = View::found(RunId([0; 32]), members[0]);
            let ring = Ring::plan(&founded.succeed(members.iter().copied()));
            assert_eq!(ring, Ring::plan(&founded.succeed(members.iter().rev().copied())));
            for rank in ring.world_size().ranks() {
                let next = ring.rank_of(ring.next(rank)).expect("a member");
                assert_eq!(ring.previous(next), ring.peer(rank));
                assert_eq!(ring.rank_of(ring.peer(rank)), Some(rank));
            }
            assert_eq!(ring.rank_of(PeerId([99; 32])), None);
        }
    }
}
