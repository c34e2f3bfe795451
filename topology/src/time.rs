//! Time as a value. Drivers bring it in; nothing here reads a clock.

use std::ops::{Add, Sub};
use std::time::Duration;

/// Nanoseconds since the driver started. Monotonic; comparable only within one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

impl Time {
    /// The driver's start.
    pub const ZERO: Self = Self(0);

    /// The instant `nanos` nanoseconds after the driver's start.
    pub fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the driver's start.
    pub fn as_nanos(self) -> u64 {
        self.0
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    /// Saturates at the end of time (584 years), so a "never" timeout needs no special case.
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub for Time {
    type Output = Duration;

    /// The time from `earlier` to `self`; zero if `earlier` is later.
    fn sub(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_saturates_at_both_ends() {
        let end = Time::from_nanos(u64::MAX);
        assert_eq!(Time::from_nanos(5) + Duration::MAX, end);
        assert_eq!(Time::from_nanos(5) - Time::from_nanos(9), Duration::ZERO);
        assert_eq!(Time::from_nanos(9) - Time::from_nanos(5), Duration::from_nanos(4));
    }
}
