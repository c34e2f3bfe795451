//! The direct data plane: a ring's segments over TCP connections of its own, one per link.
//!
//! libp2p carries what peers say to each other; its streams can carry gradients too, but yamux and copies between its
//! layers cost more than the reduction itself. Here the bytes of a link go over one socket, encrypted under a key that
//! only the two neighbours' identities can have agreed on. Where no direct connection comes about (a firewall, a peer
//! that only QUIC reaches), the ring's libp2p streams carry them as before.
//!
//! Start reading at [`listener`], then [`handshake`], [`record`] and [`link`].

pub(crate) mod error;
pub(crate) mod handshake;
pub(crate) mod link;
pub(crate) mod listener;
pub(crate) mod record;
pub(crate) mod thread;

use std::io;
use std::net::IpAddr;

use libp2p::Multiaddr;
use libp2p::identity::Keypair;
use libp2p::multiaddr::Protocol;
use serde::{Deserialize, Serialize};
use starling_topology::RunId;

use crate::identity::Identity;
use thread::DataThread;

/// Which transports a node uses for its ring links.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DataPlane {
    /// Direct connections where they can be made, libp2p streams elsewhere.
    #[default]
    Auto,
    /// Direct connections only: a link that can't be direct is broken.
    Direct,
    /// libp2p streams only.
    Universal,
}

/// How the bytes of one ring link travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// Over a TCP connection of its own.
    Direct,
    /// Over a libp2p stream.
    Universal,
}

impl Transport {
    /// Whether nobody between the two members can read or change what they send.
    pub fn is_encrypted(self) -> bool {
        match self {
            Self::Direct | Self::Universal => true,
        }
    }
}

impl std::fmt::Display for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Direct => "direct",
            Self::Universal => "universal",
        })
    }
}

/// What a node needs to make direct connections.
#[derive(Clone)]
pub(crate) struct Door {
    pub(crate) mode: DataPlane,
    pub(crate) run: RunId,
    pub(crate) keypair: Keypair,
    /// Where this node can be reached over TCP.
    pub(crate) ips: Vec<IpAddr>,
    /// Where rings run.
    pub(crate) thread: DataThread,
}

impl std::fmt::Debug for Door {
    /// Leaves the key out.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Door").field("mode", &self.mode).field("ips", &self.ips).finish_non_exhaustive()
    }
}

impl Door {
    /// The door of a node that listens on `listened`: direct connections are taken on the same interfaces.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(crate) fn new(identity: &Identity, run: RunId, mode: DataPlane, listened: &[Multiaddr]) -> io::Result<Self> {
        let mut ips: Vec<IpAddr> = listened.iter().filter_map(tcp_ip).collect();
        ips.sort_unstable();
        ips.dedup();
        Ok(Self { mode, run, keypair: identity.keypair().clone(), ips, thread: DataThread::start()? })
    }
}

fn tcp_ip(address: &Multiaddr) -> Option<IpAddr> {
    let mut parts = address.iter();
    let ip = match parts.next()? {
        Protocol::Ip4(ip) => IpAddr::from(ip),
        Protocol::Ip6(ip) => IpAddr::from(ip),
        _ => return None,
    };
    matches!(parts.next(), Some(Protocol::Tcp(_))).then_some(ip)
}
