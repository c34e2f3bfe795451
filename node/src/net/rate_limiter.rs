//! How fast this machine hands things out that are not gradients.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

/// Spreads bytes over time. All that is handed out shares one: states, checkpoints and data.
#[derive(Debug)]
pub(crate) struct RateLimiter {
    /// Bytes per second; 0 sets no limit.
    rate: u64,
    /// When all bytes let through so far have had their time. Whoever waits for that holds the lock, and the others come after it
    /// in turn.
    free: Mutex<Option<Instant>>,
}

impl RateLimiter {
    pub(crate) fn new(rate: u64) -> Arc<Self> {
        Arc::new(Self { rate, free: Mutex::new(None) })
    }

    /// Waits until so many more bytes may go out. Whoever stops waiting has taken nothing.
    pub(crate) async fn wait_for_room(&self, bytes: usize) {
        if self.rate == 0 {
            return;
        }
        let mut free = self.free.lock().await;
        if let Some(at) = *free {
            sleep_until(at).await;
        }
        *free = Some(self.free_after(*free, Instant::now(), bytes));
    }

    /// When the time of `bytes` that go out `now` will be over.
    fn free_after(&self, free: Option<Instant>, now: Instant, bytes: usize) -> Instant {
        let nanos = (bytes as u128 * 1_000_000_000).checked_div(u128::from(self.rate)).unwrap_or_default();
        let at = free.filter(|free| *free > now).unwrap_or(now);
        let longest = Duration::from_secs(u64::from(u32::MAX));
        at + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)).min(longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_spreads_bytes() {
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        let pace = RateLimiter::new(1000);
        let free = pace.free_after(None, now, 500);
        assert_eq!(free, now + second / 2);
        assert_eq!(pace.free_after(Some(free), now, 500), now + second);
        let later = now + second * 9;
        assert_eq!(pace.free_after(Some(free), later, 500), later + second / 2, "time that nobody used is gone");
    }

    #[tokio::test]
    async fn none_lets_all_through() {
        let unlimited = RateLimiter::new(0);
        unlimited.wait_for_room(usize::MAX).await;
        unlimited.wait_for_room(usize::MAX).await;
    }

    /// Whoever asks for much and goes away would else keep all others waiting.
    #[tokio::test]
    async fn who_stops_waiting_gives_its_room_back() {
        let pace = RateLimiter::new(1000);
        pace.wait_for_room(50).await;
        let gone = tokio::spawn({
            let pace = pace.clone();
            async move { pace.wait_for_room(usize::MAX).await }
        });
        tokio::task::yield_now().await;
        gone.abort();
        assert!(gone.await.is_err(), "it was waiting");
        tokio::time::timeout(Duration::from_secs(60), pace.wait_for_room(1)).await.expect("room for a byte");
    }
}
