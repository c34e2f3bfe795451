//! Keepers: machines that take part in nothing, follow what members sign, fetch what is stable and hand it to those who come back.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use starling_topology::heads::follower::{Input, Output};
use starling_topology::history::ViewSearch;
use starling_topology::{Digest, Follower, Head, PeerId, Proof, Time, ViewId};

use crate::hardware::machine::checkpoints;
use crate::hardware::machine::contacts::ContactsFile;
use crate::hardware::machine::disk::Disk;
use crate::hardware::machine::host::Host;
use crate::hardware::network::Seat;
use crate::sweep::fault::Queue;
use crate::verdict::invariants::{Broken, EndIsKept, LastCheckpoint};
use crate::world::seeking::Errand;
use crate::world::{RUN, SimEvent, World};

/// Nobody forges one here.
const SIGNATURE: [u8; 64] = [0; 64];
/// How often a keeper tells where it is.
const ANNOUNCES: Duration = Duration::from_secs(30);

impl World {
    /// Keepers start, some of them later than the others.
    pub(in crate::world) fn start_keepers(&mut self) {
        for seat in self.keepers() {
            self.start_keeper(seat);
            self.hosts[seat].announces = Time::ZERO + self.gossip.spread(1_000, 60_000_000);
        }
    }

    /// A keeper begins with what is on its disk.
    fn start_keeper(&mut self, seat: Seat) {
        let (steps, anchors) = (self.workload.steps, self.anchors(seat));
        let host = &mut self.hosts[seat];
        let proofs = checkpoints::newest_proofs(&host.disk, None);
        let proofs: Vec<Proof> = proofs.iter().map(|proof| Proof::clone(proof)).collect();
        host.keeper = Some(Box::new(Follower::new(RUN, steps, anchors, held(&host.disk), &proofs)));
    }

    /// Until all is healed a keeper's process is killed now and then, and comes back.
    fn kill_keepers(&mut self) {
        let is_healed = self.invariants.progress.is_healed();
        for seat in self.keepers() {
            match self.hosts[seat].keeper.is_some() {
                false if is_healed || self.gossip.one_in(8) => self.start_keeper(seat),
                true if !is_healed && self.gossip.one_in(32) => {
                    self.tell(|_| format!("{seat} is killed, a keeper"));
                    let host = &mut self.hosts[seat];
                    (host.keeper, host.incarnation) = (None, host.incarnation + 1);
                }
                _ => {}
            }
        }
    }

    fn keepers(&self) -> impl Iterator<Item = Seat> + use<> {
        self.plan.peers..self.plan.peers + self.plan.keepers
    }

    /// A member's signed head is on its way to keepers.
    pub(in crate::world) fn announce_to_keepers(&mut self, from: Seat, head: &Head) {
        let name = self.hosts[from].name();
        for keeper in self.keepers() {
            if !self.is_cut_off(from, keeper) && !self.gossip.one_in(8) {
                let at = self.now + self.gossip.spread(200, 2_000_000);
                self.queue.push(at, SimEvent::Heard(keeper, name, Box::new(*head)));
            }
        }
    }

    /// Keepers look around: they tell where they are, ask who is there for what is stable, and try again what has failed.
    pub(in crate::world) fn keepers_look(&mut self) {
        self.kill_keepers();
        for keeper in self.keepers().filter(|keeper| self.hosts[*keeper].keeper.is_some()).collect::<Vec<_>>() {
            if self.hosts[keeper].announces <= self.now {
                self.hosts[keeper].announces = self.now + ANNOUNCES;
                (0..self.plan.peers).for_each(|seat| self.tell_of_keeper(keeper, seat));
            }
        }
        if !(self.now - Time::ZERO).as_secs().is_multiple_of(self.config.max_stall.as_secs().max(1)) {
            return;
        }
        for keeper in self.keepers() {
            if self.hosts[keeper].keeper.is_none() {
                continue;
            }
            let proven: Vec<(Seat, Rc<Proof>)> = (0..self.plan.peers)
                .filter(|seat| self.hosts[*seat].peer.is_some() && !self.is_cut_off(keeper, *seat))
                .flat_map(|seat| {
                    let host = &self.hosts[seat];
                    let proofs = checkpoints::newest_proofs(&host.disk, host.disk.root().as_ref());
                    proofs.into_iter().map(|proof| (seat, proof)).collect::<Vec<_>>()
                })
                .collect();
            for (seat, proof) in proven {
                let from = self.hosts[seat].name();
                self.keeper_is_led(keeper, proof.head.view, [seat].into_iter());
                self.follow(keeper, Input::Proven { from, proof: (*proof).clone() });
            }
            self.follow(keeper, Input::Retry);
        }
    }

