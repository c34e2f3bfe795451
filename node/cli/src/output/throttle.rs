//! How often the same kind of line is worth another one.

use std::time::Duration;

/// No two lines are nearer to each other.
const LEAST: Duration = Duration::from_secs(1);
/// Lines become rarer: the next one comes after this part of the time that has gone by.
const PART: u32 = 10;
/// But there is one for each of so many parts of the whole.
const MARKS: u64 = 50;

/// Lets lines through, ever more rarely: a run of whatever length has some 200 at most.
#[derive(Debug, Default)]
pub struct Throttle {
    /// When the first line came.
    first: Option<Duration>,
    /// When the last one came, and how much was done then.
    last: Option<(Duration, u64)>,
}

impl Throttle {
    /// Whether a line is due `now`, by any clock that goes forwards, when `done` of `whole` is done. If so, it counts as
    /// written.
    pub fn admits(&mut self, now: Duration, done: u64, whole: u64) -> bool {
        let first = *self.first.get_or_insert(now);
        let is_due = self.last.is_none_or(|(last, done_then)| {
            let since = now.saturating_sub(last);
            let is_marked = done.saturating_sub(done_then) >= whole.div_ceil(MARKS).max(1);
            since >= LEAST && (is_marked || since >= now.saturating_sub(first) / PART)
        });
        if is_due {
            self.last = Some((now, done));
        }
        is_due
    }

    /// The next line is due at once.
    pub fn reset(&mut self) {
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(steps: u64, step: Duration) -> usize {
        let mut throttle = Throttle::default();
        (1..=steps).filter(|at| throttle.admits(step * u32::try_from(*at).expect("few"), *at, steps)).count()
    }

    #[test]
    fn lines_are_few_however_long_and_fast_a_run_is() {
        for (steps, millis, least, most) in [
            (30_000, 1, 25, 31),
            (30_000, 20, 50, 130),
            (30_000, 1_000, 100, 180),
            (30_000, 60_000, 100, 200),
            (1, 1, 1, 1),
            (20, 5_000, 20, 20),
        ] {
            let lines = count(steps, Duration::from_millis(millis));
            assert!((least..=most).contains(&lines), "{lines} lines for {steps} steps of {millis} ms");
        }
    }

    #[test]
    fn lines_are_a_second_apart_unless_something_has_happened() {
        let mut throttle = Throttle::default();
        let at = Duration::from_millis;
        assert!(throttle.admits(at(5), 1, 100));
        assert!(!throttle.admits(at(900), 60, 100));
        throttle.reset();
        assert!(throttle.admits(at(901), 61, 100));
        assert!(!throttle.admits(at(1_800), 99, 100));
        assert!(throttle.admits(at(1_901), 99, 100));
    }
}
