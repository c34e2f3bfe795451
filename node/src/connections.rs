//! Which connections are dead although nobody has closed them.
//!
//! A network that breaks closes nothing. When it mends, TCP waits up to as long again as it was broken before it tries
//! anew, and what is sent on such a connection waits with it. A new connection is there at once. So whoever has reason to
//! think that an old one is dead closes it; the next message dials.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use libp2p::core::Endpoint;
use libp2p::core::transport::PortUse;
use libp2p::swarm::{
    CloseConnection, ConnectionDenied, ConnectionId, FromSwarm, NetworkBehaviour, THandler, THandlerInEvent,
    THandlerOutEvent, ToSwarm, dummy,
};
use libp2p::{Multiaddr, PeerId};

/// Two peers that dial each other at once hold two connections of about the same age, and neither is dead.
const SAME_AGE: Duration = Duration::from_secs(1);

/// Knows the age of each connection, and closes old ones.
#[derive(Debug, Default)]
pub(crate) struct Behaviour {
    /// Bounded by the number of connections, which has a limit of its own.
    established: BTreeMap<PeerId, BTreeMap<ConnectionId, Instant>>,
    closing: VecDeque<(PeerId, ConnectionId)>,
}

impl Behaviour {
    /// Closes the connections to `peer` that are at least this old.
    pub(crate) fn close_older(&mut self, peer: PeerId, age: Duration) {
        let Some(established) = self.established.get(&peer) else { return };
        for (connection, since) in established.iter().filter(|(_, since)| since.elapsed() >= age) {
            tracing::info!(%peer, %connection, age = ?since.elapsed(), "closing an old connection");
            self.closing.push_back((peer, *connection));
        }
    }

    /// Whom we are connected to.
    pub(crate) fn peers(&self) -> impl Iterator<Item = PeerId> {
        self.established.keys().copied()
    }
}

impl NetworkBehaviour for Behaviour {
    type ConnectionHandler = dummy::ConnectionHandler;
    type ToSwarm = Infallible;

    fn handle_established_inbound_connection(
        &mut self,
        _: ConnectionId,
        _: PeerId,
        _: &Multiaddr,
        _: &Multiaddr,
    ) -> Result<THandler<Self>, ConnectionDenied> {
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
        match event {
            FromSwarm::ConnectionEstablished(new) => {
                if new.endpoint.is_listener() {
                    // Who is connected does not dial: its ends of the old ones are closed.
                    self.close_older(new.peer_id, SAME_AGE);
                }
                tracing::info!(peer=%new.peer_id, connection=%new.connection_id, endpoint=?new.endpoint, other=new.other_established, "established");
                self.established.entry(new.peer_id).or_default().insert(new.connection_id, Instant::now());
            }
            FromSwarm::ConnectionClosed(closed) => {
                tracing::info!(peer=%closed.peer_id, connection=%closed.connection_id, cause=?closed.cause, "closed");
                if let Some(established) = self.established.get_mut(&closed.peer_id) {
                    established.remove(&closed.connection_id);
                    if established.is_empty() {
                        self.established.remove(&closed.peer_id);
                    }
                }
            }
            _ => {}
        }
    }

    fn on_connection_handler_event(&mut self, _: PeerId, _: ConnectionId, event: THandlerOutEvent<Self>) {
        match event {}
    }

    fn poll(&mut self, _: &mut Context<'_>) -> Poll<ToSwarm<Self::ToSwarm, THandlerInEvent<Self>>> {
        match self.closing.pop_front() {
            Some((peer_id, connection)) => {
                Poll::Ready(ToSwarm::CloseConnection { peer_id, connection: CloseConnection::One(connection) })
            }
            None => Poll::Pending,
        }
    }
}
