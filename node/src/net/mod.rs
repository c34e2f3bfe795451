//! What lies under all protocols: libp2p's swarm, transports, streams, the frames of messages, and the bounds on what comes in.
//!
//! [`behaviour`] has the names of all protocols and gossip topics; [`network`] publishes, and takes in what was gossiped.

pub(crate) mod allowance;
pub(crate) mod behaviour;
pub(crate) mod control;
pub(crate) mod frame;
#[cfg(feature = "fuzz")]
pub mod fuzzed;
pub mod listen;
pub(crate) mod network;
pub(crate) mod rate_limiter;
pub(crate) mod streams;
pub(crate) mod transport;
