//! What an admitted peer can speak.

use std::sync::Arc;

use libp2p::swarm::NetworkBehaviour;
use libp2p::swarm::behaviour::toggle::Toggle;
use libp2p::{StreamProtocol, connection_limits, gossipsub, identify, mdns, ping};
use starling_topology::RunId;
use starling_topology::message::MAX_ADDRESSES;

use crate::access::pending;
use crate::credentials::identity::Identity;
use crate::credentials::name::Name;
use crate::member::member_list::MemberList;

/// Connections that have not been admitted yet, those among them that have lost their place and are about to go.
const MAX_PENDING: u32 = 512;
/// Peers that are dialed at a time, if the run may have no more members.
const MAX_DIALS: u32 = 32;
/// Connections beyond those of the members: of joiners, keepers, and whoever fetches something.
const MAX_OTHERS: u32 = 128;
/// A peer dials all of our addresses at once and keeps one connection. Until it has closed the others, all may be admitted, and so
/// may those that we have dialed meanwhile: whoever refuses one may refuse the one that is kept.
const MAX_PER_PEER: u32 = 2 * MAX_ADDRESSES as u32;
/// Two peers that dial each other at the same time keep two connections; the third is one that a broken network left behind.
const KEPT_PER_PEER: u32 = 3;

/// Everything behind admission. Gossip carries the run's id in its names, so that two runs never mix.
#[derive(NetworkBehaviour)]
pub(crate) struct Behaviour {
    limits: connection_limits::Behaviour,
    pub(crate) pending: pending::Behaviour,
    pub(crate) streams: libp2p_stream::Behaviour,
    identify: identify::Behaviour,
    ping: ping::Behaviour,
    pub(crate) gossip: gossipsub::Behaviour,
    mdns: Toggle<mdns::tokio::Behaviour>,
}

/// The names of a run's protocols.
#[derive(Debug, Clone)]
pub(crate) struct Protocols {
    pub(crate) control: StreamProtocol,
    pub(crate) segments: StreamProtocol,
    pub(crate) state: StreamProtocol,
    pub(crate) result: StreamProtocol,
    pub(crate) leaf: StreamProtocol,
    pub(crate) reach: StreamProtocol,
    pub(crate) probe: StreamProtocol,
    pub(crate) access: StreamProtocol,
    identify: StreamProtocol,
    pub(crate) contacts: gossipsub::IdentTopic,
    pub(crate) heads: gossipsub::IdentTopic,
    pub(crate) keepers: gossipsub::IdentTopic,
}

/// Hands out the manifest. The one protocol that does not name a run: a joiner learns the run by it.
pub(crate) const WELCOME: StreamProtocol = StreamProtocol::new("/starling/welcome/1");

impl Protocols {
    pub(crate) fn new(run: RunId) -> Self {
        let name = |kind: &str| {
            StreamProtocol::try_from_owned(format!("/starling/{run}/{kind}/1"))
                .expect("invariant: the name begins with a slash")
        };
        Self {
            control: name("control"),
            segments: name("segments"),
            state: name("state"),
            result: name("result"),
            leaf: name("leaf"),
            reach: name("reach"),
            probe: name("probe"),
            access: name("access"),
            identify: name("identify"),
            contacts: gossipsub::IdentTopic::new(format!("/starling/{run}/contacts/1")),
            heads: gossipsub::IdentTopic::new(format!("/starling/{run}/heads/1")),
            keepers: gossipsub::IdentTopic::new(format!("/starling/{run}/keepers/1")),
        }
    }
}

impl Behaviour {
    pub(crate) fn new(
        identity: &Identity,
        protocols: &Protocols,
        name: Option<&Name>,
        (max_peers, members): (usize, Arc<MemberList>),
        multicast: bool,
    ) -> std::io::Result<Self> {
        let me = identity.peer_id();
        let peers = u32::try_from(max_peers).unwrap_or(u32::MAX);
        let most = peers.saturating_mul(KEPT_PER_PEER).saturating_add(MAX_OTHERS);
        let limits = connection_limits::ConnectionLimits::default()
            .with_max_pending_incoming(Some(MAX_PENDING))
            .with_max_pending_outgoing(Some(peers.max(MAX_DIALS)))
            .with_max_established_per_peer(Some(MAX_PER_PEER))
            .with_max_established(Some(most));

        let gossip_config = gossipsub::ConfigBuilder::default()
            .validation_mode(gossipsub::ValidationMode::Strict)
            // Each copy's signature is checked. Members are connected to all others, so few copies reach all, and who
            // misses one asks for it.
            .flood_publish(false)
            .mesh_n(4)
            .mesh_n_low(3)
            .mesh_n_high(6)
            .mesh_outbound_min(1)
            .max_transmit_size(16 * 1024)
            .build()
            .map_err(std::io::Error::other)?;
        let authenticity = gossipsub::MessageAuthenticity::Signed(identity.keypair().clone());
        let mut gossip = gossipsub::Behaviour::new(authenticity, gossip_config).map_err(std::io::Error::other)?;
        for topic in [&protocols.contacts, &protocols.heads, &protocols.keepers] {
            gossip.subscribe(topic).map_err(std::io::Error::other)?;
        }

        let mdns = multicast.then(|| mdns::tokio::Behaviour::new(mdns::Config::default(), me)).transpose()?;
        let identify_config = identify::Config::new(protocols.identify.to_string(), identity.keypair().public())
            .with_agent_version(Name::agent(name))
            .with_cache_size(0);
        Ok(Self {
            limits: connection_limits::Behaviour::new(limits),
            pending: pending::Behaviour::new(members, most as usize / 2),
            streams: libp2p_stream::Behaviour::new(),
            identify: identify::Behaviour::new(identify_config),
            ping: ping::Behaviour::new(ping::Config::new()),
            gossip,
            mdns: Toggle::from(mdns),
        })
    }
}
