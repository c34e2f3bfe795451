//! Numbers that nobody has come to: whoever tells them is no correct peer, whatever they are for.

use crate::message::{Body, Envelope};
use crate::view::mark::LostState;
use crate::vote::proposal::{Ballot, JoinRequest};

/// Views and ballots are counted one by one, or, by who was away, in leaps that are far smaller: no run lasts until this.
const MOST: u64 = 1 << 60;

/// Whether a message tells of a step after the run's last one, or of a count that nobody has come to.
pub(in crate::membership) fn is_beyond(envelope: &Envelope, last_step: u64) -> bool {
    let after = |step: u64| step > last_step;
    let far = |ballot: &Ballot| ballot.attempt >= MOST;
    let joins = |joiner: &JoinRequest| {
        let held = joiner.state.map_or(0, |(step, _)| step);
        after(joiner.step) || after(held) || joiner.generation.0 >= MOST
    };
    let is_told = match &envelope.body {
        Body::Join(joiner) | Body::Introduce(joiner) => joins(joiner),
        Body::Prepare { ballot, boundary, .. } => far(ballot) || boundary.is_some_and(after),
        Body::Promise { ballot, promise, .. } => {
            far(ballot)
                || after(promise.promise.progress.step)
                || matches!(promise.promise.lost, LostState::Step(step) if after(step))
        }
        Body::Nack { ballot, promised } => far(ballot) || far(promised),
        Body::Propose { ballot, .. }
        | Body::Echo { ballot, .. }
        | Body::Confirm { ballot, .. }
        | Body::Accept { ballot, .. } => far(ballot),
        Body::Install { proposal, .. } => after(proposal.resume.step) || proposal.view.generation.0 >= MOST,
        Body::Heartbeat { step, .. }
        | Body::Digest { step, .. }
        | Body::Finished { step, .. }
        | Body::Contributes { step } => after(*step),
        Body::Hello(branch_position) | Body::Outsider { branch_position, .. } => after(branch_position.step),
        Body::Refuse(_) | Body::Leave | Body::Suspect { .. } | Body::Synced | Body::Goodbye | Body::Measured { .. } => {
            false
        }
    };
    is_told || envelope.generation.0 >= MOST
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{Digest, Generation, PeerId, RunId, ViewId};
    use crate::message::{BranchPosition, Contact};

    const LAST: u64 = 40;

    fn told(body: Body) -> bool {
        let envelope = Envelope { run: RunId([7; 32]), generation: Generation(MOST - 1), view: ViewId::NONE, body };
        let later = Envelope { generation: Generation(MOST), ..envelope.clone() };
        assert!(is_beyond(&later, LAST));
        is_beyond(&envelope, LAST)
    }

    #[test]
    fn what_a_run_can_come_to_is_told_and_nothing_beyond_it() {
        let peer = PeerId([1; 32]);
        for (step, count, beyond) in [(LAST, MOST - 1, false), (LAST + 1, MOST - 1, true), (LAST, MOST, true)] {
            let ballot = Ballot { attempt: count, proposer: peer };
            let first = Ballot { attempt: 1, proposer: peer };
            let contact = Contact { peer, addresses: Vec::new() };
            let joiner = JoinRequest { step, generation: Generation(count), ..JoinRequest::new(contact, 1) };
            assert_eq!(told(Body::Join(joiner.clone())), beyond);
            assert_eq!(told(Body::Introduce(joiner)), beyond);
            assert_eq!(told(Body::Prepare { ballot, boundary: Some(step), unreachable: Vec::new() }), beyond);
            assert_eq!(told(Body::Nack { ballot: first, promised: ballot }), count == MOST);
            let digest = Digest([1; 32]);
            assert_eq!(told(Body::Digest { step, digest }), step > LAST);
            assert_eq!(told(Body::Finished { peer, step, digest }), step > LAST);
            assert_eq!(told(Body::Heartbeat { step, waiting: 0 }), step > LAST);
            assert_eq!(told(Body::Contributes { step }), step > LAST);
            let branch_position =
                BranchPosition { step, branch: 0, parent: None, forked: false, paused: false, recovering: false };
            assert_eq!(told(Body::Hello(branch_position)), step > LAST);
        }
    }
}
