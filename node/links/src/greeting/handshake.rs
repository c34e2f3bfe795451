//! How two neighbours come to share a record key: TLS 1.3 between their libp2p identities, then an export.
//!
//! ```text
//!   sender (dials)                              receiver (listens)
//!      | <== TLS 1.3, both certificates, ALPN ==>  |   each checks that the other is its neighbour
//!      | -- view, direction, form, attempt ----->  |   the form: sealed or plain, as both users must have said
//!      | <---------------------------- ready ----  |
//!      |    ... the sender chooses an attempt ...   |   the others end here
//!      | -- where its memory is ---------------->  |   nowhere, unless both ends are on one machine
//!      | <------- taken, with that memory or not --  |
//!      | == records under the exported key =====>  |   the TLS session ends here, the socket goes on
//! ```
//!
//! Two machines may reach each other in several ways, and then there are several attempts at one connection. Only its
//! dialer knows which one it uses, so it alone chooses, says so on the attempt itself, and names it once more when it says
//! what came of all ([`Attempt`]). Until then the listener keeps whatever it has, in whichever order that came.
//!
//! The export is bound to run and view, so a connection made for one ring can't serve another.

use std::io::{self, Read, Write};
use std::sync::Arc;

use libp2p::identity::Keypair;
use libp2p::tls;
use rustls::pki_types::ServerName;
use starling_topology::{PeerId, RunId, ViewId};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::direct::record::Secret;
use crate::error::ConnectionError;
use crate::greeting::peer::to_libp2p;
use crate::local::memory::{Mapping, Place, Shared};
use crate::{Transport, TransportPolicy, local};

const ALPN: &[u8] = b"starling-data/4";
const LABEL: &[u8] = b"EXPERIMENTAL-starling-data-4";
/// Segments go from the dialer to the listener. The only direction there is; named so that another can't be mistaken.
const DIALER_TO_LISTENER: u8 = 1;
const SEALED: u8 = 1;
const PLAIN: u8 = 2;
const READY: u8 = 0x2a;
const MAPPED: u8 = 1;
const NOT_MAPPED: u8 = 0;
/// Connections of one link.
pub(crate) const MAX_PARALLEL: usize = 8;
const ATTEMPT_BYTES: usize = 8;
/// View, direction, form and attempt.
pub(crate) const HELLO_BYTES: usize = 34 + ATTEMPT_BYTES;
/// Process and descriptor; zeros are nowhere.
const PLACE_BYTES: usize = 8;
/// Read from the socket at a time. A handshake takes a few kilobytes.
const READ_BYTES: usize = 4096;

/// What a connection is for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LinkParams {
    pub(crate) run: RunId,
    pub(crate) view: ViewId,
    /// The neighbour that must be at the other end.
    pub(crate) peer: PeerId,
    /// What this end's user allows.
    pub(crate) mode: TransportPolicy,
    /// The longest segment.
    pub(crate) segment_bytes: usize,
    /// Whether operations are so short that few packets go at a time.
    pub(crate) is_brief: bool,
}

/// The name of an attempt at a connection, drawn by its dialer: both ends know by it which ones came of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Attempt(pub(crate) [u8; ATTEMPT_BYTES]);

impl Attempt {
    pub(crate) const BYTES: usize = ATTEMPT_BYTES;
}

/// How a connection's bytes are kept.
#[derive(Debug)]
pub(crate) enum Protection {
    Sealed,
    Plain,
    /// They go through this memory; the socket only wakes.
    Local(Mapping),
}

/// A socket whose ends have proven who they are, and the secret that only they share.
#[derive(Debug)]
pub struct Connection {
    pub(crate) stream: TcpStream,
    pub(crate) secret: Secret,
    pub(crate) protection: Protection,
    /// Which one it was.
    pub(crate) attempt: Attempt,
}

