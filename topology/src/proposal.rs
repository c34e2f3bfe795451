//! A view on offer.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::id::{Digest, PeerId};
use crate::message::Contact;
use crate::time::Time;
use crate::view::View;

/// The next view and the boundary at which it takes effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    /// The next view.
    pub view: View,
    /// The last step of the current view.
    pub after_step: u64,
    /// The digest of the replicated state after that step.
    pub digest: Digest,
    /// How to reach each member of the next view.
    pub contacts: Vec<Contact>,
}

/// A proposal and who has yet to accept it.
#[derive(Debug, Clone)]
pub(crate) struct Ballot {
    pub(crate) proposal: Proposal,
    pub(crate) missing: BTreeSet<PeerId>,
    /// When joiners that are still missing are left out; `None` if it takes no joiner.
    pub(crate) deadline: Option<Time>,
}
