//! What a machine holds to show who it is and what it may do, and what the founder has signed: keys, secrets, tickets, invitations,
//! appointments, revocations. What others are let do by them is decided in `access`.

pub(crate) mod appointment;
pub mod founder;
pub mod identity;
pub mod invitation;
pub mod name;
pub mod revocations;
pub mod secret;
pub mod ticket;
