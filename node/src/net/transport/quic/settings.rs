//! How connections are encrypted, and what they may hold.

use std::io;
use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Duration;

use libp2p::tls;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::rustls::NoKeyLog;
use quinn::{
    ClientConfig, Connection, Endpoint, EndpointConfig, NoneTokenLog, NoneTokenStore, ServerConfig, TransportConfig,
    ValidationTokenConfig, VarInt,
};
use ring::hmac;

use crate::credentials::identity::Identity;

/// What one connection may have on its way to us before it is admitted, in bytes: no more than the handshake has.
const NARROW: u32 = 4096;
/// The same once it is admitted, and what we may have on our way to it. Of a third of libp2p's: at 100 ms, 40 MB a second.
const WIDE: u32 = 4 << 20;
/// Streams of one connection that is admitted. A member needs a dozen.
const STREAMS: u32 = 64;
/// First datagrams that wait until we have looked at them. Each takes its own length, at most 64 KiB and mostly 1,200 bytes.
const MAX_INCOMING: usize = 256;
/// What may follow one of them meanwhile, in bytes, and all of them.
const BUFFERED: (u64, u64) = (16 << 10, 1 << 20);
/// A connection on which nothing has come for so long is lost.
const IDLE: Duration = Duration::from_secs(10);
/// How often something is sent on one that has nothing to say.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// What the key is derived for by which a machine that has forgotten a connection ends it (RFC 9000, section 10.3).
const RESET: &[u8] = b"starling quic stateless reset key";

/// What all endpoints have in common.
#[derive(Debug)]
pub(super) struct Settings {
    endpoint: EndpointConfig,
    server: ServerConfig,
    client: ClientConfig,
}

impl Settings {
    pub(super) fn new(identity: &Identity) -> io::Result<Self> {
        let mut server = tls::make_server_config(identity.keypair()).map_err(io::Error::other)?;
        let mut client = tls::make_client_config(identity.keypair(), None).map_err(io::Error::other)?;
        // Nobody writes down with which keys we speak, and no connection goes on where another one ended.
        (server.key_log, client.key_log) = (Arc::new(NoKeyLog), Arc::new(NoKeyLog));
        server.send_tls13_tickets = 0;
        let server = QuicServerConfig::try_from(server).map_err(io::Error::other)?;
        let client = QuicClientConfig::try_from(client).map_err(io::Error::other)?;

        let transport = Arc::new(transport());
        let mut server = ServerConfig::with_crypto(Arc::new(server));
        server.transport_config(Arc::clone(&transport)).migration(false).max_incoming(MAX_INCOMING);
        // A Retry's token alone proves an address, whatever else is compiled in: one that was given out long ago proves nothing.
        let mut tokens = ValidationTokenConfig::default();
        tokens.sent(0).log(Arc::new(NoneTokenLog));
        server.validation_token_config(tokens);
        server.incoming_buffer_size(BUFFERED.0).incoming_buffer_size_total(BUFFERED.1);
        let mut client = ClientConfig::new(Arc::new(client));
        client.transport_config(transport).token_store(Arc::new(NoneTokenStore));

        let key = identity.keypair().derive_secret(RESET);
        let mut endpoint = match key {
            Some(key) => EndpointConfig::new(Arc::new(hmac::Key::new(hmac::HMAC_SHA256, &key))),
            None => EndpointConfig::default(),
        };
        endpoint.supported_versions(vec![1]);
        Ok(Self { endpoint, server, client })
    }

    /// How to dial.
    pub(super) fn client(&self) -> ClientConfig {
        self.client.clone()
    }

    /// One that dials from this socket, and if so wanted takes what comes in.
    pub(super) fn endpoint(&self, socket: UdpSocket, listens: bool) -> io::Result<Endpoint> {
        let server = listens.then(|| self.server.clone());
        Endpoint::new(self.endpoint.clone(), server, socket, Arc::new(quinn::TokioRuntime))
    }
}

fn transport() -> TransportConfig {
    let mut transport = TransportConfig::default();
    // One stream, for the handshake: until a connection is widened.
    transport.max_concurrent_bidi_streams(1_u32.into()).max_concurrent_uni_streams(0_u32.into());
    transport.receive_window(NARROW.into()).stream_receive_window(WIDE.into()).send_window(WIDE.into());
    transport.datagram_receive_buffer_size(None);
    transport.keep_alive_interval(Some(KEEP_ALIVE)).allow_spin(false);
    transport.max_idle_timeout(Some(IDLE.try_into().expect("invariant: a few seconds")));
    transport
}

/// Lets a connection that is admitted have all that it may.
pub(super) fn widen(connection: &Connection) {
    connection.set_max_concurrent_bi_streams(VarInt::from_u32(STREAMS));
    connection.set_receive_window(VarInt::from_u32(WIDE));
}
