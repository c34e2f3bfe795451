//! Whole numbers as scalars of a state, which lie within 0 and 1: binary fractions that are exact.

/// What numbers of 32 bits are divided by.
const WORD: f64 = 4_294_967_296.0;

/// A number of 32 bits as a scalar.
pub(crate) fn of_word(word: u32) -> f64 {
    f64::from(word) / WORD
}

/// The number that a scalar is; `None` if it is none. It may be a stranger's.
pub(crate) fn word(scalar: f64) -> Option<u32> {
    whole(scalar, WORD).and_then(|number| u32::try_from(number).ok())
}

/// The whole number that a scalar is `of` so many; `None` if it is none of them.
pub(crate) fn whole(scalar: f64, of: f64) -> Option<u64> {
    let number = scalar * of;
    ((0.0..of).contains(&number) && number.fract() == 0.0).then_some(number as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back_and_nothing_else_is_one() {
        for number in [0, 1, 2_000, u32::MAX] {
            assert_eq!(word(of_word(number)), Some(number));
        }
        for bad in [1.0, -1.0, 0.5 / WORD, f64::NAN, f64::INFINITY] {
            assert_eq!(word(bad), None, "{bad}");
        }
    }
}
