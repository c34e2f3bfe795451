//! Peers measure their links, which change over time, so that views are replanned in the middle of everything else.

use starling_topology::PeerId;
use starling_topology::plan::Link;

use super::{SimEvent, World};
use crate::hardware::network::Seat;
use crate::peer::Peer;

/// By how much a link's rate is another one for a while, up or down: enough to make another plan the better one.
const SWING: u64 = 8;

impl World {
    /// Has a process measure its links from now on, if this run's do.
    pub(super) fn measure_later(&mut self, seat: Seat, incarnation: u32) {
        if let Some(every) = self.plan.measures {
            // Not all at once: rows are known one by one.
            let micros = u64::try_from(every.as_micros()).unwrap_or(u64::MAX);
            let at = self.now + self.chance.micros(micros / 2, micros * 3 / 2);
            self.queue.push(at, SimEvent::Measures(seat, incarnation));
        }
    }

    /// A process has measured its links to the members of its view, or to some of them.
    pub(super) fn measure(&mut self, seat: Seat, incarnation: u32) {
        if self.hosts[seat].incarnation != incarnation {
            return;
        }
        let members = self.hosts[seat].peer.as_ref().and_then(Peer::view).map(|view| view.members().to_vec());
        let mut links: Vec<(PeerId, Link)> = Vec::new();
        for peer in members.unwrap_or_default() {
            let Some(link) = self.at(seat, peer).and_then(|to| self.network.link(seat, to)) else { continue };
            let rate = match self.chance.between(0, 9) {
                0 => continue,
                1 => link.bytes_per_second * SWING,
                2 | 3 => link.bytes_per_second / SWING,
                _ => link.bytes_per_second,
            };
            links.push((peer, Link { bytes_per_second: rate.max(1), ..link }));
        }
        self.with(seat, incarnation, |peer, now| peer.measured(now, links));
        self.measure_later(seat, incarnation);
    }
}
