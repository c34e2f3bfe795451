//! Where a member's direct connections come in, and what they prove.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;

use libp2p::Multiaddr;
use libp2p::identity::Keypair;
use libp2p::multiaddr::Protocol;
use starling_topology::{PeerId, RunId, ViewId};

use crate::greeting::handshake::LinkParams;
use crate::link::thread::DataThread;
use crate::link::transport::TransportPolicy;

/// Operations up to this are brief: a few dozen packets.
const BRIEF_BYTES: usize = 64 * 1024;

/// What a member needs to make links.
#[derive(Clone)]
pub struct Endpoint {
    pub(crate) mode: TransportPolicy,
    pub(crate) run: RunId,
    pub(crate) keypair: Keypair,
    /// Where this node can be reached over TCP.
    pub(crate) ips: Vec<IpAddr>,
    /// The longest segment of the run.
    pub(crate) segment_bytes: usize,
    /// Whether operations are so short that few packets go at a time.
    pub(crate) is_brief: bool,
    /// Where rings run.
    pub thread: DataThread,
}

impl std::fmt::Debug for Endpoint {
    /// Leaves the key out.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint").field("mode", &self.mode).field("ips", &self.ips).finish_non_exhaustive()
    }
}

impl Endpoint {
    /// What connections to or from the neighbour `peer` are for.
    pub(crate) fn link_params(&self, view: ViewId, peer: PeerId) -> LinkParams {
        let Self { run, mode, segment_bytes, is_brief, .. } = *self;
        LinkParams { run, view, peer, mode, segment_bytes, is_brief }
    }

    /// The door of a node that listens on `listened`: direct connections are taken on the same interfaces. A member brings
    /// `operation_bytes` to an operation.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn new(
        keypair: &Keypair,
        run: RunId,
        mode: TransportPolicy,
        segment_bytes: usize,
        operation_bytes: usize,
        listened: &[Multiaddr],
    ) -> io::Result<Self> {
        let ips = in_turn(listened.iter().filter_map(tcp_ip).collect());
        let (keypair, thread) = (keypair.clone(), DataThread::start()?);
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
}
