//! Chance that can be repeated.

use std::time::Duration;

/// A seeded generator: SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
#[derive(Debug, Clone)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// The same seed gives the same throws.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    fn throw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number below `end`.
    ///
    /// # Panics
    /// If there is none.
    pub fn below(&mut self, end: usize) -> usize {
        assert!(end > 0, "there is no number below 0");
        let end = u64::try_from(end).expect("a usize has at most 64 bits");
        usize::try_from(self.throw() % end).expect("below a usize")
    }

    /// One of them; `None` if there are none.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        if from.is_empty() { None } else { Some(from[self.below(from.len())]) }
    }

    /// The same things in another order.
    pub fn shuffle<T>(&mut self, things: &mut [T]) {
        for end in (1..things.len()).rev() {
            things.swap(end, self.below(end + 1));
        }
    }

    /// A time between two others.
    pub fn between(&mut self, least: Duration, most: Duration) -> Duration {
        let range = usize::try_from(most.saturating_sub(least).as_millis()).expect("an experiment is shorter");
        least + Duration::from_millis(self.below(range + 1) as u64)
    }
}
