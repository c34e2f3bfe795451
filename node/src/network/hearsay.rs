//! Where peers are, as is said of them: by themselves, passed on by others, or by others alone.

use starling_topology::Contact;

use super::{Announcement, MAX_CONTACTS, MAX_UNPROVEN, Network};
use crate::identity::to_libp2p;

impl Network {
    /// What a peer announces of itself, by whatever way it came; `None` if it is no news. It counts if it is newer than the last
    /// one: anybody can pass on what somebody once said. Of an author that is neither there nor known it only says where to dial
    /// it, and such ones push out nobody but each other: anybody can make them up.
    pub(crate) fn hear(&mut self, author: starling_topology::PeerId, bytes: &[u8]) -> Option<Contact> {
        let (announcement, rest) = postcard::take_from_bytes::<Announcement>(bytes).ok()?;
        let Announcement { contact, counter } = announcement;
        let peer = to_libp2p(author);
        let is_its_own = rest.is_empty() && contact.peer == author && contact.is_bounded();
        let is_proven =
            self.swarm.is_connected(&peer) || self.contacts().contains_key(&peer) && !self.unproven.contains(&peer);
        let is_new = self.counters.get(&peer).is_none_or(|newest| counter > *newest);
        if !is_its_own || !is_new {
            return None;
        }
        if !is_proven
            && self.unproven.len() >= MAX_UNPROVEN
            && !self.unproven.contains(&peer)
            && let Some(other) = self.unproven.range(peer..).chain(&self.unproven).next().copied()
        {
            self.forget(other);
        }
        if !is_proven && self.unproven.is_empty() && self.contacts().len() >= MAX_CONTACTS {
            return None;
        }
        self.learn(&contact);
        if self.contacts().contains_key(&peer) {
            self.counters.insert(peer, counter);
            if !is_proven {
                self.unproven.insert(peer);
            }
        }
        Some(contact).filter(|_| is_proven)
    }

    /// Dials a peer of which nothing is known but that somebody else says that it is there. What follows from that, it has to say
    /// itself.
    pub(crate) fn hear_of(&mut self, contact: &Contact) {
        let peer = to_libp2p(contact.peer);
        if self.contacts().contains_key(&peer) || self.unproven.len() >= MAX_UNPROVEN {
            return;
        }
        self.learn(contact);
        if self.contacts().contains_key(&peer) {
            self.unproven.insert(peer);
            self.connect(peer);
        }
    }
}
