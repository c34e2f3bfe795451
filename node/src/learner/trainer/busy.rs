//! What the trainer is at.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Tells whether the trainer is at something that only this machine can end: computing, not waiting for others.
#[derive(Debug, Clone, Default)]
pub(crate) struct Busy {
    /// Odd while there is work; each piece of work has a number of its own.
    number: Arc<AtomicU64>,
}

impl Busy {
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
        let busy = Busy::default();
        assert_eq!(busy.work(), None);
        busy.start();
        let first = busy.work();
        busy.start();
        assert!(first.is_some() && busy.work().is_some_and(|next| Some(next) != first));
        busy.stop();
        assert_eq!(busy.work(), None);
    }
}