    /// A process that it can reach notes where it is.
    fn tell_of_keeper(&mut self, keeper: Seat, seat: Seat) {
        let is_there = self.hosts[seat].peer.is_some() && self.hosts[seat].stopped.is_none();
        if is_there && self.hosts[keeper].keeper.is_some() && !self.is_cut_off(seat, keeper) {
            let name = self.hosts[keeper].name();
            self.learn_keepers(seat, &BTreeSet::from([name]));
        }
    }

    /// A process that takes part gets connected to keepers that know where it is, soon or later, and hears of them then.
    pub(in crate::world) fn meet_keepers(&mut self, seat: Seat) {
        if self.plan.keepers > 0 {
            let longest = if self.gossip.one_in(2) { 2_000_000 } else { 30_000_000 };
            let at = self.now + self.gossip.spread(1_000, longest);
            self.queue.push(at, SimEvent::Seeks(seat, self.hosts[seat].incarnation, Errand::MeetsKeepers));
        }
    }

    /// It is connected to all keepers that it can reach.
    pub(in crate::world) fn met_keepers(&mut self, seat: Seat) {
        self.keepers().for_each(|keeper| self.tell_of_keeper(keeper, seat));
    }

    fn learn_keepers(&mut self, seat: Seat, keepers: &BTreeSet<PeerId>) {
        let is_busy = self.is_full(seat, Queue::Saver);
        let host = &mut self.hosts[seat];
        host.keepers.extend(keepers);
        // Who was never in the run has no list that would say so.
        let was_in = matches!(host.disk.contacts(), ContactsFile::Whole(contacts) if contacts.view.is_some());
        if was_in && !is_busy {
            // It knows them as long as it runs.
            let _ = host.disk.note_contacts(|contacts| contacts.learn_keepers(keepers));
        }
    }

    /// A process that starts knows the keepers that are in its list.
    pub(in crate::world) fn recall_keepers(&mut self, seat: Seat) {
        let host = &mut self.hosts[seat];
        if let ContactsFile::Whole(contacts) = host.disk.contacts() {
            host.keepers = contacts.keepers().clone();
        }
    }

    /// Whoever asks to be let in is told of keepers by the first that answers; it has no list before it is in.
    pub(in crate::world) fn hear_of_keepers(&mut self, seat: Seat, contacts: &[PeerId]) {
        let contacts = contacts.iter().filter_map(|contact| self.at(seat, *contact));
        let is_there = |contact: &Seat| self.hosts[*contact].peer.is_some() && !self.is_cut_off(seat, *contact);
        let told = contacts.into_iter().find(is_there).map(|contact| self.hosts[contact].keepers.clone());
        self.hosts[seat].keepers.extend(told.into_iter().flatten());
    }

    /// The keepers that it knows and can reach.
    pub(in crate::world) fn keepers_there(&self, seat: Seat) -> Vec<PeerId> {
        let is_there = |keeper: &&PeerId| {
            let found = self.keepers().find(|seat| self.hosts[*seat].name() == **keeper);
            found.is_some_and(|keeper| self.hosts[keeper].keeper.is_some() && !self.is_cut_off(seat, keeper))
        };
        self.hosts[seat].keepers.iter().filter(is_there).copied().collect()
    }

    /// A process that has completed the run sees what it stays for.
    pub(in crate::world) fn settle(&mut self, seat: Seat) {
        let (keepers, incarnation) = (self.keepers_there(seat), self.hosts[seat].incarnation);
        self.with(seat, incarnation, |peer, now| peer.look_at_end(now, &keepers));
    }

    /// Asks keepers what they hold.
    pub(in crate::world) fn ask_keepers(&mut self, seat: Seat, keepers: &[PeerId]) {
        let incarnation = self.hosts[seat].incarnation;
        for keeper in keepers {
            let at = self.now + self.gossip.spread(200, 200_000);
            self.queue.push(at, SimEvent::Seeks(seat, incarnation, Errand::Holds(*keeper)));
        }
    }

    /// What a keeper holds now, if it can say so.
    pub(in crate::world) fn hear_what_is_kept(&mut self, seat: Seat, name: PeerId) {
        let Some(keeper) = self.keepers().find(|keeper| self.hosts[*keeper].name() == name) else { return };
        if self.hosts[keeper].keeper.is_none() || self.is_cut_off(seat, keeper) {
            return;
        }
        let (states, incarnation) = (self.kept_by(keeper), self.hosts[seat].incarnation);
        self.with(seat, incarnation, |peer, now| peer.keeper_holds(now, name, &states));
    }

    /// Which stable states this keeper tells of.
    fn kept_by(&self, keeper: Seat) -> Vec<(u64, Digest)> {
        let proofs = checkpoints::newest_proofs(&self.hosts[keeper].disk, None);
        proofs.iter().map(|proof| (proof.head.step, proof.head.digest)).collect()
    }

