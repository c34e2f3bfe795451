//! How fast this member computes, as the others are told.

use std::time::Duration;

use starling_topology::ledger::{MAX_SPEED, UNMEASURED};
use starling_train::Balance;

/// What one sample per second is told as: slow models need fractions of it.
const PER_SAMPLE: f64 = 16.0;

/// Measures computing, not waiting.
#[derive(Debug)]
pub(super) struct Speed {
    balance: Balance,
    /// Whether the device is past its first step, in which it compiles and allocates.
    is_warm: bool,
    told: u32,
}

impl Speed {
    pub(super) fn new(balance: Balance) -> Self {
        Self { balance, is_warm: false, told: UNMEASURED }
    }

    /// Takes in that `samples` took this long.
    pub(super) fn measure(&mut self, samples: u64, took: Duration) {
        self.told = if samples == 0 || !self.is_warm || self.balance == Balance::Equal {
            UNMEASURED
        } else {
            let speed = samples as f64 * PER_SAMPLE / took.as_secs_f64().max(1e-9);
            // The cast saturates; the lowest speeds have meanings of their own.
            (speed as u32).clamp(UNMEASURED + 1, MAX_SPEED)
        };
        self.is_warm |= samples > 0;
    }

    /// The newest measurement.
    pub(super) fn told(&self) -> u32 {
        self.told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_first_step_and_steps_without_samples_measure_nothing() {
        let mut speed = Speed::new(Balance::Speed);
        speed.measure(0, SECOND);
        speed.measure(100, SECOND);
        assert_eq!(speed.told(), UNMEASURED);
        speed.measure(100, SECOND);
        assert_eq!(speed.told(), 1600);
        speed.measure(0, SECOND);
        assert_eq!(speed.told(), UNMEASURED);
        for (samples, took, told) in [(1, 1000 * SECOND, UNMEASURED + 1), (u64::MAX, SECOND, MAX_SPEED), (9, Duration::ZERO, MAX_SPEED)] {
            speed.measure(samples, took);
            assert_eq!(speed.told(), told);
        }
    }

    #[test]
    fn where_shares_are_equal_nobody_tells_its_speed() {
        let mut speed = Speed::new(Balance::Equal);
        speed.measure(100, SECOND);
        speed.measure(100, SECOND);
        assert_eq!(speed.told(), UNMEASURED);
    }
}
