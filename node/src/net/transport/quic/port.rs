//! A UDP port, and the connections through it.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use libp2p::core::muxing::StreamMuxerBox;
use libp2p::{PeerId, tls};
use quinn::rustls::pki_types::CertificateDer;
use quinn::{ClientConfig, Connecting, Connection, Endpoint};
use tokio::time::{Instant, timeout_at};

use super::muxer::{Muxer, Stream};
use super::{Admitted, settings};
use crate::access::admission::{Admission, AdmissionError, DEADLINE};

/// Peers have no names: the certificate says who it is. TLS wants one all the same.
const NOBODY: &str = "l";
/// Connections that came in, are not admitted, and take memory, some 60 KiB each: more than there are places for, as one that is
/// closed stays for some seconds more, in which it answers what is still on its way (RFC 9000, section 10.2).
const MAX_OPEN: usize = 56;
/// So many more from where members are.
const MORE_EXPECTED: usize = 16;

/// A port. Clones are the same one.
#[derive(Debug, Clone)]
pub(super) struct Port {
    endpoint: Endpoint,
    pub(super) admission: Admission,
    /// Each connection that is admitted refers to it, weakly, and each that we have begun and that is not.
    ours: Arc<()>,
}

/// That a connection is one that is admitted, or that we have begun, for as long as it lives.
pub(super) type IsOurs = Weak<()>;

impl Port {
    pub(super) fn new(endpoint: Endpoint, admission: Admission) -> Self {
        Self { endpoint, admission, ours: Arc::default() }
    }

    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Whether one more connection may come in; `expected` from where a member is.
    pub(super) fn has_room(&self, expected: bool) -> bool {
        let most = MAX_OPEN + if expected { MORE_EXPECTED } else { 0 };
        self.endpoint.open_connections().saturating_sub(Arc::weak_count(&self.ours)) < most
    }

    /// Begins a connection.
    pub(super) fn connect(&self, config: ClientConfig, to: SocketAddr) -> io::Result<Connecting> {
        self.endpoint.connect_with(config, to, NOBODY).map_err(io::Error::other)
    }

    /// Encrypts, authenticates, admits; all of it within one deadline.
    pub(super) async fn admit(
        &self,
        dialed: bool,
        connecting: impl Future<Output = io::Result<Connection>>,
    ) -> Admitted {
        let deadline = Instant::now() + DEADLINE;
        let dialing = dialed.then(|| Arc::downgrade(&self.ours));
        let encrypted = async {
            let connection = connecting.await?;
            let peer = peer_of(&connection).ok_or(AdmissionError::Foreign)?;
            let opened = match dialed {
                true => connection.open_bi().await,
                false => connection.accept_bi().await,
            };
            Ok((peer, Stream::from(opened.map_err(io::Error::from)?), connection))
        };
        let encrypted = timeout_at(deadline, encrypted).await.unwrap_or(Err(AdmissionError::Late));
        let (peer, mut stream, connection) = encrypted.inspect_err(|error| self.admission.tell(None, dialed, error))?;
        self.admission.admit_stream(deadline, peer, dialed, &mut stream).await?;
        settings::widen(&connection);
        let is_ours = dialing.unwrap_or_else(|| Arc::downgrade(&self.ours));
        Ok((peer, StreamMuxerBox::new(Muxer::new(connection, is_ours))))
    }
}

/// Whom the other side's certificate names.
fn peer_of(connection: &Connection) -> Option<PeerId> {
    let certificates = connection.peer_identity()?.downcast::<Vec<CertificateDer<'static>>>().ok()?;
    let [certificate] = certificates.as_slice() else { return None };
    Some(tls::certificate::parse(certificate).ok()?.peer_id())
}
