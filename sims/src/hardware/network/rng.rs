//! The only source of chance.

use std::time::Duration;

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014): one word of state, so a
/// seed is all there is to replay.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// A generator that `seed` determines.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A generator of its own, so that what one part draws does not shift what another one draws.
    pub fn fork(&mut self) -> Self {
        Self(self.bits())
    }

    /// 64 uniform bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `low..=high`; the bias of the remainder does not matter for spans this small.
    ///
    /// # Panics
    /// If `low > high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high, "an empty range");
        let span = high - low;
        if span == u64::MAX { self.bits() } else { low + self.bits() % (span + 1) }
    }

    /// True once in `odds` times.
    pub fn one_in(&mut self, odds: u64) -> bool {
        self.between(1, odds) == 1
    }

    /// A duration in `low..=high` microseconds.
    pub fn micros(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_micros(self.between(low, high))
    }

    /// A duration in `low..=high` microseconds, each order of magnitude as likely as the others.
    ///
    /// # Panics
    /// If `low` is zero, or greater than `high`.
    pub fn spread(&mut self, low: u64, high: u64) -> Duration {
        assert!(0 < low && low <= high, "an empty range");
        let doublings = u64::from((high / low).ilog2());
        let least = low << self.between(0, doublings);
        self.micros(least, least.saturating_mul(2).min(high))
    }

    /// One of `from`, or `None` if it is empty.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        let last = u64::try_from(from.len()).ok()?.checked_sub(1)?;
        usize::try_from(self.between(0, last)).ok().and_then(|index| from.get(index)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_the_published_one() {
        let mut rng = Rng::new(1_234_567);
        let drawn = [rng.bits(), rng.bits(), rng.bits()];
        assert_eq!(drawn, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn numbers_stay_between_their_bounds_and_reach_them() {
        let mut rng = Rng::new(1);
        let drawn: Vec<u64> = (0..200).map(|_| rng.between(3, 6)).collect();
        assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&3), Some(&6)));
        assert_eq!(rng.pick::<u8>(&[]), None);
        let spread: Vec<Duration> = (0..200).map(|_| rng.spread(1_000, 5_000_000)).collect();
        assert!(spread.iter().all(|drawn| (1_000..=5_000_000).contains(&drawn.as_micros())));
        assert!(spread.iter().any(|drawn| drawn.as_micros() < 4_000));
        assert!(spread.iter().any(|drawn| drawn.as_micros() > 1_000_000));
    }
}
