//! The direct data plane: a ring's segments over TCP connections of its own, one per link.
//!
//! libp2p carries what peers say to each other; its streams can carry gradients too, but yamux and copies between its
//! layers cost more than the reduction itself. Here the bytes of a link go over one socket, encrypted under a key that
//! only the two neighbours' identities can have agreed on. Where no direct connection comes about (a firewall, a peer
//! that only QUIC reaches), the ring's libp2p streams carry them as before.
//!
//! Start reading at [`listener`], then [`handshake`], [`record`], [`link`] and [`parallel`].

mod cipher;
pub(crate) mod error;
#[cfg(test)]
pub(crate) mod fixture;
pub(crate) mod handshake;
#[cfg(test)]
pub(crate) mod lane;
pub(crate) mod link;
pub(crate) mod listener;
pub(crate) mod local;
// Values lie in shared memory as they are, so the processor's order of bytes must be the wire's.
#[cfg_attr(not(all(target_os = "linux", target_endian = "little")), path = "no_memory.rs")]
mod memory;
pub(crate) mod parallel;
pub(crate) mod record;
pub(crate) mod thread;

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use libp2p::Multiaddr;
use libp2p::identity::Keypair;
use libp2p::multiaddr::Protocol;
use serde::{Deserialize, Serialize};
use starling_topology::{PeerId, RunId, ViewId};

use crate::identity::Identity;
use handshake::Purpose;
use thread::DataThread;

/// Which transports a node uses for its ring links. Both ends of a link take the best that both have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DataPlane {
    /// Shared memory within a machine, direct connections where they can be made, libp2p streams elsewhere.
    #[default]
    Auto,
    /// Direct connections only: a link that can't be direct is broken.
    Direct,
    /// Direct connections without encryption, for networks that only trusted people and machines can reach. Both ends
    /// must say so, or the link is broken. They still prove who they are.
    Plaintext,
    /// Shared memory only: a link to another machine or another user's process is broken.
    Local,
    /// libp2p streams only.
    Universal,
}

impl FromStr for DataPlane {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let at = Self::NAMES.iter().position(|name| *name == text);
        at.map(|at| Self::ALL[at]).ok_or_else(|| format!("`{text}` is none of {}", Self::NAMES.join(", ")))
    }
}

impl DataPlane {
    /// What they are called.
    pub const NAMES: [&str; 5] = ["auto", "direct", "local", "universal", "plaintext"];
    const ALL: [Self; 5] = [Self::Auto, Self::Direct, Self::Local, Self::Universal, Self::Plaintext];

    /// Whether a link that is not made over TCP is broken.
    pub(crate) fn insists(self) -> bool {
        match self {
            Self::Direct | Self::Plaintext | Self::Local => true,
            Self::Auto | Self::Universal => false,
        }
    }

    /// Whether a link may be local.
    pub(crate) fn shares_memory(self) -> bool {
        match self {
            Self::Auto | Self::Local => true,
            Self::Direct | Self::Plaintext | Self::Universal => false,
        }
    }
}

/// How the bytes of one ring link travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// Over a TCP connection of its own, encrypted.
    Direct,
    /// The same, readable by everybody on the way.
    Plaintext,
    /// Through memory that two processes on one machine share.
    Local,
    /// Over a libp2p stream.
    Universal,
}

impl Transport {
    /// Whether what the two members send is encrypted. What is local never leaves the machine, and is not.
    pub fn is_encrypted(self) -> bool {
        match self {
            Self::Direct | Self::Universal => true,
            Self::Plaintext | Self::Local => false,
        }
    }
}

impl std::fmt::Display for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Direct => "direct",
            Self::Plaintext => "plaintext",
            Self::Local => "local",
            Self::Universal => "universal",
        })
    }
}

/// How long a link may bring or take nothing before it counts as broken.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// From a record's first byte to its last: the least rate.
    pub(crate) record: Duration,
    /// Without anything taken of what is sent. A member that still computes takes nothing, so it also bounds by how much one
    /// may be slower than the one before it.
    pub(crate) send: Duration,
}

impl Limits {
    /// The limits of a run whose longest stall is `max_stall`. A record that has begun takes no longer than a member may be
    /// silent; and nothing is taken for no longer than a step may take.
    pub(crate) fn new(max_stall: Duration) -> Self {
        Self { record: max_stall * 6 / 10, send: max_stall * 9 / 10 }
    }
}

/// Bytes over links of reducers, headers included, over the node's life.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) sent: AtomicU64,
    pub(crate) received: AtomicU64,
}

impl Traffic {
    /// All that has come and gone, in bytes.
    pub(crate) fn moved(&self) -> u64 {
        self.sent.load(Ordering::Relaxed).wrapping_add(self.received.load(Ordering::Relaxed))
    }
}

