//! What a TCP connection goes through: TLS 1.3 as libp2p has it, the admission handshake, and only then yamux.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use futures::{AsyncRead, AsyncWrite};
use futures_rustls::{TlsAcceptor, TlsConnector, TlsStream};
use libp2p::core::ConnectedPoint;
use libp2p::core::muxing::StreamMuxerBox;
use libp2p::core::upgrade::{InboundConnectionUpgrade, OutboundConnectionUpgrade};
use libp2p::{PeerId, tls, yamux};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, NoKeyLog, ServerConfig};
use tokio::time::{Instant, timeout_at};

use crate::access::admission::{Admission, AdmissionError, DEADLINE, lost};
use crate::credentials::identity::Identity;

/// Streams of one connection. A member needs a dozen.
const MAX_STREAMS: usize = 64;

/// Makes a connection out of a stream of bytes.
#[derive(Clone)]
pub(super) struct Secure {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    admission: Admission,
}

impl Secure {
    pub(super) fn new(identity: &Identity, admission: Admission) -> io::Result<Self> {
        let mut server = tls::make_server_config(identity.keypair()).map_err(io::Error::other)?;
        let mut client = tls::make_client_config(identity.keypair(), None).map_err(io::Error::other)?;
        // Nobody writes down with which keys we speak, and no connection goes on where another one ended.
        (server.key_log, client.key_log) = (Arc::new(NoKeyLog), Arc::new(NoKeyLog));
        server.send_tls13_tickets = 0;
        Ok(Self { server: Arc::new(server), client: Arc::new(client), admission })
    }

    /// Encrypts, authenticates, admits; all of it within one deadline, and as long as the connection has its place.
    pub(super) async fn admit<C>(
        self,
        stream: C,
        point: ConnectedPoint,
    ) -> Result<(PeerId, StreamMuxerBox), AdmissionError>
    where
        C: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let deadline = Instant::now() + DEADLINE;
        let mut place = self.admission.place(&point)?;
        tokio::select! {
            admitted = self.within(deadline, stream, point.is_dialer()) => admitted,
            () = lost(&mut place) => Err(AdmissionError::Crowded),
        }
    }

    async fn within<C>(
        &self,
        deadline: Instant,
        stream: C,
        dialed: bool,
    ) -> Result<(PeerId, StreamMuxerBox), AdmissionError>
    where
        C: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let encrypted = match timeout_at(deadline, self.encrypt(stream, dialed)).await {
            Ok(encrypted) => encrypted,
            Err(_) => Err(AdmissionError::Late),
        };
        let (peer, mut stream) = encrypted.inspect_err(|error| self.admission.tell(None, dialed, error))?;
        self.admission.admit_stream(deadline, peer, dialed, &mut stream).await?;
        let mut multiplexer = yamux::Config::default();
        multiplexer.set_max_num_streams(MAX_STREAMS);
        let muxer = match dialed {
            true => multiplexer.upgrade_outbound(stream, "").await,
            false => multiplexer.upgrade_inbound(stream, "").await,
        };
        Ok((peer, StreamMuxerBox::new(muxer?)))
    }

    async fn encrypt<C>(&self, stream: C, dialed: bool) -> Result<(PeerId, TlsStream<C>), AdmissionError>
    where
        C: AsyncRead + AsyncWrite + Unpin,
    {
        let stream = if dialed {
            // Peers have no names: the certificate says who it is.
            let nobody = ServerName::IpAddress(IpAddr::from(Ipv4Addr::UNSPECIFIED).into());
            TlsStream::from(TlsConnector::from(self.client.clone()).connect(nobody, stream).await?)
        } else {
            TlsStream::from(TlsAcceptor::from(self.server.clone()).accept(stream).await?)
        };
        let [certificate] = stream.get_ref().1.peer_certificates().unwrap_or_default() else {
            return Err(AdmissionError::Foreign);
        };
        let certificate = tls::certificate::parse(certificate).map_err(|_| AdmissionError::Foreign)?;
        let peer = certificate.peer_id();
        Ok((peer, stream))
    }
}
