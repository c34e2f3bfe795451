//! Where peers are, as is said of them: by themselves, passed on by others, or by others alone.

use libp2p::identify::Info;
use starling_topology::Contact;
use starling_topology::message::{MAX_ADDRESS_BYTES, MAX_ADDRESSES};

use super::{Announcement, MAX_CONTACTS, MAX_UNPROVEN, Network};
use crate::credentials::identity::{from_libp2p, to_libp2p};

/// Keepers that wait to be taken in.
const MAX_MET: usize = 16;

impl Network {
    /// What a peer announces of itself, by whatever way it came; `None` if it is no news. It counts if it is newer than the last
    /// one: anybody can pass on what somebody once said. Of an author that is neither there nor known it only says where to dial
    /// it, and such ones push out nobody but each other: anybody can make them up.
    pub(crate) fn hear(&mut self, author: starling_topology::PeerId, bytes: &[u8]) -> Option<Contact> {
        let Announcement { contact, counter } = Announcement::of(author, bytes)?;
        let peer = to_libp2p(author);
        let is_proven =
            self.swarm.is_connected(&peer) || self.contacts().contains_key(&peer) && !self.unproven.contains(&peer);
        let is_new = self.counters.get(&peer).is_none_or(|newest| counter > *newest);
        if !is_new {
            return None;
        }
        if !is_proven && !self.unproven.contains(&peer) {
            self.make_unproven_room(peer);
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

    /// Notes where a peer that has just been connected listens, if it is a keeper: one that hands out checkpoints and speaks of no
    /// views. It announces itself too, but later.
    pub(super) fn meet(&mut self, peer: libp2p::PeerId, info: &Info) {
        let speaks = |protocol| info.protocols.contains(protocol);
        let is_keeper = speaks(&self.protocols.state) && !speaks(&self.protocols.control);
        let Some(name) = from_libp2p(&peer).filter(|_| is_keeper && self.met.len() < MAX_MET) else { return };
        let addresses = info.listen_addrs.iter().map(ToString::to_string);
        let addresses = addresses.filter(|address| address.len() <= MAX_ADDRESS_BYTES).take(MAX_ADDRESSES).collect();
        self.met.push_back(Contact { peer: name, addresses });
    }

    /// A keeper that has come and that nobody has taken in yet.
    pub(crate) fn next_keeper(&mut self) -> Option<Contact> {
        let contact = self.met.pop_front()?;
        self.learn(&contact);
        Some(contact)
    }

    /// Dials a peer of which nothing is known but that somebody else says where it is. What follows from that, it has to say itself.
    pub(crate) fn hear_of(&mut self, contact: &Contact) {
        let peer = to_libp2p(contact.peer);
        let is_known = self.contacts().contains_key(&peer) && !self.unproven.contains(&peer);
        if !is_known {
            if !self.unproven.contains(&peer) {
                self.make_unproven_room(peer);
            }
            self.learn(contact);
            if self.contacts().contains_key(&peer) {
                self.unproven.insert(peer);
            }
        }
        self.connect(peer);
    }

    /// Of those that nobody has heard from but at second hand, one makes room for this one if there are too many.
    fn make_unproven_room(&mut self, peer: libp2p::PeerId) {
        if self.unproven.len() >= MAX_UNPROVEN
            && let Some(other) = self.unproven.range(peer..).chain(&self.unproven).next().copied()
        {
            self.forget(other);
        }
    }
}
