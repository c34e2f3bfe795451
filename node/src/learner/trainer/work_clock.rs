//! What the trainer is at.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Tells whether the trainer is at something that only this machine can end: computing, not waiting for others.
#[derive(Debug, Clone, Default)]
pub(crate) struct WorkClock {
    /// Odd while there is work; each piece of work has a number of its own.
    number: Arc<AtomicU64>,
}

impl WorkClock {
    /// The next piece of work begins, whether or not there was one before.
    pub(super) fn start(&self) {
        self.stop();
        self.number.fetch_or(1, Ordering::Relaxed);
    }

    pub(super) fn stop(&self) {
        let number = self.number.load(Ordering::Relaxed);
        self.number.store(number.next_multiple_of(2), Ordering::Relaxed);
    }

    /// The number of the present piece of work, if there is one.
    pub(crate) fn work(&self) -> Option<u64> {
        let number = self.number.load(Ordering::Relaxed);
        (number % 2 == 1).then_some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_piece_of_work_has_a_number_of_its_own() {
        let work_clock = WorkClock::default();
        assert_eq!(work_clock.work(), None);
        work_clock.start();
        let first = work_clock.work();
        work_clock.start();
        assert!(first.is_some() && work_clock.work().is_some_and(|next| Some(next) != first));
        work_clock.stop();
        assert_eq!(work_clock.work(), None);
    }
}
