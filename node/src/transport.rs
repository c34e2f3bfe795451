//! How bytes travel: TCP with TLS 1.3 and yamux, and QUIC, both behind the admission handshake.

use std::io;
use std::time::Duration;

use libp2p::core::muxing::StreamMuxerBox;
use libp2p::core::transport::Boxed;
use libp2p::core::upgrade::Version;
use libp2p::futures::future::Either;
use libp2p::{PeerId, Transport as _, dns, quic, tcp, tls, yamux};

use crate::admission::Admission;
use crate::identity::Identity;

/// How long encryption and multiplexing may take to set up on a new TCP connection.
const SETUP_LIMIT: Duration = Duration::from_secs(5);
/// Substreams of one TCP connection. A member needs a dozen; a stranger can make us buffer for no more than these.
const MAX_STREAMS: usize = 64;

/// All transports as one. A connection that comes out of it is encrypted, authenticated and admitted.
///
/// A TCP connection on which the other side's system has acknowledged nothing for `unanswered` is closed (RFC 5482). A
/// network that breaks closes none, and once it mends, TCP waits up to as long again as it was broken before it tries
/// anew: whoever dials is there sooner. `None` leaves it to the system, which waits for a quarter of an hour.
///
/// # Errors
/// If the system's DNS configuration can't be read or the identity can't sign a certificate.
pub(crate) fn build(
    identity: &Identity,
    admission: Admission,
    unanswered: Option<Duration>,
) -> io::Result<Boxed<(PeerId, StreamMuxerBox)>> {
    let mut multiplexer = yamux::Config::default();
    multiplexer.set_max_num_streams(MAX_STREAMS);
    #[cfg(not(target_os = "linux"))]
    let _ = unanswered;
    let tcp = tcp::tokio::Transport::new(tcp::Config::default().nodelay(true))
        .map(move |stream, _| {
            #[cfg(target_os = "linux")]
            if let Err(error) = socket2::SockRef::from(&stream.0).set_tcp_user_timeout(unanswered) {
                tracing::debug!(%error, "a connection has the system's time limit");
            }
            stream
        })
        .upgrade(Version::V1)
        .authenticate(tls::Config::new(identity.keypair()).map_err(io::Error::other)?)
        .multiplex(multiplexer)
        .timeout(SETUP_LIMIT)
        .boxed();
    let quic = quic::tokio::Transport::new(quic::Config::new(identity.keypair()))
        .map(|(peer, connection), _| (peer, StreamMuxerBox::new(connection)));
    let either = quic.or_transport(tcp).map(|connection, _| match connection {
        Either::Left(connection) | Either::Right(connection) => connection,
    });
    let admitted = dns::tokio::Transport::system(either)?
        .and_then(move |(peer, muxer), point| admission.clone().admit(peer, muxer, point));
    Ok(admitted.boxed())
}
