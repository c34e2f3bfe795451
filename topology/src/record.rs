//! What a member keeps on disk, so that it can't promise one thing, die, and promise another. How it lies there, that is
//! [`crate::slot`].

use serde::{Deserialize, Serialize};

use crate::error::Violation;
use crate::proposal::{Ballot, Proposal};
use crate::view::View;

/// The longest encoded record, in bytes.
pub const MAX_RECORD_BYTES: usize = 1024 * 1024;

/// The view that a member is in, and its part in the decree for the next one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The view that it is in.
    pub view: View,
    /// What made that view, for those who have not heard of it; `None` if it is the founder's.
    pub origin: Option<Proposal>,
    /// The highest ballot that it promised.
    pub promised: Option<Ballot>,
    /// What it accepted last, and in which ballot.
    pub accepted: Option<(Ballot, Proposal)>,
}

impl Record {
    /// The canonical bytes (postcard).
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("invariant: a record always encodes")
    }

    /// Reads bytes that came from a file.
    ///
    /// # Errors
    /// A [`Violation`] if the bytes are too many, are no record, have bytes after it, or exceed a bound.
    pub fn decode(bytes: &[u8]) -> Result<Self, Violation> {
        if bytes.len() > MAX_RECORD_BYTES {
            return Err(Violation::Undecodable);
        }
        let (record, rest) = postcard::take_from_bytes::<Self>(bytes).map_err(|_| Violation::Undecodable)?;
        if !rest.is_empty() {
            return Err(Violation::Undecodable);
        }
        record.view.validate()?;
        let accepted = record.accepted.as_ref().map(|(_, proposal)| proposal);
        record.origin.iter().chain(accepted).try_for_each(Proposal::validate)?;
        Ok(record)
    }
}
