//! Who is in a run, in which generation, in which order.
//!
//! This crate decides membership, plans how members reduce, says who computes which samples, and which checkpoints are stable. It is **sans-io**: [`Membership`] takes the time and what happened
//! ([`Membership::handle`]) and says what to do next ([`Membership::poll`]). It owns no socket, clock, task or source
//! of randomness, so `starling-node` drives it over libp2p and `starling-sims` drives the same code in virtual time.
//!
//! It deliberately knows nothing of tensors, buckets, libp2p or files: a peer is 32 bytes, an address is an opaque
//! string, a state is a digest.
//!
//! Start reading at [`View`] (what members agree on), then [`Membership`] (how they come to agree), then
//! [`message::Body`] (what they say to each other).

pub mod config;
pub mod error;
pub mod heads;
pub mod history;
pub mod id;
pub mod ledger;
pub mod membership;
pub mod message;
pub mod plan;
pub mod time;
pub mod view;

#[cfg(test)]
mod tests;
pub mod vote;

pub use config::Config;
pub use error::Violation;
pub use heads::{Follower, Head, HeadTracker, Proof, Signature};
pub use history::{AnchorSet, ViewHistory};
pub use id::{Digest, Generation, PeerId, Rank, RunId, ViewId, WorldSize};
pub use ledger::split_mix::SplitMix64Generator;
pub use ledger::{AssignmentTable, CommitResult, Ledger, LedgerError, SampleOrder, ShufflePolicy};
pub use membership::failure_detector::FailureDetector;
pub use membership::flaw::FlawKind;
pub use membership::interface::{
    BlockReason, CatchUpAction, Event, HoldPosition, Input, MemberResumePlan, Output, Timer,
};
pub use membership::{ChangeRole, LocalIdentity, Membership};
pub use message::carrier::{AttachRefusalReason, CarrierBody, DetachReason};
pub use message::leaf::{DeclineReason, LeafBody, LeafProgress};
pub use message::stall_report::StallReport;
pub use message::{Body, BranchPosition, Contact, Envelope, Evidence, RefusalReason};
pub use time::Time;
pub use view::View;
pub use view::lineage::{Lineage, Root};
pub use view::mark::{LostState, Mark, MarkStatus};
pub use view::ring::Ring;
pub use view::way_back::{LocalState, PresenceStatus, ReturnAction, way_back};
pub use vote::certificate::{Certificate, Signer, SuccessionProof, WireSignature};
pub use vote::promise::{JustifiedProposal, Promise, SignedPromise};
pub use vote::proposal::{Ballot, JoinRequest, Progress, Proposal, Reason, ResumePlan};
pub use vote::quorum::Quorum;
pub use vote::record::Record;
pub use vote::slot::Slot;
