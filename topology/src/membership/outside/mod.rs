//! Peers outside of the view: those that ask to be let in, come back, were lost, or are on another branch; and this member while it
//! is one of them.

pub(super) mod asking;
pub(super) mod beyond;
pub(super) mod contacts;
pub(super) mod forgotten;
pub(super) mod hearsay;
pub(super) mod joining;
pub(super) mod outsiders;
pub(super) mod parted;
pub(super) mod returning;
pub(super) mod revoking;
pub(super) mod schism;
pub(super) mod twins;
