//! Neighbours, sockets and connections for tests.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use libp2p::identity::Keypair;
use starling_topology::{PeerId, RunId, ViewId};
use tokio::net::{TcpListener, TcpStream};

use crate::error::ConnectionError;
use crate::greeting::handshake::{Attempt, Connection, LinkParams, Protection};
use crate::greeting::listener::{Listener, dial};
use crate::greeting::peer::from_libp2p;
use crate::link::thread::DataThread;
use crate::{Endpoint, LinkConfig, LinkLimit, Transport, TransportPolicy};

pub(crate) const RUN: RunId = RunId([1; 32]);
pub(crate) const VIEW: ViewId = ViewId([2; 32]);
pub(crate) const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// No test waits for it.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);
/// Of connections whose tests send longer segments.
pub(crate) const SEGMENT_BYTES: usize = 64 * 1024;
/// What both ends of a connection without a handshake share.
pub(crate) const SECRET: [u8; 32] = [5; 32];

pub(crate) fn key() -> (Keypair, PeerId) {
    let keypair = Keypair::generate_ed25519();
    let peer = from_libp2p(&keypair.public().to_peer_id()).expect("an Ed25519 key");
    (keypair, peer)
}

/// For a connection to or from `peer` that goes over its socket.
pub(crate) fn link_params(peer: PeerId) -> LinkParams {
    LinkParams {
        run: RUN,
        view: VIEW,
        peer,
        mode: TransportPolicy::Direct,
        segment_bytes: SEGMENT_BYTES,
        is_brief: false,
    }
}

pub(crate) fn limits() -> LinkLimit {
    LinkLimit { record: LIMIT, send: LIMIT }
}

/// Of links whose longest payload has so many bytes.
pub(crate) fn config(longest_payload: usize) -> LinkConfig {
    LinkConfig { longest_payload, limits: limits(), traffic: Arc::default() }
}

/// The door of a node that listens on `ips`, and its peer id.
pub(crate) fn endpoint(mode: TransportPolicy, ips: &[IpAddr]) -> (Endpoint, PeerId) {
    let (keypair, peer) = key();
    let thread = DataThread::start().expect("a thread");
    (
        Endpoint { mode, run: RUN, keypair, ips: ips.to_vec(), segment_bytes: SEGMENT_BYTES, is_brief: false, thread },
        peer,
    )
}

pub(crate) async fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((LOOPBACK, 0)).await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let (dialed, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
    (dialed.expect("connected"), accepted.expect("accepted").0)
}

/// One end of a connection, without a handshake.
pub(crate) fn sealed(stream: TcpStream) -> Connection {
    Connection { stream, secret: SECRET, protection: Protection::Sealed, attempt: Attempt([0; Attempt::BYTES]) }
}

/// What both ends of a connection know it by.
pub(crate) fn name_of(connection: &Connection) -> (Transport, Attempt, [u8; 32]) {
    (connection.transport(), connection.attempt, connection.secret)
}

/// The first connection that a listener takes.
pub(crate) async fn accept(
    listener: &Listener,
    keypair: &Keypair,
    link_params: LinkParams,
) -> Result<Connection, ConnectionError> {
    Ok(listener.acceptor(keypair, link_params)?.next().await)
}

/// A connection between two neighbours of this mode: the end that sends, and the end that receives.
pub(crate) async fn connection(mode: TransportPolicy, segment_bytes: usize) -> (Connection, Connection) {
    let ((ours, our_peer), (theirs, their_peer)) = (key(), key());
    let listener = Listener::bind(&[LOOPBACK]).await;
    let addresses = listener.addresses();
    let link_params = |peer| LinkParams { mode, segment_bytes, ..link_params(peer) };
    let dialing = dial(&addresses, &ours, link_params(their_peer), LIMIT);
    let (dialed, accepted) = tokio::join!(dialing, accept(&listener, &theirs, link_params(our_peer)));
    (dialed.expect("dialed").0, accepted.expect("accepted"))
}
