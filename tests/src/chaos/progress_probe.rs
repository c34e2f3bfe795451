//! Whether steps go on: the newest committed step of anybody, and the longest time without a newer one.

use std::time::{Duration, Instant};

/// Follows a run's steps. Peers tell of steps every quarter of a second, so that is its grain.
#[derive(Debug)]
pub struct ProgressProbe {
    step: u64,
    at: Instant,
    longest: Duration,
    longest_at: Instant,
}

impl ProgressProbe {
    /// Begins now.
    pub fn new() -> Self {
        let now = Instant::now();
        Self { step: 0, at: now, longest: Duration::ZERO, longest_at: now }
    }

    /// Somebody tells of a committed step.
    pub fn beat(&mut self, step: u64, at: Instant) {
        if step > self.step {
            self.note_gap(at);
            (self.step, self.at) = (step, at);
        }
    }

    /// The newest step.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// The longest time without a newer step since the last [`rest`](Self::rest), the present one included, and when it
    /// ended.
    pub fn longest_gap(&mut self) -> (Duration, Instant) {
        self.note_gap(Instant::now());
        (self.longest, self.longest_at)
    }

    /// Forgets the gaps so far: from now on they count.
    pub fn rest(&mut self) {
        self.at = Instant::now();
        self.longest = Duration::ZERO;
        self.longest_at = self.at;
    }

    fn note_gap(&mut self, at: Instant) {
        let gap = at.saturating_duration_since(self.at);
        if gap > self.longest {
            (self.longest, self.longest_at) = (gap, at);
        }
    }
}

impl Default for ProgressProbe {
    fn default() -> Self {
        Self::new()
    }
}
