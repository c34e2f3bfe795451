//! Keepers: machines that take part in nothing, follow what members sign, fetch what is stable and hand it to those who come back.

use std::collections::BTreeMap;
use std::rc::Rc;

use starling_topology::heads::follower::{Input, Output};
use starling_topology::{Digest, Follower, Head, PeerId, Proof};

use super::{Happening, RUN, World};
use crate::checkpoints;
use crate::disk::Disk;
use crate::host::Host;
use crate::invariants::LastCheckpoint;
use crate::network::Seat;

/// Nobody forges one here.
const SIGNATURE: [u8; 64] = [0; 64];

impl World {
    /// Keepers begin with what is on their disks.
    pub(super) fn start_keepers(&mut self) {
        for seat in self.keepers() {
            let steps = self.workload.steps;
            let host = &mut self.hosts[seat];
            let proof = checkpoints::newest_proof(&host.disk, None);
            host.keeper = Some(Box::new(Follower::new(RUN, steps, held(&host.disk), proof.as_deref())));
        }
    }

    fn keepers(&self) -> impl Iterator<Item = Seat> + use<> {
        self.plan.peers..self.plan.peers + self.plan.keepers
    }

    /// A member's signed head is on its way to keepers.
    pub(super) fn announce_to_keepers(&mut self, from: Seat, head: &Head) {
        let name = self.hosts[from].name();
        for keeper in self.keepers() {
            if !self.is_cut_off(from, keeper) && !self.gossip.one_in(8) {
                let at = self.now + self.gossip.spread(200, 2_000_000);
                self.queue.push(at, Happening::Heard(keeper, name, Box::new(*head)));
            }
        }
    }

    /// Keepers look around: they ask who is there for what is stable, and try again what has failed.
    pub(super) fn keepers_look(&mut self) {
        for keeper in self.keepers() {
            let proven: Vec<(PeerId, Rc<Proof>)> = (0..self.plan.peers)
                .filter(|seat| self.hosts[*seat].peer.is_some() && !self.is_cut_off(keeper, *seat))
                .filter_map(|seat| {
                    let host = &self.hosts[seat];
                    let root = host.disk.newest_record().map(|record| record.root);
                    Some((host.name(), checkpoints::newest_proof(&host.disk, root.as_ref())?))
                })
                .collect();
            for (from, proof) in proven {
                let stable = self.hosts[keeper].keeper.as_ref().and_then(|follower| follower.stable_step());
                if stable < Some(proof.head.step) {
                    self.follow(keeper, Input::Proven { from, proof: (*proof).clone() });
                }
            }
            self.follow(keeper, Input::Retry);
        }
    }

    pub(super) fn keeper_hears(&mut self, keeper: Seat, from: PeerId, head: Head) {
        self.follow(keeper, Input::Received { from, head, signature: SIGNATURE });
    }

    /// Hands an input to a keeper's machine, and does what it asks.
    fn follow(&mut self, keeper: Seat, input: Input) {
        let Some(follower) = &mut self.hosts[keeper].keeper else { return };
        // An honest peer's head is sound; what a hostile one signs is not judged here.
        let _violation = follower.handle(input);
        while let Some(output) = self.hosts[keeper].keeper.as_mut().and_then(|follower| follower.poll()) {
            match output {
                Output::Fetch { head, from } => {
                    let at = self.now + self.gossip.spread(1_000, 2_000_000);
                    self.queue.push(at, Happening::Keeps(keeper, Box::new(head), from));
                }
                Output::Ask { view, from } => {
                    let is_there = |peer: &PeerId| {
                        let seat = self.at(keeper, *peer);
                        seat.is_some_and(|seat| self.hosts[seat].peer.is_some() && !self.is_cut_off(keeper, seat))
                    };
                    let known = self.known.get(&view).filter(|_| from.iter().any(is_there)).cloned();
                    let answer = Input::View { id: view, view: known };
                    if let Some(follower) = &mut self.hosts[keeper].keeper {
                        let _violation = follower.handle(answer);
                    }
                }
                Output::Stable(proof) => {
                    self.tell(|_| format!("{keeper} keeps the stable checkpoint of step {}", proof.head.step));
                    self.hosts[keeper].disk.sign(&proof);
                }
            }
        }
    }

    /// What a keeper fetches has come, if one of those who should have it still does.
    pub(super) fn keeper_fetches(&mut self, keeper: Seat, head: &Head, from: &[PeerId]) {
        let is_there = |seat: &Seat| {
            let host = &self.hosts[*seat];
            let runs = (host.peer.is_some() && host.stopped.is_none()) || host.keeper.is_some();
            runs && *seat != keeper && !self.is_cut_off(keeper, *seat)
        };
        let donors = from.iter().flat_map(|peer| self.all_of(*peer)).filter(is_there);
        let file = donors.into_iter().find_map(|donor| self.hosts[donor].disk.file_of(head));
        let sabotage = self.sabotage;
        let Host { disk, .. } = &mut self.hosts[keeper];
        let before = checkpoints::newest_proof(disk, None).map(|proof| proof.head.step);
        let kept = file.is_some_and(|file| checkpoints::keep(disk, None, file, sabotage).is_ok());
        let after = checkpoints::newest_proof(disk, None).map(|proof| proof.head.step);
        let input = if kept { Input::Holds(held(disk)) } else { Input::Failed(head.manifest) };
        self.breaks(LastCheckpoint::keeps_stable(keeper, before, after));
        self.follow(keeper, input);
    }

    /// Whether a keeper has what somebody who comes back could go on from.
    pub(super) fn is_kept(&self, admits: impl Fn(&Proof) -> bool) -> bool {
        let proofs = self.keepers().filter_map(|keeper| checkpoints::newest_proof(&self.hosts[keeper].disk, None));
        proofs.into_iter().any(|proof| proof.head.step >= self.newest_step && admits(&proof))
    }
}

fn held(disk: &Disk) -> BTreeMap<Digest, u64> {
    disk.checkpoints().iter().map(|((step, _), saved)| (saved.manifest(), *step)).collect()
}
