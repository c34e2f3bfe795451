//! Places for connections that come in and are not admitted yet.
//!
//! They are few, so that strangers can't make us hold many. When all are taken, the oldest connection of the range of addresses
//! that has the most goes, and never one that is its range's only one: whoever comes from elsewhere than those who hold most of
//! the places has the whole deadline, and among its own neighbours as long as they take to fill them anew. Members of the view
//! have places of their own, which nobody from elsewhere can take.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
use tokio::sync::oneshot;

use crate::credentials::identity::from_libp2p;
use crate::member::member_list::MemberList;
use crate::net::network::is_quic;

/// Enough for a whole swarm to come at once, each to several of our addresses.
const MAX_PLACES: usize = 128;
/// For those who come from where a member of the view is.
const MAX_EXPECTED: usize = 64;
/// The same over QUIC, where each costs ten times as much memory, and for some seconds more once it has been put out.
const MAX_QUIC: [usize; 2] = [24, 16];
/// Addresses of members that are remembered.
const MAX_MEMBERS: usize = 4096;
/// The ranges that are compared, as bits of an IPv4 and of an IPv6 address: what one machine has, one network, one provider.
const RANGES: [(u32, u32); 3] = [(24, 64), (16, 48), (8, 32)];

/// All places of a node. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pending(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    /// Of the newest place: a lower one is older.
    number: u64,
    tcp: Places,
    quic: Places,
    members: BTreeSet<IpAddr>,
}

/// Those of one transport.
#[derive(Debug, Default)]
struct Places {
    unknown: BTreeMap<u64, Held>,
    expected: BTreeMap<u64, Held>,
}

#[derive(Debug)]
struct Held {
    ip: IpAddr,
    /// Dropped with the place, which its holder hears.
    _keep: oneshot::Sender<Infallible>,
}

/// A place that is held. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Place {
    number: u64,
    pending: Pending,
    kept: oneshot::Receiver<Infallible>,
}

impl Pending {
    /// Takes a place for a connection from there; somebody else may lose one. `None` if there is nobody who should.
    pub(crate) fn enter(&self, ip: IpAddr) -> Option<Place> {
        self.take(ip, |table| &mut table.tcp, [MAX_PLACES, MAX_EXPECTED], |_, _, _| true)
    }

    /// The same for one over QUIC. Nobody is put out for one of a range that has as many: each that goes costs memory for some
    /// seconds more, and who comes as fast as it can would fill it.
    pub(crate) fn enter_quic(&self, ip: IpAddr) -> Option<Place> {
        self.take(ip, |table| &mut table.quic, MAX_QUIC, |held, ip, bits| !is_of_the_fullest(held, ip, bits))
    }

    /// Takes one of the `places` of a transport, at `most` so many unknown and expected ones. If there are too many, the oldest of the
    /// fullest range goes where it `may`, for one from there, of ranges of so many bits; else the newest one.
    fn take(
        &self,
        ip: IpAddr,
        places: impl FnOnce(&mut Table) -> &mut Places,
        most: [usize; 2],
        may: impl FnOnce(&BTreeMap<u64, Held>, IpAddr, (u32, u32)) -> bool,
    ) -> Option<Place> {
        let mut table = self.lock();
        table.number += 1;
        let (number, ip) = (table.number, ip.to_canonical());
        let is_expected = table.members.contains(&ip);
        let places = places(&mut table);
        let held = if is_expected { &mut places.expected } else { &mut places.unknown };
        let (keep, kept) = oneshot::channel();
        held.insert(number, Held { ip, _keep: keep });
        if held.len() > most[usize::from(is_expected)] {
            let goes = too_many(held).filter(|(_, bits)| may(held, ip, *bits)).map_or(number, |(oldest, _)| oldest);
            held.remove(&goes);
            if goes == number {
                return None;
            }
        }
        Some(Place { number, pending: self.clone(), kept })
    }

