//! Hostile peers: what becomes of what they say, and what of it is judged, which is nothing but what others come to.

use starling_topology::PeerId;

use super::{SimEvent, World};
use crate::hardware::network::Seat;
use crate::hostile::{Liar, Said};
use crate::peer::{Commit, Effect, Peer};
use crate::steps::message::{Lane, Message, Sealed};
use crate::verdict::invariants::{Broken, ExactlyOnce};

impl World {
    /// Makes those hostile that are to be.
    pub(super) fn turn_hostile(&mut self) {
        let last_step = self.workload.steps;
        let hostility = self.plan.hostility.clone();
        let mut lies = crate::hardware::network::rng::Rng::new(self.seed ^ 0x0be_11a2);
        for seat in hostility.seats.iter().copied() {
            let host = &mut self.hosts[seat];
            host.liar = Some(Box::new(Liar::new(lies.fork(), host.name(), &hostility, last_step)));
            self.talk_later(seat);
        }
    }

    fn talk_later(&mut self, seat: Seat) {
        if let Some(liar) = &mut self.hosts[seat].liar {
            let at = self.now + liar.pauses();
            self.queue.push(at, SimEvent::Talks(seat));
        }
    }

    /// It says something of its own accord, if a process of it runs.
    pub(super) fn talk(&mut self, seat: Seat) {
        let host = &mut self.hosts[seat];
        let runs = host.peer.is_some() && host.stopped.is_none();
        let said = host.liar.as_mut().filter(|_| runs).map_or_else(Vec::new, |liar| liar.talks());
        self.say_all(seat, said);
        self.talk_later(seat);
    }

    fn say_all(&mut self, seat: Seat, said: Said) {
        for (to, envelope) in said {
            if let Some(to) = self.seats.get(&to).copied().filter(|to| *to != seat) {
                self.tell(|_| format!("{seat} lies to {to}: {:?}", envelope.body));
                self.send(seat, to, Message::Control(Sealed::new(&envelope)));
            }
        }
    }

    /// It hears what has come for its machine.
    pub(super) fn overhear(&mut self, seat: Seat, from: PeerId, message: &Message) {
        if let (Some(liar), Message::Control(sealed)) = (&mut self.hosts[seat].liar, message)
            && let Ok(envelope) = sealed.read()
        {
            liar.hears(from, envelope);
            let said = liar.answers(from, envelope);
            self.say_all(seat, said);
        }
    }

    /// Does what its machine wants as far as it lets that be. What is left is done as for all others.
    pub(super) fn execute_hostile(&mut self, seat: Seat, effect: Effect) -> Option<Effect> {
        let liar = self.hosts[seat].liar.as_mut()?;
        match effect {
            Effect::Send(to, Message::Control(sealed)) => {
                let Ok(envelope) = sealed.read() else { return None };
                let said = liar.passes(to, envelope.clone());
                if let [(same, passed)] = &said[..]
                    && (*same, passed) == (to, envelope)
                {
                    return Some(Effect::Send(to, Message::Control(sealed)));
                }
                self.say_all(seat, said);
                None
            }
            Effect::Send(to, Message::Segment(_)) if liar.withholds(to) => None,
            Effect::Entered(entry) => {
                liar.entered(&entry.resumption.view, entry.resumption.step);
                let begun = liar.has_begun();
                self.hosts[seat].peer.iter_mut().filter(|_| begun).for_each(Peer::lie);
                None
            }
            Effect::Committed(commit) => {
                liar.committed(commit.after.step);
                self.note_unjudged_commit(seat, &commit);
                None
            }
            Effect::Loaded(_)
            | Effect::Keeps(..)
            | Effect::Settled(..)
            | Effect::Downloads
            | Effect::Blames(..)
            | Effect::Broken(_)
            | Effect::Told(_) => None,
            other => Some(other),
        }
    }

    /// What it has committed may be what the others go on from, if it is what the steps so far lead to.
    pub(super) fn note_unjudged_commit(&mut self, seat: Seat, commit: &Commit) {
        let Commit { view, record, before, after } = commit;
        let name = self.hosts[seat].name();
        let invariants = &mut self.invariants;
        // Judged apart: what an honest peer commits is judged once more.
        let is_sum = ExactlyOnce::default().committed(name, before, record, after).is_ok();
        if is_sum && invariants.bitwise_agreement.committed(name, *view, before, after).is_ok() {
            invariants.stable_survives.committed(*view, after);
            invariants.own_branch.committed(before, after);
            invariants.every_sample_once.committed(before, record, after);
            if invariants.progress.is_reached(after.step) {
                self.bring_up(after.step);
            }
        }
    }

    /// A peer says that another has sent what no correct peer sends: the driver drops that one.
    pub(super) fn blamed(&mut self, seat: Seat, other: PeerId, violation: &str) {
        let (name, incarnation) = (self.hosts[seat].name(), self.hosts[seat].incarnation);
        // Whatever is said by one that another is, too, and of it, is nothing that a correct peer says.
        let is_judged = |accused: Seat| self.hosts[accused].is_judged() && !self.is_hostile_leaf(accused);
        let is_excused = |accused: &Seat| !is_judged(*accused) || self.hosts[seat].twin.is_some();
        let Some(accused) = self.at(seat, other).filter(is_excused) else {
            return self.breaks(Err(Broken::new("no_violations", format!("{name:?} says that {other:?} {violation}"))));
        };
        self.tell(|_| format!("{seat} shuns {accused}: {violation}"));
        self.break_connection(seat, accused, Lane::Control);
        self.with(seat, incarnation, |peer, now| peer.shun(now, other));
    }

    /// Those that something is promised to.
    pub(super) fn honest(&self) -> impl Iterator<Item = Seat> + '_ {
        (0..self.hosts.len()).filter(|seat| !self.hosts[*seat].is_hostile())
    }
}
