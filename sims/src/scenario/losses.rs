//! All die at once, and those who come back first have lost their checkpoints, or these and the note of what they were, and nothing else.

use super::{Draft, MAX_STALL, Scenario};
use crate::sweep::fault::{Crash, DiskFate, Fault, Kind, When};

impl Draft<'_> {
    /// Drawn of a copy, so that what is drawn in the run is the same with it.
    pub(super) fn losses(&mut self, scenario: Scenario) {
        let mut rng = self.rng.clone();
        // Apart from all else, so that the faults are the same whatever is lost with them.
        let mut notes = self.rng.clone().fork();
        let forks = self.plan.fork_after.is_some();
        for fault in &mut self.plan.faults {
            let Kind::Crash(_, crash) = &mut fault.kind else { continue };
            crash.fate = match crash.fate {
                DiskFate::CheckpointsLost if notes.one_in(2) => DiskFate::SavedLost,
                // Who can't know what it has signed counts as one that is away, for whatever is newer than what is here.
                DiskFate::Kept if forks && scenario == Scenario::Disk && notes.one_in(8) => DiskFate::MarkLost,
                fate => fate,
            };
        }
        if !matches!(scenario, Scenario::Disk | Scenario::Churn) || !rng.one_in(3) {
            return;
        }
        let lost = if notes.one_in(2) { DiskFate::SavedLost } else { DiskFate::CheckpointsLost };
        let (step, all_die) = (rng.between(1, self.steps - 1), rng.spread(1_000, 500_000));
        for seat in 0..self.plan.peers {
            let loses = rng.one_in(2);
            let down = match loses {
                true => rng.spread(1_000, 2_000_000),
                // Most come after those have stopped waiting for them.
                false if rng.one_in(4) => rng.spread(1_000, 10_000_000),
                false => MAX_STALL + rng.micros(2_000_000, 20_000_000),
            };
            let fate = if loses { lost } else { DiskFate::Kept };
            let crash = Crash { down, power: rng.one_in(2), fate, at_record: None };
            let delay = all_die + rng.micros(1, 2_000);
            self.plan.faults.push(Fault { when: When::After { step, delay }, kind: Kind::Crash(seat, crash) });
        }
    }
}
