//! The IO around Starling's machines: libp2p, threads, files, the clock. No command line, no terminal, and nothing that computes
//! gradients.
//!
//! Nothing here decides protocol. [`start::node`] prepares a run and takes part in it; the event loop hands what happens to
//! `starling_engine::Member` and does what it asks; the reducer drives `starling_collective::Execution` over
//! links; the trainer thread drives a `starling_run::Learner`, whatever that learns and on whatever it computes.
//!
//! ```text
//!            commands                    operations
//!   event loop ------> trainer thread ----------------> reducer -----> next member
//!     |  ^  ^            |                                  ^
//!     |  |  +--- held ---+                                  |
//!     |  +---- messages ---- control streams            previous member
//!     +------> swarm: TCP + TLS 1.3 + yamux, QUIC; every connection admitted first
//! ```
//!
//! | room | holds |
//! |---|---|
//! | [`start`] | how a process comes to take part |
//! | `member` | a member at work: event loop, the steps that its threads share, links that are measured |
//! | [`learner`] | the threads that compute |
//! | [`reducer`] | the task that reduces buffers over a view's links |
//! | `transfer` | what peers hand out: states, checkpoints, data, results |
//! | [`keeper`] | a peer that stores checkpoints and takes part in nothing else |
//! | [`net`] | libp2p, streams, frames, bounds on what comes in |
//! | `access`, [`credentials`] | who may be here; what a machine shows for that |
//! | [`store`] | the files of a data directory |
//! | [`settings`] | what the user says |
//! | [`observe`] | what the user is told |
//!
//! Start reading at [`start::node::found`].

// Its readers have the sources: it is no crate for others.
#![allow(rustdoc::private_intra_doc_links)]

mod access;
pub mod credentials;
pub mod error;
pub mod keeper;
pub mod learner;
mod member;
pub mod net;
pub mod observe;
pub mod reducer;
pub mod settings;
pub mod start;
pub mod store;
mod transfer;

pub use access::admission::AdmissionError;
pub use credentials::identity::Identity;
pub use credentials::ticket::Ticket;
pub use error::NodeError;
pub use keeper::keep;
pub use learner::swarm::{BroadcastResult, BufferSpec, ReduceReport, ReduceResult, ScatterResult, Swarm, SwarmError};
pub use observe::report::{
    LeafPaceReport, Limit, LinkCost, LinkSummary, MeasuredLink, MemberPaceReport, MissingState, Observer, Outcome,
    Report, ReturnKind, Summary, WaitReason,
};
pub use settings::{ExpectedSettings, FoundOptions, JoinOptions, ResumePolicy, RunLimit, Settings, Target};
pub use starling_links::{Transport, TransportPolicy};
pub use start::host::{alone_in_its_directory, runtime};
pub use start::node::{found, join};
pub use store::data_dir_lock::DataDirLock;
pub use store::private_file::keep_to_owner;
