//! Who has been a member, and by which invitation: for the run's life, so that members may come back when their invitations have
//! expired, and an invitation for one admits nobody else.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use starling_topology::PeerId;

use crate::invitation::Invitation;

/// Members that are remembered.
pub(crate) const MAX_ENTRIES: usize = 1024;

/// One who has been a member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// How it came; `None` if it needed no invitation, or has not shown it here.
    pub(crate) invitation: Option<Invitation>,
    /// Whether it has shown here how it came.
    pub(crate) has_shown: bool,
    /// When it was first seen in a view, in seconds since 1970.
    pub(crate) since: u64,
}

/// All who have been members, as far as this machine knows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Roster(BTreeMap<PeerId, Entry>);

impl Roster {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn get(&self, peer: &PeerId) -> Option<&Entry> {
        self.0.get(peer)
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = (&PeerId, &Entry)> {
        self.0.iter()
    }

    /// Who came by the invitation of this name.
    pub(crate) fn user(&self, once: &[u8; 16]) -> Option<PeerId> {
        let is_it = |entry: &Entry| entry.invitation.as_ref().is_some_and(|it| it.terms.once.as_ref() == Some(once));
        self.0.iter().find(|(_, entry)| is_it(entry)).map(|(peer, _)| *peer)
    }

    /// Notes a member. `shown`: how it came, if it has shown that. True if that is news.
    pub(crate) fn enter(
        &mut self,
        peer: PeerId,
        shown: Option<Option<Invitation>>,
        now_s: u64,
        stays: impl Fn(&PeerId) -> bool,
    ) -> bool {
        if let Some(entry) = self.0.get_mut(&peer) {
            return match shown {
                Some(invitation) if !entry.has_shown || entry.invitation.is_none() && invitation.is_some() => {
                    (entry.invitation, entry.has_shown) = (invitation, true);
                    true
                }
                Some(_) | None => false,
            };
        }
        if self.0.len() >= MAX_ENTRIES {
            // Who used an invitation for one goes last: another could come by it.
            let may_go = |(peer, entry): &(&PeerId, &Entry)| {
                let used = entry.invitation.as_ref().is_some_and(|it| it.terms.once.is_some() && !it.is_over(now_s));
                !used && !stays(peer)
            };
            let Some(oldest) = self.0.iter().filter(may_go).min_by_key(|(_, entry)| entry.since) else { return false };
            let oldest = *oldest.0;
            self.0.remove(&oldest);
        }
        let has_shown = shown.is_some();
        self.0.insert(peer, Entry { invitation: shown.flatten(), has_shown, since: now_s });
        true
    }

    /// It has to go, and is never to come back.
    pub(crate) fn strike(&mut self, peer: &PeerId) {
        self.0.remove(peer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::founder::FounderKey;
    use crate::invitation::Terms;
    use starling_topology::RunId;

    fn peer(name: u32) -> PeerId {
        let mut bytes = [0; 32];
        bytes[..4].copy_from_slice(&name.to_be_bytes());
        PeerId(bytes)
    }

    #[test]
    fn an_invitation_for_one_has_one_user_and_memory_is_bounded() {
        let key = FounderKey::generate();
        let once = Invitation::sign(&key, RunId([1; 32]), Terms { once: Some([7; 16]), ..Terms::default() });
        let mut roster = Roster::default();
        assert!(roster.enter(peer(0), None, 0, |_| false) && !roster.enter(peer(0), None, 1, |_| false));
        assert_eq!(roster.user(&[7; 16]), None, "it has not shown how it came");
        assert!(roster.enter(peer(0), Some(Some(once)), 1, |_| false));
        assert_eq!((roster.user(&[7; 16]), roster.user(&[8; 16])), (Some(peer(0)), None));
        for name in 1..3 * MAX_ENTRIES as u32 {
            roster.enter(peer(name), Some(None), u64::from(name), |other| *other == peer(1));
        }
        assert_eq!(roster.len(), MAX_ENTRIES);
        assert!(roster.get(&peer(1)).is_some(), "it is a member now");
        assert_eq!(roster.user(&[7; 16]), Some(peer(0)), "or anybody could come by it");
    }
}
