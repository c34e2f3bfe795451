//! Connections that are made only to ask for checkpoints, by whoever takes part in nothing yet.
//!
//! They come from an identity that is kept nowhere: it is admitted as the visitor of whoever asks, and no member takes their end for that of a member
//! which is about to come back.

use std::io;
use std::time::Duration;

use futures::StreamExt;
use libp2p::swarm::dial_opts::DialOpts;
use libp2p::swarm::{self, SwarmEvent};
use libp2p::{Multiaddr, Stream, StreamProtocol, Swarm};
use libp2p_stream::Control;
use starling_run::WIRE_VERSION;
use starling_topology::{Contact, PeerId, RunId};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::access::admission::Admission;
use crate::access::pending::Pending;
use crate::access::{Access, Credentials};
use crate::credentials::identity::{Identity, from_libp2p, to_libp2p};
use crate::error::NodeError;
use crate::net::behaviour::Protocols;
use crate::net::network::is_quic;
use crate::net::streams;
use crate::net::transport;
use crate::start::client::ask;

/// Peers that are asked.
const MAX_ASKED: usize = 64;
/// Refusals that wait to be looked at.
const MAX_TURNED: usize = 8;

/// A swarm that dials some peers, and serves nobody.
pub(crate) struct CheckpointDialer {
    control: Control,
    protocol: StreamProtocol,
    /// Each peer once: it is connected, or why not.
    outcomes: mpsc::Receiver<(PeerId, Result<(), String>)>,
    /// How many of them are still to come.
    waiting: usize,
    task: JoinHandle<()>,
}

impl Drop for CheckpointDialer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl CheckpointDialer {
    /// Dials these peers at all of their addresses.
    pub(crate) fn start(run: RunId, credentials: &Credentials, contacts: &[Contact]) -> Result<Self, NodeError> {
        let identity = Identity::generate();
        let (turned_in, mut turned) = mpsc::channel(MAX_TURNED);
        let admission = Admission {
            me: identity.peer_id(),
            access: Access::visiting(identity.peer_id(), Some(run), credentials),
            wire_version: WIRE_VERSION,
            turned: turned_in,
            pending: Pending::default(),
        };
        let transport = transport::build(&identity, admission, None).map_err(NodeError::Network)?;
        // It lives for a few questions.
        let config = swarm::Config::with_tokio_executor().with_idle_connection_timeout(Duration::MAX);
        let mut swarm = Swarm::new(transport, libp2p_stream::Behaviour::new(), identity.peer_id(), config);
        let control = swarm.behaviour().new_control();
        let (told, outcomes) = mpsc::channel(MAX_ASKED);
        let mut waiting = 0;
        for contact in contacts.iter().take(MAX_ASKED) {
            let parsed = contact.addresses.iter().filter_map(|address| address.parse().ok());
            let mut addresses: Vec<Multiaddr> = parsed.collect();
            addresses.sort_by_key(is_quic);
            let dialed = swarm.dial(DialOpts::peer_id(to_libp2p(contact.peer)).addresses(addresses).build());
            waiting += 1;
            if let Err(error) = dialed {
                // There is room for all of them.
                let _ = told.try_send((contact.peer, Err(ask::reason(&error))));
            }
        }
        let task = tokio::spawn(async move {
            loop {
                let event = swarm.select_next_some().await;
                let (peer, outcome) = match event {
                    SwarmEvent::ConnectionEstablished { peer_id, num_established, .. }
                        if num_established.get() == 1 =>
                    {
                        (peer_id, Ok(()))
                    }
                    SwarmEvent::OutgoingConnectionError { peer_id: Some(peer_id), error, .. }
                        if !swarm.is_connected(&peer_id) =>
                    {
                        // A handshake that failed says more than the dial that failed with it.
                        let refused =
                            std::iter::from_fn(|| turned.try_recv().ok()).find(|turned| turned.peer == Some(peer_id));
                        let reason = refused.map_or_else(|| ask::reason(&error), |turned| turned.error.to_string());
                        (peer_id, Err(reason))
                    }
                    _ => continue,
                };
                if let Some(peer) = from_libp2p(&peer) {
                    // Nobody may be asking any more; the connections serve those who fetch.
                    let _ = told.try_send((peer, outcome));
                }
            }
        });
        Ok(Self { control, protocol: Protocols::new(run).state, outcomes, waiting, task })
    }

    /// The next peer that can be asked, or why not. `None` once all have been told.
    pub(crate) async fn next(&mut self) -> Option<(PeerId, Result<(), String>)> {
        if self.waiting == 0 {
            return None;
        }
        let outcome = self.outcomes.recv().await;
        self.waiting -= 1;
        outcome
    }

    /// Opens streams to peers that are connected, each within `limit`.
    pub(crate) fn opener(&self, limit: Duration) -> impl Fn(PeerId) -> Opening + use<> {
        let (control, protocol) = (self.control.clone(), self.protocol.clone());
        move |peer| {
            let (mut control, protocol) = (control.clone(), protocol.clone());
            Box::pin(async move { streams::open(&mut control, to_libp2p(peer), &protocol, limit).await })
        }
    }
}

/// A stream on its way.
pub(crate) type Opening = futures::future::BoxFuture<'static, io::Result<Stream>>;
