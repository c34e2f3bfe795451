//! What a peer can do wrong.

use thiserror::Error;

use crate::id::{Generation, PeerId};

/// A message that no correct peer sends. The sender is at fault, not us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Violation {
    /// The bytes are not a message.
    #[error("sent bytes that are not a membership message")]
    Undecodable,
    /// The members of a view are not sorted and distinct, or there are none, or too many.
    #[error("sent a view whose members are not sorted, distinct and within bounds")]
    MalformedView,
    /// A contact has too many or too long addresses.
    #[error("sent a contact with too many or too long addresses")]
    MalformedContact,
    /// The message belongs to another run.
    #[error("sent a message of another run")]
    OtherRun,
    /// Only a view's lowest member proposes.
    #[error("proposed a view without being the proposer")]
    NotProposer,
    /// The proposed view does not follow the current one.
    #[error("proposed a view of generation {proposed} that does not follow ours, {current}")]
    NotSuccessor {
        /// Our generation.
        current: Generation,
        /// The proposed one.
        proposed: Generation,
    },
    /// The accepted or installed view is not the proposed one.
    #[error("answered for a view that was not proposed")]
    UnknownView,
    /// Only members may say this.
    #[error("spoke as a member without being one")]
    NotMember,
    /// A join on behalf of another peer.
    #[error("asked for {0:?} to join, which is not itself")]
    NotItself(PeerId),
}
