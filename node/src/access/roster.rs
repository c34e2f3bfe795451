//! Who has been a member, and by which invitation: for the run's life, so that members may come back when their invitations have
//! expired, and an invitation for one admits nobody else.
//!
//! Whom a view of ours had is known for good. Whom others have told of rests on their word: it goes when all of them are revoked,
//! or go themselves, and makes room first.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use starling_topology::PeerId;

use crate::credentials::invitation::{Invitation, PresentedInvitation};

/// Members that are remembered.
pub(crate) const MAX_ENTRIES: usize = 1024;
/// Of whom one peer alone may tell.
pub(crate) const MAX_TOLD: usize = 512;
/// Whose word for one member is remembered.
const MAX_TELLERS: usize = 4;

/// One who has been a member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// How it came; `None` if it needed no invitation, or has not shown it here. Its signatures are right.
    pub(crate) presented: Option<PresentedInvitation>,
    /// By what the decree that let it in last says that it came; `None` if it was here first.
    decreed: Option<Invitation>,
    /// Whether it has shown here how it came.
    pub(crate) has_shown: bool,
    /// When it was first seen in a view, in seconds since 1970.
    pub(crate) since: u64,
    /// On whose word it rests; on nobody's if a view of ours had it.
    pub(crate) told_by: Vec<PeerId>,
}

impl Entry {
    /// By what it came: if no decree says so, as it has shown itself.
    pub(crate) fn origin(&self) -> Option<&Invitation> {
        self.decreed.as_ref().or_else(|| self.presented.as_ref().map(|presented| &presented.invitation))
    }

    /// Whether a view of ours had it.
    pub(crate) fn is_seen(&self) -> bool {
        self.told_by.is_empty()
    }
}

/// All who have been members, as far as this machine knows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Roster(BTreeMap<PeerId, Entry>);

impl Roster {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn get(&self, peer: &PeerId) -> Option<&Entry> {
        self.0.get(peer)
    }

    /// Whether a view of ours had this peer.
    pub(crate) fn has_seen(&self, peer: &PeerId) -> bool {
        self.0.get(peer).is_some_and(Entry::is_seen)
    }

    /// Who came by the invitation of this key.
    pub(crate) fn user(&self, key: &PeerId) -> Option<PeerId> {
        let is_it = |entry: &Entry| entry.presented.as_ref().is_some_and(|it| it.invitation.key == *key);
        self.0.iter().find(|(_, entry)| is_it(entry)).map(|(peer, _)| *peer)
    }

    /// Of whom others may be told, and how each came: whom we have seen ourselves, the newest first.
    pub(crate) fn tellable(&self) -> Vec<(PeerId, PresentedInvitation)> {
        let mut seen: Vec<_> = self.0.iter().filter(|(_, entry)| entry.is_seen()).collect();
        seen.sort_by_key(|(_, entry)| Reverse(entry.since));
        let told = seen.into_iter().filter_map(|(peer, entry)| Some((*peer, entry.presented.clone()?)));
        told.take(MAX_TOLD).collect()
    }

    /// What tells apart those of whom others may be told; 0 for nobody.
    pub(crate) fn mark(&self) -> u64 {
        let counts = |entry: &Entry| entry.presented.is_some() && entry.is_seen();
        let marks = self.0.iter().filter(|(_, entry)| counts(entry)).map(|(peer, _)| {
            u64::from_le_bytes(*blake3::hash(&peer.0).as_bytes().first_chunk().expect("invariant: a hash has 32 bytes"))
        });
        marks.fold(0, |all, mark| all ^ mark)
    }

    /// Notes a member of a view of ours. `shown`: how it came, if it has shown that. True if that is news.
    pub(crate) fn enter(
        &mut self,
        peer: PeerId,
        shown: Option<Option<PresentedInvitation>>,
        now_s: u64,
        stays: impl Fn(&PeerId) -> bool,
    ) -> bool {
        if let Some(entry) = self.0.get_mut(&peer) {
            let is_news = !std::mem::take(&mut entry.told_by).is_empty();
            return match shown {
                Some(presented) if !entry.has_shown || entry.presented.is_none() && presented.is_some() => {
                    (entry.presented, entry.has_shown) = (presented.or_else(|| entry.presented.take()), true);
                    true
                }
                Some(_) | None => is_news,
            };
        }
        if self.0.len() >= MAX_ENTRIES && !self.drop_told() {
            // Who used an invitation for one goes last: another could come by it.
            let may_go = |(peer, entry): &(&PeerId, &Entry)| {
                let is_used = |it: &PresentedInvitation| it.invitation.terms.once && !it.invitation.is_over(now_s);
                !entry.presented.as_ref().is_some_and(is_used) && !stays(peer)
            };
            // Who can bring in many keys pushes out the newest of them, and nobody who came otherwise and is away.
            let key = |entry: &Entry| entry.presented.as_ref().map(|it| it.invitation.key);
            let mut brought = BTreeMap::<_, usize>::new();
            self.0.values().for_each(|entry| *brought.entry(key(entry)).or_default() += 1);
            let rank = |(peer, entry): &(&PeerId, &Entry)| (brought[&key(entry)], entry.since, **peer);
            let Some((newest, _)) = self.0.iter().filter(may_go).max_by_key(rank) else { return false };
            let newest = *newest;
            self.0.remove(&newest);
        }
        let has_shown = shown.is_some();
        let entry = Entry { presented: shown.flatten(), decreed: None, has_shown, since: now_s, told_by: Vec::new() };
        self.0.insert(peer, entry);
        true
    }

