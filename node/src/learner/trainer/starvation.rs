//! A member that lacks the data of what it is to compute, because that is still on its way.

use std::time::{Duration, Instant};

/// How long it waits for data at a time where nobody computes anything.
pub(super) const LOOK: Duration = Duration::from_millis(50);
/// How soon it is told again.
const TOLD_AGAIN: Duration = Duration::from_secs(60);

/// Whether it does so at present, and what becomes of it.
#[derive(Debug)]
pub(super) struct Starvation {
    /// How often it looks again before a step that would have nothing in it.
    most_looks: u32,
    lasts: bool,
    /// Whether the last step had no samples.
    was_empty: bool,
    told: Option<Instant>,
}

impl Starvation {
    /// Of a member of a run with this longest stall: it lets no step wait for long enough to be taken for one that hangs.
    pub(super) fn new(max_stall: Duration) -> Self {
        let most_looks = (max_stall / 4).as_millis() / LOOK.as_millis();
        let most_looks = u32::try_from(most_looks).unwrap_or(u32::MAX);
        Self { most_looks, lasts: false, was_empty: false, told: None }
    }

    /// How often to look again whether data has come before a step goes on without. While others compute, not at all; else steps would pass in which
    /// nothing is learned, as fast as they can.
    pub(super) fn looks(&self) -> u32 {
        if self.was_empty { self.most_looks } else { 0 }
    }

    /// Data is missing. Whether that is to be told.
    pub(super) fn begin(&mut self, now: Instant) -> bool {
        let has_begun = !std::mem::replace(&mut self.lasts, true);
        let tells = has_begun && self.told.is_none_or(|told| now.duration_since(told) >= TOLD_AGAIN);
        self.told = if tells { Some(now) } else { self.told };
        tells
    }

    /// None is missing.
    pub(super) fn end(&mut self) {
        self.lasts = false;
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
        assert!(starvation.begin(now) && !starvation.begin(now) && starvation.lasts());
        starvation.step(64);
        assert_eq!(starvation.looks(), 0);
        starvation.step(0);
        assert_eq!(starvation.looks(), 10, "half a second");
        starvation.end();
        assert!(!starvation.lasts() && !starvation.begin(now + TOLD_AGAIN / 2));
        starvation.end();
        assert!(starvation.begin(now + TOLD_AGAIN));
    }
}
