//! A member that lacks the data of what it is to compute, because that is still on its way.

use std::time::{Duration, Instant};

/// How long it waits for data at a time where nobody computes anything.
pub(super) const LOOK: Duration = Duration::from_millis(50);
/// How long it waits so where nobody else is.
const MOST_ALONE: Duration = Duration::from_secs(600);
/// How soon it is told again.
const TOLD_AGAIN: Duration = Duration::from_secs(60);

/// Whether it does so at present, and what becomes of it.
#[derive(Debug)]
pub(super) struct Starvation {
    /// How often it looks again before a step that would have nothing in it.
    most_looks: u32,
    lasts: bool,
    /// How often it has looked in vain since nobody else is there.
    looked_alone: u32,
    /// Whether the last step had no samples.
    was_empty: bool,
    told: Option<Instant>,
}

impl Starvation {
    /// Of a member of a run with this longest stall: it lets no step wait for long enough to be taken for one that hangs.
    pub(super) fn new(max_stall: Duration) -> Self {
        let most_looks = (max_stall / 4).as_millis() / LOOK.as_millis();
        let most_looks = u32::try_from(most_looks).unwrap_or(u32::MAX);
        Self { most_looks, lasts: false, looked_alone: 0, was_empty: false, told: None }
    }

    /// How often to look again whether data has come before a step goes on without. While others compute, not at all; else steps would pass in which
    /// nothing is learned, as fast as they can.
    pub(super) fn looks(&self) -> u32 {
        if self.was_empty { self.most_looks } else { 0 }
    }

    /// Data is missing, where it `is_alone` or not. Whether that is to be told.
    pub(super) fn begin(&mut self, now: Instant, is_alone: bool) -> bool {
        let has_begun = !std::mem::replace(&mut self.lasts, true);
        let is_due = self.told.is_none_or(|told| now.duration_since(told) >= TOLD_AGAIN);
        let tells = (has_begun && is_due) || (is_alone && self.looked_alone == 0);
        self.told = if tells { Some(now) } else { self.told };
        tells
    }

    /// It looks in vain once more, where it `is_alone` or not. For how long it has waited alone, if that is too long by now.
    pub(super) fn waits_alone(&mut self, is_alone: bool) -> Option<Duration> {
        self.looked_alone = if is_alone { self.looked_alone.saturating_add(1) } else { 0 };
        let waited = LOOK * self.looked_alone;
        (waited >= MOST_ALONE).then_some(waited)
    }

    /// None is missing.
    pub(super) fn end(&mut self) {
        (self.lasts, self.looked_alone) = (false, 0);
    }

    pub(super) fn lasts(&self) -> bool {
        self.lasts
    }

    /// A step of so many samples was taken.
    pub(super) fn step(&mut self, samples: u64) {
        self.was_empty = samples == 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_waits_only_where_nobody_computes_and_is_told_now_and_then() {
        let mut starvation = Starvation::new(Duration::from_secs(2));
        let now = Instant::now();
        assert_eq!((starvation.looks(), starvation.lasts()), (0, false));
        assert!(starvation.begin(now, false) && !starvation.begin(now, false) && starvation.lasts());
        starvation.step(64);
        assert_eq!(starvation.looks(), 0);
        starvation.step(0);
        assert_eq!(starvation.looks(), 10, "half a second");
        starvation.end();
        assert!(!starvation.lasts() && !starvation.begin(now + TOLD_AGAIN / 2, false));
        starvation.end();
        assert!(starvation.begin(now + TOLD_AGAIN, false));
    }

    #[test]
    fn alone_it_waits_for_long_and_then_gives_up() {
        let mut starvation = Starvation::new(Duration::from_secs(2));
        let most = MOST_ALONE.as_millis() / LOOK.as_millis();
        let now = Instant::now();
        assert!(starvation.begin(now, false) && starvation.begin(now, true), "it is told that nobody else computes it");
        assert!((1..most).all(|_| starvation.waits_alone(true).is_none() && !starvation.begin(now, true)));
        // Others come, and go again.
        assert_eq!(starvation.waits_alone(false), None);
        assert!((1..most).all(|_| starvation.waits_alone(true).is_none()));
        assert_eq!(starvation.waits_alone(true), Some(MOST_ALONE));
        starvation.end();
        assert_eq!(starvation.waits_alone(true), None);
    }
}
