//! The swarm, and where its peers are.

mod announcements;
mod guests;
pub(crate) mod telling;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::StreamExt;
use libp2p::gossipsub::{self, TopicHash};
use libp2p::multiaddr::Protocol;
use libp2p::swarm::dial_opts::{DialOpts, PeerCondition};
use libp2p::swarm::{self, SwarmEvent};
use libp2p::{Multiaddr, PeerId, Swarm};
use serde::{Deserialize, Serialize};
use starling_run::WIRE_VERSION;
use starling_topology::message::{MAX_ADDRESS_BYTES, MAX_ADDRESSES};
use starling_topology::{Contact, RunId};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::access::admission::{Admission, Turned};
use crate::access::pending::{Pending, ip_of};
use crate::access::{self, Access, FileWatcher};
use crate::credentials::identity::{Identity, from_libp2p, to_libp2p};
use crate::credentials::name::Name;
use crate::error::NodeError;
use crate::member::member_list::MemberList;
use crate::net::allowance::Allowance;
use crate::net::behaviour::{Behaviour, BehaviourEvent, Protocols};
use crate::net::frame;
use crate::net::listen::{self, Places, PortLock};
use crate::net::transport;
use crate::observe::report::Report;
use crate::settings::Settings;

/// Refusals that wait to be told; more are dropped.
pub(crate) const MAX_NOTICES: usize = 64;
/// How long listening may take to begin.
const LISTEN_LIMIT: Duration = Duration::from_secs(5);
/// How long to wait for a listener's next address.
const LISTEN_PAUSE: Duration = Duration::from_millis(50);
/// Of those, peers that nobody has heard from but at second hand.
const MAX_UNPROVEN: usize = 256;
/// Peers whose addresses are kept.
const MAX_CONTACTS: usize = 2048;

/// Streams of one connection that nobody has said yet what they are for: each may hold 256 KiB. A member begins with six.
const MAX_NEGOTIATING: usize = 16;
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

/// What a peer tells all of where it is.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Announcement {
    pub(crate) contact: Contact,
    /// Higher than in all that it told before.
    pub(crate) counter: u64,
}

impl Announcement {
    /// Reads what `author` is to have said; `None` if nobody says that of itself.
    pub(crate) fn of(author: starling_topology::PeerId, bytes: &[u8]) -> Option<Self> {
        let is_its_own = |it: &Self| it.contact.peer == author && it.contact.is_bounded();
        frame::decode(bytes).ok().filter(is_its_own)
    }
}

/// A swarm, and how to reach its peers.
pub(crate) struct Network {
    pub(crate) swarm: Swarm<Behaviour>,
    pub(crate) protocols: Protocols,
    pub(crate) turned: mpsc::Receiver<Turned>,
    /// Who may be here.
    pub(crate) access: Access,
    pending: Pending,
    /// Who is a member.
    pub(crate) members: Arc<MemberList>,
    /// Those of them that nobody but they themselves told of, and that were never connected.
    unproven: BTreeSet<PeerId>,
    /// Of the newest announcement that they made.
    counters: BTreeMap<PeerId, u64>,
    /// Of our own newest one.
    counter: u64,
    /// Since when peers are being dialed.
    dialing: BTreeMap<PeerId, Instant>,
    /// Peers that we dialed over TCP and may yet try over QUIC.
    untried: BTreeSet<PeerId>,
    announced: Vec<Multiaddr>,
    /// Who told a name.
    named: BTreeSet<PeerId>,
    /// Keepers that have come, until they are taken in.
    met: VecDeque<Contact>,
    /// Names that are news.
    names: VecDeque<(PeerId, Name)>,
    /// Sees what the founder leaves in the data directory.
    _watch: FileWatcher,
    /// Where we tell of ourselves.
    topic: TopicHash,
    announce_at: Instant,
    /// Refusals that may be told.
    tellable: Allowance,
    /// Misdeeds that may be told.
    accusable: Allowance,
    /// What each passes on that nobody answers for.
    brought: BTreeMap<PeerId, Allowance>,
}

