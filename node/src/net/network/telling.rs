//! What is told of peers that are turned away, or that misbehave: of many, a few are enough. They come again and again, under
//! other names too.

use libp2p::PeerId;
use tokio::time::Instant;

use super::Network;
use crate::net::allowance::Allowance;
use crate::observe::report::Report;

/// What is told one after the other; then one each second.
const BURST: u64 = 16;

/// As many of them as are told.
pub(crate) fn allowance() -> Allowance {
    Allowance::new(BURST, 1, Instant::now())
}

impl Network {
    /// What to tell of a peer that was turned away.
    pub(crate) fn turned_away(&mut self, peer: Option<PeerId>, reason: String) -> Option<Report> {
        let peer = peer?.to_string();
        self.tellable.take(1, Instant::now()).then_some(Report::Turned { peer, reason })
    }

    /// What to tell of a peer that did what no correct peer does.
    pub(crate) fn misbehaved(&mut self, peer: PeerId, what: String) -> Option<Report> {
        let report = Report::Misbehaved { peer: peer.to_string(), what };
        self.accusable.take(1, Instant::now()).then_some(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::network::tests::{fresh, network};
    use crate::settings::Settings;

    #[tokio::test]
    async fn of_many_refusals_and_misdeeds_a_few_are_told() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let mut network = network(&Settings::new(dir.path().to_owned()));
        let (began, who) = (Instant::now(), fresh());
        let refusals = (0..10_000).filter(|_| network.turned_away(Some(who), "no".to_owned()).is_some()).count();
        let misdeeds = (0..10_000).filter(|_| network.misbehaved(who, "lied".to_owned()).is_some()).count();
        for told in [refusals as u64, misdeeds as u64] {
            assert!((BURST..=BURST + 1 + began.elapsed().as_secs()).contains(&told), "{told}");
        }
    }
}
