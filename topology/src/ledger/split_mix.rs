//! A small generator whose values never change: the only source of randomness in what a run computes.
//!
//! Libraries reserve the right to change their streams between versions; a run must not change with them, because its
//! members draw the same sample order and the same initial parameters on their own. The generator is SplitMix64 (Steele,
//! Lea, Flood: "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014, with the constants of Vigna's public
//! domain `splitmix64.c`).

/// SplitMix64. Equal seeds give equal values on every platform and in every version.
#[derive(Debug, Clone)]
pub struct SplitMix64Generator {
    state: u64,
}

impl SplitMix64Generator {
    /// A generator with the given state.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The generator for one purpose within a run, for example the sample order of one epoch.
    ///
    /// Different purposes and indices get unrelated streams: the state is the first eight bytes of
    /// blake3(purpose, 0, seed, index), little-endian.
    pub fn for_purpose(purpose: &str, seed: u64, index: u64) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(purpose.as_bytes()).update(&[0]).update(&seed.to_le_bytes()).update(&index.to_le_bytes());
        let mut state = [0; 8];
        state.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
        Self::new(u64::from_le_bytes(state))
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A uniform integer in `0..bound`, without bias (Lemire: "Fast Random Integer Generation in an Interval", 2019).
    ///
    /// # Panics
    /// If `bound` is zero.
    pub fn below(&mut self, bound: u32) -> u32 {
        assert!(bound > 0, "an interval to draw from is not empty");
        let threshold = bound.wrapping_neg() % bound;
        loop {
            let product = u64::from((self.next_u64() >> 32) as u32) * u64::from(bound);
            if product as u32 >= threshold {
                return (product >> 32) as u32;
            }
        }
    }

    /// A uniform permutation of `0..len` (Fisher-Yates, from the end).
    pub fn permutation(&mut self, len: u32) -> Vec<u32> {
        let mut order: Vec<u32> = (0..len).collect();
        for last in (1..len).rev() {
            let other = self.below(last + 1);
            order.swap(last as usize, other as usize);
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::SplitMix64Generator;

    #[test]
    fn values_match_the_published_reference() {
        // First outputs of splitmix64.c with state 1234567.
        let mut generator = SplitMix64Generator::new(1_234_567);
        let values: Vec<u64> = (0..5).map(|_| generator.next_u64()).collect();
        assert_eq!(
            values,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423,
                4_593_380_528_125_082_431,
                16_408_922_859_458_223_821
            ]
        );
    }

    #[test]
    fn below_stays_in_range_and_reaches_all_values() {
        let mut generator = SplitMix64Generator::new(7);
        for bound in [1, 2, 3, 7, 1000] {
            let mut seen = vec![false; bound as usize];
            for _ in 0..bound * 30 {
                seen[generator.below(bound) as usize] = true;
            }
            assert!(seen.iter().all(|seen| *seen), "some value below {bound} was never drawn");
        }
    }

    #[test]
    fn permutations_are_permutations_and_differ_by_index() {
        let mut first = SplitMix64Generator::for_purpose("order", 1, 0).permutation(500);
        let second = SplitMix64Generator::for_purpose("order", 1, 1).permutation(500);
        assert_ne!(first, second);
        assert_ne!(first, SplitMix64Generator::for_purpose("other", 1, 0).permutation(500));
        assert_eq!(first, SplitMix64Generator::for_purpose("order", 1, 0).permutation(500));
        first.sort_unstable();
        assert_eq!(first, (0..500).collect::<Vec<_>>());
        assert!(SplitMix64Generator::new(0).permutation(0).is_empty());
    }
}
