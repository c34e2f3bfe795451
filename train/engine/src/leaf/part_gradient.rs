//! What a carrier has to know of a gradient that came from a leaf.

/// A part's gradient: the mean over its samples, and the figures behind it.
pub trait PartGradient {
    /// How many numbers it has.
    fn elements(&self) -> u64;

    /// The first number that is not finite or beyond `most`, above or below zero, with its place.
    fn first_bad(&self, most: f32) -> Option<(u64, f32)>;
}

impl PartGradient for Vec<f32> {
    fn elements(&self) -> u64 {
        u64::try_from(self.len()).unwrap_or(u64::MAX)
    }

    fn first_bad(&self, most: f32) -> Option<(u64, f32)> {
        // Not a number is at most nothing.
        let bad = (0..).zip(self).find(|(_, value)| value.is_nan() || value.abs() > most);
        bad.map(|(at, value)| (at, *value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_no_contribution_may_have_are_found() {
        let gradient = |value| vec![1.0, -3.0, value, 2.0];
        assert_eq!(gradient(3.0).first_bad(3.0), None);
        assert_eq!(gradient(-3.5).first_bad(3.0), Some((2, -3.5)));
        assert_eq!(gradient(f32::INFINITY).first_bad(f32::MAX), Some((2, f32::INFINITY)));
        assert!(gradient(f32::NAN).first_bad(f32::INFINITY).is_some_and(|(at, _)| at == 2));
    }
}
