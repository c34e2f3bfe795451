//! Cutting a failing run down to the faults that it takes.

use crate::simulation::Simulation;

/// How many events all runs together may have, about.
const MAX_EVENTS: u64 = 20_000_000;

/// What is left of a run's faults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shrunk {
    /// The places in the plan of those that are needed; without the founders' coming.
    pub kept: Vec<usize>,
    /// How many there were.
    pub of: usize,
    /// The invariant that still fails.
    pub failure: &'static str,
    /// How many runs it took to find out.
    pub runs: u32,
}

/// Leaves out as many faults of `simulation` as it can so that the same invariant fails, in at most `most` runs: halves
/// first, then smaller parts, then single ones (A. Zeller and R. Hildebrandt, "Simplifying and isolating
/// failure-inducing input", 2002). `None` if nothing fails.
pub fn shrink(simulation: &Simulation, most: u32) -> Option<Shrunk> {
    let first_run = simulation.clone().run();
    let failure = first_run.failure()?;
    // A run without an end is too long to be tried often.
    let most = most.min(u32::try_from(MAX_EVENTS / first_run.events.max(1)).unwrap_or(u32::MAX));
    let (first, end) = (simulation.plan().founders - 1, simulation.plan().faults.len());
    let mut kept: Vec<usize> = (first..end).collect();
    let mut runs = 1;
    let mut size = kept.len();
    while size > 0 && runs < most {
        let mut at = 0;
        while at < kept.len() && runs < most {
            let mut fewer = kept.clone();
            fewer.drain(at..(at + size).min(kept.len()));
            runs += 1;
            if simulation.clone().only(&fewer).run().failure() == Some(failure) {
                kept = fewer;
            } else {
                at += size;
            }
        }
        size /= 2;
    }
    Some(Shrunk { kept, of: end - first, failure, runs })
}
