//! How many connections one address may have that are not admitted yet.
//!
//! All pending connections together are few, so that strangers can't make us hold many. Without a share for each
//! address, one stranger could hold them all and keep everybody else out.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::task::{Context, Poll};

use libp2p::core::Endpoint;
use libp2p::core::transport::PortUse;
use libp2p::multiaddr::Protocol;
use libp2p::swarm::{
    ConnectionDenied, ConnectionId, FromSwarm, NetworkBehaviour, THandler, THandlerInEvent, THandlerOutEvent, ToSwarm,
    dummy,
};
use libp2p::{Multiaddr, PeerId};
use thiserror::Error;

/// Of one address. A whole office behind one router may come at once, each to several of our addresses; it comes again if it is
/// refused.
const MAX_PER_ADDRESS: usize = 32;

/// Refuses connections from addresses that have enough of them.
#[derive(Debug, Default)]
pub(crate) struct Behaviour {
    /// Bounded by the number of pending connections, which has a limit of its own.
    pending: BTreeMap<ConnectionId, IpAddr>,
}

/// Why a connection was refused.
#[derive(Debug, Error)]
#[error("{0} has {MAX_PER_ADDRESS} connections that are not admitted yet")]
struct TooMany(IpAddr);

/// Where a connection comes from; `None` for this machine, where a whole demo comes at once.
fn origin(remote: &Multiaddr) -> Option<IpAddr> {
    let ip = match remote.iter().next()? {
        Protocol::Ip4(ip) => IpAddr::from(ip),
        Protocol::Ip6(ip) => ip.to_canonical(),
        _ => return None,
    };
    (!ip.is_loopback()).then_some(ip)
}

impl NetworkBehaviour for Behaviour {
    type ConnectionHandler = dummy::ConnectionHandler;
    type ToSwarm = Infallible;

    fn handle_pending_inbound_connection(
        &mut self,
        connection: ConnectionId,
        _: &Multiaddr,
        remote: &Multiaddr,
    ) -> Result<(), ConnectionDenied> {
        let Some(ip) = origin(remote) else { return Ok(()) };
        if self.pending.values().filter(|other| **other == ip).count() >= MAX_PER_ADDRESS {
            return Err(ConnectionDenied::new(TooMany(ip)));
        }
        self.pending.insert(connection, ip);
        Ok(())
    }

    fn handle_established_inbound_connection(
        &mut self,
        connection: ConnectionId,
        _: PeerId,
        _: &Multiaddr,
        _: &Multiaddr,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        self.pending.remove(&connection);
        Ok(dummy::ConnectionHandler)
    }

    fn handle_established_outbound_connection(
        &mut self,
        _: ConnectionId,
        _: PeerId,
        _: &Multiaddr,
        _: Endpoint,
        _: PortUse,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        Ok(dummy::ConnectionHandler)
    }

    fn on_swarm_event(&mut self, event: FromSwarm<'_>) {
        if let FromSwarm::ListenFailure(failure) = event {
            self.pending.remove(&failure.connection_id);
        }
    }

    fn on_connection_handler_event(&mut self, _: PeerId, _: ConnectionId, event: THandlerOutEvent<Self>) {
        match event {}
    }

    fn poll(&mut self, _: &mut Context<'_>) -> Poll<ToSwarm<Self::ToSwarm, THandlerInEvent<Self>>> {
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comes(behaviour: &mut Behaviour, number: usize, from: &str) -> bool {
        let remote = from.parse().expect("a multiaddr");
        let id = ConnectionId::new_unchecked(number);
        behaviour.handle_pending_inbound_connection(id, &remote, &remote).is_ok()
    }

    #[test]
    fn one_address_has_its_share_and_no_more() {
        let mut behaviour = Behaviour::default();
        for number in 0..MAX_PER_ADDRESS {
            assert!(comes(&mut behaviour, number, &format!("/ip4/192.0.2.1/tcp/{}", 1000 + number)));
        }
        assert!(!comes(&mut behaviour, 100, "/ip4/192.0.2.1/tcp/1"), "whatever the port");
        assert!(!comes(&mut behaviour, 100, "/ip4/192.0.2.1/udp/1/quic-v1"), "whatever the transport");
        assert!(!comes(&mut behaviour, 100, "/ip6/::ffff:192.0.2.1/tcp/1"), "whatever it is written like");
        assert!(comes(&mut behaviour, 101, "/ip4/192.0.2.2/tcp/1"), "others have their own");
        // An admitted one makes room.
        let peer = libp2p::identity::Keypair::generate_ed25519().public().to_peer_id();
        let address: Multiaddr = "/ip4/192.0.2.1/tcp/1000".parse().expect("a multiaddr");
        let id = ConnectionId::new_unchecked(0);
        behaviour.handle_established_inbound_connection(id, peer, &address, &address).expect("no objection");
        assert!(comes(&mut behaviour, 102, "/ip4/192.0.2.1/tcp/1"));
    }

    #[test]
    fn this_machine_has_no_limit_of_its_own() {
        let mut behaviour = Behaviour::default();
        assert!((0..=MAX_PER_ADDRESS).all(|number| comes(&mut behaviour, number, "/ip4/127.0.0.1/tcp/1")));
        assert!(behaviour.pending.is_empty());
    }
}
