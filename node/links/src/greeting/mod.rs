//! What two neighbours in a plan agree on, over their libp2p stream, before the first segment.
//!
//! ```text
//!   opener (sends segments)                          acceptor (receives them)
//!      | -- view, request: direct, plain, universal -->  |
//!      | <------------------ addresses, if direct --   |   possibly none
//!      |    ... connects, within a limit ...           |   to all of them, and far away several times
//!      | -- which connections it made -------------->  |   only after addresses; if none, universal
//! ```
//!
//! The opener decides, because only it knows what got through. It names the attempts that it made connections of, each of
//! which the acceptor has taken by then, and both ends use these and no others: whatever came in which order, and whatever
//! ended on the way.

pub(crate) mod endpoint;
pub(crate) mod first;
pub(crate) mod handshake;
pub(crate) mod listener;
pub(crate) mod peer;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use futures::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use starling_topology::{PeerId, ViewId};
use tokio::time::Instant;

use crate::error::ConnectionError;
use crate::greeting::handshake::{Attempt, Connection, MAX_PARALLEL};
use crate::greeting::listener::{Listener, MAX_ADDRESSES};
use crate::{Endpoint, Transport, TransportPolicy};

/// How long a direct connection may take before the libp2p stream is used; and no longer than half of what the acceptor waits.
const DIRECT_LIMIT: Duration = Duration::from_secs(1);
const UNIVERSAL: u8 = 0;
const DIRECT: u8 = 1;
/// A direct connection without encryption. Only ever a request: its outcome is direct.
const PLAINTEXT: u8 = 2;
/// An IPv6 address (IPv4 in its mapped form), then the port, big-endian.
const ADDRESS_BYTES: usize = 18;

/// Reads the first part of a greeting: the view that the stream belongs to.
///
/// # Errors
/// If the stream ends before.
pub async fn read_view(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<ViewId> {
    let mut view = [0; 32];
    stream.read_exact(&mut view).await?;
    Ok(ViewId(view))
}

/// How many connections a link has, if it is direct. One each if operations are brief.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionCount {
    /// Where each goes on at its rate: over short ways, or with BBR. At least 1.
    pub near: u8,
    /// Elsewhere, where one alone is bound by its window, or slowed down by each packet that is lost.
    pub far: u8,
}

impl ConnectionCount {
    /// One, wherever it leads.
    pub const ONE: Self = Self { near: 1, far: 1 };
    /// More than these no link has.
    pub const MOST: u8 = MAX_PARALLEL as u8;
}

/// The opener's part. Returns the link's connections, as many as `count` says, or fewer; if there are none, segments go over
/// `stream`. With [`TransportPolicy::Direct`], all of `limit` is for the first connection.
///
/// # Errors
/// If the stream fails, or the link must be direct and can't be.
pub async fn open(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    endpoint: &Endpoint,
    receiver: PeerId,
    view: ViewId,
    count: ConnectionCount,
    limit: Duration,
) -> io::Result<Vec<Connection>> {
    let request = requested(endpoint.mode);
    stream.write_all(&view.0).await?;
    stream.write_all(&[request]).await?;
    stream.flush().await?;
    if request == UNIVERSAL {
        return Ok(Vec::new());
    }
    let addresses = read_addresses(stream).await?;
    let dialed = dial(&addresses, endpoint, receiver, view, count, limit).await;
    stream.write_all(&made(dialed.as_deref().unwrap_or_default())).await?;
    stream.flush().await?;
    match dialed {
        Ok(connections) => {
            // The stream has said all that it was opened for.
            stream.close().await?;
            Ok(connections)
        }
        Err(error) if endpoint.mode.insists() => Err(io::Error::other(error)),
        Err(error) => {
            tracing::info!(%error, "a link goes over a libp2p stream");
            Ok(Vec::new())
        }
    }
}

/// One connection, and those beside it, as far as there is time: the acceptor waits no longer than `limit` in all.
async fn dial(
    addresses: &[SocketAddr],
    endpoint: &Endpoint,
    receiver: PeerId,
    view: ViewId,
    count: ConnectionCount,
    limit: Duration,
) -> Result<Vec<Connection>, ConnectionError> {
    let (link_params, began) = (endpoint.link_params(view, receiver), Instant::now());
    let first_limit = if endpoint.mode.insists() { limit } else { DIRECT_LIMIT.min(limit / 2) };
    let (first, is_near) = listener::dial(addresses, &endpoint.keypair, link_params, first_limit).await?;
    let count = match () {
        () if endpoint.is_brief || first.transport() == Transport::Local => 1,
        () if is_near || listener::bears_loss(&first.stream) => count.near,
        () => count.far,
    };
    let left = limit.saturating_sub(began.elapsed());
    let beside =
        listener::dial_beside((&first, is_near), &endpoint.keypair, link_params, count, DIRECT_LIMIT.min(left / 2))
            .await;
    if !beside.is_empty() {
        tracing::info!(connections = 1 + beside.len(), "a link has several connections");
    }
    Ok(std::iter::once(first).chain(beside).collect())
}

/// Names connections: how many there are, then the attempt of each.
fn made(connections: &[Connection]) -> Vec<u8> {
    let mut bytes = vec![u8::try_from(connections.len()).expect("invariant: there are few connections")];
    connections.iter().for_each(|connection| bytes.extend(connection.attempt.0));
    bytes
}

