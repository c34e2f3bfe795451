//! Whether a reducer that has nothing to do looks again, or sleeps.
//!
//! A neighbour that works at the same speed sends within the time that a segment takes, and to be woken up costs more
//! than to wait that long. Whoever looks again lets others have its core in between, for members may share it. Even so,
//! what computes there all the time would be held up, so looking again has to pay: it is done on credit, which success
//! earns and failure costs.

use std::time::{Duration, Instant};

/// How long to look again after the last progress.
const PATIENCE: Duration = Duration::from_micros(100);
/// The most credit.
const MOST: u32 = 8;
/// What it costs to have looked in vain.
const COST: u32 = 2;
/// After so many sleeps without credit, it is tried once more.
const RETRY: u32 = 64;

/// The credit of one operation.
#[derive(Debug)]
pub(super) struct Patience {
    /// When something happened last.
    since: Instant,
    /// Whether it has looked again since then.
    looked: bool,
    credit: u32,
    sleeps: u32,
}

impl Patience {
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, looked: false, credit: MOST, sleeps: 0 }
    }

    /// Whether to look again, rather than to sleep.
    pub(super) fn looks_again(&mut self, now: Instant) -> bool {
        if self.credit > 0 && now.duration_since(self.since) < PATIENCE {
            self.looked = true;
        } else if std::mem::take(&mut self.looked) {
            self.credit = self.credit.saturating_sub(COST);
        }
        self.looked
    }

    /// Notes that something happened.
    pub(super) fn progressed(&mut self, now: Instant) {
        self.since = now;
        if std::mem::take(&mut self.looked) {
            self.credit = (self.credit + 1).min(MOST);
            return;
        }
        self.sleeps += 1;
        if self.sleeps >= RETRY {
            (self.sleeps, self.credit) = (0, self.credit.max(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_again_has_to_pay() {
        let began = Instant::now();
        let (soon, late) = (PATIENCE / 2, PATIENCE * 2);
        let mut patience = Patience::new(began);
        let mut now = began;
        // As long as it pays, it goes on.
        for _ in 0..3 * MOST {
            now += soon;
            assert!(patience.looks_again(now));
            patience.progressed(now);
        }
        // In vain so often that the credit is gone.
        for _ in 0..MOST / COST {
            assert!(patience.looks_again(now + soon));
            assert!(!patience.looks_again(now + late), "not for ever");
            now += late;
            patience.progressed(now);
        }
        // Then it sleeps at once, and tries it now and then.
        let tries = (0..2 * RETRY).filter(|_| {
            let looks = patience.looks_again(now + soon);
            patience.looks_again(now + late);
            now += late;
            patience.progressed(now);
            looks
        });
        assert!((1..=2).contains(&tries.count()));
    }
}
