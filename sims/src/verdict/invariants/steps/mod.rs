//! What is computed and reduced, and that it goes on.

pub(super) mod bounded_queues;
pub(super) mod every_sample_once;
pub(super) mod exactly_once;
pub(super) mod nothing_dropped;
pub(super) mod progress;
pub(super) mod starved_shares;
