//! Whether a member's own work hangs.

use std::time::Duration;

/// How often a driver looks how far its member is, and whether its work hangs.
pub fn look_interval(max_stall: Duration) -> Duration {
    max_stall / 40
}

/// A look counts for this many times the interval at which the driver looks, at the most.
const MOST_LOOKS: u32 = 2;

/// Tells whether a member has been at one piece of work for so long that its device may hang. The others wait for it and hear
/// that it lives, so it ends by itself: they see that at once. Where nobody waits, it may take as long as it likes.
///
/// Only time counts in which the process ran: a machine that sleeps does not hang.
#[derive(Debug)]
pub struct HangDetector {
    limit: Duration,
    interval: Duration,
    work: Option<u64>,
    spent: Duration,
}

/// What is to be done about work that takes too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OverdueAction {
    /// End: others wait.
    End,
    /// Tell the user, once for each piece of work: beside others, it would have to end.
    Warn,
}

impl HangDetector {
    /// Of a member of a run with this longest stall, whose driver looks at this interval.
    pub fn new(max_stall: Duration, interval: Duration) -> Self {
        Self { limit: max_stall * 9 / 10, interval, work: None, spent: Duration::ZERO }
    }

    /// The longest that a piece of work may take.
    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// Looks again, `since` after the last look. Each piece of work has a number of its own; `None` is none.
    pub fn look(&mut self, work: Option<u64>, since: Duration, has_others: bool) -> Option<OverdueAction> {
        let before = self.spent;
        let is_same = work.is_some() && work == self.work;
        self.spent = if is_same { before + since.min(self.interval * MOST_LOOKS) } else { Duration::ZERO };
        self.work = work;
        match self.spent > self.limit {
            true if has_others => Some(OverdueAction::End),
            true if before <= self.limit => Some(OverdueAction::Warn),
            true | false => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_secs(1);

    #[test]
    fn only_one_piece_of_own_work_adds_up() {
        let mut hang_detector = HangDetector::new(10 * TICK, TICK);
        for round in 0..3 {
            let looks: Vec<_> = (0..=9).map(|_| hang_detector.look(Some(round), TICK, true)).collect();
            assert_eq!(looks, [None; 10], "it may have begun just before the first look");
        }
        assert_eq!(hang_detector.look(None, TICK, true), None);
        for _ in 0..=9 {
            assert_eq!(hang_detector.look(Some(7), TICK, true), None);
        }
        assert_eq!(hang_detector.look(Some(7), TICK, true), Some(OverdueAction::End));
    }

    #[test]
    fn who_is_alone_is_told_once() {
        let mut hang_detector = HangDetector::new(10 * TICK, TICK);
        let looks: Vec<_> = (0..100).filter_map(|_| hang_detector.look(Some(1), TICK, false)).collect();
        assert_eq!(looks, [OverdueAction::Warn]);
        assert_eq!(hang_detector.look(Some(1), TICK, true), Some(OverdueAction::End), "somebody came");
    }

    #[test]
    fn a_process_that_was_stopped_has_not_worked() {
        let mut hang_detector = HangDetector::new(10 * TICK, TICK);
        for _ in 0..5 {
            assert_eq!(hang_detector.look(Some(1), 1000 * TICK, true), None);
        }
        assert_eq!(hang_detector.look(Some(1), 1000 * TICK, true), Some(OverdueAction::End), "it is at it still");
    }
}
