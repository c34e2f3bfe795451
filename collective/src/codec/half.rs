//! Two bytes per element. The conversions have no branches, so they compile to vector instructions.

use std::marker::PhantomData;

use crate::codec::kernel::{self, EXPONENT, Loop, MAGNITUDE, vectorized};
use crate::codec::{PayloadViolation, ValueLimit};
use crate::session::memory::{self, BLOCK};
use crate::session::sink::Sink;

pub(super) const WORD_BYTES: usize = 2;

/// A way to write a value in two bytes.
pub(super) trait HalfFormat {
    /// What was read stands for something that is not finite if its magnitude has at least these bits.
    const LIMIT: u32;

    /// Rounded to even; finite stays finite, and what is not finite does not become so.
    fn to_word(value: f32) -> u16;

    fn from_word(word: u16) -> f32;
}

/// The upper half of an `f32`.
pub(super) struct Bf16;

/// IEEE 754 binary16.
pub(super) struct F16;

/// Hands what is lost to `lost`.
pub(super) fn encode<F: HalfFormat>(from: &[f32], into: &mut [u8], lost: impl Sink) {
    let (words, _) = into.as_chunks_mut();
    vectorized(Encode { from, words, lost, form: PhantomData::<F> });
}

pub(super) fn fold<F: HalfFormat>(sink: impl Sink, payload: &[u8], bound: ValueLimit) -> Result<(), PayloadViolation> {
    kernel::fold(sink, payload, F::LIMIT, bound, |word| F::from_word(u16::from_le_bytes(word)))
}

/// Hands what is lost to `lost`.
pub(super) fn round<F: HalfFormat>(values: &mut [f32], lost: impl Sink) {
    vectorized(Round { values, lost, form: PhantomData::<F> });
}

/// Adds `mine` to the payload's values, in place, and hands what is lost to `lost`.
pub(super) fn contribute<F: HalfFormat>(
    payload: &mut [u8],
    mine: &[f32],
    bound: ValueLimit,
    lost: impl Sink,
) -> Result<(), PayloadViolation> {
    let (words, rest) = payload.as_chunks_mut();
    assert!(words.len() == mine.len() && rest.is_empty(), "a payload is as long as the segment it is for");
    let limit = bound.limit(F::LIMIT);
    match vectorized(Contribute { words: &mut *words, mine, limit, lost, form: PhantomData::<F> }) {
        None => Ok(()),
        Some(block) => {
            let values = words[block * BLOCK..].iter().map(|word| F::from_word(u16::from_le_bytes(*word)).to_bits());
            Err(kernel::first_bad(values, F::LIMIT, limit, block * BLOCK))
        }
    }
}

struct Encode<'a, S, F> {
    from: &'a [f32],
    words: &'a mut [[u8; WORD_BYTES]],
    lost: S,
    form: PhantomData<F>,
}

impl<S: Sink, F: HalfFormat> Loop for Encode<'_, S, F> {
    type Output = ();

    #[inline(always)]
    fn run(mut self) {
        for (values, words) in memory::blocks(self.from).zip(self.words.chunks_mut(BLOCK)) {
            write::<F>(values, words, &mut self.lost);
        }
        self.lost.finish();
    }
}

struct Round<'a, S, F> {
    values: &'a mut [f32],
    lost: S,
    form: PhantomData<F>,
}

impl<S: Sink, F: HalfFormat> Loop for Round<'_, S, F> {
    type Output = ();

    #[inline(always)]
    fn run(mut self) {
        for values in self.values.chunks_mut(BLOCK) {
            self.lost.take(values.iter_mut().map(|value| {
                let exact = *value;
                *value = F::from_word(F::to_word(exact));
                exact - *value
            }));
        }
        self.lost.finish();
    }
}

struct Contribute<'a, S, F> {
    words: &'a mut [[u8; WORD_BYTES]],
    mine: &'a [f32],
    limit: u32,
    lost: S,
    form: PhantomData<F>,
}

impl<S: Sink, F: HalfFormat> Loop for Contribute<'_, S, F> {
    /// The first block that has a value of the limit or above. It and those behind it are as they were.
    type Output = Option<usize>;

    #[inline(always)]
    fn run(mut self) -> Option<usize> {
        let mut sums = [0.0; BLOCK];
        for (block, (words, mine)) in self.words.chunks_mut(BLOCK).zip(memory::blocks(self.mine)).enumerate() {
            let sums = &mut sums[..mine.len()];
            let mut largest = 0;
            for ((sum, word), mine) in sums.iter_mut().zip(&*words).zip(mine) {
                let theirs = F::from_word(u16::from_le_bytes(*word));
                largest = largest.max(theirs.to_bits() & MAGNITUDE);
                *sum = mine + theirs;
            }
            if largest >= self.limit {
                return Some(block);
            }
            write::<F>(sums, words, &mut self.lost);
        }
        self.lost.finish();
        None
    }
}

/// Writes one block, and hands what is lost to `lost`.
#[inline(always)]
fn write<F: HalfFormat>(values: &[f32], words: &mut [[u8; WORD_BYTES]], lost: &mut impl Sink) {
    lost.take(words.iter_mut().zip(values).map(|(into, value)| {
        let word = F::to_word(*value);
        *into = word.to_le_bytes();
        value - F::from_word(word)
    }));
}

