//! The swarm, and where its peers are.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::error::Error;
use std::time::Duration;

use futures::StreamExt;
use libp2p::gossipsub::{self, TopicHash};
use libp2p::multiaddr::Protocol;
use libp2p::swarm::dial_opts::{DialOpts, PeerCondition};
use libp2p::swarm::{self, SwarmEvent};
use libp2p::{Multiaddr, PeerId, Swarm};
use starling_run::WIRE_VERSION;
use starling_topology::message::{MAX_ADDRESS_BYTES, MAX_ADDRESSES};
use starling_topology::{Contact, RunId};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::admission::{Admission, Turned};
use crate::allowance::Allowance;
use crate::behaviour::{Behaviour, BehaviourEvent, Protocols};
use crate::error::NodeError;
use crate::identity::{Identity, from_libp2p, to_libp2p};
use crate::listen::{self, Places, Turn};
use crate::name::Name;
use crate::pending::{Pending, ip_of};
use crate::report::Report;
use crate::secret::Secret;
use crate::settings::Settings;
use crate::transport;

/// Refusals that wait to be told; more are dropped.
pub(crate) const MAX_NOTICES: usize = 64;
/// Refusals that are told one after the other; then one each second.
const TOLD_BURST: u64 = 16;
/// How long listening may take to begin.
const LISTEN_LIMIT: Duration = Duration::from_secs(5);
/// How long to wait for a listener's next address.
const LISTEN_PAUSE: Duration = Duration::from_millis(50);
/// Peers whose addresses are kept.
const MAX_CONTACTS: usize = 2048;

/// How often we tell the swarm where we are.
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(30);
/// How long newcomers wait to be told. When many come together, or one comes among many, one message does for all.
const ANNOUNCE_PAUSE: Duration = Duration::from_secs(1);

/// What we are in the swarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// One that trains, or wants to.
    Member,
    /// One that stores checkpoints.
    Keeper,
}

/// A swarm, and how to reach its peers.
pub(crate) struct Network {
    pub(crate) swarm: Swarm<Behaviour>,
    pub(crate) protocols: Protocols,
    pub(crate) turned: mpsc::Receiver<Turned>,
    pending: Pending,
    /// Addresses that others may try, for peers that we know of.
    contacts: BTreeMap<PeerId, Vec<Multiaddr>>,
    /// Since when peers are being dialed.
    dialing: BTreeMap<PeerId, Instant>,
    /// Peers that we dialed over TCP and may yet try over QUIC.
    untried: BTreeSet<PeerId>,
    announced: Vec<Multiaddr>,
    /// Who told a name.
    named: BTreeSet<PeerId>,
    /// Names that are news.
    names: VecDeque<(PeerId, Name)>,
    /// Where we tell of ourselves.
    topic: TopicHash,
    announce_at: Instant,
    /// Refusals that may be told.
    tellable: Allowance,
}

impl Network {
    /// Builds the swarm of `run`. Nothing is served yet, and nobody can come in before [`Self::listen`].
    pub(crate) fn new(
        identity: &Identity,
        secret: Secret,
        settings: &Settings,
        (run, part): (RunId, Part),
        max_stall: Duration,
    ) -> Result<Self, NodeError> {
        let protocols = Protocols::new(run);
        let (turned_in, turned) = mpsc::channel(MAX_NOTICES);
        let name = settings.own_name(secret.is_private());
        let (me, pending) = (identity.peer_id(), Pending::default());
        let admission =
            Admission { me, secret, wire_version: WIRE_VERSION, turned: turned_in, pending: pending.clone() };
        let transport = transport::build(identity, admission, Some(max_stall / 2)).map_err(NodeError::Network)?;
        let behaviour = Behaviour::new(identity, &protocols, name.as_ref(), settings.max_peers, settings.mdns)
            .map_err(NodeError::Network)?;
        // Members keep their connections however quiet they are.
        let config = swarm::Config::with_tokio_executor().with_idle_connection_timeout(Duration::MAX);
        let swarm = Swarm::new(transport, behaviour, identity.peer_id(), config);
        let topic = match part {
            Part::Member => protocols.contacts.hash(),
            Part::Keeper => protocols.keepers.hash(),
        };
        Ok(Self {
            swarm,
            protocols,
            turned,
            pending,
            contacts: BTreeMap::new(),
            dialing: BTreeMap::new(),
            untried: BTreeSet::new(),
            named: BTreeSet::new(),
            names: VecDeque::new(),
            announced: settings.announce.clone(),
            topic,
            announce_at: Instant::now(),
            tellable: Allowance::new(TOLD_BURST, 1, Instant::now()),
        })
    }