/// What all links of a reducer share.
#[derive(Debug, Clone)]
pub(crate) struct LinkConfig {
    /// In bytes.
    pub(crate) longest_payload: usize,
    pub(crate) limits: Limits,
    pub(crate) traffic: Arc<Traffic>,
}

/// Operations up to this are brief: a few dozen packets.
const BRIEF_BYTES: usize = 64 * 1024;

/// What a node needs to make direct connections.
#[derive(Clone)]
pub(crate) struct Door {
    pub(crate) mode: DataPlane,
    pub(crate) run: RunId,
    pub(crate) keypair: Keypair,
    /// Where this node can be reached over TCP.
    pub(crate) ips: Vec<IpAddr>,
    /// The longest segment of the run.
    pub(crate) segment_bytes: usize,
    /// Whether operations are so short that few packets go at a time.
    pub(crate) is_brief: bool,
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
    /// What connections to or from the neighbour `peer` are for.
    pub(crate) fn purpose(&self, view: ViewId, peer: PeerId) -> Purpose {
        let Self { run, mode, segment_bytes, is_brief, .. } = *self;
        Purpose { run, view, peer, mode, segment_bytes, is_brief }
    }

    /// The door of a node that listens on `listened`: direct connections are taken on the same interfaces. A member brings
    /// `operation_bytes` to an operation.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(crate) fn new(
        identity: &Identity,
        run: RunId,
        mode: DataPlane,
        segment_bytes: usize,
        operation_bytes: usize,
        listened: &[Multiaddr],
    ) -> io::Result<Self> {
        let ips = in_turn(listened.iter().filter_map(tcp_ip).collect());
        let (keypair, thread) = (identity.keypair().clone(), DataThread::start()?);
        Ok(Self { mode, run, keypair, ips, segment_bytes, is_brief: operation_bytes <= BRIEF_BYTES, thread })
    }
}

/// Each address once, IPv4 and IPv6 in turn, those that only this machine reaches last: a neighbour is told the first few.
fn in_turn(ips: BTreeSet<IpAddr>) -> Vec<IpAddr> {
    let mut turns = Vec::with_capacity(ips.len());
    let (v4, v6): (Vec<IpAddr>, Vec<IpAddr>) = ips.into_iter().partition(IpAddr::is_ipv4);
    for mut family in [v4, v6] {
        family.sort_by_key(IpAddr::is_loopback);
        turns.extend(family.into_iter().enumerate());
    }
    turns.sort_by_key(|(turn, ip)| (ip.is_loopback(), *turn));
    turns.into_iter().map(|(_, ip)| ip).collect()
}

/// The address of an interface that TCP connections are taken on. None that holds within one link only: without the name that
/// the link has on the other machine, nobody can connect to it.
fn tcp_ip(address: &Multiaddr) -> Option<IpAddr> {
    let mut parts = address.iter();
    let ip = match parts.next()? {
        Protocol::Ip4(ip) => IpAddr::from(ip),
        Protocol::Ip6(ip) if !ip.is_unicast_link_local() => IpAddr::from(ip),
        _ => return None,
    };
    matches!(parts.next(), Some(Protocol::Tcp(_))).then_some(ip)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_addresses_both_families_are_told_and_none_that_leads_nowhere() {
        let listened = [
            "/ip4/127.0.0.1/tcp/1",
            "/ip4/10.0.0.2/tcp/1",
            "/ip4/10.0.0.1/tcp/1",
            "/ip4/10.0.0.1/tcp/2",
            "/ip4/10.0.0.3/udp/1/quic-v1",
            "/ip6/fe80::1/tcp/1",
            "/ip6/::1/tcp/1",
            "/ip6/fd00::1/tcp/1",
            "/dns4/example.org/tcp/1",
        ];
        let listened = listened.map(|address| address.parse::<Multiaddr>().expect("a multiaddr"));
        let ips = in_turn(listened.iter().filter_map(tcp_ip).collect());
        let ips: Vec<String> = ips.iter().map(ToString::to_string).collect();
        assert_eq!(ips, ["10.0.0.1", "fd00::1", "10.0.0.2", "::1", "127.0.0.1"]);
    }

    #[test]
    fn a_record_is_given_up_as_soon_as_a_silent_member_and_a_link_before_the_stall_is_over() {
        let max_stall = Duration::from_secs(10);
        let limits = Limits::new(max_stall);
        let silence = starling_topology::Config { max_stall, ..Default::default() }.silence_limit();
        assert_eq!(limits.record, silence);
        assert!(silence < limits.send && limits.send < max_stall);
    }
}
