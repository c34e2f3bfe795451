//! Starling in virtual time: many peers, one thread, one seed.
//!
//! A discrete-event simulator that drives the machines that run in production, `starling_engine::Member`, the
//! ledger, and `starling_collective::Execution`, over simulated links and disks. A run is determined by its seed: who has
//! which id, how slow each link is, and which faults strike when. First come the faults ([`fault`](sweep::fault)), then all is healed,
//! and the run must complete within a bound. A payload is not numbers but who they came from ([`Contributions`]), so a
//! run that holds its [`invariants`](verdict::invariants) is a proof that each contribution was counted once in each committed step.
//!
//! It deliberately knows no socket, no tokio and no clock; only the binary looks at a watch, to say how fast it was.
//!
//! Start reading at [`world`] (what happens), then [`peer`] (the driver, the same rules as in `starling-node`), then
//! [`invariants`](verdict::invariants) (what must hold) and [`canary`](sweep::canary) (why to believe them).

pub mod collectives;
pub mod hardware;
pub mod hostile;
pub mod peer;
pub mod scenario;
pub mod simulation;
pub mod steps;
pub mod sweep;
pub mod verdict;
pub mod world;

#[cfg(test)]
mod tests;

pub use scenario::{Scenario, Setup};
pub use simulation::Simulation;
pub use steps::contribution::Contributions;
pub use verdict::invariants::Broken;
pub use verdict::report::{Outcome, Summary};
