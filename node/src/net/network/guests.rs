//! Who may be connected, and what they are told of who may.

use libp2p::PeerId;
use tokio::time::Instant;

use super::Network;
use crate::access;
use crate::credentials::identity::{from_libp2p, to_libp2p};
use crate::net::allowance::Allowance;

/// How much of what others have said, who are neither there nor members, a peer may pass on at once; then one each second.
const MAX_BROUGHT: u64 = 64;

impl Network {
    /// Forgets what those showed who are gone.
    pub(crate) fn forget_guests(&mut self) {
        self.access.forget_gone(|peer| self.swarm.is_connected(&to_libp2p(peer)));
        self.brought.retain(|peer, _| self.swarm.is_connected(peer));
    }

    /// Those who are connected and may not be here any more have to go; those who know less than we do are told.
    pub(crate) fn look_at_guests(&mut self) {
        let connected: Vec<PeerId> = self.swarm.connected_peers().copied().collect();
        for peer in connected {
            match from_libp2p(&peer) {
                Some(name) if !self.access.may_stay(name) => _ = self.swarm.disconnect_peer_id(peer),
                Some(_) => self.tell_guest(peer),
                None => {}
            }
        }
    }

    /// A peer is connected. False if it may not stay: the founder may have put it out since it was looked at.
    pub(crate) fn greet(&mut self, peer: PeerId) -> bool {
        if from_libp2p(&peer).is_some_and(|name| !self.access.may_stay(name)) {
            let _ = self.swarm.disconnect_peer_id(peer);
            return false;
        }
        self.tell_guest(peer);
        true
    }

    /// Peers whom we look for: not those that nobody but they themselves told of.
    pub(crate) fn known(&self) -> impl Iterator<Item = PeerId> {
        self.contacts().keys().filter(|peer| !self.unproven.contains(peer)).copied()
    }

    /// Whether whoever has signed a message is somebody: it is there, or a member.
    pub(crate) fn is_answerable(&self, author: starling_topology::PeerId) -> bool {
        self.swarm.is_connected(&to_libp2p(author)) || self.members.has(&author)
    }

    /// Whether what `author` has signed is looked at, as `by` passes it on. Anybody can sign in the names of many.
    pub(crate) fn may_bring(&mut self, author: starling_topology::PeerId, by: PeerId) -> bool {
        let now = Instant::now();
        let allowance = || Allowance::new(MAX_BROUGHT, 1, now);
        self.is_answerable(author) || self.brought.entry(by).or_insert_with(allowance).take(1, now)
    }

    /// Tells a peer who may be here, if it knows less of that than we do.
    pub(crate) fn tell_guest(&mut self, peer: PeerId) {
        access::tell(self.control(), self.protocols.access.clone(), &self.access, peer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::network::tests::{fresh, network};
    use crate::settings::Settings;

    #[tokio::test]
    async fn authors_that_are_nobody_are_not_blamed_and_take_no_time_of_others() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let mut network = network(&Settings::new(dir.path().to_owned()));
        let made_up = || from_libp2p(&fresh()).expect("an Ed25519 key");
        let [liar, honest] = [fresh(), fresh()];
        let began = Instant::now();
        let looked_at = (0..10_000).filter(|_| network.may_bring(made_up(), liar)).count() as u64;
        assert!((MAX_BROUGHT..=MAX_BROUGHT + 1 + began.elapsed().as_secs()).contains(&looked_at), "{looked_at}");
        let member = made_up();
        network.expect(&[member]);
        assert!(network.may_bring(member, liar) && network.may_bring(made_up(), honest));
        assert!(network.is_answerable(member) && !network.is_answerable(made_up()));
        network.forget_guests();
        assert!(network.brought.is_empty(), "they are gone");
    }
}