    /// Listens there.
    pub(crate) async fn listen(&mut self, places: &Places) -> Result<(), NodeError> {
        listen(&mut self.swarm, places).await
    }

    pub(crate) fn control(&self) -> libp2p_stream::Control {
        self.swarm.behaviour().streams.new_control()
    }

    /// Where this machine listens, as far as others can make use of it, the most useful first. Without `/p2p`.
    pub(crate) fn listened(&self) -> Vec<Multiaddr> {
        let mut listened: Vec<Multiaddr> = self.swarm.listeners().cloned().collect();
        listen::most_useful_first(&mut listened);
        listened
    }

    /// Where others can reach us: announced addresses first. Without `/p2p`.
    pub(crate) fn addresses(&self) -> Vec<Multiaddr> {
        let mut addresses = self.announced.clone();
        addresses.extend(self.listened());
        addresses.retain(|address| address.to_string().len() <= MAX_ADDRESS_BYTES);
        addresses.truncate(MAX_ADDRESSES);
        addresses
    }

    pub(crate) fn contact(&self) -> Contact {
        let peer = from_libp2p(self.swarm.local_peer_id()).expect("invariant: our own key is Ed25519");
        Contact { peer, addresses: self.addresses().iter().map(ToString::to_string).collect() }
    }

    /// Remembers how to reach a peer. Addresses that are none are left out: they came from another machine.
    pub(crate) fn learn(&mut self, contact: &Contact) {
        let peer = to_libp2p(contact.peer);
        if peer == *self.swarm.local_peer_id() {
            return;
        }
        if self.contacts.len() >= MAX_CONTACTS && !self.contacts.contains_key(&peer) {
            // Whoever we are not connected to may never come back.
            let gone = self.contacts.keys().find(|known| !self.swarm.is_connected(known)).copied();
            let Some(gone) = gone else { return };
            self.forget(gone);
        }
        let addresses: Vec<Multiaddr> = contact.addresses.iter().filter_map(|address| address.parse().ok()).collect();
        for address in &addresses {
            self.swarm.behaviour_mut().kademlia.add_address(&peer, address.clone());
        }
        self.contacts.insert(peer, addresses);
    }

    /// Keeps places for these to come back to, wherever they are known to be.
    pub(crate) fn expect(&self, members: &[starling_topology::PeerId]) {
        let addresses = members.iter().filter_map(|member| self.contacts.get(&to_libp2p(*member))).flatten();
        self.pending.expect(addresses.filter_map(ip_of));
    }

    /// Forgets how to reach a peer that has left.
    pub(crate) fn forget(&mut self, peer: PeerId) {
        self.contacts.remove(&peer);
        self.untried.remove(&peer);
        self.named.remove(&peer);
        self.swarm.behaviour_mut().kademlia.remove_peer(&peer);
    }

    /// Takes a peer's first name: one that changed it all the time would fill every log.
    fn learn_name(&mut self, peer: PeerId, agent: &str) {
        if self.named.len() >= MAX_CONTACTS || self.named.contains(&peer) {
            return;
        }
        if let Some(name) = Name::of_agent(agent) {
            self.named.insert(peer);
            self.names.push_back((peer, name));
        }
    }

    /// A name that was learnt and that nobody has taken in yet.
    pub(crate) fn next_name(&mut self) -> Option<Report> {
        let (peer, name) = self.names.pop_front()?;
        Some(Report::Named { peer: peer.to_string(), name: name.to_string() })
    }

    /// What to tell of a connection that was not admitted. Of many, a few are enough.
    pub(crate) fn tell_turned(&mut self, turned: &Turned) -> Option<Report> {
        let peer = turned.news()?;
        let (peer, reason) = (peer.to_string(), turned.error.to_string());
        self.tellable.take(1, Instant::now()).then_some(Report::Turned { peer, reason })
    }

