//! Whether a reducer that has nothing to do looks again, or sleeps.
//!
//! A neighbour that works at the same speed sends within the time that a segment takes, and to be woken up costs more
//! than to wait that long. Whoever looks again lets others have its core in between, for members may share it. But a
//! thread that computes all the time, and waits for nobody, then keeps the core until the system takes it away, while
//! whoever slept is let in at once. So looking again has to pay: it is done on credit, which success earns and failure
//! costs, and all of it is lost to such a thread.

use std::time::{Duration, Instant};

/// How long to look again after the last progress.
const PATIENCE: Duration = Duration::from_micros(100);
/// Between two looks, a member works on some segments at most. Systems leave a core to a thread for longer than this.
const TAKEN_AWAY: Duration = Duration::from_millis(2);
/// The most credit.
const MOST: u32 = 8;
/// What it costs to have looked in vain.
const COST: u32 = 2;
/// After so many sleeps without credit, it is tried once more.
const RETRY: u32 = 64;
/// The same where the core was taken away each time it was tried.
const LAST_RETRY: u32 = RETRY << 6;

/// What a reducer has learned of the cores that it runs on.
#[derive(Debug)]
pub(super) struct SpinPolicy {
    /// When something happened last.
    since: Instant,
    /// When it has looked last since then.
    looked: Option<Instant>,
    credit: u32,
    sleeps: u32,
    /// After how many of them it is tried once more.
    retry: u32,
}

impl SpinPolicy {
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, looked: None, credit: MOST, sleeps: 0, retry: RETRY }
    }

    /// Notes that an operation begins.
    pub(super) fn begin(&mut self, now: Instant) {
        (self.since, self.looked) = (now, None);
    }

    /// For how long nothing has happened.
    pub(super) fn idle(&self, now: Instant) -> Duration {
        now.duration_since(self.since)
    }

    /// Whether to look again, rather than to sleep.
    pub(super) fn looks_again(&mut self, now: Instant) -> bool {
        let looked = self.looked.take();
        if looked.is_some_and(|last| self.was_taken_away(last, now)) {
            return false;
        }
        if self.credit > 0 && now.duration_since(self.since) < PATIENCE {
            self.looked = Some(now);
        } else if looked.is_some() {
            self.credit = self.credit.saturating_sub(COST);
        }
        self.looked.is_some()
    }

    /// Notes that something happened.
    pub(super) fn progressed(&mut self, now: Instant) {
        self.since = now;
        if let Some(last) = self.looked.take() {
            if !self.was_taken_away(last, now) {
                (self.credit, self.retry) = ((self.credit + 1).min(MOST), RETRY);
            }
            return;
        }
        self.sleeps += 1;
        if self.sleeps >= self.retry {
            (self.sleeps, self.credit) = (0, self.credit.max(1));
        }
    }

    /// Whether another thread has had the core since the look at `last`. Then this one sleeps instead for a while, and for
    /// longer each time.
    fn was_taken_away(&mut self, last: Instant, now: Instant) -> bool {
        let was = now.duration_since(last) >= TAKEN_AWAY;
        if was {
            (self.credit, self.sleeps, self.retry) = (0, 0, (self.retry * 2).min(LAST_RETRY));
        }
        was
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_again_has_to_pay() {
        let began = Instant::now();
        let (soon, late) = (PATIENCE / 2, PATIENCE * 2);
        let mut spin_policy = SpinPolicy::new(began);
        let mut now = began;
        // As long as it pays, it goes on.
        for _ in 0..3 * MOST {
            now += soon;
            assert!(spin_policy.looks_again(now));
            spin_policy.progressed(now);
        }
        // In vain so often that the credit is gone.
        for _ in 0..MOST / COST {
            assert!(spin_policy.looks_again(now + soon));
            assert!(!spin_policy.looks_again(now + late), "not for ever");
            now += late;
            spin_policy.progressed(now);
        }
        // Then it sleeps at once, and tries it now and then.
        let tries = (0..2 * RETRY).filter(|_| {
            let looks = spin_policy.looks_again(now + soon);
            spin_policy.looks_again(now + late);
            now += late;
            spin_policy.progressed(now);
            looks
        });
        assert!((1..=2).contains(&tries.count()));
    }

    #[test]
    fn a_core_that_is_taken_away_is_not_given_away_again_soon() {
        let mut now = Instant::now();
        let mut spin_policy = SpinPolicy::new(now);
        let mut pauses = Vec::new();
        for _ in 0..8 {
            assert!(spin_policy.looks_again(now), "with credit, it looks");
            now += TAKEN_AWAY;
            // Found out with whatever comes first.
            if pauses.len() % 2 == 0 {
                spin_policy.progressed(now)
            } else {
                assert!(!spin_policy.looks_again(now))
            }
            pauses.push((0u32..).find(|_| {
                now += PATIENCE / 2;
                spin_policy.progressed(now);
                spin_policy.credit > 0
            }));
        }
        let pauses: Vec<u32> = pauses.into_iter().flatten().map(|pause| pause + 1).collect();
        assert_eq!(pauses, [128, 256, 512, 1024, 2048, 4096, 4096, 4096]);
        assert!(spin_policy.looks_again(now));
        spin_policy.progressed(now + PATIENCE / 2);
        assert_eq!(spin_policy.retry, RETRY, "once it paid, all is forgotten");
    }
}
