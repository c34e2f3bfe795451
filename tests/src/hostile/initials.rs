//! First datagrams of QUIC connections: each begins another one, and nobody goes on with it.

use std::collections::BTreeMap;

use libp2p::core::transport::{DialOpts, PortUse};
use libp2p::core::{Endpoint, Transport as _};
use libp2p::identity::Keypair;
use libp2p::{Multiaddr, quic};
use tokio::net::UdpSocket;

/// A client's first datagram is as long, at least (RFC 9000, 14.1).
const LEAST: usize = 1200;
/// Where a datagram has the length of its connection's name, and the name behind it.
const NAME_AT: usize = 5;

/// So many, as a client really sends them.
pub(crate) async fn initials(count: usize) -> Vec<Vec<u8>> {
    let sink = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
    let port = sink.local_addr().expect("its address").port();
    let address: Multiaddr = format!("/ip4/127.0.0.1/udp/{port}/quic-v1").parse().expect("an address");
    let mut transport = quic::tokio::Transport::new(quic::Config::new(&Keypair::generate_ed25519()));
    let (mut found, mut buffer) = (BTreeMap::new(), vec![0; 2048]);
    while found.len() < count {
        let options = DialOpts { role: Endpoint::Dialer, port_use: PortUse::New };
        let mut dial = transport.dial(address.clone(), options).expect("dialed");
        let length = tokio::select! {
            _ = &mut dial => continue,
            length = sink.recv(&mut buffer) => length.expect("a datagram"),
        };
        if length >= LEAST {
            let name = usize::from(buffer[NAME_AT]);
            // Later ones say that nobody goes on.
            found.entry(buffer[NAME_AT..=NAME_AT + name].to_vec()).or_insert_with(|| buffer[..length].to_vec());
        }
    }
    found.into_values().collect()
}
