//! Who may be in a run: what its founder says, and what a member says of it.

pub(super) mod appoint;
pub(super) mod invite;
pub(super) mod members;
pub(super) mod revoke;
