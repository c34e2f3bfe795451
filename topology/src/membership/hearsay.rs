//! What others say of members that they can't reach.

use std::collections::BTreeMap;

use crate::id::PeerId;
use crate::message::Evidence;

/// How many reporters are remembered per member.
const MAX_REPORTERS: usize = 8;

/// Who says what of whom, as far as they have not taken it back.
#[derive(Debug, Default)]
pub(super) struct Hearsay {
    accused: BTreeMap<PeerId, BTreeMap<PeerId, Evidence>>,
}

impl Hearsay {
    /// `reporter` says this of `peer`. Whether it is the first to speak against it.
    pub(super) fn report(&mut self, reporter: PeerId, peer: PeerId, evidence: Evidence) -> bool {
        let reporters = self.accused.entry(peer).or_default();
        let first = reporters.is_empty();
        if reporters.len() < MAX_REPORTERS || reporters.contains_key(&reporter) {
            reporters.insert(reporter, evidence);
        }
        first
    }

    /// `reporter` has listed all that it can't reach: whoever is not in the list, it speaks against no more.
    pub(super) fn retract(&mut self, reporter: PeerId, listed: &[PeerId]) {
        self.accused.retain(|peer, reporters| {
            if !listed.contains(peer) {
                reporters.remove(&reporter);
            }
            !reporters.is_empty()
        });
    }

    /// What somebody says of `peer`.
    pub(super) fn of(&self, peer: PeerId) -> Option<Evidence> {
        self.accused.get(&peer)?.values().next().copied()
    }

    /// Whether nobody speaks against anybody.
    pub(super) fn is_empty(&self) -> bool {
        self.accused.is_empty()
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.accused.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(name: u8) -> PeerId {
        PeerId([name; 32])
    }

    #[test]
    fn what_is_said_can_be_taken_back() {
        let mut hearsay = Hearsay::default();
        assert!(hearsay.report(peer(1), peer(5), Evidence::Closed));
        assert!(!hearsay.report(peer(2), peer(5), Evidence::LinkFailed));
        hearsay.retract(peer(1), &[peer(6)]);
        assert_eq!(hearsay.of(peer(5)), Some(Evidence::LinkFailed));
        hearsay.retract(peer(2), &[peer(5)]);
        assert_eq!(hearsay.of(peer(5)), Some(Evidence::LinkFailed));
        hearsay.retract(peer(2), &[]);
        assert!(hearsay.is_empty());
    }
}
