//! Where a node listens, and that nobody else does.
//!
//! libp2p shares the port of a TCP listener with whoever asks for the same (`SO_REUSEPORT`), so that it can dial from it. Two
//! nodes of one user could then listen on one port, and the system would hand each connection to either. So each port is
//! first asked for without sharing it, by one process at a time.

mod holder;
mod port_lock;

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use libp2p::Multiaddr;
use libp2p::multiaddr::Protocol;
use socket2::{Domain, Socket, Type};
use tokio::time::Instant;

pub(crate) use port_lock::PortLock;

use crate::error::NodeError;
use holder::Holder;

/// Where a node listens that was told nothing: on a free port each, wherever this machine has an address. Not over QUIC, where
/// senders that nobody has verified can take all places.
pub const EVERYWHERE: [&str; 2] = ["/ip4/0.0.0.0/tcp/0", "/ip6/::/tcp/0"];

/// How long ports that were given back may take to be free, and how often that is looked at.
const GIVE_BACK_LIMIT: Duration = Duration::from_secs(6);
const GIVE_BACK_PAUSE: Duration = Duration::from_millis(20);

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Places {
    pub(crate) addresses: Vec<Multiaddr>,
    /// Whether each was asked for. Else one that works is enough: not every machine has IPv6.
    pub(crate) are_wanted: bool,
}

impl Places {
    /// These; everywhere if there are none.
    pub(crate) fn new(wanted: &[Multiaddr]) -> Self {
        if !wanted.is_empty() {
            return Self { addresses: wanted.to_vec(), are_wanted: true };
        }
        let parse = |text: &str| text.parse().expect("invariant: it is a multiaddr");
        Self { addresses: EVERYWHERE.map(parse).to_vec(), are_wanted: false }
    }

    /// The same with the ports of `before` where any port will do.
    pub(crate) fn with_ports_of(&self, before: &[String]) -> Self {
        let before: Vec<Multiaddr> = before.iter().filter_map(|address| address.parse().ok()).collect();
        let kind = |address: &Multiaddr| socket(address).ok().map(|(kind, socket)| (kind, socket.is_ipv6()));
        let filled = |address: &Multiaddr| {
            let same = before.iter().filter(|_| kind(address).is_some()).find(|other| kind(other) == kind(address));
            let port = same.and_then(|other| socket(other).ok()).map(|(_, socket)| socket.port());
            address
                .iter()
                .map(|part| match (&part, port) {
                    (Protocol::Tcp(0), Some(port)) => Protocol::Tcp(port),
                    (Protocol::Udp(0), Some(port)) => Protocol::Udp(port),
                    _ => part,
                })
                .collect()
        };
        Self { addresses: self.addresses.iter().map(filled).collect(), ..self.clone() }
    }

    /// The same, with the addresses of `others` in the place of those that are taken.
    pub(crate) fn unless_taken(&self, others: &Self) -> Self {
        let free = |(address, other): (&Multiaddr, &Multiaddr)| {
            let place = if check(std::slice::from_ref(address)).is_ok() { address } else { other };
            place.clone()
        };
        Self { addresses: self.addresses.iter().zip(&others.addresses).map(free).collect(), ..self.clone() }
    }
}

/// What carries the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// TCP.
    Tcp,
    /// QUIC, over UDP.
    Quic,
}

/// The socket that an address to listen on stands for.
///
/// # Errors
/// What a node can't listen on, as a sentence.
pub fn socket(address: &Multiaddr) -> Result<(Kind, SocketAddr), String> {
    let mut parts = address.iter();
    let ip = match parts.next() {
        Some(Protocol::Ip4(ip)) => Some(IpAddr::from(ip)),
        Some(Protocol::Ip6(ip)) => Some(IpAddr::from(ip)),
        _ => None,
    };
    match (ip, parts.next(), parts.next(), parts.next()) {
        (Some(ip), Some(Protocol::Tcp(port)), None, None) => Ok((Kind::Tcp, (ip, port).into())),
        (Some(ip), Some(Protocol::Udp(port)), Some(Protocol::QuicV1), None) => Ok((Kind::Quic, (ip, port).into())),
        _ => Err(format!(
            "`{address}` is nothing to listen on; write /ip4/<address>/tcp/<port> or /ip4/<address>/udp/<port>/quic-v1, or \
             the same with /ip6"
        )),
    }
}

