//! What is asked and said in a data directory from outside of the node that may be at work there: who is in the run, whom its
//! user invites, and what the founder decides.

mod appoint;
mod error;
mod invite;
mod members;
mod revoke;

pub use appoint::{Appointed, appoint};
pub use error::DataDirError;
pub use invite::{InviteOptions, Invited, invite};
pub use members::{Members, Row, members};
pub use revoke::{Revoked, revoke};
