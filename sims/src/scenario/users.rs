//! What users do to machines that come back, and what else is lost of what those know.

use super::{Draft, Scenario};
use crate::sweep::fault::{DiskFate, Fault, Kind, When};

impl Draft<'_> {
    /// What users do besides, and what else their disks lose: apart from all else, so that the faults before are the same with it.
    pub(super) fn users(&mut self, scenario: Scenario) {
        let mut rng = self.rng.fork();
        let forks = self.plan.fork_after.is_some();
        let (returns, losses) = match scenario {
            Scenario::Leave | Scenario::Churn | Scenario::Mixed => (true, scenario == Scenario::Mixed),
            Scenario::Disk => (false, true),
            Scenario::Crash | Scenario::Join => (false, scenario == Scenario::Crash),
            Scenario::Steady
            | Scenario::Pause
            | Scenario::Partition
            | Scenario::Outage
            | Scenario::Twin
            | Scenario::Newcomers
            | Scenario::Star
            | Scenario::Flapping
            | Scenario::Arriving
            | Scenario::Leaf
            | Scenario::Byzantine => return,
        };
        self.plan.words = forks && rng.one_in(3);
        for fault in &mut self.plan.faults {
            if let Kind::Crash(_, crash) = &mut fault.kind
                && crash.fate == DiskFate::Kept
                && losses
                && rng.one_in(6)
            {
                // As with other losses of votes: without forks, a view that loses a quorum of them can't go on.
                let loses_its_seat = rng.one_in(2) && forks && scenario != Scenario::Crash;
                crash.fate = if loses_its_seat { DiskFate::SeatLost } else { DiskFate::ListLost };
            }
        }
        let leavers = self.plan.faults.iter().filter_map(|fault| Some((fault.kind.leaver()?, fault.when)));
        for (seat, when) in leavers.collect::<Vec<_>>() {
            if let When::After { step, delay } = when
                && returns
                && rng.one_in(2)
            {
                let delay = delay + rng.spread(10_000, 30_000_000);
                self.plan.faults.push(Fault { when: When::After { step, delay }, kind: Kind::Return(seat) });
            }
        }
    }
}
