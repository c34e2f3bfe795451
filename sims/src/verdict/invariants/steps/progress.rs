//! Promise P6, no hang. A run that has what it takes to go on, a quorum that can talk and the state among them, commits a
//! step within a few `max_stall` of the last one and of the last fault, whatever else is broken. And once all faults are
//! over, something that can happen only so often happens within a longer bound: a step higher than all before is
//! committed, a part of a state is loaded, a peer ends.

use std::collections::BTreeMap;
use std::time::Duration;

use starling_topology::{Config, Time};

use crate::verdict::invariants::Broken;

const NAME: &str = "progress";

/// Remembers when something last went on.
#[derive(Debug, Default)]
pub struct Progressing {
    highest: u64,
    last: Time,
    healed: Option<Time>,
    /// When it was last looked at, and whether the run could go on then.
    looked: (Time, bool),
    /// For how long it could have committed a step, and has not.
    stalled: Duration,
    /// What has disturbed it last.
    cause: &'static str,
    /// When that was.
    calm_since: Time,
    /// The longest that it stood so after each cause.
    longest: BTreeMap<&'static str, Duration>,
}

impl Progressing {
    /// The longest that a run that can go on may stand still: one `max_stall` to notice what is lost and to decide what
    /// comes after, one for what is lost while that goes on, and one for those who come back to wait for the rest.
    pub fn stall_limit(config: &Config) -> Duration {
        config.max_stall * 3
    }

    /// The longest where some can talk to others only through a hub: while that is away all others wait without a quorum, and it comes back
    /// to members that are none.
    pub fn hub_limit(config: &Config) -> Duration {
        config.max_stall * 6
    }

    /// The longest that a run may stand still in which some members say what they like, all the time: until they are left out, or
    /// the others have gone on beside them, one after the other.
    pub fn hostile_limit(config: &Config) -> Duration {
        config.max_stall * 6
    }

    /// The longest that a healed run may stand still: until a side without quorum goes on by itself and the branches
    /// have met again, and what it takes to let in those that were lost most often.
    pub fn limit(config: &Config) -> Duration {
        config.fork_after.unwrap_or_default() + config.max_stall * 20 + config.quarantine() * 64
    }

    /// Since when nothing has disturbed it.
    pub fn calm_since(&self) -> Time {
        self.calm_since
    }

    /// Somebody committed `step`; says whether nobody had before.
    pub fn committed(&mut self, now: Time, step: u64) -> bool {
        self.count(now);
        self.stalled = Duration::ZERO;
        let highest = step > self.highest;
        if highest {
            self.highest = step;
            self.goes_on(now);
        }
        highest
    }

    /// Some peer has come to `step`, of which nothing is promised; says whether nobody had before.
    pub fn is_reached(&mut self, step: u64) -> bool {
        let highest = step > self.highest;
        self.highest = self.highest.max(step);
        highest
    }

    /// A fault strikes, or one is over: what follows takes its time anew.
    pub fn disturbed(&mut self, now: Time, cause: &'static str) {
        self.count(now);
        (self.cause, self.calm_since) = (cause, now);
        self.stalled = Duration::ZERO;
    }

    /// Whether the run has all that it takes to go on, from now on.
    ///
    /// # Errors
    /// If it had that for longer than `limit`, and has not gone on.
    pub fn looked(&mut self, now: Time, can_go_on: bool, limit: Duration) -> Result<(), Broken> {
        self.count(now);
        self.looked.1 = can_go_on;
        if self.stalled <= limit {
            return Ok(());
        }
        let seen = format!("no step in {:?} after {:?}, and nothing was missing", self.stalled, now - Time::ZERO);
        self.stalled = Duration::ZERO;
        Err(Broken::new(NAME, seen))
    }

    fn count(&mut self, now: Time) {
        if self.looked.1 {
            self.stalled += now - self.looked.0;
            let longest = self.longest.entry(self.cause).or_default();
            *longest = self.stalled.max(*longest);
        }
        self.looked.0 = now;
    }

    /// Something else went on that can't go on for ever.
    pub fn goes_on(&mut self, now: Time) {
        self.last = now;
    }

    /// All faults are over.
    pub fn healed(&mut self, now: Time) {
        self.goes_on(now);
        self.disturbed(now, "is healed");
        self.healed = Some(now);
    }

    /// Whether all faults are over.
    pub fn is_healed(&self) -> bool {
        self.healed.is_some()
    }

    /// Whether all faults have been over for so long.
    pub fn was_healed(&self, now: Time, ago: Duration) -> bool {
        self.healed.is_some_and(|healed| healed <= now && now - healed >= ago)
    }

    /// The highest committed step.
    pub fn highest(&self) -> u64 {
        self.highest
    }

    /// The longest that a run that could go on stood still, by what had disturbed it last; nothing had, at first.
    pub fn longest(&self) -> &BTreeMap<&'static str, Duration> {
        &self.longest
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
        assert!(invariant.is_healed() && !invariant.stands_still(at(24), limit));
    }

    #[test]
    fn a_run_that_can_go_on_and_does_not_is_noticed() {
        let (mut invariant, limit) = (Progressing::default(), Duration::from_secs(10));
        let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
        let mut look = |from: u64, end: u64, can| (from..end).all(|now| invariant.looked(at(now), can, limit).is_ok());
        assert!(look(0, 50, false), "nothing is to be expected of it");
        assert!(look(50, 60, true) && look(60, 90, false));
        assert!(!look(90, 95, true), "what is missing for a while starts nothing anew");
        invariant.committed(at(95), 1);
        let mut look = |from: u64, end: u64| (from..end).all(|now| invariant.looked(at(now), true, limit).is_ok());
        assert!(look(96, 105));
        invariant.disturbed(at(105), "dies");
        let mut look = |from: u64, end: u64| (from..end).all(|now| invariant.looked(at(now), true, limit).is_ok());
        assert!(look(106, 116) && !look(116, 118));
        let longest = [("", 11), ("dies", 11)].map(|(cause, seconds)| (cause, Duration::from_secs(seconds)));
        assert_eq!(invariant.longest(), &BTreeMap::from(longest));
    }
}
