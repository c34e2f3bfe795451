//! How a member leaves, and how a run ends.

pub(super) mod departing;
pub(super) mod digests;
pub(super) mod finishing;
