//! What leads to views: which of them a machine knows, and how it is led on by others before it counts what they hold.

use std::rc::Rc;

use starling_topology::history::{ViewProof, ViewSearch, ViewSearchStatus, beginning};
use starling_topology::{AnchorSet, PeerId, Proof, Signer, View, ViewHistory, ViewId};

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
                    host.history.note(record);
                }
            }
            Effect::Keep(record) => _ = self.hosts[seat].history.note(record),
            Effect::Entered(_) => self.look_back(seat),
            _ => {}
        }
    }

    /// This machine begins a branch. The founder's key is on the first one that does.
    pub(in crate::world) fn begin_branch(&mut self, seat: Seat, view: &View) {
        self.hosts[seat].has_key |= self.hosts.iter().all(|host| !host.has_key);
        if self.hosts[seat].has_key {
            let seal = Key::of(FOUNDER).sign(&beginning(RUN, view.id())).into();
            self.hosts[seat].history.take([ViewProof::Founded(view.clone(), seal)]);
        }
    }

    /// What a machine takes for the run's.
    pub(in crate::world) fn anchors(&self, seat: Seat) -> AnchorSet {
        AnchorSet::of(RUN, Some(FOUNDER), &self.hosts[seat].history)
    }

    /// Led by what another machine knows, from these views to the one called `to`.
    pub(in crate::world) fn view_search(&self, anchors: AnchorSet, to: ViewId, by: Seat) -> ViewSearch {
        let mut view_search = ViewSearch::new(anchors, to);
        while view_search.hear(&Key::of(FOUNDER), self.hosts[by].history.answer(&view_search.question()))
            == ViewSearchStatus::Ask
        {}
        view_search
    }

    /// Those proofs of another machine that count for this one: it was led to their views. It remembers the ways.
    pub(in crate::world) fn led(&mut self, seat: Seat, by: Seat, proofs: Vec<Rc<Proof>>) -> Vec<Rc<Proof>> {
        let mut counted = Vec::new();
        for proof in proofs {
            let view_search = self.view_search(self.anchors(seat), proof.head.view, by);
            if view_search.is_there() {
                self.hosts[seat].history.take(view_search.legs().cloned());
                counted.push(proof);
            }
        }
        counted
    }

    fn look_back(&mut self, seat: Seat) {
        let Some(to) = self.hosts[seat].history.gap() else { return };
        let others = (0..self.hosts.len()).filter(|other| *other != seat && !self.is_cut_off(seat, *other));
        let is_up = |other: &Seat| {
            let host = &self.hosts[*other];
            (host.peer.is_some() && host.stopped.is_none()) || host.keeper.is_some()
        };
        let anew = || AnchorSet::of(RUN, Some(FOUNDER), &ViewHistory::default());
        let view_search =
            others.filter(is_up).map(|other| self.view_search(anew(), to, other)).find(ViewSearch::is_there);
        if let Some(view_search) = view_search {
            self.hosts[seat].history.take_before(view_search.legs().cloned().collect());
        }
    }
}
