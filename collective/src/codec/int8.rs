//! One byte per element, and a scale for each block.
//!
//! ```text
//!   | scale, f32 | 256 signed bytes | scale | 256 signed bytes | ... | scale | the rest |
//! ```
//!
//! A value is `byte * scale`. The scale is the block's largest magnitude over 127, cut to 16 bits of precision: so the
//! product of scale and byte is exact, the largest byte is always 127, and a block that was read is written back as the same
//! bytes. A block of zeros, or of values too small for a scale, has the scale 0.

use crate::codec::kernel::{EXPONENT, Loop, MAGNITUDE, NonFiniteValue, vectorized};
use crate::codec::{PayloadViolation, ValueLimit};
use crate::session::memory;
use crate::session::sink::Sink;

/// Elements that share a scale.
const BLOCK: usize = 256;
const _: () = assert!(BLOCK == memory::BLOCK, "loops work on one block at a time");

const SCALE_BYTES: usize = size_of::<f32>();

/// The largest byte.
const MOST: f32 = 127.0;

/// The bits of a scale that are zero.
const CUT: u32 = 0xff;

/// Added to a number below 2^22, it leaves that number, rounded to even, in the low bits.
const ROUNDER: f32 = 12_582_912.0;

pub(super) fn payload_bytes(elements: usize) -> usize {
    elements + elements.div_ceil(BLOCK) * SCALE_BYTES
}

/// Hands what is lost to `lost`.
pub(super) fn encode(from: &[f32], into: &mut [u8], lost: impl Sink) {
    vectorized(Encode { from, into, lost });
}

/// Hands what is lost to `lost`.
pub(super) fn round(values: &mut [f32], lost: impl Sink) {
    vectorized(Round { values, lost });
}

/// Adds `mine` to the payload's values, in place, and hands what is lost to `lost`.
pub(super) fn contribute(
    payload: &mut [u8],
    mine: &[f32],
    bound: ValueLimit,
    lost: impl Sink,
) -> Result<(), PayloadViolation> {
    vectorized(Contribute { payload, mine, limit: bound.limit(EXPONENT), lost })
}

/// Hands the payload's values to `sink`.
pub(super) fn fold(sink: impl Sink, payload: &[u8], bound: ValueLimit) -> Result<(), PayloadViolation> {
    assert_eq!(payload.len(), payload_bytes(sink.missing()), "a payload is as long as the segment it is for");
    vectorized(Fold { sink, payload, limit: bound.limit(EXPONENT) })
}

struct Encode<'a, S> {
    from: &'a [f32],
    into: &'a mut [u8],
    lost: S,
}

impl<S: Sink> Loop for Encode<'_, S> {
    type Output = ();

    #[inline(always)]
    fn run(mut self) {
        for (values, block) in memory::blocks(self.from).zip(self.into.chunks_mut(SCALE_BYTES + BLOCK)) {
            write(values, block, &mut self.lost);
        }
        self.lost.finish();
    }
}

struct Round<'a, S> {
    values: &'a mut [f32],
    lost: S,
}

impl<S: Sink> Loop for Round<'_, S> {
    type Output = ();

    #[inline(always)]
    fn run(mut self) {
        for values in self.values.chunks_mut(BLOCK) {
            let scale = scale_of(values);
            let inverse = inverse(scale);
            self.lost.take(values.iter_mut().map(|value| {
                let exact = *value;
                *value = dequantize(quantize(exact, inverse), scale);
                exact - *value
            }));
        }
        self.lost.finish();
    }
}

struct Contribute<'a, S> {
    payload: &'a mut [u8],
    mine: &'a [f32],
    limit: u32,
    lost: S,
}

impl<S: Sink> Loop for Contribute<'_, S> {
    type Output = Result<(), PayloadViolation>;

    #[inline(always)]
    fn run(mut self) -> Result<(), PayloadViolation> {
        let mut sums = [0.0; BLOCK];
        let blocks = self.payload.chunks_mut(SCALE_BYTES + BLOCK).zip(memory::blocks(self.mine));
        for (index, (block, mine)) in blocks.enumerate() {
            let sums = &mut sums[..mine.len()];
            let (scale, bytes) = checked(block, index, self.limit)?;
            for ((sum, mine), byte) in sums.iter_mut().zip(mine).zip(bytes) {
                *sum = mine + dequantize(*byte, scale);
            }
            write(sums, block, &mut self.lost);
        }
        self.lost.finish();
        Ok(())
    }
}

