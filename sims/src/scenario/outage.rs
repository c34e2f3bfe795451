//! A run in which most join in one go, all die while the state is on its way, and the newcomers come back first.

use super::{Draft, MAX_STALL};
use crate::sweep::fault::{Crash, DiskFate, Fault, Kind, When};

impl Draft<'_> {
    pub(super) fn outage(&mut self) {
        let (step, joins) = (self.rng.between(1, self.steps - 1), self.rng.micros(1, 20_000));
        let all_die = joins + self.rng.spread(1_000, 500_000);
        for seat in self.plan.founders..self.plan.peers {
            let delay = joins + self.rng.micros(1, 2_000);
            self.plan.faults.push(Fault { when: When::After { step, delay }, kind: Kind::Join(seat) });
        }
        for seat in 0..self.plan.peers {
            let newcomer = seat >= self.plan.founders;
            let down = match newcomer {
                true => self.rng.spread(1_000, 2_000_000),
                // Most come after those have stopped waiting for them.
                false if self.rng.one_in(4) => self.rng.spread(1_000, 10_000_000),
                false => MAX_STALL + self.rng.micros(2_000_000, 20_000_000),
            };
            let crash = Crash { down, power: self.rng.one_in(2), fate: DiskFate::Kept, at_record: None };
            let delay = all_die + self.rng.micros(1, 2_000);
            self.plan.faults.push(Fault { when: When::After { step, delay }, kind: Kind::Crash(seat, crash) });
        }
    }
}
