//! Whether nothing excuses it if a newcomer has no vote.

use starling_topology::{PeerId, View};

use super::super::{LOOK, World};
use crate::peer::Peer;
use crate::verdict::invariants::VotesGiven;

impl World {
    /// Looks whether somebody waits for its vote without a reason.
    pub(in crate::world) fn look_for_votes_due(&mut self) {
        let Some(newest) = self.newest.as_ref().filter(|newest| self.is_well(newest)) else {
            return self.invariants.votes_given.is_excused();
        };
        let stays = |peer: &PeerId| self.all_of(*peer).all(|seat| !self.hosts[seat].leaving);
        let newcomers = newest.newcomers().iter().copied().filter(stays).collect();
        let limit = match self.plan.hostility.seats.is_empty() {
            true => VotesGiven::limit(&self.config),
            false => VotesGiven::hostile_limit(&self.config),
        };
        let (id, calm) = (newest.id(), self.invariants.progress.calm_since());
        let held = self.invariants.votes_given.looked(self.now, id, newcomers, calm, limit);
        self.breaks(held);
    }

    /// Whether all members of `view` step in it, steps are committed, nothing keeps them from talking to each other, and the run is not over.
    fn is_well(&self, view: &View) -> bool {
        let is_there = |seat: usize| {
            let host = &self.hosts[seat];
            let runs = host.stopped.is_none() && host.full.is_empty() && host.disk.takes_votes() && host.is_judged();
            runs && host.peer.as_ref().and_then(Peer::view).is_some_and(|theirs| theirs == view)
        };
        let is_over = self.invariants.progress.highest() >= self.workload.steps;
        let is_calm = self.active == 0 && !self.network.has_blocks() && !self.is_withheld();
        let is_stepping = !self.invariants.progress.stands_still(self.now, LOOK * 2);
        is_calm && is_stepping && !is_over && view.members().iter().all(|peer| self.all_of(*peer).all(is_there))
    }
}