/// Writes one block, and hands what is lost to `lost`.
#[inline(always)]
fn write(values: &[f32], block: &mut [u8], lost: &mut impl Sink) {
    let (head, bytes) = block.split_at_mut(SCALE_BYTES);
    let scale = scale_of(values);
    head.copy_from_slice(&scale.to_le_bytes());
    let inverse = inverse(scale);
    // Apart from the loop that reads them: bytes fill vectors of their own.
    for (byte, value) in bytes.iter_mut().zip(values) {
        *byte = quantize(*value, inverse);
    }
    lost.take(values.iter().zip(&*bytes).map(|(value, byte)| value - dequantize(*byte, scale)));
}

struct Fold<'a, S> {
    sink: S,
    payload: &'a [u8],
    limit: u32,
}

impl<S: Sink> Loop for Fold<'_, S> {
    type Output = Result<(), PayloadViolation>;

    #[inline(always)]
    fn run(mut self) -> Result<(), PayloadViolation> {
        let mut read = Ok(());
        for (index, block) in self.payload.chunks(SCALE_BYTES + BLOCK).enumerate() {
            match checked(block, index, self.limit) {
                Ok((scale, bytes)) => self.sink.take(bytes.iter().map(|byte| dequantize(*byte, scale))),
                Err(bad) => {
                    read = Err(bad);
                    break;
                }
            }
        }
        self.sink.finish();
        read
    }
}

/// The scale and bytes of a block, as [`encode`] writes them.
#[inline(always)]
fn checked(block: &[u8], index: usize, limit: u32) -> Result<(f32, &[u8]), PayloadViolation> {
    let (head, bytes) = block.split_first_chunk().expect("invariant: a block begins with its scale");
    let scale = checked_scale(*head, index, limit)?;
    // Apart from the loop that uses them: bytes fill vectors of their own.
    let mut largest: u8 = 0;
    for byte in bytes {
        largest = largest.max((*byte as i8).unsigned_abs());
    }
    let is_canonical = largest == if scale == 0.0 { 0 } else { MOST as u8 };
    if is_canonical { Ok((scale, bytes)) } else { Err(PayloadViolation::NotCanonical { block: index }) }
}

/// The scale of a block; infinite if a value is not finite, so that a receiver finds that.
#[inline(always)]
fn scale_of(values: &[f32]) -> f32 {
    // As integers: magnitudes compare like their bits, and what is not finite is largest.
    let mut largest = 0;
    for value in values {
        largest = largest.max(value.to_bits() & MAGNITUDE);
    }
    if largest >= EXPONENT {
        return f32::INFINITY;
    }
    let scale = f32::from_bits((f32::from_bits(largest) / MOST).to_bits() & !CUT);
    if scale < f32::MIN_POSITIVE { 0.0 } else { scale }
}

#[inline(always)]
fn inverse(scale: f32) -> f32 {
    if scale > 0.0 { 1.0 / scale } else { 0.0 }
}

#[inline(always)]
fn quantize(value: f32, inverse: f32) -> u8 {
    (value * inverse + ROUNDER).to_bits() as u8
}

#[inline(always)]
fn dequantize(byte: u8, scale: f32) -> f32 {
    f32::from(byte as i8) * scale
}

