//! Strangers over QUIC: they begin connections, encrypt as a peer does, and are never admitted.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use libp2p::identity::Keypair;
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Connection, Endpoint};

/// How long one who says nothing, or little, stays: longer than the deadline.
const STAY: Duration = Duration::from_secs(10);
/// Between two bytes of one who is slow.
const PAUSE: Duration = Duration::from_millis(500);
/// What one who babbles says at most, in bytes.
const TIRADE: usize = 16 << 20;

/// What they do.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Manner {
    /// Sends a first datagram, and babble after it; reads nothing.
    Deaf,
    /// Encrypts, and says nothing.
    Silent,
    /// Encrypts, opens its stream and says a byte at a time.
    Slow,
    /// Encrypts, and says on as many streams as it gets much that means nothing.
    Babbling,
}

pub(crate) const MANNERS: [Manner; 4] = [Manner::Deaf, Manner::Silent, Manner::Slow, Manner::Babbling];

/// One of them, on a port of its own.
#[derive(Debug)]
pub(crate) struct Stranger {
    endpoint: Endpoint,
}

impl Stranger {
    /// Must be called where tasks can be spawned.
    pub(crate) fn new(from: Ipv4Addr) -> Self {
        let tls = libp2p::tls::make_client_config(&Keypair::generate_ed25519(), None).expect("a certificate");
        let tls = QuicClientConfig::try_from(tls).expect("a cipher for QUIC");
        let mut endpoint = Endpoint::client((from, 0).into()).expect("a port");
        endpoint.set_default_client_config(ClientConfig::new(Arc::new(tls)));
        Self { endpoint }
    }

    /// Connects, and acts until it is put out.
    pub(crate) async fn act(&self, manner: Manner, target: SocketAddr) -> anyhow::Result<()> {
        let connection = self.endpoint.connect(target, "l")?.await?;
        match manner {
            Manner::Deaf => connection.close(0_u32.into(), &[]),
            Manner::Silent => drop(tokio::time::timeout(STAY, connection.closed()).await),
            Manner::Slow => {
                let (mut send, _receive) = connection.open_bi().await?;
                let mut pause = tokio::time::interval(PAUSE);
                for _ in 0..STAY.as_millis() / PAUSE.as_millis() {
                    pause.tick().await;
                    send.write_all(&[0]).await?;
                }
            }
            Manner::Babbling => drop(tokio::join!(babble(&connection), babble(&connection))),
        }
        Ok(())
    }
}

async fn babble(connection: &Connection) -> anyhow::Result<()> {
    let (mut send, _receive) = connection.open_bi().await?;
    let noise = vec![0xa5; 64 * 1024];
    for _ in 0..TIRADE / noise.len() {
        send.write_all(&noise).await?;
    }
    connection.closed().await;
    Ok(())
}
