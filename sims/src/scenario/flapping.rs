//! A run in which a link fails, heals and fails again, step after step, while others are down for a while, and machines die.

use super::Draft;
use crate::hardware::network::Seat;
use crate::steps::message::Lane;
use crate::sweep::fault::{Crash, DiskFate, Fault, Kind, When};

impl Draft<'_> {
    /// One or two links flap. Whether the plan has them, and what takes their place, follows from the peers' names.
    pub(super) fn flapping(&mut self) {
        if self.plan.peers < 2 {
            return;
        }
        for _ in 0..self.rng.between(1, 2) {
            let (one, other) = (self.seat(), self.seat());
            if one != other {
                self.flap(one, other);
            }
        }
        if self.rng.one_in(3) {
            let (one, other, lasts) = (self.seat(), self.seat(), self.long());
            let step = self.rng.between(1, self.steps - 1);
            if one != other {
                self.cut(step, one, other, lasts);
            }
        }
        if self.rng.one_in(3) {
            let seat = self.seat();
            let crash = Crash { fate: DiskFate::Kept, ..self.crash(false) };
            self.at_some_time(Kind::Crash(seat, crash));
        }
    }

    /// Now and then nothing gets through for a while; mostly a connection breaks, and a new one is open at once.
    fn flap(&mut self, one: Seat, other: Seat) {
        let (first, gap) = (self.rng.between(1, self.steps / 2), self.rng.between(1, 2));
        for time in 0..self.rng.between(3, 10) {
            let step = (first + time * gap).min(self.steps - 1);
            if self.rng.one_in(6) {
                let lasts = self.rng.spread(10_000, 8_000_000);
                self.cut(step, one, other, lasts);
            } else {
                let when = When::After { step, delay: self.rng.spread(10, 200_000) };
                self.plan.faults.push(Fault { when, kind: Kind::Break(one, other, Lane::Ring) });
            }
        }
    }
}
