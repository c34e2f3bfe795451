//! Connections to members for a machine that is none of them yet.

pub(crate) mod ask;
pub(crate) mod dialer;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use libp2p::swarm::behaviour::toggle::Toggle;
use libp2p::swarm::dial_opts::{DialOpts, PeerCondition};
use libp2p::swarm::{self, NetworkBehaviour, SwarmEvent};
use libp2p::{Multiaddr, PeerId, Stream, StreamProtocol, Swarm, mdns};
use libp2p_stream::Control;
use starling_run::WIRE_VERSION;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::access::Access;
use crate::access::admission::{Admission, Turned};
use crate::access::pending::Pending;
use crate::credentials::identity::Identity;
use crate::error::NodeError;
use crate::net::streams;
use crate::net::transport;

/// Connections that nothing uses are closed after this.
const IDLE_LIMIT: Duration = Duration::from_secs(15);
/// How long opening a stream may take, its connection included.
const OPEN_LIMIT: Duration = Duration::from_secs(5);
/// Dials that wait for the task.
const MAX_DIALS: usize = 64;

/// What the connections are for, and on request a look around the local network for where members are now.
#[derive(NetworkBehaviour)]
pub(crate) struct ClientBehaviour {
    pub(crate) streams: libp2p_stream::Behaviour,
    mdns: Toggle<mdns::tokio::Behaviour>,
}

/// A swarm that only visits, and a queue of those who did not admit it.
pub(crate) fn swarm(
    identity: &Identity,
    access: Access,
    multicast: bool,
) -> Result<(Swarm<ClientBehaviour>, mpsc::Receiver<Turned>), NodeError> {
    let (turned_in, turned) = mpsc::channel(8);
    let admission = Admission {
        me: identity.peer_id(),
        access,
        wire_version: WIRE_VERSION,
        turned: turned_in,
        pending: Pending::default(),
    };
    let transport = transport::build(identity, admission, None).map_err(NodeError::Network)?;
    let mdns = multicast.then(|| mdns::tokio::Behaviour::new(mdns::Config::default(), identity.peer_id())).transpose();
    let mdns = Toggle::from(mdns.map_err(NodeError::Network)?);
    let behaviour = ClientBehaviour { streams: libp2p_stream::Behaviour::new(), mdns };
    let config = swarm::Config::with_tokio_executor().with_idle_connection_timeout(IDLE_LIMIT);
    Ok((Swarm::new(transport, behaviour, identity.peer_id(), config), turned))
}

/// Opens streams to members. Its connections end with it.
pub(crate) struct Client {
    control: Control,
    protocol: StreamProtocol,
    dials: mpsc::Sender<(PeerId, Arc<[Multiaddr]>)>,
    task: JoinHandle<()>,
}

impl Client {
    /// Visits members for streams of `protocol`.
    pub(crate) fn start(
        identity: &Identity,
        access: Access,
        multicast: bool,
        protocol: StreamProtocol,
    ) -> Result<Self, NodeError> {
        let (swarm, _) = swarm(identity, access, multicast)?;
        let control = swarm.behaviour().streams.new_control();
        let (dials, wanted) = mpsc::channel(MAX_DIALS);
        Ok(Self { control, protocol, dials, task: tokio::spawn(drive(swarm, wanted)) })
    }

    /// Opens a stream to a member that may be at `addresses`.
    pub(crate) fn open(
        &self,
        peer: PeerId,
        addresses: Arc<[Multiaddr]>,
    ) -> impl Future<Output = io::Result<Stream>> + Send + 'static {
        let (mut control, protocol, dials) = (self.control.clone(), self.protocol.clone(), self.dials.clone());
        async move {
            // The task lives as long as the client; without it, there is no stream either.
            let _ = dials.send((peer, addresses)).await;
            streams::open(&mut control, peer, &protocol, OPEN_LIMIT).await
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Moves the swarm, and dials who is wanted.
async fn drive(mut swarm: Swarm<ClientBehaviour>, mut wanted: mpsc::Receiver<(PeerId, Arc<[Multiaddr]>)>) {
    let mut known: BTreeMap<PeerId, Arc<[Multiaddr]>> = BTreeMap::new();
    loop {
        tokio::select! {
            Some((peer, addresses)) = wanted.recv() => {
                dial(&mut swarm, peer, addresses.to_vec(), PeerCondition::DisconnectedAndNotDialing);
                known.insert(peer, addresses);
            }
            event = swarm.select_next_some() => match event {
                SwarmEvent::Behaviour(ClientBehaviourEvent::Mdns(mdns::Event::Discovered(found))) => {
                    // Also while another dial hangs: it may be to where the member was yesterday.
                    for (peer, address) in found.into_iter().filter(|(peer, _)| known.contains_key(peer)) {
                        dial(&mut swarm, peer, vec![address], PeerCondition::Disconnected);
                    }
                }
                SwarmEvent::OutgoingConnectionError { peer_id: Some(peer), error, .. } => {
                    tracing::debug!(%peer, %error, "dial failed");
                }
                _ => {}
            }
        }
    }
}

fn dial(swarm: &mut Swarm<ClientBehaviour>, peer: PeerId, addresses: Vec<Multiaddr>, condition: PeerCondition) {
    let options = DialOpts::peer_id(peer).condition(condition).addresses(addresses).build();
    if let Err(error) = swarm.dial(options) {
        tracing::debug!(%peer, %error, "not dialed");
    }
}
