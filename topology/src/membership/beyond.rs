//! Numbers that nobody has come to: whoever tells them is no correct peer, whatever they are for.

use crate::message::{Body, Envelope};
use crate::proposal::{Ballot, Joiner};

/// Views and ballots are counted one by one, for as long as a run lasts: at a thousand a second, this takes fifty days.
const MOST: u64 = 1 << 32;

/// Whether a message tells of a step after the run's last one, or of a count that nobody has come to.
pub(super) fn is_beyond(envelope: &Envelope, last_step: u64) -> bool {
    let after = |step: u64| step > last_step;
    let far = |ballot: &Ballot| ballot.attempt >= MOST;
    let joins = |joiner: &Joiner| {
        let held = joiner.state.map_or(0, |(step, _)| step);
        after(joiner.step) || after(held) || joiner.generation.0 >= MOST
    };
    let is_told = match &envelope.body {
        Body::Join(joiner) | Body::Introduce(joiner) => joins(joiner),
        Body::Prepare { ballot, boundary, .. } => far(ballot) || boundary.is_some_and(after),
        Body::Promise { ballot, promise, .. } => far(ballot) || after(promise.promise.progress.step),
        Body::Nack { ballot, promised } => far(ballot) || far(promised),
        Body::Propose { ballot, .. } | Body::Accept { ballot, .. } => far(ballot),
        Body::Install { proposal, .. } => after(proposal.resume.step) || proposal.view.generation.0 >= MOST,
        Body::Heartbeat { step, .. } | Body::Digest { step, .. } | Body::Finished { step, .. } => after(*step),
        Body::Hello(standing) | Body::Outsider { standing, .. } => after(standing.step),
        Body::Refuse(_) | Body::Leave | Body::Suspect { .. } | Body::Synced | Body::Goodbye | Body::Measured { .. } => {
            false
        }
    };
    is_told || envelope.generation.0 >= MOST
}
