//! Where a ring's previous member connects to, and how the next one is connected to.
//!
//! A listener is there only while one ring sets up its links, and only for one peer: it takes the connections that
//! prove to be that peer's and closes. Whoever else finds the port is dropped.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, select_all};
use futures::stream::{FuturesUnordered, StreamExt};
use libp2p::identity::Keypair;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout, timeout_at};

use super::error::DataError;
use super::handshake::{self, Connection, MAX_PARALLEL, Purpose};

/// The most addresses that a listener has, and that one peer tells another.
pub(crate) const MAX_ADDRESSES: usize = 8;
/// Strangers may hold this many handshakes open; one more connection is dropped.
const MAX_PENDING: usize = 4 + MAX_PARALLEL as usize;
/// How long one handshake may take.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(2);
/// A connection that is set up within this stays on this machine or in its local network.
const NEAR: Duration = Duration::from_millis(1);
/// How long a connection is silent before the system asks whether the other end is there.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Sockets that wait for one connection.
#[derive(Debug)]
pub(crate) struct Listener {
    sockets: Vec<TcpListener>,
}

impl Listener {
    /// Listens on a free port of each address that lets us. There may be none.
    pub(crate) async fn bind(ips: &[IpAddr]) -> Self {
        let mut sockets = Vec::new();
        for ip in ips.iter().take(MAX_ADDRESSES) {
            match TcpListener::bind((*ip, 0)).await {
                Ok(socket) => sockets.push(socket),
                Err(error) => tracing::debug!(%ip, %error, "no direct connections here"),
            }
        }
        Self { sockets }
    }

    /// Where to connect to.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.sockets.iter().filter_map(|socket| socket.local_addr().ok()).collect()
    }

    /// Begins to take the connections that `purpose` describes, whatever their numbers.
    ///
    /// # Errors
    /// [`DataError`] if there are no sockets, or no certificate can be made.
    pub(crate) fn acceptor(&self, keypair: &Keypair, purpose: Purpose) -> Result<Acceptor<'_>, DataError> {
        if self.sockets.is_empty() {
            return Err(DataError::Unreachable);
        }
        let config = handshake::listener_config(keypair)?;
        Ok(Acceptor { sockets: &self.sockets, config, purpose, pending: FuturesUnordered::new() })
    }
}

/// Takes connections, and has handshakes under way.
pub(crate) struct Acceptor<'a> {
    sockets: &'a [TcpListener],
    config: Arc<rustls::ServerConfig>,
    purpose: Purpose,
    pending: FuturesUnordered<BoxFuture<'static, Result<Result<Connection, DataError>, Elapsed>>>,
}

impl Acceptor<'_> {
    /// Waits for the next connection. Others are dropped, whatever they say. Can be cancelled and called again.
    ///
    /// # Errors
    /// [`DataError`] if the sockets fail.
    pub(crate) async fn next(&mut self) -> Result<Connection, DataError> {
        let Self { sockets, config, purpose, pending } = self;
        loop {
            tokio::select! {
                stream = next_stream(sockets) => {
                    let stream = stream?;
                    if pending.len() < MAX_PENDING {
                        let handshake = handshake::accept(stream, config.clone(), *purpose);
                        pending.push(timeout(HANDSHAKE_LIMIT, handshake).boxed());
                    }
                }
                Some(shaken) = pending.next() => match shaken.map_err(|_| DataError::Late).flatten() {
                    Ok(connection) => {
                        tune(&connection.stream);
                        return Ok(connection);
                    }
                    Err(error) => tracing::info!(%error, "direct connection dropped"),
                },
            }
        }
    }
}

async fn next_stream(sockets: &[TcpListener]) -> io::Result<TcpStream> {
    let accepts = sockets.iter().map(|socket| Box::pin(socket.accept()));
    let (accepted, _, _) = select_all(accepts).await;
    Ok(accepted?.0)
}