impl Connection {
    /// How its segments travel.
    pub fn transport(&self) -> Transport {
        match self.protection {
            Protection::Sealed => Transport::Direct,
            Protection::Plain => Transport::Plaintext,
            Protection::Local(_) => Transport::Local,
        }
    }
}

/// A socket whose ends have proven who they are, and which its dialer may yet choose. Dropping it closes the socket.
pub(crate) struct Candidate {
    session: Session,
    secret: Secret,
    link_params: LinkParams,
    attempt: Attempt,
}

impl std::fmt::Debug for Candidate {
    /// Leaves the secret out.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Candidate").field("attempt", &self.attempt).finish_non_exhaustive()
    }
}

impl Candidate {
    /// The dialer's part: tells the listener that it uses this attempt, and where memory is that both could use, if this is
    /// the link's first connection. Cancelling closes the socket; the listener may have taken it then.
    ///
    /// # Errors
    /// [`ConnectionError`] if the listener does not take it.
    pub(crate) async fn choose(self, is_first: bool) -> Result<Connection, ConnectionError> {
        let Self { mut session, secret, link_params, attempt } = self;
        let protection = session.offer(link_params, is_first, &secret).await?;
        Ok(Connection { stream: session.stream, secret, protection, attempt })
    }

    /// The listener's part: waits until the dialer says that it uses this attempt.
    ///
    /// # Errors
    /// [`ConnectionError`] if the dialer closes it instead, or says nonsense.
    pub(crate) async fn chosen(self) -> Result<Connection, ConnectionError> {
        let Self { mut session, secret, link_params, attempt } = self;
        let protection = session.meet(link_params, &secret).await?;
        Ok(Connection { stream: session.stream, secret, protection, attempt })
    }
}

/// Proves to the listener who we are and that we are to send to it. Cancelling closes the socket.
///
/// # Errors
/// [`ConnectionError`] if the listener is not the expected peer, or does not take us for its neighbour.
pub(crate) async fn connect(
    stream: TcpStream,
    keypair: &Keypair,
    link_params: LinkParams,
) -> Result<Candidate, ConnectionError> {
    let peer = to_libp2p(link_params.peer);
    let config = tls::make_client_config(keypair, Some(peer));
    let config = config.map_err(|error| ConnectionError::Certificate(error.to_string()))?;
    connect_with(stream, config, link_params).await
}

async fn connect_with(
    stream: TcpStream,
    mut config: rustls::ClientConfig,
    link_params: LinkParams,
) -> Result<Candidate, ConnectionError> {
    config.alpn_protocols = vec![ALPN.to_vec()];
    // libp2p lets an environment variable write its session keys to a file. Gradients are worth more than that.
    config.key_log = Arc::new(rustls::NoKeyLog);
    config.resumption = rustls::client::Resumption::disabled();
    // Nobody is known by a name here; the verifier looks at the peer id alone.
    let name = ServerName::IpAddress(stream.peer_addr()?.ip().into());
    let tls = rustls::ClientConnection::new(Arc::new(config), name)?;
    let mut session = Session { stream, tls: tls.into() };
    session.shake(link_params.peer).await?;
    let attempt = Attempt(rand::random());
    session.send(&hello(link_params, attempt)).await?;
    let mut ready = [0];
    session.receive(&mut ready).await?;
    if ready != [READY] {
        return Err(ConnectionError::OtherProtocol);
    }
    let secret = session.export(link_params, attempt)?;
    Ok(Candidate { session, secret, link_params, attempt })
}

