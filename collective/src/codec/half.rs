//! Two bytes per element. The conversions have no branches, so they compile to vector instructions.

use crate::kernel::{self, EXPONENT, Each, MAGNITUDE, NonFinite, Pairs, vectorized};
use crate::sink::Sink;

pub(super) const WORD_BYTES: usize = 2;

/// 65536, which stands for what is not finite in an `f16`.
pub(super) const F16_LIMIT: u32 = 0x4780_0000;

pub(super) fn encode(from: &[f32], into: &mut [u8], to_word: impl Fn(f32) -> u16) {
    let (words, _) = into.as_chunks_mut::<WORD_BYTES>();
    let change = move |word: &mut [u8; WORD_BYTES], value: &f32| *word = to_word(*value).to_le_bytes();
    vectorized(Pairs { into: words, from, change });
}

pub(super) fn fold(
    sink: impl Sink,
    payload: &[u8],
    limit: u32,
    from_word: impl Fn(u16) -> f32,
) -> Result<(), NonFinite> {
    kernel::fold(sink, payload, limit, move |word| from_word(u16::from_le_bytes(word)))
}

pub(super) fn round(values: &mut [f32], to_word: impl Fn(f32) -> u16, from_word: impl Fn(u16) -> f32) {
    vectorized(Each { into: values, change: move |value: &mut f32| *value = from_word(to_word(*value)) });
}

/// Rounded to even; finite stays finite, and what is not finite does not become so.
#[inline(always)]
pub(super) fn to_bf16(value: f32) -> u16 {
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
pub(super) fn from_bf16(word: u16) -> f32 {
    f32::from_bits(u32::from(word) << 16)
}

/// Rounded to even, by the way of F. Giesen ("Float to half conversion", 2012) but without its branches: small values get
/// their rounding from an addition, others from an integer one.
#[inline(always)]
pub(super) fn to_f16(value: f32) -> u16 {
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

/// The value; of one that is not finite, something whose magnitude has at least the bits [`F16_LIMIT`].
#[inline(always)]
pub(super) fn from_f16(word: u16) -> f32 {
    let sign = u32::from(word & 0x8000) << 16;
    let magnitude = f32::from_bits(u32::from(word & 0x7fff) << 13);
    // Times 2^112, for the bias; exact, small numbers included.
    let value = magnitude * f32::from_bits((127 + 112) << 23);
    f32::from_bits(value.to_bits() | sign)
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;

    /// Every 251st number there is, and those around each power of two and each word.
    fn samples() -> impl Iterator<Item = f32> {
        let around = |bits: u32| [bits.wrapping_sub(1), bits, bits.wrapping_add(1)];
        let words = (0..=u16::MAX).flat_map(move |word| {
            let (bf16, f16) = (u32::from(word) << 16, from_f16(word).to_bits());
            [bf16, bf16 | 0x8000, f16, f16 | 0x1000].into_iter().flat_map(around)
        });
        (0..u32::MAX).step_by(251).chain(words).map(f32::from_bits)
    }

    #[test]
    fn every_word_is_read_as_the_reference_does() {
        for word in 0..=u16::MAX {
            let value = from_bf16(word);
            let is_bad = value.to_bits() & MAGNITUDE >= EXPONENT;
            assert_eq!(is_bad, !bf16::from_bits(word).is_finite());
            assert!(is_bad || value.to_bits() == bf16::from_bits(word).to_f32().to_bits());
            let value = from_f16(word);
            let is_bad = value.to_bits() & MAGNITUDE >= F16_LIMIT;
            assert_eq!(is_bad, !f16::from_bits(word).is_finite());
            assert!(is_bad || value.to_bits() == f16::from_bits(word).to_f32().to_bits());
        }
    }

    #[test]
    fn every_value_is_written_as_the_reference_does_but_stays_finite() {
        for value in samples() {
            let (ours, theirs) = (bf16::from_bits(to_bf16(value)), bf16::from_f32(value));
            let expected = if theirs.is_infinite() && value.is_finite() { bf16::MAX.copysign(theirs) } else { theirs };
            assert!(ours == expected || !value.is_finite(), "{value:e}");
            assert_eq!(ours.is_finite(), value.is_finite(), "{value:e}");
            assert_eq!(ours.is_sign_negative(), value.is_sign_negative());
            let (ours, theirs) = (f16::from_bits(to_f16(value)), f16::from_f32(value));
            let expected = if theirs.is_infinite() && value.is_finite() { f16::MAX.copysign(theirs) } else { theirs };
            assert!(ours == expected || !value.is_finite(), "{value:e} became {ours:e}, not {expected:e}");
            assert_eq!(ours.is_finite(), value.is_finite(), "{value:e}");
            assert_eq!(ours.is_sign_negative(), value.is_sign_negative());
        }
    }

    #[test]
    fn what_was_read_is_written_back() {
        for word in 0..=u16::MAX {
            let value = from_bf16(word);
            assert!(!value.is_finite() || to_bf16(value) == word);
            let value = from_f16(word);
            assert!(value.abs() >= 65_536.0 || value.is_nan() || to_f16(value) == word, "{word:#06x} is {value:e}");
        }
    }
}
