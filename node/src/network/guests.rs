//! Who may be connected, and what they are told of who may.

use libp2p::PeerId;

use super::Network;
use crate::access;
use crate::identity::from_libp2p;

impl Network {
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
        if from_libp2p(&peer).is_some_and(|name| self.access.is_behind(name)) {
            access::tell(self.control(), self.protocols.access.clone(), &self.access, peer);
        }
    }
}
