//! A run in which no ring leads around links that are down, and a few members reach all others: these die, come back, and lose links.

use std::time::Duration;

use super::Draft;
use crate::hardware::network::Seat;
use crate::steps::message::Lane;
use crate::sweep::fault::{Crash, DiskFate, Fault, FileSet, Kind, When};

impl Draft<'_> {
    /// More than half of the peers can't reach each other, and no ring can have two of them side by side. The others are hubs.
    pub(super) fn star(&mut self) {
        let peers = self.plan.peers;
        if peers < 3 {
            return;
        }
        let most = ((peers - 1) / 2).min(4);
        let hubs = usize::try_from(self.rng.between(1, most as u64)).unwrap_or(1);
        let mut seats: Vec<Seat> = (0..peers).collect();
        let mut hub_seats = Vec::new();
        for _ in 0..hubs {
            let seat = self.rng.pick(&seats).expect("invariant: fewer hubs than peers");
            seats.retain(|other| *other != seat);
            hub_seats.push(seat);
        }
        let (step, lasts) = (self.rng.between(1, self.steps / 2), self.rng.micros(15_000_000, 90_000_000));
        for (at, one) in seats.iter().enumerate() {
            for other in &seats[at + 1..] {
                self.cut(step, *one, *other, lasts);
            }
        }
        self.comes_late(&seats, step);
        self.blocks_the_hub(&seats, &hub_seats, step);
        // What strikes the hubs once there is a star, and sometimes before.
        for hub in hub_seats.iter().copied() {
            let later = step + self.rng.between(0, 4);
            let delay = self.rng.spread(1_000, 20_000_000);
            let when = When::After { step: later.min(self.steps - 1), delay };
            match self.rng.between(0, 3) {
                0 => {
                    let (down, power) = (self.long(), self.rng.one_in(3));
                    let crash = Crash { down, power, fate: DiskFate::Kept, at_record: None };
                    self.plan.faults.push(Fault { when, kind: Kind::Crash(hub, crash) });
                }
                1 => {
                    let lasts = self.long();
                    self.plan.faults.push(Fault { when, kind: Kind::Pause(hub, lasts) });
                }
                // It is no hub any more.
                2 => {
                    let other = self.rng.pick(&seats).unwrap_or(hub);
                    let lasts = self.long();
                    self.cut(later.min(self.steps - 1), hub, other, lasts);
                }
                _ => {}
            }
        }
        if self.rng.one_in(3) {
            let seat = self.rng.pick(&seats).unwrap_or(0);
            let crash = Crash { fate: DiskFate::Kept, ..self.crash(false) };
            self.at_some_time(Kind::Crash(seat, crash));
        }
    }

    /// One of those that reach hubs alone comes when links are cut. Drawn of a copy, so that all else is the same with it.
    fn comes_late(&mut self, seats: &[Seat], step: u64) {
        let (mut rng, last) = (self.rng.clone(), self.plan.peers - 1);
        if self.plan.founders != self.plan.peers || !seats.contains(&last) || !rng.one_in(3) {
            return;
        }
        self.plan.founders = last;
        let delay = rng.spread(200_000, 20_000_000);
        let joins = self.plan.faults.iter_mut().find(|fault| fault.kind == Kind::Join(last));
        joins.expect("invariant: all who are there from the start join").when = When::After { step, delay };
    }

    /// Those that reach the only hub alone come when links are cut, and vote late, as their data is on its way. Then the link of the hub to one that
    /// votes breaks again and again, and nothing else: that one is in the way of all. Drawn of a copy, so that all else is the same with it.
    fn blocks_the_hub(&mut self, seats: &[Seat], hubs: &[Seat], step: u64) {
        let mut rng = self.rng.clone();
        let founders = 3;
        let [hub] = *hubs else { return };
        let blocker = seats.iter().copied().find(|seat| *seat < founders);
        let Some(blocker) = blocker.filter(|_| self.plan.peers > founders + 1 && hub < founders) else { return };
        if self.plan.founders != self.plan.peers || !rng.one_in(2) {
            return;
        }
        (self.plan.founders, self.plan.arrives) = (founders, true);
        for fault in &mut self.plan.faults {
            if let Kind::Join(seat) = fault.kind
                && seat >= founders
            {
                fault.when = When::After { step, delay: rng.spread(200_000, 5_000_000) };
            }
        }
        let after = |delay, kind| Fault { when: When::After { step, delay }, kind };
        for seat in founders..self.plan.peers {
            let lasts = rng.micros(30_000_000, 120_000_000);
            self.plan.faults.push(Fault {
                when: When::After { step: 0, delay: Duration::ZERO },
                kind: Kind::Lacks(seat, FileSet::MAX, lasts),
            });
        }
        let mut delay = rng.micros(8_000_000, 20_000_000);
        // For long: a link that broke twice after a step is taken for one that is down until one more is taken, however long ago that was.
        for _ in 0..rng.between(24, 48) {
            self.plan.faults.push(after(delay, Kind::Break(hub, blocker, Lane::Ring)));
            delay += rng.micros(200_000, 2_000_000);
        }
    }

    /// Nothing gets from either to the other: at about the same time, and for about as long.
    pub(super) fn cut(&mut self, step: u64, one: Seat, other: Seat, lasts: Duration) {
        for (from, to) in [(one, other), (other, one)] {
            let delay = self.rng.spread(10, 200_000);
            let lasts = lasts + self.rng.spread(10, 5_000_000);
            self.plan.faults.push(Fault { when: When::After { step, delay }, kind: Kind::Cut(from, to, lasts) });
        }
    }
}
