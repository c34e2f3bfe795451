//! Leaves: peers that take part through a member, and are none. What each side says when, the engine's machines decide
//! ([`starling_engine::CarrierEngine`] and [`starling_engine::LeafEngine`]), beside the steps that they share a lock with
//! ([`SharedSteps`](crate::member::shared_steps::SharedSteps)).
//!
//! ```text
//!   a member:  trainer thread <-- parts -- CarrierEngine <-- messages -- carrier_streams: a reader and a writer for each leaf
//!   a leaf:    trainer thread <-- tasks --  LeafEngine   <-- messages -- leaf_loop: the swarm, a carrier_link, a download
//! ```

pub(crate) mod carrier_link;
pub(crate) mod carrier_streams;
pub(crate) mod leaf_loop;
pub(crate) mod life;
pub(crate) mod numbers;
pub(crate) mod reach;
pub(crate) mod role;
mod search;
mod told;
mod wire;
