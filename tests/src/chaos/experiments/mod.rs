//! One experiment per file: its settings, and a `run` that comes to a verdict.

pub(super) mod churn;
pub(super) mod fuzz;
pub(super) mod goodput;
pub(super) mod joining;
pub(super) mod leaf;
pub(super) mod overhead;
pub(super) mod overlap;
pub(super) mod partition;
pub(super) mod restart;
pub(super) mod siege;
pub(super) mod star;
pub(super) mod wire;
