//! Who says that this machine may not come, while it waits to be let in. None of them has to prove it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use libp2p::PeerId;
use tokio::time::Instant;

use crate::access::admission::AdmissionError;
use crate::credentials::invitation::DenialReason;
use crate::error::NodeError;

/// Where several say so, those who can't be reached for so long are not waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// Denials, by whoever said them.
#[derive(Debug, Default)]
pub(super) struct Denials {
    /// Whom this machine knew when it came, by its ticket or from before: those alone count. Who was named since may be anybody's
    /// friend.
    named: BTreeSet<PeerId>,
    by: BTreeMap<PeerId, DenialReason>,
    since: Option<Instant>,
}

impl Denials {
    /// Of one who knows these.
    pub(super) fn new(named: impl IntoIterator<Item = PeerId>) -> Self {
        Self { named: named.into_iter().collect(), ..Self::default() }
    }

    /// A peer says that we may not come. True if that is news.
    pub(super) fn note(&mut self, peer: PeerId, denial: DenialReason, now: Instant) -> bool {
        self.since.get_or_insert(now);
        self.by.insert(peer, denial) != Some(denial)
    }

    /// It has let us connect.
    pub(super) fn retract(&mut self, peer: PeerId) {
        self.by.remove(&peer);
        if self.by.is_empty() {
            self.since = None;
        }
    }

    /// That none of those who are `known` lets us in: all of them say so, or after a while all who can be reached, if that is not
    /// one alone.
    pub(super) fn verdict(&self, mut known: impl Iterator<Item = PeerId>, now: Instant) -> Option<NodeError> {
        let since = self.since?;
        let named = self.by.keys().filter(|peer| self.named.contains(peer)).count();
        let is_over = named > 1 && now.saturating_duration_since(since) >= PATIENCE;
        if named == 0 || !is_over && !known.all(|peer| self.by.contains_key(&peer)) {
            return None;
        }
        let mut said = BTreeMap::<DenialReason, usize>::new();
        let counts = self.by.iter().filter(|(peer, _)| self.named.contains(peer));
        counts.for_each(|(_, denial)| *said.entry(*denial).or_default() += 1);
        let (denial, _) = said.into_iter().max_by_key(|(_, times)| *times)?;
        let peer = self.by.keys().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        Some(NodeError::NotAdmitted { peer, error: AdmissionError::Denied(denial) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::identity::Identity;

    #[test]
    fn one_peers_denial_ends_nobody_who_knows_others() {
        let [liar, a, b, friend] = [(); 4].map(|()| Identity::generate().peer_id());
        let (mut denials, now) = (Denials::new([liar, a, b]), Instant::now());
        let known = || [liar, a, b].into_iter();
        assert!(denials.verdict(known(), now).is_none() && denials.verdict([].into_iter(), now).is_none());
        assert!(
            denials.note(liar, DenialReason::NotInvited, now) && !denials.note(liar, DenialReason::NotInvited, now)
        );
        for later in [now, now + PATIENCE, now + 100 * PATIENCE] {
            assert!(denials.verdict(known(), later).is_none(), "the others are away");
        }
        denials.note(friend, DenialReason::NotInvited, now);
        assert!(denials.verdict(known(), now + 100 * PATIENCE).is_none(), "nobody had heard of that one");
        denials.retract(friend);
        assert!(denials.verdict([liar].into_iter(), now).is_some(), "it is the only one there is");
        for peer in [a, b] {
            denials.note(peer, DenialReason::Used, now);
        }
        let error = denials.verdict(known(), now).expect("all say so").to_string();
        assert!(error.contains(&DenialReason::Used.to_string()), "what most say: {error}");
        assert!([liar, a, b].iter().all(|peer| error.contains(&peer.to_string())), "who: {error}");
        denials.retract(b);
        assert!(denials.verdict(known(), now + PATIENCE / 2).is_none(), "it has let us in");
        assert!(denials.verdict(known(), now + PATIENCE).is_some(), "several say so, and it is gone");
        [a, liar].iter().for_each(|peer| denials.retract(*peer));
        assert!(denials.verdict(known(), now + 2 * PATIENCE).is_none());
    }
}
