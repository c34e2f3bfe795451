//! Whether nothing excuses it if links that have failed are not tried again.

use starling_topology::View;

use super::super::World;
use crate::peer::Peer;
use crate::verdict::invariants::DampedLinks;

impl World {
    /// Looks whether links are damped for longer than they may be.
    pub(in crate::world) fn look_for_damped_links(&mut self) {
        let Some(newest) = self.newest.as_ref().filter(|newest| self.is_quiet(newest)) else {
            return self.invariants.damped_links.is_excused();
        };
        let limit = DampedLinks::limit(&self.config);
        let held = self.invariants.damped_links.looked(self.now, newest, self.invariants.progress.calm_since(), limit);
        self.breaks(held);
    }

    /// Whether all who are in the run are full members, of `view` or of one before or after it, nothing keeps them from talking to each
    /// other, none of them lies, and the run is not over.
    fn is_quiet(&self, view: &View) -> bool {
        let is_there = |seat: usize| {
            let host = &self.hosts[seat];
            let runs = host.stopped.is_none() && host.full.is_empty() && host.disk.takes_votes() && host.is_judged();
            let peer = host.peer.as_ref().filter(|peer| runs && !host.leaving && peer.is_full());
            view.contains(host.name()) && peer.and_then(Peer::view).is_some_and(|theirs| theirs.branch == view.branch)
        };
        let is_over = self.invariants.progress.highest() >= self.workload.steps;
        let is_calm = self.active == 0 && !self.network.has_blocks() && self.plan.hostility.seats.is_empty();
        let in_the_run = (0..self.hosts.len()).filter(|seat| self.hosts[*seat].is_in_the_run());
        is_calm && !is_over && in_the_run.into_iter().all(is_there)
    }
}