/// A scale as [`scale_of`] makes it, of values below the limit.
#[inline(always)]
fn checked_scale(bytes: [u8; SCALE_BYTES], block: usize, limit: u32) -> Result<f32, PayloadViolation> {
    let bits = u32::from_le_bytes(bytes);
    let scale = f32::from_bits(bits);
    if bits & EXPONENT == EXPONENT || !(scale * MOST).is_finite() {
        return Err(NonFiniteValue { index: block * BLOCK, bits }.into());
    }
    let largest = scale * MOST;
    if largest.to_bits() & MAGNITUDE >= limit {
        return Err(PayloadViolation::Beyond { index: block * BLOCK, bits: largest.to_bits(), most: limit - 1 });
    }
    let is_canonical = bits == 0 || (scale >= f32::MIN_POSITIVE && bits & CUT == 0);
    if is_canonical { Ok(scale) } else { Err(PayloadViolation::NotCanonical { block }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::sink::{Nowhere, Overwrite};

    fn encoded(values: &[f32]) -> Vec<u8> {
        let mut payload = vec![0; payload_bytes(values.len())];
        encode(values, &mut payload, Nowhere(values.len()));
        payload
    }

    fn decoded(payload: &[u8], elements: usize) -> Result<Vec<f32>, PayloadViolation> {
        let mut values = vec![0.0; elements];
        fold(Overwrite::all(&mut values), payload, ValueLimit::FINITE).map(|()| values)
    }

    /// Blocks of all sizes of values, ends of the range included.
    fn samples() -> impl Iterator<Item = Vec<f32>> {
        let wave = |index: usize| ((index * 7_919 % 1_009) as f32 - 504.0) / 504.0;
        let scales = [1.0, 1e-30, 3.3e-7, 1e30, f32::MAX, 127.0, 1.0 / 3.0, 2e-36, 1e-38, 1e-45, 0.0];
        let lengths = [1, 2, 255, 256, 257, 700];
        scales.into_iter().flat_map(move |scale| {
            lengths.map(move |length| (0..length).map(|index| wave(index + length) * scale).collect())
        })
    }

    #[test]
    fn values_come_back_within_half_a_step() {
        for values in samples() {
            let back = decoded(&encoded(&values), values.len()).expect("our own form");
            for (values, back) in values.chunks(BLOCK).zip(back.chunks(BLOCK)) {
                let largest = values.iter().fold(0f32, |largest, value| largest.max(value.abs()));
                // Where a scale would not be a normal number, nothing is left.
                let step = f64::from(largest).max(127.5 * f64::from(f32::MIN_POSITIVE)) / 126.9;
                for (value, back) in values.iter().zip(back) {
                    let most = if scale_of(values) == 0.0 { step * 128.0 } else { step * 0.501 };
                    assert!((f64::from(*value) - f64::from(*back)).abs() <= most, "{value:e} became {back:e}");
                }
            }
        }
    }

    #[test]
    fn what_was_read_is_written_back_and_is_what_rounding_gives() {
        for values in samples() {
            let payload = encoded(&values);
            let back = decoded(&payload, values.len()).expect("our own form");
            assert_eq!(encoded(&back), payload);
            let mut rounded = values.clone();
            round(&mut rounded, Nowhere(values.len()));
            assert!(rounded.iter().map(|value| value.to_bits()).eq(back.iter().map(|value| value.to_bits())));
        }
    }

    #[test]
    fn what_is_not_finite_is_found_by_the_receiver() {
        for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut values = vec![1.0; 600];
            values[300] = bad;
            let bits = f32::INFINITY.to_bits();
            assert_eq!(decoded(&encoded(&values), 600), Err(NonFiniteValue { index: 256, bits }.into()));
        }
    }

    #[test]
    fn blocks_that_we_would_not_write_are_refused() {
        // The second block's last two values are written as 127.
        let good = encoded(&(0..300).map(|index| index as f32).collect::<Vec<f32>>());
        assert!(decoded(&good, 300).is_ok());
        let with = |changes: &[(usize, u8)]| {
            let mut payload = good.clone();
            changes.iter().for_each(|(at, byte)| payload[*at] = *byte);
            decoded(&payload, 300)
        };
        // The second block begins at byte 260: its scale, then 44 bytes.
        assert_eq!(with(&[(260, 1)]), Err(PayloadViolation::NotCanonical { block: 1 }), "a scale too precise");
        assert_eq!(with(&[(263, 0x80)]), Err(PayloadViolation::NotCanonical { block: 1 }), "a negative scale");
        assert_eq!(with(&[(264, 0x80)]), Err(PayloadViolation::NotCanonical { block: 1 }), "a byte of -128");
        assert_eq!(with(&[(306, 126), (307, 126)]), Err(PayloadViolation::NotCanonical { block: 1 }), "no byte of 127");
        let zero = [(260, 0), (261, 0), (262, 0), (263, 0)];
        assert_eq!(with(&zero), Err(PayloadViolation::NotCanonical { block: 1 }), "bytes without a scale");
        let huge = [(260, 0), (261, 0xff), (262, 0x7f), (263, 0x7f)];
        assert!(matches!(with(&huge), Err(PayloadViolation::NonFinite(_))), "products that are not finite");
    }
}
