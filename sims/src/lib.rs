//! Starling in virtual time: many peers, one thread, one seed.
//!
//! A discrete-event simulator that drives the machines that run in production, `starling_topology::Membership`, its
//! ledger, and `starling_collective::Session`, over simulated links and disks. A run is determined by its seed: who has
//! which id, how slow each link is, and which faults strike when. First come the faults ([`fault`]), then all is healed,
//! and the run must complete within a bound. A payload is not numbers but who they came from ([`Contributions`]), so a
//! run that holds its [`invariants`] is a proof that each contribution was counted once in each committed step.
//!
//! It deliberately knows no socket, no tokio and no clock; only the binary looks at a watch, to say how fast it was.
//!
//! Start reading at [`world`] (what happens), then [`peer`] (the driver, the same rules as in `starling-node`), then
//! [`invariants`] (what must hold) and [`canary`] (why to believe them).

pub mod buffer;
pub mod canary;
pub mod checkpoints;
pub mod collectives;
pub mod contacts;
pub mod contribution;
pub mod coverage;
pub mod disk;
pub mod fault;
pub mod host;
pub mod hostile;
pub mod invariants;
pub mod message;
pub mod network;
pub mod notary;
pub mod oracle;
pub mod peer;
pub mod picture;
pub mod queue;
pub mod report;
pub mod rng;
pub mod scenario;
pub mod shrink;
pub mod simulation;
pub mod state;
pub mod sweep;
pub mod workload;
pub mod world;

#[cfg(test)]
mod tests;

pub use contribution::Contributions;
pub use invariants::Broken;
pub use report::{Outcome, Summary};
pub use scenario::{Scenario, Setup};
pub use simulation::Simulation;
