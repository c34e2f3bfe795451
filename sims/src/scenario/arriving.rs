//! A run that most join with a part of the data: the rest is on its way to them, file by file. Those who have all of it leave, or die, and votes are
//! given meanwhile.

use std::time::Duration;

use super::{Draft, FOR_EVER};
use crate::hardware::network::Seat;
use crate::steps::message::Lane;
use crate::sweep::fault::{Crash, DiskFate, FILES, Fault, FileSet, Kind, When};

/// Longer than it takes members that have no samples to find that out.
const NO_MORE: u64 = 90;

impl Draft<'_> {
    pub(super) fn arriving(&mut self) {
        self.plan.arrives = true;
        let is_lost = self.plan.founders < self.plan.peers && self.rng.one_in(4);
        for seat in self.plan.founders..self.plan.peers {
            if is_lost || !self.rng.one_in(5) {
                self.on_its_way(seat, is_lost);
            }
        }
        let founders = 0..self.plan.founders;
        if is_lost {
            // Nobody is left who has what is missing, unless somebody comes back.
            self.plan.more_steps = NO_MORE;
            let step = self.rng.between(self.steps / 4, self.steps / 2);
            for seat in founders {
                let delay = self.rng.spread(1_000_000, 40_000_000);
                self.plan.faults.push(Fault { when: When::After { step, delay }, kind: Kind::Leave(seat) });
            }
        } else if self.rng.one_in(3) {
            for seat in founders.filter(|_| self.rng.one_in(2)).collect::<Vec<Seat>>() {
                self.at_some_time(Kind::Leave(seat));
            }
        }
        for _ in 0..self.rng.between(0, 3) {
            let (one, other, lasts) = (self.seat(), self.seat(), self.long());
            match self.rng.between(0, 4) {
                0 => {
                    let crash = Crash { fate: DiskFate::Kept, ..self.crash(false) };
                    self.at_some_time(Kind::Crash(one, crash));
                }
                1 => self.at_some_time(Kind::Pause(one, lasts)),
                2 if one != other => self.at_some_time(Kind::Break(one, other, Lane::Ring)),
                3 if one != other => self.at_some_time(Kind::Cut(one, other, lasts)),
                _ => {}
            }
        }
    }

    /// Some of the data comes to this machine later, file by file, or, if `is_lost`, not at all.
    fn on_its_way(&mut self, seat: Seat, is_lost: bool) {
        let most = self.rng.between(1, FILES.into());
        let mut lasts = Duration::ZERO;
        for file in 0..FILES {
            if self.rng.between(1, FILES.into()) > most {
                continue;
            }
            lasts += self.rng.spread(100_000, 30_000_000);
            let (files, lasts): (FileSet, _) = (1 << file, if is_lost { FOR_EVER * 4 } else { lasts });
            let when = When::After { step: 0, delay: Duration::ZERO };
            self.plan.faults.push(Fault { when, kind: Kind::Lacks(seat, files, lasts) });
        }
    }
}
