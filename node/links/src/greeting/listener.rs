//! Where a ring's previous member connects to, and how the next one is connected to.
//!
//! A listener is there only while one ring sets up its links, and only for one peer: it takes the connections that
//! prove to be that peer's and closes. Whoever else finds the port is dropped.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, pending, select_all};
use futures::stream::{FuturesUnordered, StreamExt};
use libp2p::identity::Keypair;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use crate::error::ConnectionError;
use crate::greeting::handshake::{self, Candidate, Connection, LinkParams, MAX_PARALLEL};

/// The most addresses that a listener has, and that one peer tells another.
pub(crate) const MAX_ADDRESSES: usize = 8;
/// Strangers may hold this many handshakes open beside the neighbour's; one more connection is dropped.
const MAX_PENDING: usize = 4 + MAX_ADDRESSES;
/// The most attempts that a neighbour needs: one for each address, then one for each further connection.
const MAX_ATTEMPTS: usize = MAX_ADDRESSES + MAX_PARALLEL - 1;
/// How long one handshake may take. Who has proven to be the neighbour then has until the greeting ends.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(2);
/// How long a chosen attempt may leave the dialer without an answer before it chooses another one beside it. Longer than most
/// ways take, and short enough for a second and a third one.
const CHOICE_PATIENCE: Duration = Duration::from_millis(250);
/// So many connections may fail at a listener's sockets themselves, as when a network goes down; then it takes no more.
const MAX_SOCKET_ERRORS: usize = 64;
/// A connection that is set up or answers within this stays on this machine or in its local network.
const NEAR: Duration = Duration::from_millis(3);
/// How often it is tried whether a way is short that did not seem so: one connection of BBR's takes most of a link from others that share it.
const TRIES: usize = 4;
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

    /// Begins to take the connections that `link_params` describes, whatever their numbers.
    ///
    /// # Errors
    /// [`ConnectionError`] if there are no sockets, or no certificate can be made.
    pub(crate) fn acceptor(&self, keypair: &Keypair, link_params: LinkParams) -> Result<Acceptor<'_>, ConnectionError> {
        if self.sockets.is_empty() {
            return Err(ConnectionError::Unreachable);
        }
        let config = handshake::listener_config(keypair)?;
        let (shaking, candidates) = (FuturesUnordered::new(), FuturesUnordered::new());
        Ok(Acceptor { sockets: &self.sockets, config, link_params, shaking, candidates, proven: 0, socket_errors: 0 })
    }
}

/// Takes connections, and has handshakes under way.
pub(crate) struct Acceptor<'a> {
    sockets: &'a [TcpListener],
    config: Arc<rustls::ServerConfig>,
    link_params: LinkParams,
    /// Who has yet to prove to be the neighbour.
    shaking: FuturesUnordered<BoxFuture<'static, Result<Result<Candidate, ConnectionError>, Elapsed>>>,
    /// The neighbour's attempts, which it may yet choose.
    candidates: FuturesUnordered<BoxFuture<'static, Result<Connection, ConnectionError>>>,
    /// How many of its attempts there were.
    proven: usize,
    socket_errors: usize,
}

impl Acceptor<'_> {
    /// Waits for the next connection that the neighbour has chosen. Others are dropped, whatever they say. Can be cancelled and
    /// called again.
    pub(crate) async fn next(&mut self) -> Connection {
        let Self { sockets, config, link_params, shaking, candidates, proven, socket_errors } = self;
        loop {
            tokio::select! {
                stream = next_stream(sockets), if *socket_errors < MAX_SOCKET_ERRORS => match stream {
                    Ok(stream) if shaking.len() < MAX_PENDING => {
                        let handshake = handshake::accept(stream, config.clone(), *link_params);
                        shaking.push(timeout(HANDSHAKE_LIMIT, handshake).boxed());
                    }
                    Ok(_) => tracing::info!("a direct connection too many dropped"),
                    Err(error) => {
                        *socket_errors += 1;
                        tracing::debug!(%error, "a direct connection did not come about");
                    }
                },
                Some(shaken) = shaking.next() => match shaken.map_err(|_| ConnectionError::Late).flatten() {
                    Ok(candidate) if *proven < MAX_ATTEMPTS => {
                        *proven += 1;
                        candidates.push(candidate.chosen().boxed());
                    }
                    Ok(_) => tracing::info!("the neighbour connects too often"),
                    Err(error) => tracing::info!(%error, "direct connection dropped"),
                },
                Some(chosen) = candidates.next() => match chosen {
                    Ok(connection) => {
                        tune(&connection.stream);
                        return connection;
                    }
                    // Another one was faster.
                    Err(error) => tracing::debug!(%error, "an attempt at a direct connection ended"),
                },
                else => pending().await,
            }
        }
    }
}

async fn next_stream(sockets: &[TcpListener]) -> io::Result<TcpStream> {
    let accepts = sockets.iter().map(|socket| Box::pin(socket.accept()));
    let (accepted, _, _) = select_all(accepts).await;
    Ok(accepted?.0)
}

