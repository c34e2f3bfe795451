//! Who is a member, for tasks that serve peers: in the present view, or in the one before it, which some may still be in.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use starling_topology::PeerId;

/// The members of two views.
#[derive(Debug, Default)]
pub(crate) struct MemberList(Mutex<Views>);

#[derive(Debug, Default)]
struct Views {
    present: BTreeSet<PeerId>,
    before: BTreeSet<PeerId>,
}

impl MemberList {
    /// These are the members now.
    pub(crate) fn enter(&self, members: &[PeerId]) {
        let present: BTreeSet<PeerId> = members.iter().copied().collect();
        let mut views = self.lock();
        // The same members may be told of often.
        if views.present != present {
            views.before = std::mem::replace(&mut views.present, present);
        }
    }

    pub(crate) fn has(&self, peer: &PeerId) -> bool {
        let views = self.lock();
        views.present.contains(peer) || views.before.contains(peer)
    }

    fn lock(&self) -> MutexGuard<'_, Views> {
        // A lock poisoned by a panic elsewhere still guards two sets.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_views_count() {
        let [a, b, c] = [1, 2, 3].map(|name| PeerId([name; 32]));
        let list = MemberList::default();
        assert!(!list.has(&a));
        list.enter(&[a, b]);
        list.enter(&[b, c]);
        list.enter(&[b, c]);
        assert!([a, b, c].iter().all(|peer| list.has(peer)));
        list.enter(&[c]);
        assert!(!list.has(&a) && list.has(&b));
    }
}
