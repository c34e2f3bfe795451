//! What others say of members that they can't reach.

use std::collections::BTreeMap;

use crate::id::PeerId;
use crate::message::Evidence;

/// How many reporters are remembered per member.
const MAX_REPORTERS: usize = 8;

/// Who says what of whom, as far as they have not taken it back.
#[derive(Debug, Default)]
pub(in crate::membership) struct SuspicionReports {
    accused: BTreeMap<PeerId, BTreeMap<PeerId, Evidence>>,
}

impl SuspicionReports {
    /// `reporter` says this of `peer`. Whether it is the first to speak against it.
    pub(in crate::membership) fn report(&mut self, reporter: PeerId, peer: PeerId, evidence: Evidence) -> bool {
        let reporters = self.accused.entry(peer).or_default();
        let first = reporters.is_empty();
        if reporters.len() < MAX_REPORTERS || reporters.contains_key(&reporter) {
            reporters.insert(reporter, evidence);
        }
        first
    }

    /// Whether `reporter` has spoken against `peer` already.
    pub(in crate::membership) fn knows(&self, reporter: PeerId, peer: PeerId) -> bool {
        self.accused.get(&peer).is_some_and(|reporters| reporters.contains_key(&reporter))
    }

    /// Who has spoken against a member that is `gone`.
    pub(in crate::membership) fn were_right(&self, gone: impl Fn(PeerId, PeerId) -> bool) -> Vec<PeerId> {
        let pairs = self.accused.iter().flat_map(|(peer, reporters)| reporters.keys().map(move |by| (*by, *peer)));
        pairs.filter(|(by, peer)| gone(*by, *peer)).map(|(by, _)| by).collect()
    }

    /// `reporter` has listed all that it can't reach: whoever is not in the list, it misses no more.
    pub(in crate::membership) fn retract(&mut self, reporter: PeerId, listed: &[PeerId]) {
        self.accused.retain(|peer, reporters| {
            if !listed.contains(peer) && reporters.get(&reporter).is_some_and(|evidence| !evidence.outlasts_messages())
            {
                reporters.remove(&reporter);
            }
            !reporters.is_empty()
        });
    }

    /// Pairs of members whose link failed, as one of them says.
    pub(in crate::membership) fn failed_links(&self) -> impl Iterator<Item = (PeerId, PeerId)> + '_ {
        self.accused.iter().flat_map(|(peer, reporters)| {
            let failed = reporters.iter().filter(|(_, evidence)| **evidence == Evidence::LinkFailed);
            // Of itself a member says so to have another propose in its place.
            failed.map(|(reporter, _)| (*reporter, *peer)).filter(|(reporter, peer)| reporter != peer)
        })
    }

    /// What somebody says of `peer`.
    pub(in crate::membership) fn of(&self, peer: PeerId) -> Option<Evidence> {
        self.accused.get(&peer)?.values().next().copied()
    }

    /// Whether nobody speaks against anybody.
    pub(in crate::membership) fn is_empty(&self) -> bool {
        self.accused.is_empty()
    }

    /// Forgets all.
    pub(in crate::membership) fn clear(&mut self) {
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
        let mut suspicion_reports = SuspicionReports::default();
        assert!(suspicion_reports.report(peer(1), peer(5), Evidence::Closed));
        assert!(!suspicion_reports.report(peer(2), peer(5), Evidence::Unanswered));
        suspicion_reports.retract(peer(1), &[peer(6)]);
        assert_eq!(suspicion_reports.of(peer(5)), Some(Evidence::Unanswered));
        suspicion_reports.retract(peer(2), &[peer(5)]);
        assert_eq!(suspicion_reports.of(peer(5)), Some(Evidence::Unanswered));
        suspicion_reports.retract(peer(2), &[]);
        assert!(suspicion_reports.is_empty());
    }

    #[test]
    fn what_does_not_pass_is_not_taken_back() {
        let mut suspicion_reports = SuspicionReports::default();
        suspicion_reports.report(peer(1), peer(5), Evidence::LinkFailed);
        suspicion_reports.report(peer(1), peer(6), Evidence::Elsewhere);
        suspicion_reports.retract(peer(1), &[]);
        assert_eq!(
            (suspicion_reports.of(peer(5)), suspicion_reports.of(peer(6))),
            (Some(Evidence::LinkFailed), Some(Evidence::Elsewhere))
        );
        assert!(suspicion_reports.failed_links().eq([(peer(1), peer(5))]));
    }
}
