//! What came of a run: what must hold in it, judged from outside of its peers, and what is told of it.

pub mod invariants;
pub mod report;
