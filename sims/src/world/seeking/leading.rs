//! What leads to views: which of them a machine knows, and how it is led on by others before it counts what they hold.

use std::rc::Rc;

use starling_topology::annals::{Leg, Walk, Way, beginning};
use starling_topology::{Anchors, Annals, Notary, PeerId, Proof, View, ViewId};

use crate::hardware::machine::notary::Key;
use crate::hardware::network::Seat;
use crate::peer::{Effect, Peer};
use crate::world::{RUN, World};

/// Whose key says which branches are the run's. It takes part in nothing.
const FOUNDER: PeerId = PeerId([0xf0; 32]);

impl World {
    /// A machine keeps which views it has been in, and asks others how the run began, if it came later.
    pub(in crate::world) fn chronicle(&mut self, seat: Seat, effect: &Effect) {
        match effect {
            Effect::Persist(record) => {
                let host = &mut self.hosts[seat];
                // What one peer alone has told is kept for no longer than this machine is where that led it.
                if !host.peer.as_ref().is_some_and(Peer::came_by_word) {
                    host.annals.note(record);
                }
            }
            Effect::Keep(record) => _ = self.hosts[seat].annals.note(record),
            Effect::Entered(_) => self.look_back(seat),
            _ => {}
        }
    }

    /// This machine begins a branch. The founder's key is on the first one that does.
    pub(in crate::world) fn begin_branch(&mut self, seat: Seat, view: &View) {
        self.hosts[seat].has_key |= self.hosts.iter().all(|host| !host.has_key);
        if self.hosts[seat].has_key {
            let seal = Key::of(FOUNDER).sign(&beginning(RUN, view.id())).into();
            self.hosts[seat].annals.take([Leg::Founded(view.clone(), seal)]);
        }
    }

    /// What a machine takes for the run's.
    pub(in crate::world) fn anchors(&self, seat: Seat) -> Anchors {
        Anchors::of(RUN, Some(FOUNDER), &self.hosts[seat].annals)
    }

    /// Led by what another machine knows, from these views to the one called `to`.
    pub(in crate::world) fn walk(&self, anchors: Anchors, to: ViewId, by: Seat) -> Walk {
        let mut walk = Walk::new(anchors, to);
        while walk.hear(&Key::of(FOUNDER), self.hosts[by].annals.answer(&walk.question())) == Way::Ask {}
        walk
    }

    /// Those proofs of another machine that count for this one: it was led to their views. It remembers the ways.
    pub(in crate::world) fn led(&mut self, seat: Seat, by: Seat, proofs: Vec<Rc<Proof>>) -> Vec<Rc<Proof>> {
        let mut counted = Vec::new();
        for proof in proofs {
            let walk = self.walk(self.anchors(seat), proof.head.view, by);
            if walk.is_there() {
                self.hosts[seat].annals.take(walk.legs().cloned());
                counted.push(proof);
            }
        }
        counted
    }

    fn look_back(&mut self, seat: Seat) {
        let Some(to) = self.hosts[seat].annals.gap() else { return };
        let others = (0..self.hosts.len()).filter(|other| *other != seat && !self.is_cut_off(seat, *other));
        let is_up = |other: &Seat| {
            let host = &self.hosts[*other];
            (host.peer.is_some() && host.stopped.is_none()) || host.keeper.is_some()
        };
        let anew = || Anchors::of(RUN, Some(FOUNDER), &Annals::default());
        let walk = others.filter(is_up).map(|other| self.walk(anew(), to, other)).find(Walk::is_there);
        if let Some(walk) = walk {
            self.hosts[seat].annals.take_before(walk.legs().cloned().collect());
        }
    }
}
