//! Whom a process asks before it takes part: the engine's [`Search`], executed in virtual time. And what those say, keepers among
//! them.

mod leading;

use std::rc::Rc;

use starling_engine::member::quorum_search::SearchResult;
use starling_engine::search::{Input, Output, SearchConfig, sought};
use starling_engine::{Search, return_engine};
use starling_topology::{PeerId, Proof};

use super::{SimEvent, World};
use crate::hardware::machine::checkpoints;
use crate::hardware::machine::disk::{Name, Saved};
use crate::hardware::network::Seat;
use crate::peer::{Call, Peer};
use crate::sweep::canary::Sabotage;
use crate::verdict::invariants::Broken;

/// Asking, answering and fetching.
#[derive(Debug)]
pub enum Errand {
    /// A question arrives at the machine that is asked.
    Asks(Seat),
    /// An answer comes back: whether that peer is in a view, or looks out, and what it holds; none if nobody listens there.
    Answers(PeerId, Option<(bool, bool, Vec<Rc<Proof>>)>),
    /// What was to be fetched has come, if one of them still has it.
    Fetches(Rc<Proof>, Vec<PeerId>),
    /// The time that the search has asked for is there.
    Expires,
    /// The time is there to ask again.
    Pauses,
    /// The time is there that it wanted to be called back at.
    Calls(Call),
    /// The time is there to tell again what it has signed.
    Retells,
    /// It gets to what its steps have to say.
    Notices,
    /// Keepers connect to it.
    MeetsKeepers,
    /// A keeper's answer, if one comes, to what it holds.
    Holds(PeerId),
}

impl World {
    /// Asks these what they hold.
    pub(super) fn seek(&mut self, seat: Seat, peers: &[PeerId], terms: SearchConfig) {
        let now = self.hosts[seat].clock(self.now);
        let mut search = Search::new(terms, peers, now);
        if let Some(Sabotage::Machine(flaw)) = self.sabotage {
            search.plant(flaw);
        }
        self.tell(|_| format!("{seat} asks {} others what they hold", peers.len()));
        let host = &mut self.hosts[seat];
        host.seeking = Some(Box::new(search));
        host.has_fetched = false;
        self.drive(seat);
    }

    /// Asks all that a running process knows. Where some are hostile, nobody is asked.
    pub(super) fn search_for_more(&mut self, seat: Seat, terms: SearchConfig) {
        let host = &self.hosts[seat];
        let keepers = host.keepers.iter().copied();
        let members = self.known_to(seat, host.disk.record().as_ref());
        let peers = match self.plan.hostility.seats.is_empty() {
            true => sought(host.name(), keepers, members.into_iter()),
            false => Vec::new(),
        };
        self.seek(seat, &peers, terms);
    }

    /// Does what a search wants.
    fn drive(&mut self, seat: Seat) {
        let incarnation = self.hosts[seat].incarnation;
        while let Some(output) = self.hosts[seat].seeking.as_mut().and_then(|search| search.poll()) {
            match output {
                Output::Ask(peer) => {
                    let Some(to) = self.at(seat, peer) else { continue };
                    let at = self.now + self.network.delay(seat, to);
                    self.queue.push(at, SimEvent::Seeks(seat, incarnation, Errand::Asks(to)));
                }
                Output::SetTimer(at) => {
                    let when = self.hosts[seat].world_time(at).max(self.now);
                    self.queue.push(when, SimEvent::Seeks(seat, incarnation, Errand::Expires));
                }
                Output::Look => {
                    let host = &mut self.hosts[seat];
                    let (now, root) = (host.clock(self.now), host.disk.root());
                    let own = checkpoints::newest_proof(&host.disk, root.as_ref()).map(|proof| proof.head.step);
                    host.seeking.iter_mut().for_each(|search| search.handle(now, Input::Holds(own)));
                }
                Output::Fetch { proof, from } => {
                    let at = self.now + self.rng.spread(1_000, 1_000_000);
                    self.queue.push(at, SimEvent::Seeks(seat, incarnation, Errand::Fetches(Rc::new(proof), from)));
                }
                Output::Lost { step } => self.tell(|_| format!("{seat} can't have the checkpoint of step {step}")),
                Output::Done => {
                    let host = &mut self.hosts[seat];
                    let Some(search) = host.seeking.take() else { return };
                    let (answers, fetched) = (search.answers().to_vec(), std::mem::take(&mut host.has_fetched));
                    if self.hosts[seat].return_engine.is_none() {
                        let host = &self.hosts[seat];
                        let own = checkpoints::newest_proofs(&host.disk, None);
                        let own = own.iter().filter(|proof| search.terms().counts(proof));
                        let stable = own.map(|proof| proof.head.step).max();
                        let keepers: Vec<PeerId> = host.keepers.iter().copied().collect();
                        let came_to = SearchResult { fetched, stable, answers: &answers, keepers: &keepers };
                        return self.with(seat, incarnation, |peer, now| peer.searched(now, came_to));
                    }
                    return self.answer_return_engine(seat, return_engine::Input::Searched { answers, fetched });
                }
            }
        }
    }