    /// Whether members are there.
    pub(crate) fn expects(&self, ip: IpAddr) -> bool {
        self.lock().members.contains(&ip.to_canonical())
    }

    /// From now on, members are there, and nowhere else.
    pub(crate) fn expect(&self, members: impl IntoIterator<Item = IpAddr>) {
        self.lock().members = members.into_iter().map(|ip| ip.to_canonical()).take(MAX_MEMBERS).collect();
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // A lock poisoned by a panic elsewhere still guards a sound table.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Ends when somebody else has got it.
    pub(crate) async fn lost(&mut self) {
        let _lost = (&mut self.kept).await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut table = self.pending.lock();
        let Table { tcp, quic, .. } = &mut *table;
        for held in [&mut tcp.unknown, &mut tcp.expected, &mut quic.unknown, &mut quic.expected] {
            held.remove(&self.number);
        }
    }
}

/// The oldest of the fullest range, of the smallest ranges of which one has several, and which ranges those are.
fn too_many(held: &BTreeMap<u64, Held>) -> Option<(u64, (u32, u32))> {
    RANGES.into_iter().find_map(|bits| {
        let fullest = ranges(held, bits).into_values().max_by_key(|(count, oldest)| (*count, Reverse(*oldest)));
        fullest.filter(|(count, _)| *count > 1).map(|(_, oldest)| (oldest, bits))
    })
}

/// Whether no range has more than the one that this address is of.
fn is_of_the_fullest(held: &BTreeMap<u64, Held>, ip: IpAddr, bits: (u32, u32)) -> bool {
    let ranges = ranges(held, bits);
    let most = ranges.values().map(|(count, _)| *count).max();
    ranges.get(&range(ip, bits)).map(|(count, _)| *count) == most
}

/// How many each range has, and its oldest.
fn ranges(held: &BTreeMap<u64, Held>, bits: (u32, u32)) -> BTreeMap<u128, (usize, u64)> {
    let mut ranges: BTreeMap<u128, (usize, u64)> = BTreeMap::new();
    for (number, held) in held {
        let (count, oldest) = ranges.entry(range(held.ip, bits)).or_insert((0, *number));
        *count += 1;
        *oldest = (*oldest).min(*number);
    }
    ranges
}

/// What the first bits of an address are. IPv4 ranges are none of IPv6.
fn range(ip: IpAddr, (four, six): (u32, u32)) -> u128 {
    match ip {
        IpAddr::V4(ip) => u128::from(ip.to_bits() >> (32 - four)) | 0xffff << 96,
        IpAddr::V6(ip) => ip.to_bits() >> (128 - six) << (128 - six),
    }
}

/// The IP address that an address begins with.
pub(crate) fn ip_of(address: &Multiaddr) -> Option<IpAddr> {
    match address.iter().next()? {
        Protocol::Ip4(ip) => Some(ip.into()),
        Protocol::Ip6(ip) => Some(ip.into()),
        _ => None,
    }
}

/// Refuses, of connections that are admitted, those of one range beyond its share: members' do not count. And says where peers are
/// dialed.
#[derive(Debug)]
pub(crate) struct Behaviour {
    /// Where those are that we know of. Bounded by whoever fills it.
    pub(crate) contacts: BTreeMap<PeerId, Vec<Multiaddr>>,
    members: Arc<MemberList>,
    /// Who came from which range. Bounded by the number of connections, which has a limit of its own.
    others: BTreeMap<ConnectionId, (PeerId, u128)>,
    share: usize,
}

impl Behaviour {
    /// One that lets each range have so many connections.
    pub(crate) fn new(members: Arc<MemberList>, share: usize) -> Self {
        Self { contacts: BTreeMap::new(), members, others: BTreeMap::new(), share }
    }
}

/// Why a connection was refused.
#[derive(Debug, Error)]
enum TooMany {
    #[error("there are {0} connections from its range of addresses")]
    Range(usize),
}

impl NetworkBehaviour for Behaviour {
    type ConnectionHandler = dummy::ConnectionHandler;
    type ToSwarm = Infallible;

