//! All die at once, and those who come back first have lost their checkpoints, and nothing else.

use super::{Draft, MAX_STALL, Scenario};
use crate::fault::{Crash, Fate, Fault, Kind, When};

impl Draft<'_> {
    /// Drawn of a copy, so that what is drawn in the run is the same with it.
    pub(super) fn losses(&mut self, scenario: Scenario) {
        let mut rng = self.rng.clone();
        if !matches!(scenario, Scenario::Disk | Scenario::Churn) || !rng.one_in(3) {
            return;
        }
        let (step, all_die) = (rng.between(1, self.steps - 1), rng.spread(1_000, 500_000));
        for seat in 0..self.plan.peers {
            let loses = rng.one_in(2);
            let down = match loses {
                true => rng.spread(1_000, 2_000_000),
                // Most come after those have stopped waiting for them.
                false if rng.one_in(4) => rng.spread(1_000, 10_000_000),
                false => MAX_STALL + rng.micros(2_000_000, 20_000_000),
            };
            let fate = if loses { Fate::CheckpointsLost } else { Fate::Kept };
            let crash = Crash { down, power: rng.one_in(2), fate, at_record: None };
            let delay = all_die + rng.micros(1, 2_000);
            self.plan.faults.push(Fault { when: When::After { step, delay }, kind: Kind::Crash(seat, crash) });
        }
    }
}