    pub(super) fn run_errand(&mut self, seat: Seat, incarnation: u32, errand: Errand) {
        let host = &self.hosts[seat];
        if host.incarnation != incarnation {
            return;
        }
        match errand {
            Errand::Calls(Call::LookOut) => return self.with(seat, incarnation, Peer::look_out),
            Errand::Calls(Call::Settle) => return self.settle(seat),
            Errand::Calls(Call::Leave) => return self.with(seat, incarnation, Peer::leave_in_vain),
            Errand::Calls(Call::Data) => return self.with(seat, incarnation, Peer::look_for_data),
            Errand::Retells => return self.retell(seat, incarnation),
            Errand::Notices => return self.with(seat, incarnation, Peer::take_notices),
            Errand::MeetsKeepers => return self.met_keepers(seat),
            Errand::Holds(keeper) => return self.hear_what_is_kept(seat, keeper),
            Errand::Pauses => {
                self.answer_return_engine(seat, return_engine::Input::Expired);
                return self.come_back(seat);
            }
            _ => {}
        }
        if host.seeking.is_none() {
            return;
        }
        let input = match errand {
            Errand::Asks(to) => return self.answer(seat, to),
            Errand::Answers(from, Some((live, looks_out, proofs))) => {
                let proofs = proofs.iter().map(|proof| Proof::clone(proof)).collect();
                Input::Answered { from, live, looks_out, proofs }
            }
            Errand::Answers(from, None) => Input::Unanswered(from),
            Errand::Fetches(proof, from) => match self.fetch(seat, &proof, &from) {
                true => Input::Fetched,
                false => Input::Missed,
            },
            Errand::Expires => Input::Expired,
            Errand::Pauses
            | Errand::Calls(_)
            | Errand::Retells
            | Errand::Notices
            | Errand::MeetsKeepers
            | Errand::Holds(_) => return,
        };
        let host = &mut self.hosts[seat];
        let now = host.clock(self.now);
        host.seeking.iter_mut().for_each(|search| search.handle(now, input.clone()));
        self.drive(seat);
        self.come_back(seat);
    }

    fn answer(&mut self, seat: Seat, to: Seat) {
        let host = &self.hosts[to];
        if host.off || host.stopped.is_some() || self.is_cut_off(seat, to) {
            return; // Nothing comes back.
        }
        let listens = host.peer.is_some() || host.keeper.is_some();
        let answer = listens.then(|| {
            let root = host.disk.root();
            let proofs = checkpoints::newest_proofs(&host.disk, root.as_ref());
            let says = |what: fn(&Peer) -> bool| host.peer.as_ref().is_some_and(what);
            (says(Peer::goes_on), says(Peer::looks_out), proofs)
        });
        let answer = answer.map(|(live, looks_out, proofs)| (live, looks_out, self.led(seat, to, proofs)));
        let host = &self.hosts[to];
        let (name, incarnation) = (host.name(), self.hosts[seat].incarnation);
        let at = self.now + self.network.delay(to, seat);
        self.queue.push(at, SimEvent::Seeks(seat, incarnation, Errand::Answers(name, answer)));
    }

    pub(super) fn is_cut_off(&self, one: Seat, other: Seat) -> bool {
        self.network.is_blocked(one, other) || self.network.is_blocked(other, one)
    }

    /// The checkpoint of `proof`, from the first of these machines that still has it.
    pub(super) fn held_by_others(&self, seat: Seat, proof: &Proof, from: &[PeerId]) -> Option<(Name, Saved)> {
        let is_there = |other: &Seat| {
            let host = &self.hosts[*other];
            let runs = (host.peer.is_some() && host.stopped.is_none()) || host.keeper.is_some();
            runs && !self.is_cut_off(seat, *other)
        };
        let donors = from.iter().flat_map(|peer| self.all_of(*peer)).filter(is_there);
        donors.into_iter().find_map(|donor| self.hosts[donor].disk.file_of(&proof.head))
    }

    fn fetch(&mut self, seat: Seat, proof: &Proof, from: &[PeerId]) -> bool {
        let Some((name, file)) = self.held_by_others(seat, proof, from) else { return false };
        let root = self.hosts[seat].disk.root();
        if root.is_some_and(|root| !root.may_admit(name.0, &proof.view)) {
            let seen = format!("{seat} fetches the checkpoint of step {} of another branch", name.0);
            self.breaks(Err(Broken::new("own_branch", seen)));
        }
        let disk = &mut self.hosts[seat].disk;
        let is_kept = !disk.hangs() && checkpoints::keep(disk, root.as_ref(), (name, file), None).is_ok();
        if is_kept {
            disk.sign(proof);
            self.hosts[seat].has_fetched = true;
            self.hosts[seat].fetched.insert(name);
            self.tell(|_| format!("{seat} has fetched the stable checkpoint of step {}", name.0));
        }
        is_kept
    }
}
