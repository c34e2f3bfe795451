//! Links that fail, heal and fail again: each time costs a change of view and a step that begins anew. A view that has seen three such
//! failures within a short time is unsteady: those links are damped, so that they are used no more until none has failed for a while (C.
//! Villamizar, R. Chandra, R. Govindan, "BGP Route Flap Damping", RFC 2439).

use std::time::Duration;

use crate::config::Config;
use crate::time::Time;

/// After so many failures a view is unsteady.
const MOST: usize = 3;
/// If they came within so many steps, or within twice `max_stall`.
const STEPS: u64 = 8;
/// Links are damped for the first interval times two to this power at most.
const MAX_DOUBLINGS: u32 = 3;

/// The links that failed on the way to a view, as one of its members has seen it: of views before it came it knows nothing.
#[derive(Debug, Clone)]
pub(in crate::membership) struct LinkFailures {
    /// After which steps links failed, and when the view that followed was entered; the newest last, at most [`MOST`].
    newest: Vec<(u64, Time)>,
    /// When the last one failed, or since when we are here.
    quiet_since: Time,
    /// How often links were damped again soon after they had been tried, plus one; 0 if never.
    times: u32,
    /// When they were tried again last.
    tried_at: Option<Time>,
}

impl LinkFailures {
    /// Of one that comes now.
    pub(in crate::membership) fn new(now: Time) -> Self {
        Self { newest: Vec::new(), quiet_since: now, times: 0, tried_at: None }
    }

    /// Whether what failed after one step at one time, and after another at another, belongs together.
    pub(in crate::membership) fn are_near(config: &Config, one: (u64, Time), other: (u64, Time)) -> bool {
        let apart = one.1.max(other.1) - one.1.min(other.1);
        one.0.abs_diff(other.0) <= STEPS || apart <= config.max_stall * 2
    }

    /// Whether a view that follows now is unsteady, where the one before `is_unsteady` or not, and links have just `failed` after a step,
    /// or none has.
    pub(in crate::membership) fn call_for(
        &self,
        config: &Config,
        now: Time,
        is_unsteady: bool,
        failed: Option<u64>,
    ) -> bool {
        match failed {
            None => is_unsteady && !self.is_quiet(config, now),
            Some(step) => is_unsteady || self.were_tried_lately(config, now) || self.are_many_with(config, now, step),
        }
    }

    /// Whether no link has failed for so long that all may be tried again.
    pub(in crate::membership) fn is_quiet(&self, config: &Config, now: Time) -> bool {
        now - self.quiet_since >= self.interval(config)
    }

    /// The next view is entered now: unsteady or not, after one that was or was not, and because links `failed` after a step, or for
    /// something else.
    pub(in crate::membership) fn enter(
        &mut self,
        config: &Config,
        now: Time,
        (before, is_unsteady): (bool, bool),
        failed: Option<u64>,
    ) {
        match (before, is_unsteady) {
            (false, true) if self.were_tried_lately(config, now) => self.times = self.times.saturating_add(1),
            (false, true) => self.times = 1,
            (true, false) => self.tried_at = Some(now),
            (false, false) | (true, true) => {}
        }
        if let Some(step) = failed {
            self.quiet_since = now;
            self.note(step, now);
        }
    }

    /// What failed again before another step was taken is one failure.
    fn note(&mut self, step: u64, now: Time) {
        if self.newest.last().is_some_and(|(last, _)| *last == step) {
            return;
        }
        if self.newest.len() == MOST {
            self.newest.remove(0);
        }
        self.newest.push((step, now));
    }

    fn are_many_with(&self, config: &Config, now: Time, step: u64) -> bool {
        let mut with = self.clone();
        with.note(step, now);
        with.newest.len() == MOST && Self::are_near(config, with.newest[0], (step, now))
    }

    /// For as long as they were damped, one failure is enough to damp them again.
    fn were_tried_lately(&self, config: &Config, now: Time) -> bool {
        self.tried_at.is_some_and(|at| now - at <= self.interval(config))
    }

    fn interval(&self, config: &Config) -> Duration {
        config.replan_interval() * (1 << self.times.saturating_sub(1).min(MAX_DOUBLINGS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    /// Links fail at these times, each after a step: whether the last one makes the view unsteady.
    fn called_for(failures: &[(u64, u64)]) -> bool {
        let config = Config::default();
        let mut seen = LinkFailures::new(at(0));
        let mut called = false;
        for (step, seconds) in failures {
            assert!(!called, "{failures:?}");
            called = seen.call_for(&config, at(*seconds), false, Some(*step));
            seen.enter(&config, at(*seconds), (false, called), Some(*step));
        }
        called
    }

    #[test]
    fn three_failures_within_a_few_steps_or_a_short_time_make_a_view_unsteady() {
        assert!(called_for(&[(10, 5), (14, 500), (18, 1_000)]) && called_for(&[(10, 5), (400, 12), (900, 25)]));
        assert!(!called_for(&[(10, 5), (14, 500), (19, 1_000)]) && !called_for(&[(10, 5), (400, 12), (900, 26)]));
        assert!(!called_for(&[(10, 5), (18, 6)]), "two are not enough");
        assert!(!called_for(&[(10, 5), (10, 6), (10, 7), (12, 8)]), "what is tried again at once has failed once");
        assert!(called_for(&[(10, 5), (90, 900), (92, 901), (94, 902)]), "the newest count");
    }

    #[test]
    fn what_fails_soon_after_it_was_tried_is_damped_at_once_and_for_twice_as_long() {
        let config = Config::default();
        let mut seen = LinkFailures::new(at(0));
        for step in [10, 11, 12] {
            seen.enter(&config, at(step), (false, step == 12), Some(step));
        }
        let (mut now, mut step) = (12, 12);
        for interval in [20, 40, 80, 160, 160, 160] {
            let quiet = |seen: &LinkFailures, now| !seen.call_for(&config, at(now), true, None);
            assert!(!quiet(&seen, now + interval - 1) && quiet(&seen, now + interval), "after {now}");
            assert!(seen.call_for(&config, at(now + interval), true, Some(step + 9)), "one has failed just now");
            seen.enter(&config, at(now + interval), (true, false), None);
            (now, step) = (now + 2 * interval, step + 100);
            assert!(seen.call_for(&config, at(now), false, Some(step)), "it has failed soon");
            assert!(
                !seen.call_for(&config, at(now + 1), false, Some(step)),
                "it was steady for as long as it was damped"
            );
            seen.enter(&config, at(now), (false, true), Some(step));
        }
        seen.enter(&config, at(now + 160), (true, false), None);
        let mut later = now + 1_000;
        for step in [5_000, 5_001, 5_002] {
            later += 1;
            let called = seen.call_for(&config, at(later), false, Some(step));
            assert_eq!(called, step == 5_002, "three of them again");
            seen.enter(&config, at(later), (false, called), Some(step));
        }
        assert!(seen.is_quiet(&config, at(later + 20)) && !seen.is_quiet(&config, at(later + 19)));
    }
}
