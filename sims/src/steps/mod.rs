//! What simulated members compute, reduce and hold.

pub mod buffer;
pub mod contribution;
pub mod message;
pub mod state;
pub mod workload;
