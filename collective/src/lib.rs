//! How the members of a ring average their buckets: layout, schedules, the all-reduce machines, kernels, wire header.
//!
//! Every member holds a flat buffer of `f32`, its *contribution*. After the all-reduce every member holds the mean of
//! all contributions, bit for bit the same. The members stand in a ring; each sends only to the next one:
//!
//! ```text
//!          bucket = | chunk 0 | chunk 1 | chunk 2 | chunk 3 |        one chunk per rank
//!
//!             rank 0 ──────> rank 1          reduce-scatter: chunk c starts at rank c as that rank's values and
//!               ^              │             collects one contribution per hop, until rank c-1, its owner,
//!               │              v             holds the sum and divides it.
//!             rank 3 <────── rank 2          all-gather: the owner's bytes go round once more and are stored.
//! ```
//!
//! # Cost
//!
//! With `n` ranks, a message latency of `alpha` and a transfer time of `beta` per byte, each rank sends `2 (n - 1)`
//! chunks of `bytes / n`, so an all-reduce takes `2 (n - 1) alpha + 2 (n - 1) / n * bytes * beta`. The second term hardly
//! grows with `n`: no all-reduce moves fewer bytes per rank (P. Patarasu and X. Yuan, "Bandwidth optimal all-reduce
//! algorithms for clusters of workstations", 2009; gloo's `docs/algorithms.md` gives the same count). To hide `alpha` and
//! the hop-by-hop waiting, chunks travel as *segments* and there is no barrier between rounds: a segment goes on as soon
//! as it is reduced, and several buckets are in flight together.
//!
//! # Why all members end with the same bits
//!
//! Floating-point addition is not associative, so who adds in which order matters. Here each chunk is summed along one
//! path, in ring order, and one rank, its owner, finishes it. All others copy the owner's bytes.
//!
//! # What this crate is not
//!
//! It is **sans-io**: [`Session`] takes what happened ([`Session::handle`]) and says what to do next ([`Session::poll`]).
//! It moves indices, never floats: payloads are opaque, so they are bytes in `starling-node` and contribution counts in
//! `starling-sims`. It owns no socket, clock, task, tensor or buffer. It does not know of failures either: a driver that
//! loses a member aborts the operation.
//!
//! Start reading at [`Layout`], then [`reduce_scatter`] and [`all_gather`] (the schedules), then [`Session`].

pub mod all_gather;
mod all_reduce;
pub mod error;
pub mod kernel;
pub mod layout;
pub mod reduce_scatter;
pub mod segment;
pub mod session;

#[cfg(test)]
mod tests;

pub use error::Violation;
pub use kernel::NonFinite;
pub use layout::{Layout, LayoutConfig};
pub use segment::{OperationKey, Phase, SegmentHeader, SegmentId};
pub use session::{Input, Output, Session};
