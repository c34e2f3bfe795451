//! How fast this member computes, as the others are told.

use std::time::Duration;

use starling_topology::ledger::UNMEASURED;
use starling_train::{Balance, contribution};

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
        let is_told = self.is_warm && self.balance == Balance::Speed;
        self.told = if is_told { contribution::speed(samples, took) } else { UNMEASURED };
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
        assert_eq!(speed.told(), contribution::speed(100, SECOND));
        speed.measure(0, SECOND);
        assert_eq!(speed.told(), UNMEASURED);
    }

    #[test]
    fn where_shares_are_equal_nobody_tells_its_speed() {
        let mut speed = Speed::new(Balance::Equal);
        speed.measure(100, SECOND);
        speed.measure(100, SECOND);
        assert_eq!(speed.told(), UNMEASURED);
    }
}