    /// A decree let in this member by that. Another invitation that it showed elsewhere does not count, unless it has used that up.
    pub(crate) fn came_by(&mut self, peer: PeerId, presented: PresentedInvitation) {
        let Some(entry) = self.0.get_mut(&peer) else { return };
        entry.decreed = Some(presented.invitation.clone());
        if entry.presented.as_ref().is_none_or(|before| !before.invitation.terms.once) {
            (entry.presented, entry.has_shown) = (Some(presented), true);
        }
    }

    /// Notes what `teller` says: that this peer has been a member, and came so. True if that is news.
    pub(crate) fn hear(&mut self, teller: PeerId, peer: PeerId, presented: PresentedInvitation, now_s: u64) -> bool {
        let told = |entry: &&Entry| entry.told_by == [teller];
        if let Some(entry) = self.0.get_mut(&peer) {
            // Others' word makes no bearer of whom its own user lets in.
            let is_news = entry.presented.is_none() && !entry.has_shown;
            if is_news {
                (entry.presented, entry.has_shown) = (Some(presented), true);
            }
            if entry.is_seen() || entry.told_by.contains(&teller) || entry.told_by.len() >= MAX_TELLERS {
                return is_news;
            }
            entry.told_by.push(teller);
            return true;
        }
        if self.0.values().filter(told).count() >= MAX_TOLD {
            return false;
        }
        if self.0.len() >= MAX_ENTRIES && (self.longest_teller() == Some(teller) || !self.drop_told()) {
            return false;
        }
        let told_by = vec![teller];
        let entry = Entry { presented: Some(presented), decreed: None, has_shown: true, since: now_s, told_by };
        self.0.insert(peer, entry);
        true
    }

    /// These have to go, and so has everybody for whom there is no other word than theirs.
    pub(crate) fn strike(&mut self, is_out: impl Fn(&PeerId) -> bool) {
        self.0.retain(|peer, _| !is_out(peer));
        self.distrust(is_out);
    }

    /// The word of these counts for nothing, nor does that of those who rest on it: each has to be seen, or told of by one who is,
    /// and so on. Who began, and told of itself when nobody else was known, counts as seen.
    pub(crate) fn distrust(&mut self, is_liar: impl Fn(&PeerId) -> bool) {
        let mut told = BTreeMap::<PeerId, Vec<PeerId>>::new();
        let mut sound: BTreeSet<PeerId> = self.seen();
        for (peer, entry) in self.0.iter().filter(|(peer, _)| !sound.contains(peer)).collect::<Vec<_>>() {
            for teller in entry.told_by.iter().filter(|teller| !is_liar(teller)) {
                // Who made room since was believed.
                let counts = teller == peer || !self.0.contains_key(teller);
                _ = counts && sound.insert(*peer);
                told.entry(*teller).or_default().push(*peer);
            }
        }
        let mut next: Vec<PeerId> = sound.iter().copied().collect();
        while let Some(teller) = next.pop() {
            let news = told.remove(&teller).unwrap_or_default();
            next.extend(news.into_iter().filter(|peer| sound.insert(*peer)));
        }
        self.0.retain(|peer, _| sound.contains(peer));
        self.0.values_mut().for_each(|entry| entry.told_by.retain(|teller| !is_liar(teller)));
    }

    /// Whom views of ours had.
    pub(crate) fn seen(&self) -> BTreeSet<PeerId> {
        self.0.iter().filter(|(_, entry)| entry.is_seen()).map(|(peer, _)| *peer).collect()
    }

    /// Who has told of the most peers whom nobody else has told of.
    fn longest_teller(&self) -> Option<PeerId> {
        let mut told = BTreeMap::<PeerId, usize>::new();
        for entry in self.0.values() {
            if let [teller] = entry.told_by[..] {
                *told.entry(teller).or_default() += 1;
            }
        }
        told.into_iter().max_by_key(|(_, count)| *count).map(|(teller, _)| teller)
    }

