//! Experiments with real processes that are killed, stopped, cut off and started again, for as long as one likes.
//!
//! Each experiment is a plain value with its settings and a `run` that returns a [`Verdict`]: figures, and the promises
//! that were broken, if any. The `chaos` binary runs them at full length; tests run short ones.
//!
//! All processes of an experiment are a [`Fleet`]. It hears every event of every process and checks what must be true
//! of any run at any time: equal digests after equal steps, and no process that ends by itself.

mod experiments;
mod fleet;
mod process;
mod progress_probe;
mod rng;
mod slot;
mod verdict;

pub use experiments::churn::Churn;
pub use experiments::fuzz::{Circumstances, Disk, Findings, Fuzz, FuzzReport, Judge, Move, Schedule, Way};
pub use experiments::goodput::Goodput;
pub use experiments::joining::Joining;
pub use experiments::leaf::Leaf;
pub use experiments::overhead::Overhead;
pub use experiments::overlap::Overlap;
pub use experiments::partition::Partition;
pub use experiments::restart::Restart;
pub use experiments::siege::Siege;
pub use experiments::star::Star;
pub use experiments::wire::Wire;
pub use fleet::{Fleet, Plan};
pub use progress_probe::ProgressProbe;
pub use rng::Rng;
pub use verdict::Verdict;
