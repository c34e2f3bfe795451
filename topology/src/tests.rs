//! Runs of pure machines over links that a seed interleaves.

mod changes;
mod cluster;
mod formation;
mod hostile;
mod losses;
mod violations;
