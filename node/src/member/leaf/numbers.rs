//! The numbers of a part's gradient, as they came from a leaf.

use starling_collective::codec::kernel;
use starling_engine::leaf::part_gradient::PartGradient;

/// A part's mean gradient, and the figures behind it: `[trained + figures]`. They are looked at once, by whoever has read them: the carrier's
/// machine asks with all others waiting.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PartNumbers {
    numbers: Vec<f32>,
    /// The largest magnitude; infinite if a number is not finite.
    largest: f32,
}

impl PartNumbers {
    pub(crate) fn new(numbers: Vec<f32>) -> Self {
        let largest = kernel::magnitude(&numbers);
        Self { numbers, largest }
    }

    /// Little-endian, four bytes each; what is left of a last one is dropped.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Self {
        let (numbers, _) = bytes.as_chunks::<4>();
        Self::new(numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    }

    pub(crate) fn numbers(&self) -> &[f32] {
        &self.numbers
    }
}

impl PartGradient for PartNumbers {
    fn elements(&self) -> u64 {
        self.numbers.elements()
    }

    fn first_bad(&self, most: f32) -> Option<(u64, f32)> {
        if self.largest <= most { None } else { self.numbers.first_bad(most) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_the_trip_and_bad_ones_are_found() {
        let bytes: Vec<u8> = [1.5_f32, -2.0, 0.0].into_iter().flat_map(f32::to_le_bytes).collect();
        let part = PartNumbers::of_bytes(&bytes);
        assert_eq!((part.numbers(), part.elements()), (&[1.5, -2.0, 0.0][..], 3));
        assert_eq!((part.first_bad(2.0), part.first_bad(1.75)), (None, Some((1, -2.0))));
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let part = PartNumbers::new(vec![1.0, bad]);
            assert!(part.first_bad(f32::MAX).is_some_and(|(at, value)| at == 1 && !value.is_finite()), "{bad}");
        }
        assert_eq!(PartNumbers::of_bytes(&[0; 7]).elements(), 1, "what is no number is none");
    }
}
