//! That a quorum was shown one proposal in a ballot, and so nobody was shown another one by as many.
//!
//! ```text
//!   proposer                          member
//!      |-- propose(ballot, value) ----> |   who finds nothing wrong with it signs: "this is what I was shown in this ballot"
//!      |  <------ echo(ballot, seal) ---|   of one value in a ballot
//!      |   a quorum has echoed
//!      |-- confirm(ballot, echoes) ---> |   who is shown a quorum's echoes accepts
//!      |  <---- accept(ballot, seal) ---|
//! ```
//!
//! Two quorums of more than two thirds share a member that is honest and echoes once in a ballot, so a ballot has one value
//! that can be accepted. A promise shows the echoes of what its member has accepted, and without them what it says of that
//! counts for nothing: these are the prepared certificates of M. Castro, B. Liskov, "Practical Byzantine Fault Tolerance",
//! 1999, collected by the proposer, so that a round takes as many messages as any other.
//!
//! Where majorities decide nobody echoes: two of those may share nobody who is honest.

use std::collections::BTreeSet;

use crate::id::{PeerId, ViewId};
use crate::view::View;
use crate::vote::certificate::{Signer, WireSignature};
use crate::vote::proposal::Ballot;

/// What a signature says first, so that no other message of ours can be taken for it.
const PURPOSE: &[u8] = b"starling echoes a proposal 1";

/// What a member signs when it is shown the proposal of this hash in `ballot` of the view called `parent`.
pub fn echo(parent: ViewId, ballot: Ballot, proposal: &[u8; 32]) -> Vec<u8> {
    [PURPOSE, &parent.0, &ballot.attempt.to_le_bytes(), &ballot.proposer.0, proposal].concat()
}

/// Whether members of `view` that are a quorum of it have echoed this proposal in `ballot`.
pub(crate) fn are_a_quorums(
    notary: &dyn Signer,
    view: &View,
    ballot: Ballot,
    proposal: &[u8; 32],
    echoes: &[(PeerId, WireSignature)],
) -> bool {
    let statement = echo(view.id(), ballot, proposal);
    let signers: BTreeSet<PeerId> = echoes.iter().map(|(signer, _)| *signer).collect();
    let signs = |(signer, seal): &(PeerId, WireSignature)| {
        view.votes(*signer) && notary.is_signed(*signer, &statement, &seal.bytes())
    };
    signers.len() == echoes.len() && view.has_quorum(&signers) && echoes.iter().all(signs)
}
