//! How much of the time this machine computes: the rest of it belongs to its user.

use std::time::{Duration, Instant};

use crate::member::shared_steps::SharedSteps;

/// It rests after each piece of work, so that work takes this share of the time. What it rests counts as computing in what the others are
/// told of its speed: they deal it less, and nobody waits for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Duty {
    share: f64,
    /// Work and rest together take no longer: others take a peer that says nothing for one that hangs.
    longest: Duration,
}

impl Duty {
    /// Rests so that work and rest take a third of `max_stall` at most. A share that is none counts as the next one that is.
    pub(super) fn new(share: f64, max_stall: Duration) -> Self {
        let share = if share.is_nan() { 1.0 } else { share.clamp(0.01, 1.0) };
        Self { share, longest: max_stall / 3 }
    }

    /// Rests for what was done since `began`, unless the thread is to end.
    pub(super) fn rest(&self, began: Instant, shared_steps: &SharedSteps) {
        let rest = self.rest_after(began.elapsed());
        if !rest.is_zero() {
            shared_steps.rest(rest);
        }
    }

    fn rest_after(&self, worked: Duration) -> Duration {
        worked.mul_f64(1.0 / self.share - 1.0).min(self.longest.saturating_sub(worked))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_rests_as_long_as_its_share_says_and_never_so_long_that_it_is_missed() {
        let rests = |share: f64, worked: u64| {
            Duty::new(share, Duration::from_secs(9)).rest_after(Duration::from_millis(worked)).as_millis()
        };
        assert_eq!([rests(1.0, 500), rests(0.5, 500), rests(0.25, 500), rests(0.01, 500)], [0, 500, 1500, 2500]);
        assert_eq!([rests(0.5, 0), rests(0.5, 4000)], [0, 0]);
        assert_eq!([rests(0.0, 10), rests(f64::NAN, 10), rests(-3.0, 10), rests(7.0, 10)], [990, 0, 990, 0]);
    }
}