/// Checks that each of these can be listened on, and that nobody else does.
///
/// # Errors
/// [`NodeError::Listen`], which says who has the port, if that can be known.
pub(crate) fn check(wanted: &[Multiaddr]) -> Result<(), NodeError> {
    wanted.iter().try_for_each(|address| {
        let refused = |reason| NodeError::Listen { address: address.to_string(), reason };
        let (kind, socket) = socket(address).map_err(refused)?;
        bind(kind, socket).map_err(|error| refused(reason(kind, socket, &error)))
    })
}

/// Waits until this process can listen there again, which has done so just now: sockets of QUIC are free a while after their connections.
pub(crate) async fn given_back(wanted: &[Multiaddr]) {
    let until = Instant::now() + GIVE_BACK_LIMIT;
    while check(wanted).is_err() && Instant::now() < until {
        tokio::time::sleep(GIVE_BACK_PAUSE).await;
    }
}

/// Whether the system would let this process, and it alone, listen there.
fn bind(kind: Kind, address: SocketAddr) -> io::Result<()> {
    let kind = if kind == Kind::Tcp { Type::STREAM } else { Type::DGRAM };
    let socket = Socket::new(Domain::for_address(address), kind, None)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    // What is left of the connections of a process that is gone is in nobody's way; who listens still is.
    #[cfg(unix)]
    if kind == Type::STREAM {
        socket.set_reuse_address(true)?;
    }
    socket.bind(&address.into())
}

/// Why the system does not let us listen there, and what to do.
fn reason(kind: Kind, address: SocketAddr, error: &io::Error) -> String {
    let (ip, port) = (address.ip(), address.port());
    match error.kind() {
        ErrorKind::AddrInUse => {
            let holder = Holder::of(kind, address);
            format!("port {port} is in use by {holder}; stop that one, or choose another port, or port 0 for any")
        }
        ErrorKind::AddrNotAvailable => {
            let any = if address.is_ipv4() { "0.0.0.0" } else { "::" };
            format!("{ip} is no address of this machine; use one that is, or {any} for all of them")
        }
        ErrorKind::PermissionDenied => {
            format!("this user may not listen on port {port}; choose one from 1024 on, or port 0 for any")
        }
        _ if is_unknown_family(error) => {
            let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
            format!("this machine has no {family}; leave that address out")
        }
        _ => error.to_string(),
    }
}

fn is_unknown_family(error: &io::Error) -> bool {
    #[cfg(unix)]
    return error.raw_os_error() == Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error());
    #[cfg(not(unix))]
    return error.kind() == ErrorKind::Unsupported;
}

/// Sorts addresses by how much they are worth to others, and leaves out those that are worth nothing.
///
/// TCP comes before QUIC, because a closed TCP connection is noticed at once; loopback last, for whoever is on this machine
/// when its network is gone. An IPv6 address of one link means nothing without naming the interface, which no multiaddr does.
pub(crate) fn most_useful_first(addresses: &mut Vec<Multiaddr>) {
    let place = |address: &Multiaddr| socket(address).ok();
    addresses.retain(|address| match place(address).map(|(_, socket)| socket.ip()) {
        Some(IpAddr::V6(ip)) => !ip.is_unicast_link_local(),
        Some(IpAddr::V4(_)) | None => true,
    });
    let worth = |address: &Multiaddr| {
        let (kind, socket) = place(address)?;
        let is_passing = matches!(socket.ip(), IpAddr::V4(ip) if ip.is_link_local());
        Some((socket.ip().is_loopback(), is_passing, kind == Kind::Quic, socket))
    };
    addresses.sort_by_key(|address| (worth(address).is_none(), worth(address)));
}

/// The address of a machine that a multiaddr begins with; one of IPv4 written as IPv6 is of IPv4.
pub(crate) fn ip(address: &Multiaddr) -> Option<IpAddr> {
    match address.iter().next()? {
        Protocol::Ip4(ip) => Some(IpAddr::from(ip)),
        Protocol::Ip6(ip) => Some(ip.to_canonical()),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
