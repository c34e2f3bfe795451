//! How a joiner asks a member what the run is, before it prepares to take part.

use std::time::Duration;

use futures::StreamExt;
use libp2p::multiaddr::Protocol;
use libp2p::swarm::dial_opts::{DialOpts, PeerCondition};
use libp2p::swarm::{DialError, SwarmEvent};
use libp2p::{Multiaddr, PeerId, mdns};
use starling_topology::{Contact, RunId};
use starling_train::Manifest;

use crate::behaviour::WELCOME;
use crate::error::NodeError;
use crate::identity::{Identity, from_libp2p};
use crate::network::is_quic;
use crate::secret::Secret;
use crate::settings::{Joining, Target};
use crate::streams;
use crate::ticket::Ticket;
use crate::visitor::{self, VisitorBehaviourEvent};
use crate::welcome::{self, Terms};

/// How long the member that we join through may take to answer.
const ASK_LIMIT: Duration = Duration::from_secs(15);

/// The member that we join through.
pub(crate) struct Member {
    pub(crate) peer: PeerId,
    pub(crate) addresses: Vec<Multiaddr>,
    pub(crate) run: Option<RunId>,
    pub(crate) secret: Option<[u8; 32]>,
}

impl Member {
    pub(crate) fn of(joining: &Joining) -> Result<Self, NodeError> {
        match &joining.target {
            Target::Ticket(Ticket { peer, addresses, run, secret }) => Ok(Self {
                peer: *peer,
                addresses: addresses.clone(),
                run: Some(*run),
                secret: secret.or(joining.secret),
            }),
            Target::Address(address) => {
                let Some(Protocol::P2p(peer)) = address.iter().last() else {
                    return Err(NodeError::NoPeer(address.to_string()));
                };
                Ok(Self { peer, addresses: vec![address.clone()], run: None, secret: joining.secret })
            }
        }
    }

    /// Where it can be reached.
    pub(crate) fn contact(&self) -> Result<Contact, NodeError> {
        let peer = from_libp2p(&self.peer).ok_or_else(|| NodeError::NoPeer(self.peer.to_string()))?;
        Ok(Contact { peer, addresses: self.addresses.iter().map(ToString::to_string).collect() })
    }
}

/// Asks a member what the run is, over a connection made for that alone.
pub(crate) async fn ask(
    identity: &Identity,
    member: &Member,
    multicast: bool,
    ours: Option<&Manifest>,
) -> Result<Terms, NodeError> {
    let peer = member.peer;
    let unreachable = |reason: String| NodeError::Unreachable { peer: peer.to_string(), reason };
    let (mut swarm, mut turned) = visitor::swarm(identity, Secret::new(member.secret), multicast)?;
    let mut control = swarm.behaviour().streams.new_control();

    let mut addresses = member.addresses.clone();
    addresses.sort_by_key(is_quic);
    let dialed = swarm.dial(DialOpts::peer_id(peer).addresses(addresses).build());
    let mut failed = dialed.err().map(|error| unreachable(reason(&error)));
    let exchange = async {
        let stream = streams::open(&mut control, peer, &WELCOME, ASK_LIMIT).await?;
        welcome::ask(stream, ours).await
    };
    tokio::pin!(exchange);
    let deadline = tokio::time::sleep(ASK_LIMIT);
    tokio::pin!(deadline);
    let mut connected = false;
    loop {
        // With multicast the member may yet be found at another address.
        if let Some(error) = failed.take_if(|_| !multicast) {
            return Err(error);
        }
        tokio::select! {
            terms = &mut exchange, if connected => {
                return terms.map_err(|error| unreachable(format!("it did not hand out its manifest ({error})")));
            }
            event = swarm.select_next_some() => match event {
                SwarmEvent::ConnectionEstablished { .. } => connected = true,
                SwarmEvent::OutgoingConnectionError { error, .. } if !connected => {
                    // A handshake that failed says more than the dial that failed with it, and is final.
                    if let Ok(turned) = turned.try_recv() {
                        return Err(NodeError::NotAdmitted { peer: peer.to_string(), error: turned.error });
                    }
                    failed = Some(unreachable(reason(&error)));
                }
                SwarmEvent::Behaviour(VisitorBehaviourEvent::Mdns(mdns::Event::Discovered(found))) if !connected => {
                    let addresses: Vec<_> =
                        found.into_iter().filter(|(found, _)| *found == peer).map(|(_, address)| address).collect();
                    // Also while the first dial hangs: it may be to where the member was yesterday.
                    let options = DialOpts::peer_id(peer).condition(PeerCondition::Disconnected);
                    if !addresses.is_empty()
                        && let Err(error) = swarm.dial(options.addresses(addresses).build())
                    {
                        tracing::debug!(%peer, %error, "not dialed");
                    }
                }
                _ => {}
            },
            () = &mut deadline => {
                let silent = || unreachable(format!("no answer within {} s", ASK_LIMIT.as_secs()));
                return Err(failed.unwrap_or_else(silent));
            }
        }
    }
}

/// A dial error as one line, without libp2p's nesting.
pub(crate) fn reason(error: &DialError) -> String {
    match error {
        DialError::Transport(attempts) => attempts
            .iter()
            .map(|(address, error)| {
                let mut cause: &dyn std::error::Error = error;
                while let Some(source) = cause.source() {
                    cause = source;
                }
                format!("{address}: {cause}")
            })
            .collect::<Vec<_>>()
            .join("; "),
        other => other.to_string(),
    }
}
