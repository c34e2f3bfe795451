//! How often a thing that fails again and again is worth a word.

use std::cell::Cell;

/// Counts failures in a row.
#[derive(Debug, Default)]
pub(crate) struct Repeats(Cell<u64>);

impl Repeats {
    /// It has failed. How often in a row, if that is to be told: at first, then each time that the count has doubled.
    pub(crate) fn fail(&self) -> Option<u64> {
        self.0.set(self.0.get().saturating_add(1));
        Some(self.0.get()).filter(|count| count.is_power_of_two())
    }

    /// It works. How often it had failed in a row.
    pub(crate) fn succeed(&self) -> u64 {
        self.0.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_at_first_and_each_time_that_the_count_doubles() {
        let repeats = Repeats::default();
        let told: Vec<u64> = (0..20).filter_map(|_| repeats.fail()).collect();
        assert_eq!(told, [1, 2, 4, 8, 16]);
        assert_eq!((repeats.succeed(), repeats.succeed()), (20, 0));
        assert_eq!(repeats.fail(), Some(1));
    }
}
