//! Authenticated links that carry segments from one member to another: shared memory within a machine, TCP connections of
//! their own, libp2p streams where those don't get through.
//!
//! libp2p carries what peers say to each other; its streams can carry gradients too, but yamux and copies between its
//! layers cost more than the reduction itself. On a direct link the bytes go over sockets of its own, encrypted under a key that
//! only the two neighbours' identities can have agreed on. Where no direct connection comes about (a firewall, a peer
//! that only QUIC reaches), the libp2p stream on which the two have [greeted](greeting) each other carries them.
//!
//! ```text
//!   greeting ──> listener ──> handshake ──> direct, parallel   TCP: one record for each segment
//!      │                          └───────> local              memory that both ends have mapped
//!      └─────────────────────────────────── link               the libp2p stream
//! ```
//!
//! This crate knows the two ends of a link and what all links of a member do for a `starling_collective::Execution`. Which
//! links a view needs, and what becomes of it when one breaks, is not its concern.
//!
//! Start reading at [`greeting`], then [`direct`] and `link::links`.

pub mod bench;
mod config;
pub mod direct;
mod error;
#[cfg(test)]
mod fixture;
pub mod greeting;
#[cfg(test)]
mod lane;
mod link;
mod local;

pub use config::{LinkConfig, LinkLimit, TrafficMetrics};
pub use error::{ConnectionError, LinkFailure};
pub use greeting::ConnectionCount;
pub use greeting::endpoint::Endpoint;
pub use greeting::handshake::Connection;
pub use greeting::peer::{from_libp2p, to_libp2p};
pub use link::links::{BrokenLink, IncomingLinkSet, LinkForwardPolicy, NeighbourLink, OutgoingLinkSet};
pub use link::thread::DataThread;
pub use link::transport::{Transport, TransportPolicy};
pub use link::{IncomingLink, Kind, OutgoingLink};
