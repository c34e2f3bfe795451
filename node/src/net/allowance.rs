//! How much of something may happen: a burst, and so much more with each second.

use tokio::time::Instant;

/// A bucket of tokens.
#[derive(Debug, Clone)]
pub(crate) struct Allowance {
    burst: u64,
    per_second: u64,
    /// What is left, as of then, in nanoseconds' worth.
    left: u128,
    looked: Instant,
}

const NANOS: u128 = 1_000_000_000;

impl Allowance {
    /// A full one.
    pub(crate) fn new(burst: u64, per_second: u64, now: Instant) -> Self {
        Self { burst, per_second, left: u128::from(burst) * NANOS, looked: now }
    }

    /// Takes that much, if it is there.
    pub(crate) fn take(&mut self, amount: u64, now: Instant) -> bool {
        let since = now.saturating_duration_since(self.looked);
        self.looked = self.looked.max(now);
        let most = u128::from(self.burst) * NANOS;
        self.left = self.left.saturating_add(since.as_nanos().saturating_mul(self.per_second.into())).min(most);
        let wanted = u128::from(amount) * NANOS;
        let is_there = wanted <= self.left;
        if is_there {
            self.left -= wanted;
        }
        is_there
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_burst_is_followed_by_a_rate() {
        let now = Instant::now();
        let mut allowance = Allowance::new(3, 2, now);
        assert!(allowance.take(3, now) && !allowance.take(1, now));
        let later = now + Duration::from_millis(500);
        assert!(allowance.take(1, later) && !allowance.take(1, later));
        let much_later = now + Duration::from_secs(3600);
        assert!(!allowance.take(4, much_later) && allowance.take(3, much_later), "no more than a burst is saved up");
        assert!(!allowance.take(1, now), "a clock that goes back gives nothing");
    }
}
