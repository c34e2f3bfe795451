//! Promise P6, no hang: once all faults are over, something that can happen only so often happens within a bound: a step
//! higher than all before is committed, a part of a state is loaded, a peer ends.

use std::time::Duration;

use starling_topology::{Config, Time};

/// Remembers when something last went on.
#[derive(Debug, Default)]
pub struct Progressing {
    highest: u64,
    last: Time,
    longest: Duration,
    healed: Option<Time>,
}

impl Progressing {
    /// The longest that a healed run may stand still: until a side without quorum goes on by itself and the branches
    /// have met again, and what it takes to let in those that were lost most often.
    pub fn limit(config: &Config) -> Duration {
        config.fork_after.unwrap_or_default() + config.max_stall * 20 + config.quarantine() * 8
    }

    /// Somebody committed `step`; says whether nobody had before.
    pub fn committed(&mut self, now: Time, step: u64) -> bool {
        let highest = step > self.highest;
        if highest {
            self.highest = step;
            self.goes_on(now);
        }
        highest
    }

    /// Something else went on that can't go on for ever.
    pub fn goes_on(&mut self, now: Time) {
        if self.healed.is_some() {
            self.longest = self.longest.max(now - self.last);
        }
        self.last = now;
    }

    /// All faults are over.
    pub fn healed(&mut self, now: Time) {
        self.goes_on(now);
        self.healed = Some(now);
    }

    /// Whether all faults are over.
    pub fn is_healed(&self) -> bool {
        self.healed.is_some()
    }

    /// Whether all faults have been over for so long.
    pub fn was_healed(&self, now: Time, ago: Duration) -> bool {
        self.healed.is_some_and(|healed| now - healed >= ago)
    }

    /// The highest committed step.
    pub fn highest(&self) -> u64 {
        self.highest
    }

    /// The longest that a healed run stood still.
    pub fn longest(&self) -> Duration {
        self.longest
    }

    /// Whether nothing has gone on for longer than `limit`.
    pub fn stands_still(&self, now: Time, limit: Duration) -> bool {
        now - self.last > limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_stands_still_is_noticed() {
        let (mut invariant, limit) = (Progressing::default(), Duration::from_secs(10));
        let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
        assert!(invariant.committed(at(3), 1));
        assert!(!invariant.committed(at(9), 1), "again is no progress");
        assert!(!invariant.stands_still(at(13), limit) && invariant.stands_still(at(14), limit));
        invariant.healed(at(14));
        invariant.goes_on(at(20));
        assert_eq!((invariant.longest(), invariant.is_healed()), (Duration::from_secs(6), true));
    }
}
