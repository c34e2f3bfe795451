//! Links to neighbours that have failed.

use std::collections::BTreeMap;
use std::time::Duration;

use starling_topology::{PeerId, Time, ViewId};

/// A neighbour whose link failed is suspected after this part of the longest stall.
const GRACE: u32 = 40;

/// Tells which neighbours a member suspects because a link between them, for segments of a view, has failed.
///
/// Who has installed the next view closes the links of this one, and says so on another connection: that gets some time to arrive.
/// Without all of its links a view can't go on. As long as it stands, the neighbour is suspected again and again.
#[derive(Debug)]
pub struct FailedLinkTracker {
    grace: Duration,
    /// In which view, and when the neighbour is suspected next.
    failed: BTreeMap<PeerId, (ViewId, Time)>,
}

impl FailedLinkTracker {
    /// Of a member of a run with this longest stall. None has failed.
    pub fn new(max_stall: Duration) -> Self {
        Self { grace: max_stall / GRACE, failed: BTreeMap::new() }
    }

    /// A link of `view` to this neighbour has failed.
    pub fn note(&mut self, now: Time, peer: PeerId, view: ViewId) {
        let before = self.failed.get(&peer).filter(|(of, _)| *of == view);
        if before.is_none() {
            self.failed.insert(peer, (view, now + self.grace));
        }
    }

    /// Looks again, in `view`. Whom to suspect now: nobody while the steps are held, for the next view is on its way. Those of other
    /// views are forgotten.
    pub fn look(&mut self, now: Time, view: Option<ViewId>, are_held: bool) -> Vec<PeerId> {
        self.failed.retain(|_, (of, _)| Some(*of) == view);
        let due = self.failed.iter_mut().filter(|(_, (_, at))| *at <= now && !are_held);
        let due = due.map(|(peer, (_, at))| {
            *at = now + self.grace;
            *peer
        });
        due.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_neighbour_is_suspected_once_the_next_view_has_had_time_to_come_and_again_while_it_does_not() {
        let (peer, other) = (PeerId([1; 32]), PeerId([2; 32]));
        let (view, next) = (ViewId([1; 32]), ViewId([2; 32]));
        let at = |millis: u64| Time::ZERO + Duration::from_millis(millis);
        let mut links = FailedLinkTracker::new(Duration::from_secs(40));
        links.note(at(0), peer, view);
        links.note(at(900), peer, view);
        links.note(at(500), other, view);
        let mut look = |millis, view| links.look(at(millis), view, false);
        assert_eq!(look(999, Some(view)), []);
        assert_eq!(look(1_000, Some(view)), [peer], "that it failed twice gives no more time");
        assert_eq!(look(1_500, Some(view)), [other]);
        assert_eq!(links.look(at(2_000), Some(view), true), [], "the next view may be on its way");
        assert_eq!(links.look(at(2_000), Some(view), false), [peer], "the view still stands");
        links.note(at(2_000), other, next);
        let mut look = |millis, view| links.look(at(millis), view, false);
        assert_eq!(look(9_000, Some(next)), [other], "those of the view before are forgotten");
        assert_eq!((look(20_000, None), look(20_000, Some(next))), (vec![], vec![]));
    }
}
