//! Why a view changed, as words.

use std::time::Duration;

use starling_topology::{PeerId, Reason};

use crate::credentials::identity::to_libp2p;

/// What a change of view came to.
#[derive(Debug, Default)]
pub(super) struct Change {
    pub(super) reason: String,
    pub(super) promised: usize,
    pub(super) of: usize,
    pub(super) took_ms: u64,
}

impl Change {
    pub(super) fn new(reasons: &[Reason], promised: usize, of: usize, took: Duration) -> Self {
        let reason = reasons.iter().map(describe).collect::<Vec<_>>().join("; ");
        Self { reason, promised, of, took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX) }
    }

    /// This change, with the reasons of one before it that nobody was told of.
    pub(super) fn after(self, earlier: Option<Self>) -> Self {
        let reasons = earlier.map(|earlier| earlier.reason).into_iter().chain([self.reason]);
        let reason = reasons.filter(|reason| !reason.is_empty()).collect::<Vec<_>>().join("; ");
        Self { reason, ..self }
    }
}

fn describe(reason: &Reason) -> String {
    let name = |peer: &PeerId| to_libp2p(*peer).to_string();
    match reason {
        Reason::Lost { peer, evidence } => format!("peer {} lost: {evidence}", name(peer)),
        Reason::Joined(peer) => format!("peer {} joined", name(peer)),
        Reason::Left(peer) => format!("peer {} left", name(peer)),
        Reason::Severed(a, b) => format!("the link between peers {} and {} failed", name(a), name(b)),
        Reason::Restarted(peer) => format!("peer {} lost: it was started again", name(peer)),
        Reason::Votes(peer) => format!("peer {} has a vote now", name(peer)),
        Reason::Forked => "no quorum for too long, so these members go on as a fork".to_owned(),
        Reason::Replanned => "links were measured or came back, and another plan is better".to_owned(),
        Reason::StoodStill => "the steps stood still and begin anew".to_owned(),
        Reason::Unsteady => "links have failed again and again, so those that did are not used for a while".to_owned(),
        Reason::Steady => "links that had failed again and again are used again".to_owned(),
        Reason::Recovered => "members came back from their records".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use starling_topology::Evidence;

    #[test]
    fn a_change_says_who_and_how() {
        let peer = crate::credentials::identity::from_libp2p(
            &libp2p::identity::Keypair::generate_ed25519().public().to_peer_id(),
        );
        let peer = peer.expect("an Ed25519 key");
        let reasons = [Reason::Lost { peer, evidence: Evidence::Closed }, Reason::Joined(peer)];
        let change = Change::new(&reasons, 3, 4, Duration::from_millis(41));
        let name = to_libp2p(peer).to_string();
        let expected = format!("peer {name} lost: its connection closed without a leave; peer {name} joined");
        assert_eq!((&change.reason, change.promised, change.of, change.took_ms), (&expected, 3, 4, 41));
        let next = Change::new(&[Reason::Left(peer)], 2, 2, Duration::ZERO).after(Some(change));
        assert_eq!((next.reason, next.of), (format!("{expected}; peer {name} left"), 2));
    }
}
