//! Members that the run's founder has put out. Its signed word comes by other ways; here it is a reason to leave a member out of
//! the next view, and to let it into none any more.

use crate::id::PeerId;
use crate::membership::Membership;
use crate::message::Evidence;
use crate::time::Time;

/// Peers that are remembered as put out.
const MAX_REVOKED: usize = 1024;

impl Membership {
    /// The founder has put these peers out, and nobody else. A list can give way to another one that does not name all of it.
    pub(in crate::membership) fn revoke(&mut self, now: Time, peers: Vec<PeerId>) {
        self.revoked = peers.into_iter().take(MAX_REVOKED).collect();
        let revoked = &self.revoked;
        if let Some(seat) = &mut self.seat {
            seat.suspects.retain(|peer, evidence| *evidence != Evidence::Revoked || revoked.contains(peer));
        }
        for peer in revoked.clone() {
            self.lost.remove(&peer);
            self.suspect(now, peer, Evidence::Revoked);
        }
    }

    /// Those who decided the view that we have entered had not heard of it yet.
    pub(in crate::membership) fn suspect_revoked(&mut self, now: Time) {
        let Some(seat) = &self.seat else { return };
        let there: Vec<PeerId> = self.revoked.iter().filter(|peer| seat.view.contains(**peer)).copied().collect();
        for peer in there {
            self.suspect(now, peer, Evidence::Revoked);
        }
    }
}