/// Connects to all of the neighbour's addresses at once, and chooses the one that proves itself first. If that does not answer,
/// another one is chosen. Says whether its way is short, too.
///
/// # Errors
/// The last address's [`ConnectionError`], or [`ConnectionError::Late`] after `limit`.
pub(crate) async fn dial(
    addresses: &[SocketAddr],
    keypair: &Keypair,
    link_params: LinkParams,
    limit: Duration,
) -> Result<(Connection, bool), ConnectionError> {
    let raced = timeout(limit, race(addresses, keypair, link_params)).await;
    let (connection, is_near) = raced.map_err(|_| ConnectionError::Late)??;
    let is_near = is_near || is_short(&connection).await;
    if is_near {
        keep_steady(socket2::SockRef::from(&connection.stream));
    }
    Ok((connection, is_near))
}

/// Whether the way of this connection is short after all: a busy machine may be late to see that it was connected, but hardly each time. Over what
/// is tried nobody speaks, as over an attempt that is given up.
async fn is_short(connection: &Connection) -> bool {
    let Ok(address) = connection.stream.peer_addr() else { return false };
    for _ in 0..TRIES {
        if matches!(timeout(NEAR, TcpStream::connect(address)).await, Ok(Ok(_))) {
            return true;
        }
    }
    false
}

async fn race(
    addresses: &[SocketAddr],
    keypair: &Keypair,
    link_params: LinkParams,
) -> Result<(Connection, bool), ConnectionError> {
    let attempt = |address: &SocketAddr| connect(*address, keypair, link_params, false);
    let mut attempts: FuturesUnordered<_> = addresses.iter().take(MAX_ADDRESSES).map(attempt).collect();
    // Those that are not chosen stay open until one has answered.
    let mut ready = VecDeque::new();
    let mut choices = FuturesUnordered::new();
    let (mut choose_at, mut last) = (Instant::now(), ConnectionError::Unreachable);
    while !(attempts.is_empty() && ready.is_empty() && choices.is_empty()) {
        tokio::select! {
            Some(answer) = choices.next() => match answer {
                Ok(made) => return Ok(made),
                Err(error) => (choose_at, last) = (Instant::now(), error),
            },
            Some(shaken) = attempts.next() => match shaken {
                Ok(candidate) => ready.push_back(candidate),
                Err(error) => last = error,
            },
            () = sleep_until(choose_at), if !ready.is_empty() => {
                choices.push(choose(ready.pop_front().expect("invariant: one is ready"), true));
                choose_at = Instant::now() + CHOICE_PATIENCE;
            }
        }
    }
    Err(last)
}

/// Makes further connections beside the `first` one, whose way is short or not, up to `count` in all. Returns those that came about within `limit`.
pub(crate) async fn dial_beside(
    (first, is_near): (&Connection, bool),
    keypair: &Keypair,
    link_params: LinkParams,
    count: u8,
    limit: Duration,
) -> Vec<Connection> {
    let Ok(address) = first.stream.peer_addr() else { return Vec::new() };
    let attempt = async || Ok(choose(connect(address, keypair, link_params, is_near).await?, false).await?.0);
    let count = usize::from(count).min(MAX_PARALLEL);
    let mut attempts: FuturesUnordered<_> = (1..count).map(|_| attempt()).collect();
    let (deadline, mut made) = (Instant::now() + limit, Vec::new());
    while let Ok(Some(result)) = timeout_at(deadline, attempts.next()).await {
        match result {
            Ok(connection) => made.push(connection),
            Err::<_, ConnectionError>(error) => tracing::debug!(%error, "one connection less"),
        }
    }
    made
}

/// Connects to an address, and says whether its way is short, be it that this is known.
async fn connect(
    address: SocketAddr,
    keypair: &Keypair,
    link_params: LinkParams,
    is_near: bool,
) -> Result<(Candidate, bool), ConnectionError> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    if link_params.is_brief || is_near {
        // Before it connects: BBR, once begun, leaves its pauses between packets to whatever comes after it.
        keep_steady(socket2::SockRef::from(&socket));
    }
    let began = Instant::now();
    let stream = socket.connect(address).await?;
    let is_near = is_near || began.elapsed() < NEAR;
    tune(&stream);
    if is_near {
        keep_steady(socket2::SockRef::from(&stream));
    }
    Ok((handshake::connect(stream, keypair, link_params).await?, is_near))
}

/// Chooses a candidate whose way seems short or not. Whose other end answers as soon as one that is near is near: a busy machine may have been late
/// to see that it was connected.
async fn choose(
    (candidate, is_near): (Candidate, bool),
    is_first: bool,
) -> Result<(Connection, bool), ConnectionError> {
    let began = Instant::now();
    let connection = candidate.choose(is_first).await?;
    let is_near = is_near || began.elapsed() < NEAR;
    if is_near {
        keep_steady(socket2::SockRef::from(&connection.stream));
    }
    Ok((connection, is_near))
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
pub(crate) fn bears_loss(stream: &TcpStream) -> bool {
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
