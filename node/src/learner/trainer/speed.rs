//! How fast this member computes, as the others are told.

use std::time::{Duration, Instant};

use starling_run::training::contribution;
use starling_topology::ledger::UNMEASURED;

/// Measures computing, not waiting. It is told also where shares are equal: people want to know who is slow.
///
/// A process that is kept from running is slow at all that it does. Between two computations others wait for it just as
/// for its samples, so that what it was kept from then counts, too.
#[derive(Debug)]
pub(super) struct Speed {
    /// Whether the device is past its first step, in which it compiles and allocates.
    is_warm: bool,
    told: u32,
    /// When computing last ended.
    ended: Option<Instant>,
}

impl Speed {
    pub(super) fn new() -> Self {
        Self { is_warm: false, told: UNMEASURED, ended: None }
    }

    /// Takes in that `samples` were computed from `began` to `ended`, by a process that is `stalled` for this part of
    /// the time.
    pub(super) fn measure(&mut self, samples: u64, began: Instant, ended: Instant, stalled: f32) {
        let between = self.ended.map_or(Duration::ZERO, |last| began.saturating_duration_since(last));
        let took = ended.saturating_duration_since(began) + between.mul_f32(stalled.clamp(0.0, 1.0));
        self.told = if self.is_warm { contribution::speed(samples, took) } else { UNMEASURED };
        self.is_warm |= samples > 0;
        self.ended = Some(ended);
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
        let (mut speed, mut now) = (Speed::new(), Instant::now());
        let mut told = |samples| {
            now += SECOND;
            speed.measure(samples, now, now + SECOND, 0.0);
            speed.told()
        };
        assert_eq!([told(0), told(100)], [UNMEASURED; 2]);
        assert_eq!(told(100), contribution::speed(100, SECOND));
        assert_eq!(told(0), UNMEASURED);
    }

    #[test]
    fn what_it_was_kept_from_between_computations_counts() {
        let (mut speed, now) = (Speed::new(), Instant::now());
        speed.measure(100, now, now + SECOND, 0.0);
        speed.measure(100, now + 5 * SECOND, now + 6 * SECOND, 0.75);
        assert_eq!(speed.told(), contribution::speed(100, 4 * SECOND));
    }
}
