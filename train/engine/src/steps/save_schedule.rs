//! After which steps a member saves the state, and compares it with the others'.

/// All members compare the digests of their states after so many steps.
pub const DIGEST_EVERY: u64 = 64;

/// How often a member tries to write the last state, before it ends without.
pub const LAST_TRIES: u32 = 3;

/// Which occasions to save a state are taken: each, or where the disk falls behind, each second, fourth, and so on. Members
/// whose disks differ so still save the same steps, at the rate of the slowest; else none of them might become stable.
#[derive(Debug)]
pub struct SaveSchedule {
    every: u64,
    /// The last step, whose state is saved in any case.
    last: u64,
    doublings: u32,
    /// How often in a row the disk was ready.
    ready: u32,
}

/// Every 2^6th occasion at the least.
const MAX_DOUBLINGS: u32 = 6;
/// A finer stride is tried after so many occasions at which the disk was ready.
const PATIENCE: u32 = 8;

impl SaveSchedule {
    /// Of a member with an occasion after each `every` steps, 0 for none, in a run of `last` steps.
    pub fn new(every: u64, last: u64) -> Self {
        Self { every, last, doublings: 0, ready: 0 }
    }

    /// Whether it saves any states but the last.
    pub fn is_on(&self) -> bool {
        self.every > 0
    }

    /// Whether there is an occasion after `step`.
    pub fn is_due(&self, step: u64) -> bool {
        self.is_on() && step.is_multiple_of(self.every)
    }

    /// Whether to save the state after `step`, while the disk is still busy with an earlier one or not.
    pub fn takes(&mut self, step: u64, is_busy: bool) -> bool {
        if step >= self.last || !self.is_due(step) || !(step / self.every).is_multiple_of(1 << self.doublings) {
            return false;
        }
        if is_busy {
            self.doublings = (self.doublings + 1).min(MAX_DOUBLINGS);
            self.ready = 0;
            return false;
        }
        self.ready += 1;
        if self.ready > PATIENCE {
            self.doublings = self.doublings.saturating_sub(1);
            self.ready = 0;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The steps that a member saves, whose disk takes `needs` steps for each.
    fn saved(needs: u64) -> Vec<u64> {
        let (mut saving, mut until) = (SaveSchedule::new(1, u64::MAX), 0);
        let takes = |step: &u64| {
            let taken = saving.takes(*step, *step < until);
            until = if taken { step + needs } else { until };
            taken
        };
        (1..=400).filter(takes).collect()
    }

    #[test]
    fn a_fast_disk_saves_each_time() {
        assert_eq!(saved(1).len(), 400);
        let mut saving = SaveSchedule::new(5, 25);
        let steps: Vec<u64> = (1..=30).filter(|step| saving.takes(*step, false)).collect();
        assert_eq!(steps, [5, 10, 15, 20]);
        assert!(!SaveSchedule::new(0, 9).takes(0, false) && !SaveSchedule::new(0, 9).is_due(5));
    }

    #[test]
    fn members_with_slower_disks_save_steps_that_others_save() {
        let fast = saved(1);
        for needs in 2..=9 {
            let slow = saved(needs);
            assert!(slow.len() >= 400 / (4 * usize::try_from(needs).expect("small")), "{needs}: {slow:?}");
            for other in (2..=9).map(saved).chain([fast.clone()]) {
                let common = slow.iter().filter(|step| other.contains(step)).count();
                assert!(common >= 8, "{needs}: {slow:?} and {other:?}");
            }
        }
    }
}