/// The acceptor's part, once the view is read. If it returns no connections, segments come over `stream`.
///
/// # Errors
/// If the stream fails or brings no greeting, or the link must be direct and is not.
pub async fn answer(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    endpoint: &Endpoint,
    sender: PeerId,
    view: ViewId,
) -> io::Result<Vec<Connection>> {
    let theirs = read_request(stream).await?;
    if (theirs == PLAINTEXT) != (endpoint.mode == TransportPolicy::Plaintext) {
        let sealed = "only one of the two members sends without encryption: set network.data to the same on both";
        return Err(io::Error::other(sealed));
    }
    let connections = if theirs == UNIVERSAL { Vec::new() } else { meet(stream, endpoint, sender, view).await? };
    if connections.is_empty() && endpoint.mode.insists() {
        return Err(io::Error::other("it has no direct connection to this member"));
    }
    Ok(connections)
}

/// Tells where to connect to, and waits for the outcome.
async fn meet(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    endpoint: &Endpoint,
    sender: PeerId,
    view: ViewId,
) -> io::Result<Vec<Connection>> {
    let ips: &[IpAddr] = if endpoint.mode == TransportPolicy::Universal { &[] } else { &endpoint.ips };
    let listener = Listener::bind(ips).await;
    stream.write_all(&encode(&listener.addresses())).await?;
    stream.flush().await?;
    let mut taken = BTreeMap::new();
    let mut acceptor = match listener.acceptor(&endpoint.keypair, endpoint.link_params(view, sender)) {
        Ok(acceptor) => acceptor,
        Err(error) => {
            return if read_made(stream).await?.is_empty() { Ok(Vec::new()) } else { Err(io::Error::other(error)) };
        }
    };
    // The two are read side by side: the opener speaks only after its connections were taken here.
    let made = {
        let mut made = std::pin::pin!(read_made(stream));
        loop {
            tokio::select! {
                made = &mut made => break made?,
                connection = acceptor.next() => {
                    taken.insert(connection.attempt, connection);
                }
            }
        }
    };
    let mut connections = Vec::with_capacity(made.len());
    for attempt in made {
        // It was taken, or its last byte is on its way.
        while !taken.contains_key(&attempt) {
            let connection = acceptor.next().await;
            taken.insert(connection.attempt, connection);
        }
        connections.extend(taken.remove(&attempt));
    }
    let is_local = |connection: &Connection| connection.transport() == Transport::Local;
    if connections.len() > 1 && connections.iter().any(is_local) {
        return Err(io::Error::other("memory and several connections at once"));
    }
    Ok(connections)
}

fn requested(mode: TransportPolicy) -> u8 {
    match mode {
        TransportPolicy::Universal => UNIVERSAL,
        TransportPolicy::Auto | TransportPolicy::Direct | TransportPolicy::Local => DIRECT,
        TransportPolicy::Plaintext => PLAINTEXT,
    }
}

async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<u8> {
    let mut request = [0];
    stream.read_exact(&mut request).await?;
    match request[0] {
        request @ (UNIVERSAL | DIRECT | PLAINTEXT) => Ok(request),
        other => Err(io::Error::other(format!("{other} names no transport"))),
    }
}

/// Reads which connections the opener made, if any.
async fn read_made(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<Attempt>> {
    let mut count = [0];
    stream.read_exact(&mut count).await?;
    let count = usize::from(count[0]);
    if count > MAX_PARALLEL {
        return Err(io::Error::other(format!("{count} connections where at most {MAX_PARALLEL} are allowed")));
    }
    let mut bytes = [0; MAX_PARALLEL * Attempt::BYTES];
    let bytes = &mut bytes[..count * Attempt::BYTES];
    stream.read_exact(bytes).await?;
    let (attempts, _) = bytes.as_chunks::<{ Attempt::BYTES }>();
    let made: Vec<Attempt> = attempts.iter().map(|attempt| Attempt(*attempt)).collect();
    if BTreeSet::from_iter(&made).len() < count {
        return Err(io::Error::other("one connection is named twice"));
    }
    Ok(made)
}

fn encode(addresses: &[SocketAddr]) -> Vec<u8> {
    let count = addresses.len().min(MAX_ADDRESSES);
    let mut bytes = vec![u8::try_from(count).expect("invariant: there are few addresses")];
    for address in &addresses[..count] {
        let ip = match address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        bytes.extend(ip.octets());
        bytes.extend(address.port().to_be_bytes());
    }
    bytes
}

async fn read_addresses(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<SocketAddr>> {
    let mut count = [0];
    stream.read_exact(&mut count).await?;
    let count = usize::from(count[0]);
    if count > MAX_ADDRESSES {
        return Err(io::Error::other(format!("{count} addresses where at most {MAX_ADDRESSES} are allowed")));
    }
    let mut bytes = [0; MAX_ADDRESSES * ADDRESS_BYTES];
    let bytes = &mut bytes[..count * ADDRESS_BYTES];
    stream.read_exact(bytes).await?;
    let (addresses, _) = bytes.as_chunks::<ADDRESS_BYTES>();
    let decode = |bytes: &[u8; ADDRESS_BYTES]| {
        let octets: [u8; 16] = std::array::from_fn(|index| bytes[index]);
        let port = u16::from_be_bytes([bytes[16], bytes[17]]);
        SocketAddr::new(Ipv6Addr::from(octets).to_canonical(), port)
    };
    Ok(addresses.iter().map(decode).collect())
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod ways;
