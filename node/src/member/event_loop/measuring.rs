//! What the links to other members cost: measured by the prober, or known because they never leave this machine.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use libp2p::Multiaddr;
use starling_topology::plan::Link;
use starling_topology::view::MAX_COSTED;
use starling_topology::{Input, PeerId, StallReport};

use super::EventLoop;
use crate::credentials::identity::{from_libp2p, to_libp2p};
use crate::net::listen;
use crate::observe::report::{MeasuredLink, Report};

/// Between two processes of one machine: what is measured there is how busy it is.
fn within_a_machine() -> Link {
    Link::measured(Duration::from_micros(20), 1 << 30)
}

impl EventLoop {
    pub(super) fn is_linked(&self) -> bool {
        self.reducer.as_ref().is_some_and(|reducer| self.linked == Some(reducer.view))
    }

    /// What this member waits for in the operation under way, which stands still.
    pub(super) fn awaited(&self, operation: Option<(u64, u64)>) -> StallReport {
        let step = operation.map_or(0, |(_, step)| step);
        let view = self.reducer.as_ref().map(|reducer| reducer.view);
        let told = self.awaited.as_ref().filter(|(of, awaited)| Some(*of) == view && awaited.step == step);
        told.map_or_else(|| StallReport::nothing(step), |(_, awaited)| awaited.clone())
    }

    /// A connection to `peer` is there, from or to this address.
    pub(super) fn on_connected(&mut self, peer: libp2p::PeerId, address: &Multiaddr) {
        let Some(peer) = from_libp2p(&peer) else { return };
        let ours: Vec<IpAddr> = self.network.swarm.listeners().filter_map(listen::ip).collect();
        let near = listen::ip(address).is_some_and(|ip| ip.is_loopback() || ours.contains(&ip));
        if near {
            self.nearby.insert(peer);
        } else {
            self.nearby.remove(&peer);
        }
        self.look_at_links();
    }

    /// Has the links to the members measured that this one is connected to.
    pub(super) fn look_at_links(&mut self) {
        self.nearby.retain(|peer| self.network.swarm.is_connected(&to_libp2p(*peer)));
        let Some(prober) = &self.prober else { return };
        let members = if self.members.len() > MAX_COSTED { &[][..] } else { &self.members };
        // From the one after us on, so that each member is measured by another one first.
        let at = members.partition_point(|member| *member <= self.me);
        let (before, after) = members.split_at(at);
        let there = |peer: &PeerId| *peer != self.me && self.network.swarm.is_connected(&to_libp2p(*peer));
        let others = after.iter().chain(before).copied().filter(there);
        let (near, far): (Vec<PeerId>, Vec<PeerId>) = others.partition(|peer| self.nearby.contains(peer));
        prober.look_at(far);
        if !near.is_empty() {
            self.on_measured(near.into_iter().map(|peer| (peer, within_a_machine())).collect());
        }
    }

    pub(super) fn on_measured(&mut self, links: Vec<(PeerId, Link)>) {
        for (peer, link) in &links {
            tracing::debug!(peer = %to_libp2p(*peer), delay_us = link.delay_us, rate = link.bytes_per_second, "measured");
        }
        let measured = links.iter().map(|(peer, link)| (to_libp2p(*peer).to_string(), MeasuredLink::from(*link)));
        let report = Report::Measured { links: measured.collect::<BTreeMap<_, _>>() };
        self.observer.report(&report);
        self.handle(Input::Measured { links });
    }
}
