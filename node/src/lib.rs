//! The IO around Starling's machines: libp2p, threads, files, the clock. No command line, no terminal, and nothing that computes
//! gradients.
//!
//! Nothing here decides protocol. [`node`] prepares a run and takes part in it; the event loop hands what happens to
//! `starling_topology::Membership` and does what it asks; the reducer drives `starling_collective::Session` over
//! links; the trainer thread drives a `starling_run::Learner`, whatever that learns and on whatever it computes.
//!
//! ```text
//!            commands                    operations
//!   event loop ------> trainer thread ----------------> ring task ---> next member
//!     |  ^  ^            |                                  ^
//!     |  |  +--- held ---+                                  |
//!     |  +---- messages ---- control streams            previous member
//!     +------> swarm: TCP + TLS 1.3 + yamux, QUIC; every connection admitted first
//! ```
//!
//! Start reading at [`node::found`].

mod access;
mod admission;
mod allowance;
mod annals_file;
mod appointment;
mod ask;
mod behaviour;
pub mod bench;
mod bulk;
mod catch_up;
pub mod clock;
mod contacts_file;
mod contribution;
mod control;
pub mod data_dir;
mod data_dir_lock;
mod dataset;
pub mod error;
mod event;
mod event_loop;
mod exchange;
pub mod founder;
mod frame;
#[cfg(feature = "fuzz")]
pub mod fuzzed;
mod guide;
pub mod host;
pub mod identity;
mod inquiry;
pub mod invitation;
pub mod keeper;
pub mod keys;
mod limits;
pub mod listen;
pub mod manifest_file;
mod mark_file;
mod member_list;
pub mod name;
mod network;
pub mod node;
mod origin;
mod pace;
mod pending;
mod prepare;
pub mod preprocessing_file;
pub mod private_dir;
pub mod private_file;
mod probe;
mod prober;
mod record_file;
pub mod reducer;
pub mod report;
mod reporter;
mod result_transfer;
pub mod revocations;
mod roster;
mod saver;
pub mod secret;
mod sections;
mod served;
pub mod settings;
mod shelf;
pub mod signals;
mod slot_file;
mod snapshots;
pub mod status;
pub mod stdout;
mod streams;
pub mod swarm;
pub mod ticket;
mod trainer;
mod transfer;
mod transport;
mod twin;
mod visitor;
mod way_back;
mod welcome;

pub use admission::AdmissionError;
pub use data_dir_lock::DataDirLock;
pub use error::NodeError;
pub use host::{alone_in_its_directory, runtime};
pub use identity::Identity;
pub use keeper::keep;
pub use node::{found, join};
pub use private_file::keep_to_owner;
pub use report::{
    Limit, LinkCost, Links, MeasuredLink, Missed, Observer, Outcome, Pace, Report, Summary, WaitsFor, WayBack,
};
pub use settings::{Expectations, Founding, Joining, Resume, Settings, Target};
pub use starling_links::{DataPlane, Transport};
pub use swarm::{Buffers, Mean, Received, Reduced, Scattered, Swarm, SwarmError};
pub use ticket::Ticket;
