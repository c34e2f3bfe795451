//! Who is in a run, in which generation, in which order.
//!
//! This crate decides membership and plans rings. It is **sans-io**: [`Membership`] takes the time and what happened
//! ([`Membership::handle`]) and says what to do next ([`Membership::poll`]). It owns no socket, clock, task or source
//! of randomness, so `starling-node` drives it over libp2p and `starling-sims` drives the same code in virtual time.
//!
//! It deliberately knows nothing of tensors, buckets, libp2p or files: a peer is 32 bytes, an address is an opaque
//! string, a state is a digest.
//!
//! Start reading at [`View`] (what members agree on), then [`Membership`] (how they come to agree), then
//! [`message::Body`] (what they say to each other).

pub mod annals;
pub mod awaited;
pub mod bounded;
pub mod certificate;
pub mod config;
pub mod echo;
pub mod error;
pub mod failure_detector;
mod flaw;
pub mod generator;
pub mod heads;
pub mod id;
pub mod interface;
pub mod ledger;
pub mod lineage;
pub mod mark;
pub mod membership;
pub mod message;
pub mod plan;
pub mod promise;
pub mod proposal;
pub mod quorum;
pub mod record;
pub mod retention;
pub mod ring;
pub mod slot;
pub mod time;
pub mod view;
pub mod way_back;

#[cfg(test)]
mod tests;

pub use annals::{Anchors, Annals};
pub use awaited::Awaited;
pub use certificate::{Certificate, Notary, Seal, Succession};
pub use config::Config;
pub use error::Violation;
pub use failure_detector::FailureDetector;
pub use flaw::Flaw;
pub use generator::Generator;
pub use heads::{Follower, Head, Heads, Proof, Signature};
pub use id::{Digest, Generation, PeerId, Rank, RunId, ViewId, WorldSize};
pub use interface::{CatchUp, Event, Hold, Input, Missed, Output, Resumption, Timer};
pub use ledger::{Committed, Ledger, LedgerError, Order, Shares};
pub use lineage::{Lineage, Root};
pub use mark::{Lost, Mark, Noted};
pub use membership::{Me, Membership, Part};
pub use message::{Body, Contact, Envelope, Evidence, Refusal, Standing};
pub use promise::{Justified, Promise, SignedPromise};
pub use proposal::{Ballot, Joiner, Progress, Proposal, Reason, Resume};
pub use quorum::Quorum;
pub use record::Record;
pub use ring::Ring;
pub use slot::Slot;
pub use time::Time;
pub use view::View;
pub use way_back::{Company, Past, Way, way_back};