    /// Drops the oldest of whom that one has told, or of whom anybody has. False if there is none.
    fn drop_told(&mut self) -> bool {
        let longest = self.longest_teller();
        let is_its = |entry: &Entry| longest.map_or_else(|| !entry.is_seen(), |teller| entry.told_by == [teller]);
        let oldest = self.0.iter().filter(|(_, entry)| is_its(entry)).min_by_key(|(_, entry)| entry.since);
        let Some(oldest) = oldest.map(|(peer, _)| *peer) else { return false };
        self.0.remove(&oldest).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::founder::FounderKey;
    use crate::credentials::invitation::{InvitationKey, InvitationSpec};
    use starling_topology::RunId;

    fn peer(name: u32) -> PeerId {
        let mut bytes = [0; 32];
        bytes[..4].copy_from_slice(&name.to_be_bytes());
        PeerId(bytes)
    }

    fn grant(once: bool) -> InvitationKey {
        InvitationKey::sign(
            &FounderKey::generate(),
            RunId([1; 32]),
            InvitationSpec { once, ..InvitationSpec::default() },
        )
    }

    #[test]
    fn an_invitation_for_one_has_one_user_and_memory_is_bounded() {
        let once = grant(true);
        let mut roster = Roster::default();
        assert!(roster.enter(peer(0), None, 0, |_| false) && !roster.enter(peer(0), None, 1, |_| false));
        assert_eq!(roster.user(&once.invitation.key), None, "it has not shown how it came");
        assert!(roster.enter(peer(0), Some(Some(once.present(peer(0)))), 1, |_| false));
        assert_eq!((roster.user(&once.invitation.key), roster.user(&peer(0))), (Some(peer(0)), None));
        for name in 1..3 * MAX_ENTRIES as u32 {
            roster.enter(peer(name), Some(None), u64::from(name), |other| *other == peer(1));
        }
        assert_eq!(roster.0.len(), MAX_ENTRIES);
        assert!(roster.get(&peer(1)).is_some(), "it is a member now");
        assert_eq!(roster.user(&once.invitation.key), Some(peer(0)), "or anybody could come by it");
    }

    #[test]
    fn who_tells_much_pushes_out_nobody_else() {
        let open = grant(false);
        let mut roster = Roster::default();
        let [seen, first, second, third] = [1, 2, 3, 4].map(peer);
        for name in 100..100 + MAX_TOLD as u32 - 1 {
            roster.enter(peer(name), Some(Some(open.present(peer(name)))), 1, |_| false);
        }
        roster.enter(seen, None, 0, |_| false);
        assert!(roster.hear(first, peer(50), open.present(peer(50)), 1));
        let tell = |roster: &mut Roster, teller, names: std::ops::Range<u32>| {
            names.filter(|name| roster.hear(teller, peer(*name), open.present(peer(*name)), 2)).count()
        };
        assert_eq!(tell(&mut roster, second, 10_000..12_000), MAX_TOLD - 1, "there is no more room");
        assert!(tell(&mut roster, third, 20_000..20_010) == 10, "whoever told most makes room");
        assert!(roster.0.len() == MAX_ENTRIES && roster.has_seen(&seen) && roster.get(&peer(50)).is_some());
        for name in 30_000..30_000 + MAX_TOLD as u32 {
            assert!(roster.enter(peer(name), None, 3, |_| false));
        }
        assert!(roster.has_seen(&peer(100)) && roster.seen().len() == MAX_ENTRIES, "whom we saw counts before hearsay");
    }

    #[test]
    fn who_brings_in_many_keys_pushes_out_no_member_that_is_away() {
        let [theirs, open] = [grant(false), grant(false)];
        let mut roster = Roster::default();
        for name in 0..8 {
            roster.enter(peer(name), Some(Some(theirs.present(peer(name)))), 1, |_| false);
        }
        for name in 100..100 + 2 * MAX_ENTRIES as u32 {
            assert!(roster.enter(peer(name), Some(Some(open.present(peer(name)))), u64::from(name), |_| false));
        }
        assert!((0..8).all(|name| roster.has_seen(&peer(name))) && roster.0.len() == MAX_ENTRIES);
        assert!(roster.has_seen(&peer(100)), "nor one that came as they did, and before them");
    }

    #[test]
    fn who_rests_on_a_revoked_peers_word_alone_goes_with_it() {
        let open = grant(false);
        let mut roster = Roster::default();
        let [gone, honest, planted, known, seen] = [1, 2, 3, 4, 5].map(peer);
        for (teller, name) in [(gone, planted), (gone, known), (honest, known), (gone, seen)] {
            roster.hear(teller, name, open.present(name), 1);
        }
        roster.enter(gone, None, 1, |_| false);
        roster.enter(seen, None, 1, |_| false);
        assert_eq!(roster.tellable().len(), 1, "hearsay is not passed on");
        roster.strike(|peer| *peer == gone);
        assert_eq!([gone, planted, known, seen].map(|peer| roster.get(&peer).is_some()), [false, false, true, true]);
    }
}
