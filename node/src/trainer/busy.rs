//! How long the trainer has been at one thing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Tells whether the trainer is at something that only this machine can end: computing, not waiting for others.
#[derive(Debug, Clone, Default)]
pub(crate) struct Busy {
    /// Odd while there is work; each piece of work has a number of its own.
    number: Arc<AtomicU64>,
}

impl Busy {
    pub(super) fn start(&self) {
        self.number.fetch_or(1, Ordering::Relaxed);
    }

    pub(super) fn stop(&self) {
        let number = self.number.load(Ordering::Relaxed);
        self.number.store(number.next_multiple_of(2), Ordering::Relaxed);
    }

    fn work(&self) -> Option<u64> {
        let number = self.number.load(Ordering::Relaxed);
        (number % 2 == 1).then_some(number)
    }
}

/// Adds up how long one piece of work takes, in time in which this process ran: a machine that sleeps does not hang.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    work: Option<u64>,
    spent: Duration,
}

impl Watch {
    /// Looks again, `since` after the last look; a pause of the whole process counts as `most`. Says how long the
    /// present work has taken.
    pub(crate) fn look(&mut self, busy: &Busy, since: Duration, most: Duration) -> Looked {
        let work = busy.work();
        let is_same = work.is_some() && work == self.work;
        let added = if is_same { since.min(most) } else { Duration::ZERO };
        self.spent = if is_same { self.spent + added } else { Duration::ZERO };
        self.work = work;
        Looked { spent: self.spent, added }
    }
}

/// What a look shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Looked {
    /// How long the present work has taken.
    pub(crate) spent: Duration,
    /// How much of that is new since the look before.
    pub(crate) added: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_secs(1);

    #[test]
    fn only_one_piece_of_own_work_adds_up() {
        let (busy, mut watch) = (Busy::default(), Watch::default());
        assert_eq!(watch.look(&busy, TICK, TICK).spent, Duration::ZERO);
        busy.start();
        assert_eq!(watch.look(&busy, TICK, TICK).spent, Duration::ZERO, "it may have begun just now");
        assert_eq!(watch.look(&busy, TICK, TICK).spent, TICK);
        assert_eq!(watch.look(&busy, TICK, TICK).spent, 2 * TICK);
        busy.stop();
        busy.start();
        assert_eq!(watch.look(&busy, TICK, TICK).spent, Duration::ZERO, "other work");
        busy.stop();
        assert_eq!(watch.look(&busy, TICK, TICK).spent, Duration::ZERO);
    }

    #[test]
    fn a_process_that_was_stopped_has_not_worked() {
        let (busy, mut watch) = (Busy::default(), Watch::default());
        busy.start();
        watch.look(&busy, TICK, TICK);
        assert_eq!(watch.look(&busy, 1000 * TICK, TICK), Looked { spent: TICK, added: TICK });
    }
}