    fn handle_established_inbound_connection(
        &mut self,
        connection: ConnectionId,
        peer: PeerId,
        _: &Multiaddr,
        remote: &Multiaddr,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        // Whoever came before it was let in counts no more once it is.
        let is_member = |peer: &PeerId| from_libp2p(peer).is_some_and(|peer| self.members.has(&peer));
        if let Some(ip) = ip_of(remote).filter(|_| !is_member(&peer)) {
            let range = range(ip.to_canonical(), RANGES[0]);
            let is_neighbour = |(other, from): &&(PeerId, u128)| *from == range && !is_member(other);
            if self.others.values().filter(is_neighbour).count() >= self.share {
                return Err(ConnectionDenied::new(TooMany::Range(self.share)));
            }
            self.others.insert(connection, (peer, range));
        }
        Ok(dummy::ConnectionHandler)
    }

    fn handle_pending_outbound_connection(
        &mut self,
        _: ConnectionId,
        peer: Option<PeerId>,
        _: &[Multiaddr],
        _: Endpoint,
    ) -> Result<Vec<Multiaddr>, ConnectionDenied> {
        let known = peer.and_then(|peer| self.contacts.get(&peer)).into_iter().flatten();
        let (quic, tcp): (Vec<_>, Vec<_>) = known.cloned().partition(is_quic);
        Ok(if tcp.is_empty() { quic } else { tcp })
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
            FromSwarm::ListenFailure(failure) => {
                self.others.remove(&failure.connection_id);
            }
            FromSwarm::ConnectionClosed(closed) => {
                self.others.remove(&closed.connection_id);
            }
            _ => {}
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

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn enter(pending: &Pending, from: &str) -> Place {
        pending.enter(ip(from)).expect("there is a place")
    }

    fn is_lost(place: &mut Place) -> bool {
        place.kept.try_recv() == Err(oneshot::error::TryRecvError::Closed)
    }

    /// As many as there are places for, from as many addresses of each of these networks.
    fn full(pending: &Pending, networks: &[&str]) -> Vec<Place> {
        let from = |at: usize| format!("{}.{}", networks[at % networks.len()], at / networks.len());
        (0..MAX_PLACES).map(|at| enter(pending, &from(at))).collect()
    }

    #[test]
    fn the_oldest_of_the_fullest_range_makes_room() {
        let pending = Pending::default();
        let mut alone = enter(&pending, "198.51.100.1");
        let mut many = full(&pending, &["192.0.2", "203.0.113"]);
        assert!(is_lost(&mut many[0]) && !is_lost(&mut many[1]), "the oldest, of ranges of 64 each");
        let mut joiner = enter(&pending, "203.0.113.200");
        let mut others: Vec<Place> = (0..64).map(|at| enter(&pending, &format!("192.0.2.{at}"))).collect();
        assert!(!is_lost(&mut alone), "it is its range's only one");
        assert!(!is_lost(&mut joiner), "it has older neighbours");
        assert!(others.iter_mut().all(|place| !is_lost(place)));
        let table = pending.lock();
        assert_eq!((table.tcp.unknown.len(), table.tcp.expected.len()), (MAX_PLACES, 0));
    }

    #[test]
    fn many_small_ranges_of_one_network_are_one() {
        let pending = Pending::default();
        let mut joiner = enter(&pending, "198.51.100.1");
        // One owner of a network of IPv6, each address of a range of its own.
        let mut many: Vec<Place> =
            (0..MAX_PLACES).map(|at| enter(&pending, &format!("2001:db8:0:{at:x}::1"))).collect();
        assert!(is_lost(&mut many[0]) && !is_lost(&mut many[1]) && !is_lost(&mut joiner));
        assert_ne!(range(ip("1.2.3.4"), RANGES[0]), range(ip("::102:304"), RANGES[0]));
    }

    #[test]
    fn where_each_is_its_ranges_only_one_nobody_goes() {
        let pending = Pending::default();
        let places: Vec<Place> = (0..MAX_PLACES).map(|at| enter(&pending, &format!("{}.0.0.1", at + 1))).collect();
        assert!(pending.enter(ip("200.0.0.1")).is_none());
        drop(places);
        assert!(pending.enter(ip("200.0.0.1")).is_some());
        assert!(pending.lock().tcp.unknown.is_empty(), "a place that is dropped is free");
    }

    #[test]
    fn members_have_places_that_strangers_can_not_take() {
        let pending = Pending::default();
        pending.expect([ip("192.0.2.7")]);
        let mut member = enter(&pending, "::ffff:192.0.2.7");
        let _strangers = full(&pending, &["192.0.3", "203.0.113"]);
        for at in 0..2 * MAX_PLACES {
            drop(pending.enter(ip(&format!("10.0.0.{}", at % 256))));
        }
        assert!(!is_lost(&mut member));
        assert!(pending.lock().tcp.expected.len() <= MAX_EXPECTED);
    }

    #[test]
    fn over_quic_the_fullest_range_waits_and_others_and_members_come_in() {
        let pending = Pending::default();
        pending.expect([ip("192.0.2.7")]);
        let from = |at: usize| ip(&format!("{}.{at}", ["192.0.2", "203.0.113"][at % 2]));
        let mut many: Vec<Place> = (0..MAX_QUIC[0]).filter_map(|at| pending.enter_quic(from(at + 10))).collect();
        assert_eq!(many.len(), MAX_QUIC[0]);
        for at in 0..99 {
            assert!(pending.enter_quic(from(at + 100)).is_none(), "its range has as many as any");
        }
        assert!(many.iter_mut().all(|place| !is_lost(place)), "so nobody was put out");
        let _joiner = pending.enter_quic(ip("198.51.100.1")).expect("from elsewhere");
        assert_eq!(many.iter_mut().filter_map(|place| is_lost(place).then_some(())).count(), 1);
        let _member = pending.enter_quic(ip("192.0.2.7")).expect("it has places of its own");
        assert!(pending.expects(ip("::ffff:192.0.2.7")) && !pending.expects(ip("192.0.2.8")));
        assert!(pending.enter(ip("192.0.2.9")).is_some(), "over TCP there are others");
    }

    #[test]
    fn a_range_has_its_share_of_connections_and_members_have_all() {
        let peer = || libp2p::identity::Keypair::generate_ed25519().public().to_peer_id();
        let member = peer();
        let members = Arc::<MemberList>::default();
        members.enter(&[from_libp2p(&member).expect("an Ed25519 key")]);
        let mut behaviour = Behaviour::new(members.clone(), 2);
        let mut comes = |number: usize, peer: PeerId, from: &str| {
            let address: Multiaddr = from.parse().expect("a multiaddr");
            let id = ConnectionId::new_unchecked(number);
            behaviour.handle_established_inbound_connection(id, peer, &address, &address).is_ok()
        };
        let newcomer = peer();
        assert!(comes(1, newcomer, "/ip4/192.0.2.1/tcp/1") && comes(2, peer(), "/ip4/192.0.2.2/tcp/1"));
        assert!(!comes(3, peer(), "/ip4/192.0.2.3/tcp/1"), "its range has two");
        assert!(!comes(3, peer(), "/ip6/::ffff:192.0.2.3/tcp/1"), "however it is written");
        assert!(comes(3, member, "/ip4/192.0.2.3/tcp/1") && comes(4, peer(), "/ip4/198.51.100.1/tcp/1"));
        members.enter(&[from_libp2p(&newcomer).expect("an Ed25519 key")]);
        assert!(comes(5, peer(), "/ip4/192.0.2.3/tcp/1"), "one of them is a member now");
    }
}
