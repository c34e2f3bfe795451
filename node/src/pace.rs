//! How fast this machine hands things out that are not gradients.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Spreads bytes over time. All that is handed out shares one: states, checkpoints and data.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Bytes per second; 0 sets no limit.
    rate: u64,
    /// When all bytes let through so far have had their time.
    free: Mutex<Option<Instant>>,
}

impl Pace {
    pub(crate) fn new(rate: u64) -> Arc<Self> {
        Arc::new(Self { rate, free: Mutex::new(None) })
    }

    /// Waits until so many more bytes may go out.
    pub(crate) async fn wait_for_room(&self, bytes: usize) {
        if let Some(at) = self.reserve(Instant::now(), bytes) {
            sleep_until(at).await;
        }
    }

    /// Reserves time for `bytes`; says when they may go if that is not now.
    pub(crate) fn reserve(&self, now: Instant, bytes: usize) -> Option<Instant> {
        let nanos = (bytes as u128 * 1_000_000_000).checked_div(u128::from(self.rate))?;
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let at = free.filter(|free| *free > now).unwrap_or(now);
        *free = Some(at + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)));
        (at > now).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_spreads_bytes_and_none_lets_all_through() {
        let now = Instant::now();
        let limited = Pace::new(1000);
        assert_eq!(limited.reserve(now, 500), None);
        assert_eq!(limited.reserve(now, 500), Some(now + Duration::from_millis(500)));
        assert_eq!(limited.reserve(now + Duration::from_secs(9), 500), None, "time that nobody used is gone");
        let unlimited = Pace::new(0);
        assert_eq!((unlimited.reserve(now, usize::MAX), unlimited.reserve(now, 1)), (None, None));
    }
}
