//! What a member does while its view takes steps: it says that it lives, looks who is silent or in the way, and measures links.

pub(super) mod allowance;
pub(super) mod heartbeat;
pub(super) mod link_failures;
pub(super) mod measuring;
pub(super) mod owing;
pub(super) mod quarantine;
pub(super) mod receiving;
pub(super) mod standstill;
pub(super) mod steps;
pub(super) mod suspecting;
