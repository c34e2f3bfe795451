//! How much of the time this machine computes: the rest of it belongs to its user.

use std::time::{Duration, Instant};

use crate::member::shared_steps::SharedSteps;

/// It rests after each piece of work, so that work takes this share of the time. What it rests counts as computing in what the others are
/// told of its speed: they deal it less, and nobody waits for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Duty {
    share: f64,
    /// Others take a peer that says nothing for longer for one that hangs.
    longest: Duration,
}

impl Duty {
    /// Rests a quarter of `max_stall` at once at most.
    pub(super) fn new(share: f64, max_stall: Duration) -> Self {
        Self { share, longest: max_stall / 4 }
    }

    /// Rests for what was done since `began`, unless the thread is to end.
    pub(super) fn rest(&self, began: Instant, shared_steps: &SharedSteps) {
        let rest = self.rest_after(began.elapsed());
        if !rest.is_zero() {
            shared_steps.rest(rest);
        }
    }

    fn rest_after(&self, worked: Duration) -> Duration {
        if self.share >= 1.0 { Duration::ZERO } else { worked.mul_f64(1.0 / self.share - 1.0).min(self.longest) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_rests_as_long_as_its_share_says_and_never_so_long_that_it_is_missed() {
        let rests = |share: f64, worked: u64| {
            Duty::new(share, Duration::from_secs(8)).rest_after(Duration::from_millis(worked)).as_millis()
        };
        assert_eq!([rests(1.0, 500), rests(0.5, 500), rests(0.25, 500), rests(0.01, 500)], [0, 500, 1500, 2000]);
        assert_eq!(rests(0.5, 0), 0);
    }
}
