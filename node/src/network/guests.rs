//! Who may be connected, and what they are told of who may.

use libp2p::PeerId;

use super::Network;
use crate::access;
use crate::identity::{from_libp2p, to_libp2p};

impl Network {
    /// Forgets what those showed who are gone.
    pub(crate) fn forget_guests(&self) {
        self.access.forget_gone(|peer| self.swarm.is_connected(&to_libp2p(peer)));
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

    /// Tells a peer who may be here, if it knows less of that than we do.
    pub(crate) fn tell_guest(&mut self, peer: PeerId) {
        access::tell(self.control(), self.protocols.access.clone(), &self.access, peer);
    }
}