impl Network {
    /// Builds the swarm of `run`. Nothing is served yet, and nobody can come in before [`Self::listen`].
    pub(crate) fn new(
        identity: &Identity,
        access: Access,
        settings: &Settings,
        (run, part): (RunId, Part),
        max_stall: Duration,
    ) -> Result<Self, NodeError> {
        let protocols = Protocols::new(run);
        let (turned_in, turned) = mpsc::channel(MAX_NOTICES);
        let name = settings.own_name(access.is_private());
        let (me, pending) = (identity.peer_id(), Pending::default());
        let admission = Admission {
            me,
            access: access.clone(),
            wire_version: WIRE_VERSION,
            turned: turned_in,
            pending: pending.clone(),
        };
        let transport = transport::build(identity, admission, Some(max_stall / 2)).map_err(NodeError::Network)?;
        let members = Arc::<MemberList>::default();
        let places = (settings.max_peers, members.clone());
        let behaviour = Behaviour::new(identity, &protocols, name.as_ref(), places, settings.mdns);
        let behaviour = behaviour.map_err(NodeError::Network)?;
        // Members keep their connections however quiet they are.
        let config = swarm::Config::with_tokio_executor()
            .with_idle_connection_timeout(Duration::MAX)
            .with_max_negotiating_inbound_streams(MAX_NEGOTIATING);
        let swarm = Swarm::new(transport, behaviour, identity.peer_id(), config);
        access::serve(swarm.behaviour().streams.new_control(), protocols.access.clone(), access.clone());
        let watch = access.watch(settings.data_dir.clone(), run);
        let topic = match part {
            Part::Member => protocols.contacts.hash(),
            Part::Keeper => protocols.keepers.hash(),
        };
        Ok(Self {
            swarm,
            protocols,
            turned,
            access,
            pending,
            members,
            unproven: BTreeSet::new(),
            counters: BTreeMap::new(),
            counter: 0,
            dialing: BTreeMap::new(),
            untried: BTreeSet::new(),
            named: BTreeSet::new(),
            met: VecDeque::new(),
            names: VecDeque::new(),
            announced: settings.announce.clone(),
            _watch: watch,
            topic,
            announce_at: Instant::now(),
            tellable: telling::allowance(),
            accusable: telling::allowance(),
            brought: BTreeMap::new(),
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

    /// Addresses that may be tried, for peers that we know of: at most [`MAX_ADDRESSES`] for each.
    fn contacts(&self) -> &BTreeMap<PeerId, Vec<Multiaddr>> {
        &self.swarm.behaviour().pending.contacts
    }

    /// Remembers how to reach a peer. Addresses that are none are left out: they came from another machine.
    pub(crate) fn learn(&mut self, contact: &Contact) {
        let peer = to_libp2p(contact.peer);
        if peer == *self.swarm.local_peer_id() {
            return;
        }
        let parsed = contact.addresses.iter().filter_map(|address| address.parse().ok());
        let addresses: Vec<Multiaddr> = parsed.take(MAX_ADDRESSES).collect();
        self.unproven.remove(&peer);
        if self.make_room(peer) {
            self.swarm.behaviour_mut().pending.contacts.insert(peer, addresses);
        }
    }

    /// Whether there is room for what is known of a peer. Who is no member and not connected makes room if there is none.
    fn make_room(&mut self, peer: PeerId) -> bool {
        if self.contacts().len() < MAX_CONTACTS || self.contacts().contains_key(&peer) {
            return true;
        }
        let is_member = |known: &PeerId| from_libp2p(known).is_some_and(|known| self.members.has(&known));
        let is_gone = |known: &&PeerId| !self.swarm.is_connected(known) && !is_member(known);
        let gone = self.unproven.first().or_else(|| self.contacts().keys().find(is_gone)).copied();
        gone.inspect(|gone| self.forget(*gone)).is_some()
    }

    /// These are the members: places are kept for them to come back to, wherever they are known to be.
    pub(crate) fn expect(&self, members: &[starling_topology::PeerId]) {
        self.members.enter(members);
        let addresses = members.iter().filter_map(|member| self.contacts().get(&to_libp2p(*member))).flatten();
        self.pending.expect(addresses.filter_map(ip_of));
    }

    /// Forgets how to reach a peer that has left.
    pub(crate) fn forget(&mut self, peer: PeerId) {
        self.swarm.behaviour_mut().pending.contacts.remove(&peer);
        self.counters.remove(&peer);
        self.unproven.remove(&peer);
        self.untried.remove(&peer);
        self.named.remove(&peer);
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

    /// Dials a peer unless a connection is there or on its way: over TCP if it has such an address.
    pub(crate) fn connect(&mut self, peer: PeerId) {
        let known = self.contacts().get(&peer).cloned().unwrap_or_default();
        let (quic, tcp): (Vec<_>, Vec<_>) = known.into_iter().partition(is_quic);
        if !tcp.is_empty() && !quic.is_empty() {
            self.untried.insert(peer);
        }
        self.dial(peer, if tcp.is_empty() { quic } else { tcp });
    }

    /// After a failed dial: tries QUIC, once.
    fn fall_back(&mut self, peer: PeerId) {
        if self.untried.remove(&peer) {
            let known = self.contacts().get(&peer).cloned().unwrap_or_default();
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
        if from_libp2p(&peer).is_some_and(|name| self.access.is_revoked(&name))
            || addresses.is_empty()
            || self.swarm.is_connected(&peer)
        {
            return;
        }
        let options = DialOpts::peer_id(peer).condition(PeerCondition::DisconnectedAndNotDialing).addresses(addresses);
        match self.swarm.dial(options.build()) {
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
        self.forget_guests();
        // A later life of this process goes on where this one ends, as long as the clock does.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        self.counter = u64::try_from(now).unwrap_or(u64::MAX).max(self.counter.saturating_add(1));
        let announcement = Announcement { contact: self.contact(), counter: self.counter };
        let bytes = postcard::to_allocvec(&announcement).expect("invariant: an announcement always encodes");
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
                self.learn_name(peer_id, &info.agent_version);
                self.meet(peer_id, &info);
                None
            }
            SwarmEvent::Behaviour(BehaviourEvent::Mdns(libp2p::mdns::Event::Discovered(found))) => {
                // Anybody on the network may say that anybody is anywhere: only who is known is looked for there.
                for (peer, address) in found {
                    if self.contacts().contains_key(&peer) {
                        self.dial(peer, vec![address]);
                    }
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
                self.unproven.remove(&peer_id);
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
    // When a listener last told an address. What else the swarm tells counts for nothing: others may knock without a pause.
    let (mut is_there, mut told_at) = (false, tokio::time::Instant::now());
    let limit = told_at + LISTEN_LIMIT;
    loop {
        // A listener on all interfaces tells them one by one; the last one is there when none follows. Where some listener has
        // an address, IPv6 that nobody asked for is not waited for: there may be no interface for it, ever.
        let is_optional = !places.are_wanted && is_there && pending.values().all(is_ipv6);
        let is_enough = pending.is_empty() || is_optional;
        let until = if is_enough { told_at + LISTEN_PAUSE } else { limit };
        let silence = tokio::time::sleep_until(until);
        let event = tokio::select! { biased; () = silence => None, event = swarm.select_next_some() => Some(event) };
        let Some(event) = event else {
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
                (is_there, told_at) = (true, tokio::time::Instant::now());
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
    let _turn = PortLock::take().await;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Credentials;

    fn announced(peer: starling_topology::PeerId, port: u16, counter: u64) -> Vec<u8> {
        let contact = Contact { peer, addresses: vec![format!("/ip4/192.0.2.1/tcp/{port}")] };
        postcard::to_allocvec(&Announcement { contact, counter }).expect("encoded")
    }

    pub(crate) fn network(settings: &Settings) -> Network {
        let identity = Identity::generate();
        let access = Access::visiting(identity.peer_id(), None, &Credentials::default());
        let part = (RunId([7; 32]), Part::Member);
        Network::new(&identity, access, settings, part, Duration::from_secs(10)).expect("a network")
    }

    pub(crate) fn fresh() -> PeerId {
        Identity::generate().peer_id()
    }

    /// Whoever comes back takes the port that it had, and the others dial it there without a pause.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn who_is_knocked_at_without_a_pause_starts_to_listen() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let mut network = network(&Settings::new(dir.path().to_owned()));
        let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port");
        let knocking = tokio::spawn(async move {
            loop {
                drop(tokio::net::TcpStream::connect(free).await);
                tokio::task::yield_now().await;
            }
        });
        let address = format!("/ip4/127.0.0.1/tcp/{}", free.port()).parse().expect("a multiaddr");
        let listening = tokio::time::timeout(LISTEN_LIMIT * 2, network.listen(&Places::new(&[address]))).await;
        knocking.abort();
        listening.expect("it waits for no silence").expect("it listens");
    }

    #[tokio::test]
    async fn an_announcement_counts_once_and_from_whoever_is_there() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let mut network = network(&Settings::new(dir.path().to_owned()));
        let [peer, other] = [(); 2].map(|()| from_libp2p(&fresh()).expect("an Ed25519 key"));
        assert_eq!(network.hear(peer, &announced(peer, 1, 3)), None, "nobody knows it");
        network.learn(&Contact { peer, addresses: Vec::new() });
        let heard =
            |network: &mut Network, port, counter| network.hear(peer, &announced(peer, port, counter)).is_some();
        assert!(heard(&mut network, 1, 5));
        assert!(!heard(&mut network, 2, 5) && !heard(&mut network, 2, 4), "somebody repeats it");
        assert!(heard(&mut network, 3, 6));
        assert_eq!(network.hear(peer, &announced(other, 1, 9)), None, "it is another's");
        assert_eq!(network.contacts()[&to_libp2p(peer)].len(), 1, "new addresses take the place of old ones");
    }

    #[tokio::test]
    async fn multicast_leads_to_nobody_who_is_not_known() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let mut network = network(&Settings::new(dir.path().to_owned()));
        let [known, made_up] = [fresh(), fresh()];
        let peer = from_libp2p(&known).expect("an Ed25519 key");
        network.learn(&Contact { peer, addresses: Vec::new() });
        let address: Multiaddr = "/ip4/192.0.2.1/tcp/1".parse().expect("an address");
        let found = vec![(made_up, address.clone()), (known, address)];
        let found = BehaviourEvent::Mdns(libp2p::mdns::Event::Discovered(found));
        assert!(network.absorb(SwarmEvent::Behaviour(found)).is_none());
        assert!(network.dialing.keys().eq([&known]), "{:?}", network.dialing);
    }

    #[tokio::test]
    async fn third_parties_are_dialed_a_few_at_a_time() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let settings = Settings { max_peers: 40, ..Settings::new(dir.path().to_owned()) };
        let mut network = network(&settings);
        network.connect(fresh());
        assert!(network.dialing.is_empty(), "nobody knows where it is");
        // Somebody tells of many members that all are where somebody else is.
        for peer in (0..200).map(|_| fresh()) {
            let addresses = vec!["/ip4/192.0.2.1/tcp/1".to_owned()];
            network.learn(&Contact { peer: from_libp2p(&peer).expect("an Ed25519 key"), addresses });
            network.connect(peer);
        }
        assert_eq!(network.dialing.len(), 40);
    }

    #[tokio::test]
    async fn members_are_not_pushed_out_by_others() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let mut network = network(&Settings::new(dir.path().to_owned()));
        let fresh = || from_libp2p(&fresh()).expect("an Ed25519 key");
        let member = fresh();
        network.learn(&Contact { peer: member, addresses: Vec::new() });
        network.expect(&[member]);
        for _ in 0..2 * MAX_CONTACTS {
            network.learn(&Contact { peer: fresh(), addresses: Vec::new() });
        }
        assert_eq!(network.contacts().len(), MAX_CONTACTS);
        assert!(network.contacts().contains_key(&to_libp2p(member)));
        let known = network.contacts().keys().filter(|known| !network.unproven.contains(known)).count();
        for made_up in (0..2 * MAX_UNPROVEN).map(|_| fresh()) {
            assert_eq!(network.hear(made_up, &announced(made_up, 1, 1)), None);
        }
        assert!(network.unproven.len() <= MAX_UNPROVEN && network.contacts().contains_key(&to_libp2p(member)));
        assert!(known + network.unproven.len() >= network.contacts().len(), "they are all there is besides");
    }
}