impl HalfFormat for Bf16 {
    const LIMIT: u32 = EXPONENT;

    #[inline(always)]
    fn to_word(value: f32) -> u16 {
        let bits = value.to_bits();
        let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
        let sign = bits >> 16 & 0x8000;
        let largest = sign | 0x7f7f;
        let overflows = rounded & 0x7fff >= 0x7f80;
        let finite = if overflows { largest } else { rounded };
        let word = if bits & EXPONENT == EXPONENT { sign | 0x7f80 } else { finite };
        word as u16
    }

    #[inline(always)]
    fn from_word(word: u16) -> f32 {
        f32::from_bits(u32::from(word) << 16)
    }
}

impl HalfFormat for F16 {
    /// 65536.
    const LIMIT: u32 = 0x4780_0000;

    /// By the way of F. Giesen ("Float to half conversion", 2012) but without its branches: small values get their rounding
    /// from an addition, others from an integer one.
    #[inline(always)]
    fn to_word(value: f32) -> u16 {
        let magnitude = value.to_bits() & MAGNITUDE;
        let sign = value.to_bits() >> 16 & 0x8000;
        // The exponent's bias changes by 112; 13 bits of the fraction go.
        let odd = magnitude >> 13 & 1;
        let normal = magnitude.wrapping_sub(112 << 23).wrapping_add(0xfff + odd) >> 13;
        // One unit of a half's smallest numbers is the last place of 0.5.
        let small = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
        let word = if magnitude < 113 << 23 { small } else { normal };
        // 65520 and above would round to infinity.
        let word = if magnitude >= 0x477f_f000 { 0x7bff } else { word };
        let word = if magnitude >= EXPONENT { 0x7c00 } else { word };
        (sign | word) as u16
    }

    /// The value; of one that is not finite, something whose magnitude has at least the bits of the limit.
    #[inline(always)]
    fn from_word(word: u16) -> f32 {
        let sign = u32::from(word & 0x8000) << 16;
        let magnitude = f32::from_bits(u32::from(word & 0x7fff) << 13);
        // Times 2^112, for the bias; exact, small numbers included.
        let value = magnitude * f32::from_bits((127 + 112) << 23);
        f32::from_bits(value.to_bits() | sign)
    }
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;

    /// Every 251st number there is, and those around each power of two and each word.
    fn samples() -> impl Iterator<Item = f32> {
        let around = |bits: u32| [bits.wrapping_sub(1), bits, bits.wrapping_add(1)];
        let words = (0..=u16::MAX).flat_map(move |word| {
            let (bf16, f16) = (u32::from(word) << 16, F16::from_word(word).to_bits());
            [bf16, bf16 | 0x8000, f16, f16 | 0x1000].into_iter().flat_map(around)
        });
        (0..u32::MAX).step_by(251).chain(words).map(f32::from_bits)
    }

    #[test]
    fn every_word_is_read_as_the_reference_does() {
        for word in 0..=u16::MAX {
            let value = Bf16::from_word(word);
            let is_bad = value.to_bits() & MAGNITUDE >= EXPONENT;
            assert_eq!(is_bad, !bf16::from_bits(word).is_finite());
            assert!(is_bad || value.to_bits() == bf16::from_bits(word).to_f32().to_bits());
            let value = F16::from_word(word);
            let is_bad = value.to_bits() & MAGNITUDE >= F16::LIMIT;
            assert_eq!(is_bad, !f16::from_bits(word).is_finite());
            assert!(is_bad || value.to_bits() == f16::from_bits(word).to_f32().to_bits());
        }
    }

    #[test]
    fn every_value_is_written_as_the_reference_does_but_stays_finite() {
        for value in samples() {
            let (ours, theirs) = (bf16::from_bits(Bf16::to_word(value)), bf16::from_f32(value));
            let expected = if theirs.is_infinite() && value.is_finite() { bf16::MAX.copysign(theirs) } else { theirs };
            assert!(ours == expected || !value.is_finite(), "{value:e}");
            assert_eq!(ours.is_finite(), value.is_finite(), "{value:e}");
            assert_eq!(ours.is_sign_negative(), value.is_sign_negative());
            let (ours, theirs) = (f16::from_bits(F16::to_word(value)), f16::from_f32(value));
            let expected = if theirs.is_infinite() && value.is_finite() { f16::MAX.copysign(theirs) } else { theirs };
            assert!(ours == expected || !value.is_finite(), "{value:e} became {ours:e}, not {expected:e}");
            assert_eq!(ours.is_finite(), value.is_finite(), "{value:e}");
            assert_eq!(ours.is_sign_negative(), value.is_sign_negative());
        }
    }

    #[test]
    fn what_was_read_is_written_back() {
        for word in 0..=u16::MAX {
            let value = Bf16::from_word(word);
            assert!(!value.is_finite() || Bf16::to_word(value) == word);
            let value = F16::from_word(word);
            assert!(
                value.abs() >= 65_536.0 || value.is_nan() || F16::to_word(value) == word,
                "{word:#06x} is {value:e}"
            );
        }
    }
}
