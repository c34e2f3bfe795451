//! A run that most come to later, one after the other, while votes are given: connections break, and views are over, just when
//! somebody says that it contributes; those who voted first leave, or die.

use super::{Draft, MAX_STALL};
use crate::steps::message::Lane;
use crate::sweep::fault::{Crash, DiskFate, Fault, Kind, Queue, When};

impl Draft<'_> {
    pub(super) fn newcomers(&mut self) {
        // What strikes them while they come.
        for _ in 0..self.rng.between(0, 4) + self.more() {
            let (one, other) = (self.seat(), self.seat());
            let lasts = self.rng.spread(1_000, 1_000_000);
            match self.rng.between(0, 4) {
                0 => self.at_some_time(Kind::Full(one, Queue::Control, lasts)),
                1 => self.at_some_time(Kind::Pause(one, lasts)),
                _ if one != other => self.at_some_time(Kind::Break(one, other, Lane::Control)),
                _ => {}
            }
        }
        if self.rng.one_in(3) {
            // Those who voted first, the founder before all others.
            let leavers = self.rng.between(1, self.plan.founders as u64);
            for seat in (0..self.plan.founders).take(usize::try_from(leavers).unwrap_or(1)) {
                self.at_some_time(Kind::Leave(seat));
            }
        }
        if self.rng.one_in(3) {
            let (seat, down) = (self.seat(), self.long());
            let crash = Crash { down, power: self.rng.one_in(3), fate: DiskFate::Kept, at_record: None };
            self.at_some_time(Kind::Crash(seat, crash));
        }
        if self.rng.one_in(3) {
            self.relapse();
        }
    }

    /// All die when most have got their votes. Those who had one from the start come back last, and the others could save nothing.
    fn relapse(&mut self) {
        let (step, all_die) = (self.rng.between(self.steps / 2, self.steps - 1), self.rng.spread(1_000, 2_000_000));
        for seat in 0..self.plan.peers {
            let came_later = seat >= self.plan.founders;
            let down = match came_later {
                true => self.rng.spread(1_000, 2_000_000),
                false => MAX_STALL + self.rng.micros(2_000_000, 20_000_000),
            };
            if came_later {
                let kind = Kind::Full(seat, Queue::Saver, MAX_STALL * 3);
                self.plan.faults.push(Fault { when: When::After { step: 0, delay: MAX_STALL / 1_000 }, kind });
            }
            let crash = Crash { down, power: self.rng.one_in(2), fate: DiskFate::Kept, at_record: None };
            let delay = all_die + self.rng.micros(1, 2_000);
            self.plan.faults.push(Fault { when: When::After { step, delay }, kind: Kind::Crash(seat, crash) });
        }
    }
}
