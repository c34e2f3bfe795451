//! Runs of pure machines over links that a seed delays, breaks and mends.

mod changes;
mod cluster;
mod costs;
mod driver;
mod exploration;
mod faults;
mod hostile;
mod storing;
mod words;