    /// Dials a peer unless a connection is there or on its way: over TCP if it has such an address.
    pub(crate) fn connect(&mut self, peer: PeerId) {
        let known = self.contacts.get(&peer).cloned().unwrap_or_default();
        let (quic, tcp): (Vec<_>, Vec<_>) = known.into_iter().partition(is_quic);
        if !tcp.is_empty() && !quic.is_empty() {
            self.untried.insert(peer);
        }
        self.dial(peer, if tcp.is_empty() { quic } else { tcp });
    }

    /// After a failed dial: tries QUIC, once.
    fn fall_back(&mut self, peer: PeerId) {
        if self.untried.remove(&peer) {
            let known = self.contacts.get(&peer).cloned().unwrap_or_default();
            self.dial(peer, known.into_iter().filter(is_quic).collect());
        }
    }

    /// Gives up a dial that has gone on for this long, so that the next one begins anew. One that began while the network
    /// was broken waits for TCP to try again.
    pub(crate) fn abandon_dial(&mut self, peer: PeerId, age: Duration) {
        if self.dialing.get(&peer).is_some_and(|since| since.elapsed() >= age) && !self.swarm.is_connected(&peer) {
            let _ = self.swarm.disconnect_peer_id(peer);
        }
    }

    fn dial(&mut self, peer: PeerId, addresses: Vec<Multiaddr>) {
        if self.swarm.is_connected(&peer) {
            return;
        }
        // Kademlia adds what it knows if there is nothing else.
        let extend = addresses.is_empty();
        let options = DialOpts::peer_id(peer).condition(PeerCondition::DisconnectedAndNotDialing).addresses(addresses);
        let options = if extend { options.extend_addresses_through_behaviour().build() } else { options.build() };
        match self.swarm.dial(options) {
            Ok(()) => {
                self.dialing.entry(peer).or_insert_with(Instant::now);
            }
            Err(error) => tracing::debug!(%peer, %error, "not dialed"),
        }
    }

    /// When [`Self::announce`] is due.
    pub(crate) fn announce_at(&self) -> Instant {
        self.announce_at
    }

    /// Tells the swarm's peers that we are there, and where.
    pub(crate) fn announce(&mut self) {
        self.announce_at = Instant::now() + ANNOUNCE_INTERVAL;
        let bytes = postcard::to_allocvec(&self.contact()).expect("invariant: a contact always encodes");
        if let Err(error) = self.swarm.behaviour_mut().gossip.publish(self.topic.clone(), bytes) {
            // Nobody to tell yet, or nothing new.
            tracing::debug!(%error, "contact not gossiped");
        }
    }

    /// Tells the swarm's peers which checkpoint we hold: what a head and our signature of it are on the wire.
    pub(crate) fn announce_head(&mut self, bytes: Vec<u8>) {
        let topic = self.protocols.heads.hash();
        if let Err(error) = self.swarm.behaviour_mut().gossip.publish(topic, bytes) {
            // Nobody to tell yet. It is told again.
            tracing::debug!(%error, "head not gossiped");
        }
    }

    /// Takes in what concerns only the network; hands the rest on.
    pub(crate) fn absorb(&mut self, event: SwarmEvent<BehaviourEvent>) -> Option<SwarmEvent<BehaviourEvent>> {
        match event {
            SwarmEvent::Behaviour(BehaviourEvent::Identify(libp2p::identify::Event::Received {
                peer_id,
                info,
                ..
            })) => {
                for address in info.listen_addrs.into_iter().take(MAX_ADDRESSES) {
                    self.swarm.behaviour_mut().kademlia.add_address(&peer_id, address);
                }
                self.learn_name(peer_id, &info.agent_version);
                None
            }
            SwarmEvent::Behaviour(BehaviourEvent::Mdns(libp2p::mdns::Event::Discovered(found))) => {
                for (peer, address) in found {
                    // Admission decides whether it is one of ours; Kademlia hands the address to the dial.
                    self.swarm.behaviour_mut().kademlia.add_address(&peer, address);
                    self.connect(peer);
                }
                None
            }
            // Only now can it be told anything.
            SwarmEvent::Behaviour(BehaviourEvent::Gossip(gossipsub::Event::Subscribed { topic, .. })) => {
                if topic == self.topic {
                    self.announce_at = self.announce_at.min(Instant::now() + ANNOUNCE_PAUSE);
                }
                None
            }
            // A behaviour's dial; our own ones come back from the swarm at once.
            SwarmEvent::Dialing { peer_id: Some(peer), .. } => {
                self.dialing.entry(peer).or_insert_with(Instant::now);
                None
            }
            SwarmEvent::ConnectionEstablished { peer_id, .. } => {
                self.dialing.remove(&peer_id);
                Some(event)
            }
            SwarmEvent::OutgoingConnectionError { peer_id: Some(peer), error, .. } => {
                self.dialing.remove(&peer);
                tracing::debug!(%peer, %error, "dial failed");
                self.fall_back(peer);
                None
            }
            other => Some(other),
        }
    }
}

