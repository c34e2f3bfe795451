//! What is asked and said in a data directory from outside of the node that may be at work there: who is in the run, whom its
//! user invites, and what the founder decides.

mod appoint;
mod error;
mod invite;
mod members;
mod revoke;

pub use appoint::{AppointmentReport, appoint};
pub use error::DataDirError;
pub use invite::{InvitationTicket, InviteOptions, invite};
pub use members::{MemberRecord, MemberTable, members};
pub use revoke::{RevocationReport, revoke};
