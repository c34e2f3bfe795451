//! How fast this member computes, as the others are told.

use std::time::Duration;

use starling_topology::ledger::UNMEASURED;
use starling_train::contribution;

/// Measures computing, not waiting. It is told also where shares are equal: people want to know who is slow.
#[derive(Debug)]
pub(super) struct Speed {
    /// Whether the device is past its first step, in which it compiles and allocates.
    is_warm: bool,
    told: u32,
}

impl Speed {
    pub(super) fn new() -> Self {
        Self { is_warm: false, told: UNMEASURED }
    }

    /// Takes in that `samples` took this long.
    pub(super) fn measure(&mut self, samples: u64, took: Duration) {
        self.told = if self.is_warm { contribution::speed(samples, took) } else { UNMEASURED };
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
        let mut speed = Speed::new();
        speed.measure(0, SECOND);
        speed.measure(100, SECOND);
        assert_eq!(speed.told(), UNMEASURED);
        speed.measure(100, SECOND);
        assert_eq!(speed.told(), contribution::speed(100, SECOND));
        speed.measure(0, SECOND);
        assert_eq!(speed.told(), UNMEASURED);
    }
}