/// Starts all listeners and waits until each has an address; or one of them, if that is enough.
async fn listen<B: swarm::NetworkBehaviour>(swarm: &mut Swarm<B>, places: &Places) -> Result<(), NodeError> {
    let (mut pending, mut refused) = open(swarm, places).await;
    if places.are_wanted && !refused.is_empty() {
        return Err(refused.remove(0));
    }
    let mut is_there = false;
    let began = tokio::time::Instant::now();
    loop {
        // A listener on all interfaces tells them one by one; the last one is there when none follows. Where some listener has
        // an address, IPv6 that nobody asked for is not waited for: there may be no interface for it, ever.
        let is_optional = !places.are_wanted && is_there && pending.values().all(is_ipv6);
        let is_enough = pending.is_empty() || is_optional;
        let patience = if is_enough { LISTEN_PAUSE } else { LISTEN_LIMIT.saturating_sub(began.elapsed()) };
        let Ok(event) = tokio::time::timeout(patience, swarm.select_next_some()).await else {
            if is_there && (is_enough || !places.are_wanted) {
                return Ok(());
            }
            let address = pending.values().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let reason = "no network interface of this machine has an address of that kind".to_owned();
            return Err(refused.pop().unwrap_or(NodeError::Listen { address, reason }));
        };
        match event {
            SwarmEvent::NewListenAddr { listener_id, .. } => {
                pending.remove(&format!("{listener_id:?}"));
                is_there = true;
            }
            SwarmEvent::ListenerClosed { listener_id, reason: Err(error), .. } => {
                let address = pending.remove(&format!("{listener_id:?}")).map(|address| address.to_string());
                let (address, reason) = (address.unwrap_or_default(), with_causes(&error));
                return Err(NodeError::Listen { address, reason });
            }
            _ => {}
        }
    }
}

/// Opens all sockets that are to be listened on, and says which could not be.
async fn open<B: swarm::NetworkBehaviour>(
    swarm: &mut Swarm<B>,
    places: &Places,
) -> (BTreeMap<String, Multiaddr>, Vec<NodeError>) {
    let (mut pending, mut refused) = (BTreeMap::new(), Vec::new());
    let _turn = Turn::take().await;
    for address in &places.addresses {
        let opened = listen::check(std::slice::from_ref(address)).and_then(|()| {
            let refused = |reason| NodeError::Listen { address: address.to_string(), reason };
            swarm.listen_on(address.clone()).map_err(|error| refused(with_causes(&error)))
        });
        match opened {
            Ok(id) => _ = pending.insert(format!("{id:?}"), address.clone()),
            Err(error) => {
                tracing::debug!(%error, wanted = places.are_wanted, "not listening there");
                refused.push(error);
            }
        }
    }
    (pending, refused)
}

/// What an error says, and what its causes say besides: the outermost ones may say nothing.
fn with_causes(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| (*error).source()).map(ToString::to_string);
    let mut said: Vec<String> = Vec::new();
    for cause in causes.filter(|cause| !cause.is_empty()) {
        if !said.iter().any(|before| before.contains(&cause)) {
            said.push(cause);
        }
    }
    said.join(": ")
}

fn is_ipv6(address: &Multiaddr) -> bool {
    matches!(address.iter().next(), Some(Protocol::Ip6(_)))
}

/// Whether an address is reached over QUIC.
pub(crate) fn is_quic(address: &Multiaddr) -> bool {
    address.iter().any(|part| matches!(part, Protocol::QuicV1 | Protocol::Quic))
}
