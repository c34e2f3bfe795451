//! Where a ring's previous member connects to, and how the next one is connected to.
//!
//! A listener is there only while one ring sets up its links, and only for one peer: it takes the connection that
//! proves to be that peer's and closes. Whoever else finds the port is dropped.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures::future::select_all;
use futures::stream::{FuturesUnordered, StreamExt};
use libp2p::identity::Keypair;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};

use super::error::DataError;
use super::handshake::{self, Connection, Purpose};

/// The most addresses that a listener has, and that one peer tells another.
pub(crate) const MAX_ADDRESSES: usize = 8;
/// Strangers may hold this many handshakes open; one more connection is dropped.
const MAX_PENDING: usize = 4;
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

    /// Waits for the connection that `purpose` describes. Others are dropped, whatever they say.
    ///
    /// # Errors
    /// [`DataError`] if the sockets fail or no certificate can be made.
    pub(crate) async fn accept(&self, keypair: &Keypair, purpose: Purpose) -> Result<Connection, DataError> {
        if self.sockets.is_empty() {
            return Err(DataError::Unreachable);
        }
        let config = handshake::listener_config(keypair)?;
        let mut pending = FuturesUnordered::new();
        loop {
            tokio::select! {
                stream = next_stream(&self.sockets) => {
                    let stream = stream?;
                    if pending.len() < MAX_PENDING {
                        pending.push(timeout(HANDSHAKE_LIMIT, handshake::accept(stream, config.clone(), purpose)));
                    }
                }
                Some(shaken) = pending.next() => match shaken.map_err(|_| DataError::Late).flatten() {
                    Ok(connection) => {
                        tune(&connection.stream, None);
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

/// Connects to whichever of the neighbour's addresses answers and proves itself first.
///
/// # Errors
/// The last address's [`DataError`], or [`DataError::Late`] after `limit`.
pub(crate) async fn dial(
    addresses: &[SocketAddr],
    keypair: &Keypair,
    purpose: Purpose,
    limit: Duration,
) -> Result<Connection, DataError> {
    let attempt = |address: SocketAddr| async move {
        let began = Instant::now();
        let stream = TcpStream::connect(address).await?;
        tune(&stream, Some(began.elapsed()));
        handshake::connect(stream, keypair, purpose).await
    };
    let mut attempts: FuturesUnordered<_> = addresses.iter().take(MAX_ADDRESSES).copied().map(attempt).collect();
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

/// Sets what is good for bulk bytes. A socket that does not take it is slower, not worse.
fn tune(stream: &TcpStream, connected_in: Option<Duration>) {
    let socket = socket2::SockRef::from(stream);
    // A step may compute for minutes, and routers forget connections that are silent for so long.
    let keepalive = socket2::TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
    let set = socket.set_tcp_nodelay(true).and_then(|()| socket.set_tcp_keepalive(&keepalive));
    if let Err(error) = set {
        tracing::debug!(%error, "a direct connection is not tuned");
    }
    if connected_in.is_some_and(|time| time < NEAR) {
        keep_steady(socket);
    }
}

/// Gives a near link Reno. BBR, the default of many, halves the speed where nothing is ever lost. Far links keep the
/// system's choice.
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
