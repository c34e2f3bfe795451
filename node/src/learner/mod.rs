//! The threads that compute: `trainer` drives a `starling_run::Learner` through the steps of a run, [`swarm`] a program's own buffers.
//! What both hand to the reducer is a `contribution`.

pub(crate) mod contribution;
pub mod swarm;
pub(crate) mod trainer;
