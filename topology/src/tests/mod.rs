//! Runs of pure machines over links that a seed delays, breaks and mends.

mod changes;
pub(crate) mod cluster;
mod costs;
mod endings;
mod exploration;
mod faults;
mod hostile;
mod proofs;
mod set_back;
mod storing;
mod twins;
mod votes;
mod words;
