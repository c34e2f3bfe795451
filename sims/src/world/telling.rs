//! What is told of a run, and how often it is looked at.

use std::fmt::Write as _;

use starling_engine::look_interval;
use starling_topology::heads::repeat_interval;
use starling_topology::{PeerId, Quorum};

use super::seeking::Errand;
use super::{LOOK, SimEvent, World};
use crate::hardware::machine::host::Host;
use crate::hardware::network::Seat;
use crate::peer::Peer;
use crate::verdict::invariants::{Broken, Progressing};
use crate::verdict::report::picture::{Mark, What};

/// What no machine can promise whose disk does not know what it has said.
const VOTES: [&str; 4] = ["one_decision", "no_split_brain", "nothing_undone", "stable_survives"];

impl World {
    pub(super) fn look(&mut self) {
        if !self.invariants.progress.is_healed() {
            let limit = self.config.fork_after.unwrap_or_default() + self.config.max_stall * 6;
            let stands_still = self.invariants.progress.stands_still(self.now, limit);
            if stands_still || self.is_out_of_faults() {
                self.heal();
            }
        }
        self.keepers_look();
        self.leaves_look();
        self.release();
        self.guide_the_lost();
        self.end_the_wait();
        self.reunite();
        self.look_for_a_stall();
        self.look_for_votes_due();
        self.look_for_damped_links();
        self.over = !self.wake_the_finished() && self.is_abandoned();
        self.queue.push(self.now + LOOK, SimEvent::Looks);
    }

    /// A process looks how far it is, and again after a while: not when the others do, so that what they see differs.
    pub(super) fn look_at_itself(&mut self, seat: Seat, incarnation: u32) {
        self.with(seat, incarnation, Peer::look);
        self.look_later(seat, incarnation);
    }

    pub(super) fn look_later(&mut self, seat: Seat, incarnation: u32) {
        let host = &self.hosts[seat];
        if host.peer.is_some() && host.incarnation == incarnation {
            let micros = u64::try_from(look_interval(self.config.max_stall).as_micros()).unwrap_or(u64::MAX);
            let at = self.now + self.looks.micros(micros / 2, micros * 3 / 2);
            self.queue.push(at, SimEvent::LooksAtItself(seat, incarnation));
        }
    }

    /// A process tells again what it has signed, as often as the node's does, from when it started.
    pub(super) fn retell(&mut self, seat: Seat, incarnation: u32) {
        self.with(seat, incarnation, Peer::repeat_heads);
        self.retell_later(seat, incarnation);
    }

    pub(super) fn retell_later(&mut self, seat: Seat, incarnation: u32) {
        let host = &self.hosts[seat];
        if host.peer.is_some() && host.incarnation == incarnation {
            let at = self.now + repeat_interval(self.config.max_stall);
            self.queue.push(at, SimEvent::Seeks(seat, incarnation, Errand::Retells));
        }
    }

    /// Whether no fault is under way or still to come.
    pub(super) fn is_out_of_faults(&self) -> bool {
        self.ahead.is_empty() && self.at_delivery.is_empty() && self.active == 0
    }

    pub(super) fn hung(&mut self) -> Option<Vec<Seat>> {
        let limit = Progressing::limit(&self.config);
        if !self.invariants.progress.is_healed() || !self.invariants.progress.stands_still(self.now, limit) {
            return None;
        }
        let stuck = self.stuck();
        (!stuck.is_empty()).then_some(stuck)
    }

    pub(super) fn breaks(&mut self, broken: Result<(), Broken>) {
        if let Err(broken) = broken {
            if self.forgotten && VOTES.contains(&broken.invariant) {
                let who = match broken.invariant {
                    "one_decision" => self.twins.voted_twice(),
                    "no_split_brain" => self.goes_on_beside_a_fork(),
                    _ => None,
                };
                self.split = self.split.or(who);
                return self.tell(|_| format!("not held, as a disk was set back: {broken}"));
            }
            // Two signatures of one peer that no correct peer gives both name it, to all who see them.
            // Where two thirds decide, that is no excuse: nothing comes of them there.
            let excuses = self.plan.quorum == Quorum::Majority && !self.forgotten;
            if let Some(author) = self.guilt.proven().filter(|_| excuses) {
                self.tell(|_| format!("{author:?} is convicted, for else {broken}"));
                self.convicted = Some(author);
                return;
            }
            self.tell(|_| format!("BROKEN {broken}"));
            self.broken.push(broken);
        }
    }

    /// Who decides alone in a view of before a fork, to which its disk was set back. Nothing leads through a fork, so that nobody can
    /// show it what it has forgotten.
    fn goes_on_beside_a_fork(&self) -> Option<PeerId> {
        let is_alone = |host: &&Host| {
            let view = host.peer.as_ref().and_then(|peer| peer.view());
            host.set_back && view.is_some_and(|view| !view.forked && view.members() == [host.name()])
        };
        self.hosts.iter().filter(|_| self.forked).find(is_alone).map(Host::name)
    }

    pub(super) fn mark(&mut self, seat: Seat, what: What) {
        let at = self.now;
        if let Some(marks) = &mut self.marks {
            marks.push(Mark { at, seat, what });
        }
    }

    pub(super) fn tell(&mut self, line: impl FnOnce(&Self) -> String) {
        if self.trace.is_none() {
            return;
        }
        let line = line(self);
        let micros = self.now.as_nanos() / 1_000;
        if let Some(trace) = &mut self.trace {
            // Writing to a string cannot fail.
            let _ = writeln!(trace, "{:>6}.{:06} {line}", micros / 1_000_000, micros % 1_000_000);
        }
    }
}
