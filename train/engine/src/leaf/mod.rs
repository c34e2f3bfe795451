//! Leaves: peers that can dial a member and can't be one. They have no vote, no rank, and are in no view.
//!
//! ```text
//!     a member's steps ---- what is committed, what is to be computed ----+
//!                                                                        v
//!     LeafEngine  <-- Attached, Start, Work, Result --             CarrierEngine
//!      (a leaf)    -- Attach, Gradient, Applied ------->     (one of each member that takes leaves)
//! ```
//!
//! A leaf's *carrier* tells the speed of both in its slot, so that the ledger gives it a larger share, and hands on a part of that. It adds
//! the leaf's gradient, with the number of its samples, to its own, and computes the part itself where it does not come in time: what is
//! whole first counts, the other is dropped. So nothing changes in ledger, view and reduction, and a leaf costs nobody a sample.
//!
//! Each step's result goes to the leaf, which applies it as members do. Where digests are compared, the leaf's are with its carrier's.

pub mod carrier;
pub mod carrier_search;
pub mod leaf_engine;
pub mod part_gradient;
pub mod reach_search;
mod reach_watch;
#[cfg(test)]
mod tests;
pub mod violation;

/// A carrier has so many leaves at most, whatever its user allows.
pub const MAX_LEAVES: usize = 8;
/// So many results may be on their way to a leaf that has applied none of them.
pub const MAX_BEHIND: u64 = 1024;
/// And so much memory may they take, in bytes, if they are more than two.
pub const MAX_BEHIND_BYTES: usize = 1 << 30;
