//! What a peer can do wrong.

use thiserror::Error;

use crate::id::PeerId;

/// A message that no correct peer sends. The sender is at fault, not us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Violation {
    /// The bytes are not a message.
    #[error("sent bytes that are not a membership message")]
    Undecodable,
    /// The members of a view are not sorted and distinct, or there are none, or too many; or what it says of them can't be.
    #[error("sent a view whose members, severed pairs or costs are not sorted, distinct and within bounds")]
    MalformedView,
    /// A contact has too many or too long addresses.
    #[error("sent a contact with too many or too long addresses")]
    MalformedContact,
    /// The message belongs to another run.
    #[error("sent a message of another run")]
    OtherRun,
    /// A proposal exceeds a bound, or names peers that are not in its view.
    #[error("sent a proposal or promise that is not sorted, consistent and within bounds")]
    MalformedProposal,
    /// A ballot carries its proposer's name.
    #[error("used another peer's ballot")]
    ForeignBallot,
    /// A member's links are too many, not sorted, or can't be.
    #[error("sent measured links that are not sorted, distinct and within bounds")]
    MalformedLinks,
    /// A decided view does not follow the view that it names as its parent.
    #[error("sent a view that does not follow its parent")]
    NotSuccessor,
    /// A join on behalf of another peer.
    #[error("asked for {0:?} to join, which is not itself")]
    NotItself(PeerId),
    /// What somebody asks it signs.
    #[error("asked to be let in with another signature than its own")]
    Unsigned,
    /// A head of one step of one view is signed once.
    #[error("signed two states after step {step} in one view")]
    TwoHeads {
        /// The step.
        step: u64,
    },
    /// No run goes beyond its last step.
    #[error("signed a state after step {step}, which the run never takes")]
    BeyondEnd {
        /// The step.
        step: u64,
    },
    /// Steps, views and ballots are counted, one after the other.
    #[error("told of a step that the run does not have, or of so many views or ballots as nobody has counted")]
    Beyond,
    /// A member that we hear says for itself that it has finished.
    #[error("said that {0:?} has finished, which says so itself")]
    NotToldByItself(PeerId),
    /// A view that no quorum has decided.
    #[error("sent a view as decided that no quorum of the one before it has accepted")]
    Uncertified,
    /// A proposal that does not follow from what its proposer shows.
    #[error("proposed a view that does not follow from what the members have promised")]
    Unjustified,
    /// One ballot has one proposal.
    #[error("proposed two views in one ballot")]
    TwoProposals,
    /// Ranges of samples are ascending and apart.
    #[error("sent work whose ranges are none, too many, or not ascending and apart")]
    MalformedWork,
    /// A proof that proves nothing.
    #[error("vouched for a checkpoint with signatures that are not a quorum's of the view that it names")]
    Unproven,
}
