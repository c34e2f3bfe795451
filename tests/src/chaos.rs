//! Experiments with real processes that are killed, stopped, cut off and started again, for as long as one likes.
//!
//! Each experiment is a plain value with its settings and a `run` that returns a [`Verdict`]: figures, and the promises
//! that were broken, if any. The `chaos` binary runs them at full length; tests run short ones.
//!
//! All processes of an experiment are a [`Fleet`]. It hears every event of every process and checks what must be true
//! of any run at any time: equal digests after equal steps, and no process that ends by itself.

mod churn;
mod fleet;
mod fuzz;
mod goodput;
mod joining;
mod overhead;
mod overlap;
mod partition;
mod process;
mod progress_probe;
mod restart;
mod rng;
mod siege;
mod slot;
mod verdict;
mod wire;

pub use churn::Churn;
pub use fleet::{Fleet, Plan};
pub use fuzz::{Circumstances, Disk, Findings, Fuzz, FuzzReport, Judge, Move, Schedule, Way};
pub use goodput::Goodput;
pub use joining::Joining;
pub use overhead::Overhead;
pub use overlap::Overlap;
pub use partition::Partition;
pub use progress_probe::ProgressProbe;
pub use restart::Restart;
pub use rng::Rng;
pub use siege::Siege;
pub use verdict::Verdict;
pub use wire::Wire;
