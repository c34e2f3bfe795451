//! How two ring neighbours come to share a record key: TLS 1.3 between their libp2p identities, then an export.
//!
//! ```text
//!   sender (dials)                              receiver (listens)
//!      | <== TLS 1.3, both certificates, ALPN ==>  |   each checks that the other is its ring neighbour
//!      | -- view, direction -------------------->  |
//!      | <---------------------------- ready ----  |
//!      | == records under the exported key =====>  |   the TLS session ends here, the socket goes on
//! ```
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

use super::error::DataError;
use super::record::Secret;
use crate::identity::to_libp2p;

const ALPN: &[u8] = b"starling-data/1";
const LABEL: &[u8] = b"EXPERIMENTAL-starling-data-1";
/// Segments go from the dialer to the listener. The only direction there is; named so that another can't be mistaken.
const DIALER_TO_LISTENER: u8 = 1;
const READY: u8 = 0x2a;
/// Read from the socket at a time. A handshake takes a few kilobytes.
const READ_BYTES: usize = 4096;

/// What a connection is for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Purpose {
    pub(crate) run: RunId,
    pub(crate) view: ViewId,
    /// The ring neighbour that must be at the other end.
    pub(crate) peer: PeerId,
}

/// A socket whose ends have proven who they are, and the secret that only they share.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(super) stream: TcpStream,
    pub(super) secret: Secret,
}

/// Proves to the listener who we are and that we are to send to it. Cancelling closes the socket.
///
/// # Errors
/// [`DataError`] if the listener is not the expected peer, or does not take us for its neighbour.
pub(crate) async fn connect(stream: TcpStream, keypair: &Keypair, purpose: Purpose) -> Result<Connection, DataError> {
    let peer = to_libp2p(purpose.peer);
    let config = tls::make_client_config(keypair, Some(peer));
    let config = config.map_err(|error| DataError::Certificate(error.to_string()))?;
    connect_with(stream, config, purpose).await
}

async fn connect_with(
    stream: TcpStream,
    mut config: rustls::ClientConfig,
    purpose: Purpose,
) -> Result<Connection, DataError> {
    config.alpn_protocols = vec![ALPN.to_vec()];
    // libp2p lets an environment variable write its session keys to a file. Gradients are worth more than that.
    config.key_log = Arc::new(rustls::NoKeyLog);
    config.resumption = rustls::client::Resumption::disabled();
    // Nobody is known by a name here; the verifier looks at the peer id alone.
    let name = ServerName::IpAddress(stream.peer_addr()?.ip().into());
    let tls = rustls::ClientConnection::new(Arc::new(config), name)?;
    let mut session = Session { stream, tls: tls.into() };
    session.shake(purpose.peer).await?;
    session.send(&hello(purpose)).await?;
    let mut ready = [0];
    session.receive(&mut ready).await?;
    if ready != [READY] {
        return Err(DataError::OtherProtocol);
    }
    session.export(purpose)
}

/// The listener's certificate and rules. Made once for all handshakes of a view.
///
/// # Errors
/// [`DataError::Certificate`] if the identity can't sign one.
pub(crate) fn listener_config(keypair: &Keypair) -> Result<Arc<rustls::ServerConfig>, DataError> {
    let config = tls::make_server_config(keypair);
    let mut config = config.map_err(|error| DataError::Certificate(error.to_string()))?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.key_log = Arc::new(rustls::NoKeyLog);
    // Nothing may follow the handshake but what we send ourselves: records come next on this socket.
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// Lets in the expected peer for the expected view, and nobody else. Cancelling closes the socket.
///
/// # Errors
/// [`DataError`], saying what was not as expected.
pub(crate) async fn accept(
    stream: TcpStream,
    config: Arc<rustls::ServerConfig>,
    purpose: Purpose,
) -> Result<Connection, DataError> {
    let tls = rustls::ServerConnection::new(config)?;
    let mut session = Session { stream, tls: tls.into() };
    session.shake(purpose.peer).await?;
    let mut theirs = hello(purpose);
    theirs.fill(0);
    session.receive(&mut theirs).await?;
    if theirs != hello(purpose) {
        return Err(DataError::OtherView);
    }
    session.send(&[READY]).await?;
    session.export(purpose)
}

fn hello(purpose: Purpose) -> [u8; 33] {
    let mut hello = [DIALER_TO_LISTENER; 33];
    hello[..32].copy_from_slice(&purpose.view.0);
    hello
}

/// A TLS session over a socket, for as long as it takes to agree on a key.
struct Session {
    stream: TcpStream,
    tls: rustls::Connection,
}

impl Session {
    async fn shake(&mut self, peer: PeerId) -> Result<(), DataError> {
        loop {
            self.flush().await?;
            if !self.tls.is_handshaking() {
                break;
            }
            self.fill().await?;
        }
        if self.tls.alpn_protocol() != Some(ALPN) {
            return Err(DataError::OtherProtocol);
        }
        let certificate = self.tls.peer_certificates().and_then(<[_]>::first).ok_or(DataError::OtherPeer)?;
        let theirs = tls::certificate::parse(certificate).map_err(|_| DataError::OtherPeer)?.peer_id();
        if theirs == to_libp2p(peer) { Ok(()) } else { Err(DataError::OtherPeer) }
    }

    async fn send(&mut self, bytes: &[u8]) -> Result<(), DataError> {
        self.tls.writer().write_all(bytes)?;
        self.flush().await
    }

    async fn receive(&mut self, mut into: &mut [u8]) -> Result<(), DataError> {
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

    async fn flush(&mut self) -> Result<(), DataError> {
        let mut bytes = Vec::new();
        while self.tls.wants_write() {
            self.tls.write_tls(&mut bytes)?;
        }
        Ok(self.stream.write_all(&bytes).await?)
    }

    async fn fill(&mut self) -> Result<(), DataError> {
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

    fn export(self, purpose: Purpose) -> Result<Connection, DataError> {
        let mut context = purpose.run.0.to_vec();
        context.extend(hello(purpose));
        let secret = self.tls.export_keying_material(Secret::default(), LABEL, Some(&context))?;
        Ok(Connection { stream: self.stream, secret })
    }
}

#[cfg(test)]
mod tests;
