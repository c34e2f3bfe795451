//! Over which links the members of a view reduce: routes of chunks, and the choice between them.
//!
//! Every plan is the same thing: for each chunk of a bucket, one tree along which contributions flow to the chunk's
//! *owner*, and one along which the owner's result flows back. Plans differ only in the trees:
//!
//! ```text
//!   ring          tree (one of two)      mesh              hierarchical, sites {0 1 2} {3 4 5}
//!
//!   0>1>2>3>4>5        0                 1   2   3              1 ──> 0 <── 2
//!                     4  \                \  |  /                     ^ the slow link, once
//!                   2   6                   >0<                 4 ──> 3 <── 5
//!                  1 3 5 7               4 /     \ 5
//! ```
//!
//! A *star* is a mesh in which only some ranks, its hubs, own chunks: for members that can't all reach each other.
//!
//! So there is one machine (in `starling-collective`) and one cost model ([`Estimate`]) for all of them. At each rank of a
//! tree the sums of its children and its own contribution are added in the order of their ranks.
//!
//! All of this is integer arithmetic over [`CostTable`] that the view carries: all members that hold one view compute
//! one plan.
//!
//! Start reading at [`Plan`] and [`Route`], then [`Estimate`], then [`PlanReport`] and [`PlanPolicy`].

mod costs;
mod estimate;
mod groups;
mod hubs;
mod policy;
mod ranking;
mod replanning;
mod ring_order;
mod route;
mod tree;

#[cfg(test)]
mod tests;

pub use costs::link_costs::{CostError, CostTable, Link, NEVER_NS};
pub use costs::loads::loads;
pub use costs::view_costs::view_costs;
pub use costs::weights::{WEIGHT_TOTAL, chunk_weights};
pub use estimate::{Bucket, Estimate};
pub use groups::GroupTable;
pub use hubs::{HubError, HubSet, MAX_HUBS};
pub use policy::{PlanDecision, PlanPolicy, PlanPolicyError};
pub use ranking::{PlanLimit, PlanReport, RankedPlan};
pub(crate) use replanning::is_worth_it;
pub use ring_order::{MAX_EXACT, ring_cost, ring_order};
pub use route::Route;

use std::fmt;

use crate::id::{Rank, WorldSize};

/// Which links a bucket's chunks travel over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan {
    /// Each rank sends to the next one. Fewest bytes over the busiest link, two links per rank, `2 (n - 1)` hops.
    Ring,
    /// Two binary trees, one for each half of a bucket, in which no rank has children in both. About `2 log2 n` hops.
    Tree,
    /// Each chunk's owner receives all contributions directly. Two hops, `n - 1` links per rank; a lossy codec rounds each
    /// contribution once; chunks may be as unequal as the ranks' bandwidths.
    Mesh,
    /// Within groups a mesh, in large ones a ring; across them a ring of one rank of each group.
    Hierarchical(GroupTable),
    /// Each chunk's owner receives all contributions directly, as in a mesh, but only hubs own chunks: two members that are
    /// no hubs need no link to each other.
    Star(HubSet),
}

impl Plan {
    /// Into how many chunks a bucket is cut.
    pub fn chunks(&self, world: WorldSize) -> u32 {
        match self {
            Self::Tree => world.get().min(tree::TREES),
            Self::Ring | Self::Mesh | Self::Hierarchical(_) => world.get(),
            Self::Star(hubs) => hubs.count(),
        }
    }

    /// The way of one chunk's contributions to its owner, and of the result to all.
    ///
    /// # Panics
    /// If the plan has no such chunk in a world of this size, or its groups or hubs are those of another world.
    pub fn route(&self, world: WorldSize, chunk: Rank) -> Route {
        assert!(chunk.0 < self.chunks(world), "a route is asked for a chunk of the plan");
        match self {
            Self::Ring => route::ring(world, chunk),
            Self::Tree => tree::route(world, chunk),
            Self::Mesh => route::mesh(world, chunk),
            Self::Hierarchical(groups) => groups.route(world, chunk),
            Self::Star(hubs) => hubs.route(world, chunk),
        }
    }

    /// The way of one chunk from `root`, which has all of it, to all others.
    ///
    /// # Panics
    /// As [`Self::route`], and if `root` is not in the world.
    pub fn broadcast(&self, world: WorldSize, root: Rank, chunk: Rank) -> Route {
        assert!(root.0 < world.get(), "a broadcast's root is one of its world");
        match self {
            // Along the ring, the owner of every chunk is the root.
            Self::Ring => route::ring(world, world.next(root)),
            Self::Tree | Self::Mesh | Self::Hierarchical(_) | Self::Star(_) => self.route(world, chunk).rooted_at(root),
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ring => f.write_str("ring"),
            Self::Tree => f.write_str("tree"),
            Self::Mesh => f.write_str("mesh"),
            Self::Hierarchical(groups) => write!(f, "hierarchical {groups}"),
            Self::Star(hubs) => write!(f, "star {hubs}"),
        }
    }
}
