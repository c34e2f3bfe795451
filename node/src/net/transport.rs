//! How bytes travel: TCP with TLS 1.3 and yamux, and QUIC, both behind the admission handshake.
//!
//! Over TCP the handshake is the first thing inside TLS, before there are streams: whoever is not admitted has one stream of
//! bytes, of which we take in what the handshake has and what one TLS record holds. QUIC has its streams from the start: until
//! it is admitted a connection has one, and as much memory. It is not listened on by default: gradients prefer TCP.

mod quic;
mod secure;

use std::io;
use std::time::Duration;

use libp2p::core::muxing::StreamMuxerBox;
use libp2p::core::transport::Boxed;
use libp2p::futures::future::Either;
use libp2p::{PeerId, Transport as _, dns, tcp};

use crate::access::admission::Admission;
use crate::credentials::identity::Identity;
use quic::Quic;
use secure::Secure;

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
    let secure = Secure::new(identity, admission.clone())?;
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
        .and_then(move |stream, point| secure.clone().admit(stream, point));
    let quic = Quic::new(identity, admission)?;
    let either = quic.or_transport(tcp).map(|connection, _| match connection {
        Either::Left(connection) | Either::Right(connection) => connection,
    });
    Ok(dns::tokio::Transport::system(either)?.boxed())
}