/// Connects to whichever of the neighbour's addresses answers and proves itself first. Says whether one connection is enough, too.
///
/// # Errors
/// The last address's [`DataError`], or [`DataError::Late`] after `limit`.
pub(crate) async fn dial(
    addresses: &[SocketAddr],
    keypair: &Keypair,
    purpose: Purpose,
    limit: Duration,
) -> Result<(Connection, bool), DataError> {
    let attempt = |address: &SocketAddr| connect(*address, keypair, purpose);
    let mut attempts: FuturesUnordered<_> = addresses.iter().take(MAX_ADDRESSES).map(attempt).collect();
    let first = async {
        let mut last = DataError::Unreachable;
        while let Some(result) = attempts.next().await {
            match result {
                Ok(connection) => return Ok(connection),
                Err(error) => last = error,
            }
        }
        Err(last)
    };
    timeout(limit, first).await.map_err(|_| DataError::Late)?
}

/// Makes further connections beside the `first` one, up to `count` in all. Returns those that came about within `limit`.
pub(crate) async fn dial_beside(
    first: &Connection,
    keypair: &Keypair,
    purpose: Purpose,
    count: u8,
    limit: Duration,
) -> Vec<Connection> {
    let Ok(address) = first.stream.peer_addr() else { return Vec::new() };
    let attempt = |number: u8| connect(address, keypair, Purpose { number, ..purpose });
    let mut attempts: FuturesUnordered<_> = (1..count.min(MAX_PARALLEL)).map(attempt).collect();
    let (deadline, mut made) = (Instant::now() + limit, Vec::new());
    while let Ok(Some(result)) = timeout_at(deadline, attempts.next()).await {
        match result {
            Ok((connection, _)) => made.push(connection),
            Err(error) => tracing::debug!(%error, "one connection less"),
        }
    }
    made
}

/// Connects to an address, and says whether one connection is enough.
async fn connect(address: SocketAddr, keypair: &Keypair, purpose: Purpose) -> Result<(Connection, bool), DataError> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    if purpose.is_brief {
        // Before it connects: BBR, once begun, leaves its pauses between packets to whatever comes after it.
        keep_steady(socket2::SockRef::from(&socket));
    }
    let began = Instant::now();
    let stream = socket.connect(address).await?;
    let is_near = began.elapsed() < NEAR;
    tune(&stream);
    if is_near {
        keep_steady(socket2::SockRef::from(&stream));
    }
    let is_enough = is_near || purpose.is_brief || bears_loss(&stream);
    Ok((handshake::connect(stream, keypair, purpose).await?, is_enough))
}

/// Sets what is good for bulk bytes. A socket that does not take it is slower, not worse.
fn tune(stream: &TcpStream) {
    let socket = socket2::SockRef::from(stream);
    // A step may compute for minutes, and routers forget connections that are silent for so long.
    let keepalive = socket2::TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
    let set = socket.set_tcp_nodelay(true).and_then(|()| socket.set_tcp_keepalive(&keepalive));
    if let Err(error) = set {
        tracing::debug!(%error, "a direct connection is not tuned");
    }
}

/// Whether a connection goes on at its rate when a packet is lost far away. BBR does. Reno and CUBIC, the default of many, halve
/// it, and need many round trips to come back: at 40 ms and one packet lost in a thousand, one connection of theirs carries some
/// 10 Mbit/s, whatever the network could (M. Mathis et al., "The macroscopic behavior of the TCP congestion avoidance algorithm",
/// 1997). What is not known is taken for one of these.
fn bears_loss(stream: &TcpStream) -> bool {
    #[cfg(target_os = "linux")]
    return socket2::SockRef::from(stream).tcp_congestion().is_ok_and(|name| name.starts_with(b"bbr"));
    #[cfg(not(target_os = "linux"))]
    return false;
}

/// Gives a connection Reno in the place of the system's choice. Where that is BBR, the default of many, it would slow down near
/// links, which lose nothing, to half; and where few packets go at a time, it would spread them over the time that they take at
/// the rate that so few have shown it.
pub(crate) fn keep_steady(socket: socket2::SockRef<'_>) {
    #[cfg(target_os = "linux")]
    if let Err(error) = socket.set_tcp_congestion(b"reno") {
        tracing::debug!(%error, "a direct connection keeps the system's congestion control");
    }
    #[cfg(not(target_os = "linux"))]
    let _ = socket;
}

#[cfg(test)]
mod tests;
