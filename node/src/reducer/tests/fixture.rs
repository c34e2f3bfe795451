//! Links between members that greet each other as in a run, without a run.

use std::sync::Arc;
use std::time::Duration;

use starling_links::{
    Connection, ConnectionCount, Endpoint, IncomingLink, LinkConfig, LinkLimit, OutgoingLink, TransportPolicy, greeting,
};
use starling_topology::{PeerId, RunId, ViewId};
use tokio::io::{DuplexStream, duplex};
use tokio_util::compat::TokioAsyncReadCompatExt;

use crate::credentials::identity::{Identity, from_libp2p};

pub(super) const VIEW: ViewId = ViewId([2; 32]);
/// No test waits for it.
pub(super) const LIMIT: Duration = Duration::from_secs(30);

pub(super) fn peer() -> PeerId {
    from_libp2p(&Identity::generate().peer_id()).expect("an Ed25519 key")
}

pub(super) fn limits() -> LinkLimit {
    LinkLimit { record: LIMIT, send: LIMIT }
}

/// Of links whose longest payload has so many bytes.
pub(super) fn config(longest: usize) -> LinkConfig {
    LinkConfig { longest_payload: longest, limits: limits(), traffic: Arc::default() }
}

/// The door of a node on loopback whose segments have so many bytes, and its peer id.
pub(super) fn endpoint(mode: TransportPolicy, longest: usize) -> (Endpoint, PeerId) {
    let identity = Identity::generate();
    let listened = ["/ip4/127.0.0.1/tcp/1".parse().expect("a multiaddr")];
    let endpoint = Endpoint::new(identity.keypair(), RunId([1; 32]), mode, longest, usize::MAX, &listened);
    (endpoint.expect("a thread"), from_libp2p(&identity.peer_id()).expect("an Ed25519 key"))
}

/// What two neighbours greet each other over.
pub(super) fn stream() -> (DuplexStream, DuplexStream) {
    duplex(256)
}

/// The connection to `receiver`, as the one who sends makes it.
pub(super) async fn open(stream: DuplexStream, endpoint: &Endpoint, receiver: PeerId) -> Connection {
    let opened = greeting::open(&mut stream.compat(), endpoint, receiver, VIEW, ConnectionCount::ONE, LIMIT).await;
    opened.expect("greeted").pop().expect("a connection")
}

/// The connection from `sender`, as the one who receives takes it.
pub(super) async fn answer(stream: DuplexStream, endpoint: &Endpoint, sender: PeerId) -> Connection {
    let mut stream = stream.compat();
    assert_eq!(greeting::read_view(&mut stream).await.expect("a view"), VIEW);
    let answered = greeting::answer(&mut stream, endpoint, sender, VIEW).await;
    answered.expect("greeted").pop().expect("a connection")
}

/// A connection between two neighbours of this mode: the end that sends, and the end that receives.
pub(super) async fn connection(mode: TransportPolicy, longest: usize) -> (Connection, Connection) {
    let ((ours, our_peer), (theirs, their_peer)) = (endpoint(mode, longest), endpoint(mode, longest));
    let (near, far) = stream();
    tokio::join!(open(near, &ours, their_peer), answer(far, &theirs, our_peer))
}

/// Both ends of a link over so many connections, over memory if `mode` allows it.
pub(super) async fn link(mode: TransportPolicy, longest: usize, connections: usize) -> (OutgoingLink, IncomingLink) {
    let ends = futures::future::join_all((0..connections).map(|_| connection(mode, longest))).await;
    let (sending, receiving): (Vec<_>, Vec<_>) = ends.into_iter().unzip();
    let config = config(longest);
    let (outgoing, incoming) = (OutgoingLink::over(sending, &config), IncomingLink::over(receiving, &config));
    (outgoing.expect("connections"), incoming.expect("connections"))
}