    /// Whether a process that ends has left the last state with these keepers, if it knew that it is stable and nothing has happened
    /// to it and them since the run was complete.
    pub(in crate::world) fn left_with_keepers(
        &self,
        seat: Seat,
        completed: Time,
        there: &[PeerId],
    ) -> Result<(), Broken> {
        let disk = &self.hosts[seat].disk;
        let own = checkpoints::newest_proof(disk, disk.root().as_ref()).map(|it| (it.head.step, it.head.digest));
        let waited = self.now - completed;
        let Some(own) = own.filter(|(step, _)| *step >= self.workload.steps) else { return Ok(()) };
        if !self.invariants.progress.was_healed(completed, Duration::ZERO) {
            return Ok(());
        }
        let lacks =
            |keeper: &Seat| there.contains(&self.hosts[*keeper].name()) && !self.kept_by(*keeper).contains(&own);
        let lacking: Vec<Seat> = self.keepers().filter(lacks).collect();
        EndIsKept::ended(seat, waited, self.config.max_stall, &lacking)
    }

    pub(in crate::world) fn keeper_hears(&mut self, keeper: Seat, from: PeerId, head: Head) {
        self.follow(keeper, Input::Received { from, head, signature: SIGNATURE });
    }

    /// Hands an input to a keeper's machine, and does what it asks.
    fn follow(&mut self, keeper: Seat, input: Input) {
        let Some(follower) = &mut self.hosts[keeper].keeper else { return };
        // An honest peer's head is sound; what a hostile one signs is not judged here.
        let _violation = follower.handle(input);
        let incarnation = self.hosts[keeper].incarnation;
        while let Some(output) = self.hosts[keeper].keeper.as_mut().and_then(|follower| follower.poll()) {
            match output {
                Output::Fetch { head, from } => {
                    let at = self.now + self.gossip.spread(1_000, 2_000_000);
                    self.queue.push(at, SimEvent::Keeps(keeper, incarnation, Box::new(head), from));
                }
                Output::Ask { view, from } => {
                    let at = self.now + self.gossip.spread(1_000, 2_000_000);
                    self.queue.push(at, SimEvent::Tells(keeper, incarnation, view, from));
                }
                Output::Stable(proof) => {
                    self.tell(|_| format!("{keeper} keeps the stable checkpoint of step {}", proof.head.step));
                    self.hosts[keeper].disk.sign(&proof);
                }
            }
        }
    }

    /// A keeper has asked these who is in a view: the first that knows tells it, if one does.
    pub(in crate::world) fn keeper_is_told(&mut self, keeper: Seat, incarnation: u32, id: ViewId, from: &[PeerId]) {
        if self.hosts[keeper].incarnation != incarnation {
            return;
        }
        let is_there = |seat: &Seat| {
            let host = &self.hosts[*seat];
            let runs = (host.peer.is_some() && host.stopped.is_none()) || host.keeper.is_some();
            runs && !self.is_cut_off(keeper, *seat)
        };
        let asked: Vec<Seat> = from.iter().filter_map(|peer| self.at(keeper, *peer)).filter(is_there).collect();
        self.keeper_is_led(keeper, id, asked.into_iter());
    }

    /// The first of these that can leads a keeper to a view.
    fn keeper_is_led(&mut self, keeper: Seat, id: ViewId, mut by: impl Iterator<Item = Seat>) {
        let Some(anchors) = self.hosts[keeper].keeper.as_ref().map(|follower| follower.anchors().clone()) else {
            return;
        };
        let view_search =
            by.find_map(|seat| Some(self.view_search(anchors.clone(), id, seat)).filter(ViewSearch::is_there));
        if let Some(view_search) = view_search.as_ref().filter(|view_search| view_search.view().is_some()) {
            self.hosts[keeper].history.take(view_search.legs().cloned());
        }
        self.follow(keeper, Input::Walked { id, view_search: view_search.map(Box::new) });
    }

    /// What a keeper fetches has come, if one of those who should have it still does.
    pub(in crate::world) fn keeper_fetches(&mut self, keeper: Seat, incarnation: u32, head: &Head, from: &[PeerId]) {
        if self.hosts[keeper].incarnation != incarnation {
            return;
        }
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
    pub(in crate::world) fn is_kept(&self, admits: impl Fn(&Proof) -> bool) -> bool {
        let proofs = self.keepers().filter_map(|keeper| checkpoints::newest_proof(&self.hosts[keeper].disk, None));
        proofs.into_iter().any(|proof| proof.head.step >= self.newest_step && admits(&proof))
    }
}

fn held(disk: &Disk) -> BTreeMap<Digest, u64> {
    disk.checkpoints().iter().map(|((step, _), saved)| (saved.manifest(), *step)).collect()
}