/// The listener's certificate and rules. Made once for all handshakes of a view.
///
/// # Errors
/// [`ConnectionError::Certificate`] if the identity can't sign one.
pub(crate) fn listener_config(keypair: &Keypair) -> Result<Arc<rustls::ServerConfig>, ConnectionError> {
    let config = tls::make_server_config(keypair);
    let mut config = config.map_err(|error| ConnectionError::Certificate(error.to_string()))?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.key_log = Arc::new(rustls::NoKeyLog);
    // Nothing may follow the handshake but what we send ourselves: records come next on this socket.
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// Lets in the expected peer for the expected view, and nobody else. Cancelling closes the socket.
///
/// # Errors
/// [`ConnectionError`], saying what was not as expected.
pub(crate) async fn accept(
    stream: TcpStream,
    config: Arc<rustls::ServerConfig>,
    link_params: LinkParams,
) -> Result<Candidate, ConnectionError> {
    let tls = rustls::ServerConnection::new(config)?;
    let mut session = Session { stream, tls: tls.into() };
    session.shake(link_params.peer).await?;
    let mut theirs = [0; HELLO_BYTES];
    session.receive(&mut theirs).await?;
    let attempt = Attempt(*theirs.last_chunk().expect("invariant: it ends with the attempt"));
    if theirs != hello(link_params, attempt) {
        return Err(ConnectionError::OtherView);
    }
    session.send(&[READY]).await?;
    let secret = session.export(link_params, attempt)?;
    Ok(Candidate { session, secret, link_params, attempt })
}

fn hello(link_params: LinkParams, attempt: Attempt) -> [u8; HELLO_BYTES] {
    let protection = if link_params.mode == TransportPolicy::Plaintext { PLAIN } else { SEALED };
    let mut hello = [0; HELLO_BYTES];
    hello[..32].copy_from_slice(&link_params.view.0);
    hello[32..34].copy_from_slice(&[DIALER_TO_LISTENER, protection]);
    hello[34..].copy_from_slice(&attempt.0);
    hello
}

/// Whether two ends with this socket between them may share memory.
fn may_share(stream: &TcpStream, link_params: LinkParams) -> bool {
    let ends = stream.local_addr().and_then(|here| Ok((here.ip(), stream.peer_addr()?.ip())));
    link_params.mode.shares_memory() && ends.is_ok_and(|(here, there)| here == there)
}

/// Makes memory that only the other end of this handshake takes for its own.
fn make_memory(link_params: LinkParams, secret: &Secret) -> io::Result<(Shared, Mapping, Place)> {
    let shared = Shared::make(local::memory_bytes(link_params.segment_bytes))?;
    let (mut mapping, place) = (shared.map()?, shared.place()?);
    local::mark(&mut mapping, secret);
    Ok((shared, mapping, place))
}

fn open_memory(link_params: LinkParams, secret: &Secret, place: Place) -> io::Result<Mapping> {
    let mapping = Shared::open(place, local::memory_bytes(link_params.segment_bytes))?.map()?;
    if local::is_marked(&mapping, secret) { Ok(mapping) } else { Err(io::Error::other("it is another link's memory")) }
}

/// What a link becomes without memory.
fn without_memory(link_params: LinkParams) -> Result<Protection, ConnectionError> {
    match link_params.mode {
        TransportPolicy::Local => Err(ConnectionError::NotLocal),
        TransportPolicy::Plaintext => Ok(Protection::Plain),
        TransportPolicy::Auto | TransportPolicy::Direct | TransportPolicy::Universal => Ok(Protection::Sealed),
    }
}

fn encode(place: Place) -> [u8; PLACE_BYTES] {
    let mut bytes = [0; PLACE_BYTES];
    bytes[..4].copy_from_slice(&place.process.to_le_bytes());
    bytes[4..].copy_from_slice(&place.descriptor.to_le_bytes());
    bytes
}

fn decode(bytes: [u8; PLACE_BYTES]) -> Place {
    let [a, b, c, d, e, f, g, h] = bytes;
    Place { process: u32::from_le_bytes([a, b, c, d]), descriptor: u32::from_le_bytes([e, f, g, h]) }
}

/// A TLS session over a socket, for as long as it takes to agree on a key.
struct Session {
    stream: TcpStream,
    tls: rustls::Connection,
}

impl Session {
    async fn shake(&mut self, peer: PeerId) -> Result<(), ConnectionError> {
        loop {
            self.flush().await?;
            if !self.tls.is_handshaking() {
                break;
            }
            self.fill().await?;
        }
        if self.tls.alpn_protocol() != Some(ALPN) {
            return Err(ConnectionError::OtherProtocol);
        }
        let certificate = self.tls.peer_certificates().and_then(<[_]>::first).ok_or(ConnectionError::OtherPeer)?;
        let theirs = tls::certificate::parse(certificate).map_err(|_| ConnectionError::OtherPeer)?.peer_id();
        if theirs == to_libp2p(peer) { Ok(()) } else { Err(ConnectionError::OtherPeer) }
    }

    async fn send(&mut self, bytes: &[u8]) -> Result<(), ConnectionError> {
        self.tls.writer().write_all(bytes)?;
        self.flush().await
    }

    async fn receive(&mut self, mut into: &mut [u8]) -> Result<(), ConnectionError> {
        while !into.is_empty() {
            match self.tls.reader().read(into) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Ok(count) => into = &mut into[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.fill().await?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), ConnectionError> {
        let mut bytes = Vec::new();
        while self.tls.wants_write() {
            self.tls.write_tls(&mut bytes)?;
        }
        Ok(self.stream.write_all(&bytes).await?)
    }

    async fn fill(&mut self) -> Result<(), ConnectionError> {
        let mut bytes = [0; READ_BYTES];
        let count = self.stream.read(&mut bytes).await?;
        if count == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let mut rest = &bytes[..count];
        while !rest.is_empty() {
            self.tls.read_tls(&mut rest)?;
            if let Err(error) = self.tls.process_new_packets() {
                // The other end learns why, if it still listens; what counts here is our own reason.
                let _ = self.flush().await;
                return Err(error.into());
            }
        }
        Ok(())
    }

    fn export(&self, link_params: LinkParams, attempt: Attempt) -> Result<Secret, ConnectionError> {
        let mut context = link_params.run.0.to_vec();
        context.extend(hello(link_params, attempt));
        Ok(self.tls.export_keying_material(Secret::default(), LABEL, Some(&context))?)
    }

    /// Tells the listener that this attempt is chosen, and where memory is that both could use.
    async fn offer(
        &mut self,
        link_params: LinkParams,
        is_first: bool,
        secret: &Secret,
    ) -> Result<Protection, ConnectionError> {
        let made = (is_first && may_share(&self.stream, link_params)).then(|| make_memory(link_params, secret));
        let made = made.transpose().unwrap_or_else(|error| {
            tracing::info!(%error, "no memory for a local link");
            None
        });
        let place = made.as_ref().map_or([0; PLACE_BYTES], |(_, _, place)| encode(*place));
        self.send(&place).await?;
        let mut answer = [0];
        self.receive(&mut answer).await?;
        match made {
            Some((_, mapping, _)) if answer == [MAPPED] => Ok(Protection::Local(mapping)),
            _ if answer == [NOT_MAPPED] => without_memory(link_params),
            _ => Err(ConnectionError::OtherProtocol),
        }
    }

    /// Waits until the dialer has chosen this attempt, maps its memory if there is some, and says so.
    async fn meet(&mut self, link_params: LinkParams, secret: &Secret) -> Result<Protection, ConnectionError> {
        let mut place = [0; PLACE_BYTES];
        self.receive(&mut place).await?;
        let offered = place != [0; PLACE_BYTES] && may_share(&self.stream, link_params);
        let opened = offered.then(|| open_memory(link_params, secret, decode(place)));
        let opened = opened.transpose().unwrap_or_else(|error| {
            tracing::info!(%error, "the previous member's memory can't be mapped");
            None
        });
        let answer = if opened.is_some() { MAPPED } else { NOT_MAPPED };
        // What can't be used is not taken: the dialer sees its end, and tries another attempt.
        let protection =
            opened.map_or_else(|| without_memory(link_params), |mapping| Ok(Protection::Local(mapping)))?;
        self.send(&[answer]).await?;
        Ok(protection)
    }
}

#[cfg(test)]
mod tests;
