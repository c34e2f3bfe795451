//! How members reduce their buckets: layout, schedules, the one machine for all plans, codecs and kernels, wire header.
//!
//! Every member holds a flat buffer of `f32`, its *contribution*. After an all-reduce every member holds the mean of all
//! contributions, bit for bit the same. A bucket is cut into chunks. Each chunk has an *owner*: contributions flow to it
//! along one tree and are added on the way; the owner divides, and its bytes flow back to all along another tree. Which
//! trees, is the [`Plan`](starling_topology::plan::Plan). Round a ring, for example, the trees are two paths:
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
//! With `n` ranks, a message latency of `alpha` and a transfer time of `beta` per byte, a rank of a ring sends `2 (n - 1)`
//! chunks of `bytes / n`, so an all-reduce takes `2 (n - 1) alpha + 2 (n - 1) / n * bytes * beta`. The second term hardly
//! grows with `n`: no all-reduce moves fewer bytes per rank (P. Patarasu and X. Yuan, "Bandwidth optimal all-reduce
//! algorithms for clusters of workstations", 2009; gloo's `docs/algorithms.md` gives the same count). Other plans trade
//! links for hops: `docs/collectives.md` has the table. To hide `alpha` and the waiting hop by hop, chunks travel as
//! *segments* and there is no barrier between rounds: a segment goes on as soon as it is reduced, and several buckets are
//! in flight together.
//!
//! # Why all members end with the same bits
//!
//! Floating-point addition is not associative, so who adds in which order matters. Here each chunk is summed along one
//! tree; at each rank of it the sums that meet are added in order of rank, in whatever order they arrive; and one rank, the
//! owner, finishes it. All others copy the owner's bytes. If the codec loses something, the owner keeps what its bytes say,
//! not what it had before.
//!
//! # What this crate is not
//!
//! It is **sans-io**: [`Session`] takes what happened ([`Session::handle`]) and says what to do next ([`Session::poll`]). It
//! moves indices, never floats. [`Execution`] does what a session asks, to a [`Buffer`] and with payloads of the driver's
//! choice: `f32`s and bytes in `starling-node` ([`Workspace`]), contribution counts beside them in `starling-sims`. Neither
//! owns a socket, clock, task or tensor. They do not know of failures either: a driver that loses a member aborts the
//! operation.
//!
//! Start reading at [`Layout`], then [`Schedule`], [`Session`], [`Execution`], then [`Codec`] and [`Workspace`].

pub mod buffer;
pub mod codec;
pub mod error;
pub mod schedule;
pub mod segment;
pub mod session;
pub mod slots;

#[cfg(test)]
mod tests;

pub use buffer::Buffer;
pub use codec::feedback::{FeedbackState, OperationResidual, PendingResidual, Residual};
pub use codec::kernel::NonFiniteValue;
pub use codec::{Codec, CodecError, PayloadViolation, ValueLimit};
pub use error::Violation;
pub use schedule::{LinkLoad, Operation, Schedule};
pub use segment::layout::{Layout, LayoutConfig};
pub use segment::limits::SumLimit;
pub use segment::{OperationKey, Phase, SegmentHeader, SegmentId};
pub use session::execution::{Execution, ForwardPolicy, NoForwardPolicy, OwnedPayload};
pub use session::workspace::{SegmentViolation, Workspace};
pub use session::{Input, Output, Session};
pub use slots::{RankSet, Slot, SlotLayout};
