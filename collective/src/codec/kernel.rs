//! The loops over elements, for payloads of plain `f32`; those of shorter payloads are in [`crate::codec`].
//!
//! They are plain Rust that compiles to vector instructions, once for each level of them that a processor may have, and
//! chosen when the programme runs. No platform math, no fused multiply-add, so every machine computes the same bits.
//!
//! A payload is the elements as little-endian `f32`. What came from another peer is checked finite in the pass that
//! uses it.

use thiserror::Error;

use crate::codec::{PayloadViolation, ValueLimit};
use crate::segment::layout::ELEMENT_BYTES;
use crate::session::memory::{self, BLOCK};
use crate::session::sink::{Combine, Overwrite, Sink};

/// All exponent bits set: infinite, or not a number.
pub(crate) const EXPONENT: u32 = 0x7f80_0000;

/// All bits but the sign. As numbers, they compare like the magnitudes.
pub(crate) const MAGNITUDE: u32 = 0x7fff_ffff;

/// A received value that is infinite or not a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("element {index} of the payload is not finite (bits {bits:#010x}): did the sender's step diverge?")]
pub struct NonFiniteValue {
    /// Its position in the payload, in elements.
    pub index: usize,
    /// Its bits.
    pub bits: u32,
}

/// Adds the payload's values to `into`.
///
/// # Errors
/// [`PayloadViolation`] for the first value that is not finite, or beyond the bound; `into` is partly updated then and the operation must end.
///
/// # Panics
/// If the payload's length is not that of `into`: the caller has checked it against the layout.
pub fn accumulate(into: &mut [f32], payload: &[u8], bound: ValueLimit) -> Result<(), PayloadViolation> {
    fold(Combine(into, |mine, theirs| mine + theirs), payload, EXPONENT, bound, f32::from_le_bytes)
}

/// Adds `mine` to the payload's values, in place: the bits are those of [`accumulate`].
///
/// # Errors
/// [`PayloadViolation`] for the first value that is not finite, or beyond the bound; the payload is partly updated then and the operation must end.
///
/// # Panics
/// If the payload's length is not that of `mine`: the caller has checked it against the layout.
pub fn contribute(payload: &mut [u8], mine: &[f32], bound: ValueLimit) -> Result<(), PayloadViolation> {
    let (words, rest) = payload.as_chunks_mut::<ELEMENT_BYTES>();
    assert!(words.len() == mine.len() && rest.is_empty(), "a payload is as long as the segment it is for");
    let limit = bound.limit(EXPONENT);
    match vectorized(Contribute { words: &mut *words, mine, limit }) {
        None => Ok(()),
        Some(block) => {
            let words = words[block * BLOCK..].iter().map(|word| u32::from_le_bytes(*word));
            Err(first_bad(words, EXPONENT, limit, block * BLOCK))
        }
    }
}

/// Overwrites `into` with the payload's values.
///
/// # Errors
/// [`PayloadViolation`] for the first value that is not finite, or beyond the bound; `into` is partly updated then and the operation must end.
///
/// # Panics
/// If the payload's length is not that of `into`: the caller has checked it against the layout.
pub fn store(into: &mut [f32], payload: &[u8], bound: ValueLimit) -> Result<(), PayloadViolation> {
    fold(Overwrite::all(into), payload, EXPONENT, bound, f32::from_le_bytes)
}

/// Divides each element. A division, not a product with the reciprocal: a representable mean comes out exact.
pub fn divide(into: &mut [f32], by: f32) {
    vectorized(Each { into, change: move |value: &mut f32| *value /= by });
}

/// `into = from * by`: a contribution with its weight.
///
/// # Panics
/// If the lengths differ.
pub fn scale(into: &mut [f32], from: &[f32], by: f32) {
    assert_eq!(into.len(), from.len(), "a scaled copy is as long as its source");
    vectorized(Pairs { into, from, change: move |into: &mut f32, from: &f32| *into = from * by });
}

/// Appends the payload form of `from` to `into`.
pub fn encode(from: &[f32], into: &mut Vec<u8>) {
    let start = into.len();
    into.resize(start + from.len() * ELEMENT_BYTES, 0);
    write(from, &mut into[start..]);
}

/// Writes the payload form of `from` over `into`.
///
/// # Panics
/// If `into` is not as long as the payload.
pub fn write(from: &[f32], into: &mut [u8]) {
    let (words, rest) = into.as_chunks_mut::<ELEMENT_BYTES>();
    assert!(words.len() == from.len() && rest.is_empty(), "a payload's room is as long as the payload");
    let change = |word: &mut [u8; ELEMENT_BYTES], value: &f32| *word = value.to_le_bytes();
    vectorized(Pairs { into: words, from, change });
}

/// `into = from / by`: the means of sums, past the caches if they are many. In one pass that also checks the sums finite.
///
/// # Errors
/// [`NonFiniteValue`] for the first sum that is not finite; `into` is partly written then.
///
/// # Panics
/// If the lengths differ.
pub fn quotients(into: &mut [f32], from: &[f32], by: f32) -> Result<(), NonFiniteValue> {
    overwrite(into, from, from, EXPONENT, move |sum, _| sum / by).map_err(|bad| match bad {
        PayloadViolation::NonFinite(bad) => bad,
        PayloadViolation::Beyond { .. } | PayloadViolation::Slot { .. } | PayloadViolation::NotCanonical { .. } => {
            unreachable!("invariant: all that is finite is taken")
        }
    })
}

/// `into = from`, or `into = from + also` where there is something to add: a contribution, past the caches if it is long. In
/// one pass that also checks `from`.
///
/// # Errors
/// [`PayloadViolation`] for the first value that is not finite, or beyond the bound; `into` is partly written then.
///
/// # Panics
/// If the lengths differ.
pub fn copy(into: &mut [f32], from: &[f32], also: Option<&[f32]>, bound: ValueLimit) -> Result<(), PayloadViolation> {
    let limit = bound.limit(EXPONENT);
    match also {
        None => overwrite(into, from, from, limit, |value, _| value),
        Some(also) => overwrite(into, from, also, limit, |value, also| value + also),
    }
}

fn overwrite(
    into: &mut [f32],
    from: &[f32],
    also: &[f32],
    limit: u32,
    make: impl Fn(f32, f32) -> f32,
) -> Result<(), PayloadViolation> {
    assert!(into.len() == from.len() && from.len() == also.len(), "there is one value for each");
    let sink = Overwrite::all(into);
    match vectorized(Copy { sink, from, also, limit, make: &make }) {
        None => Ok(()),
        Some(block) => {
            let values = from[block * BLOCK..].iter().map(|value| value.to_bits());
            Err(first_bad(values, EXPONENT, limit, block * BLOCK))
        }
    }
}

/// The position of the first value that is infinite or not a number.
pub fn first_non_finite(values: &[f32]) -> Option<usize> {
    let block = vectorized(Finite(values))?;
    let values = &values[block * BLOCK..];
    values.iter().position(|value| !value.is_finite()).map(|index| block * BLOCK + index)
}

/// The largest magnitude among `values`: 0 of none, and infinite if one is infinite or not a number.
pub fn magnitude(values: &[f32]) -> f32 {
    f32::from_bits(vectorized(Magnitude(values)).min(EXPONENT))
}

/// A loop that is compiled once for each level of vector instructions. Closures won't do: only what is inlined all the
/// way is compiled for a level, and the compiler calls a large closure instead, once compiled for none.
pub(crate) trait Loop {
    type Output;

    /// Marked `#[inline(always)]`, as all that it calls, if it is not small.
    fn run(self) -> Self::Output;
}

/// Runs a loop with the best vector instructions that this processor has.
pub(crate) fn vectorized<L: Loop>(run: L) -> L::Output {
    struct Vectorized<L>(L);

    impl<L: Loop> macerator::WithSimd for Vectorized<L> {
        type Output = L::Output;

        #[inline(always)]
        fn with_simd<S: macerator::Simd>(self) -> L::Output {
            self.0.run()
        }
    }

    macerator::AutoArch::new().dispatch(Vectorized(run))
}

/// Changes each value.
pub(crate) struct Each<'a, T, F> {
    pub(crate) into: &'a mut [T],
    pub(crate) change: F,
}

impl<T, F: Fn(&mut T)> Loop for Each<'_, T, F> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for into in self.into {
            (self.change)(into);
        }
    }
}

/// Changes each value by another one.
pub(crate) struct Pairs<'a, T, F> {
    pub(crate) into: &'a mut [T],
    pub(crate) from: &'a [f32],
    pub(crate) change: F,
}

impl<T, F: Fn(&mut T, &f32)> Loop for Pairs<'_, T, F> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (into, from) in self.into.chunks_mut(BLOCK).zip(memory::blocks(self.from)) {
            for (into, from) in into.iter_mut().zip(from) {
                (self.change)(into, from);
            }
        }
    }
}

/// Hands the payload's values to `sink`, a block at a time, and looks after each block whether all of its values were
/// finite and within the bound: a branch per value would keep the loop from being vectorized.
///
/// `decode` makes a value of a word; one whose magnitude has bits of `infinite` or above stands for one that is not finite.
pub(crate) fn fold<const N: usize>(
    sink: impl Sink,
    payload: &[u8],
    infinite: u32,
    bound: ValueLimit,
    decode: impl Fn([u8; N]) -> f32,
) -> Result<(), PayloadViolation> {
    let limit = bound.limit(infinite);
    let (words, rest) = payload.as_chunks::<N>();
    assert!(words.len() == sink.missing() && rest.is_empty(), "a payload is as long as the segment it is for");
    match vectorized(Fold { sink, words, limit, decode: &decode }) {
        None => Ok(()),
        Some(block) => {
            let words = words[block * BLOCK..].iter().map(|word| decode(*word).to_bits());
            Err(first_bad(words, infinite, limit, block * BLOCK))
        }
    }
}

struct Fold<'a, const N: usize, D, S> {
    sink: S,
    words: &'a [[u8; N]],
    limit: u32,
    decode: &'a D,
}

impl<const N: usize, D: Fn([u8; N]) -> f32, S: Sink> Loop for Fold<'_, N, D, S> {
    /// The first block that has a value of the limit or above.
    type Output = Option<usize>;

    #[inline(always)]
    fn run(mut self) -> Option<usize> {
        let mut bad = None;
        for (block, words) in self.words.chunks(BLOCK).enumerate() {
            let mut largest = 0;
            self.sink.take(words.iter().map(|word| {
                let value = (self.decode)(*word);
                largest = largest.max(value.to_bits() & MAGNITUDE);
                value
            }));
            if largest >= self.limit {
                bad = Some(block);
                break;
            }
        }
        self.sink.finish();
        bad
    }
}

struct Copy<'a, F> {
    sink: Overwrite<'a>,
    from: &'a [f32],
    also: &'a [f32],
    limit: u32,
    make: &'a F,
}

impl<F: Fn(f32, f32) -> f32> Loop for Copy<'_, F> {
    /// The first block that has a value that is not finite.
    type Output = Option<usize>;

    #[inline(always)]
    fn run(mut self) -> Option<usize> {
        let mut bad = None;
        for (block, (values, also)) in memory::blocks(self.from).zip(memory::blocks(self.also)).enumerate() {
            if largest(values) >= self.limit {
                bad = Some(block);
                break;
            }
            self.sink.take(values.iter().zip(also).map(|(value, also)| (self.make)(*value, *also)));
        }
        self.sink.finish();
        bad
    }
}

struct Finite<'a>(&'a [f32]);

impl Loop for Finite<'_> {
    /// The first block that has a value that is not finite.
    type Output = Option<usize>;

    #[inline(always)]
    fn run(self) -> Option<usize> {
        memory::blocks(self.0).position(|values| largest(values) >= EXPONENT)
    }
}

struct Magnitude<'a>(&'a [f32]);

impl Loop for Magnitude<'_> {
    /// As bits.
    type Output = u32;

    #[inline(always)]
    fn run(self) -> u32 {
        memory::blocks(self.0).map(largest).max().unwrap_or_default()
    }
}

/// The largest magnitude, as bits.
#[inline(always)]
fn largest(values: &[f32]) -> u32 {
    values.iter().fold(0, |largest, value| largest.max(value.to_bits() & MAGNITUDE))
}

struct Contribute<'a> {
    words: &'a mut [[u8; ELEMENT_BYTES]],
    mine: &'a [f32],
    limit: u32,
}

impl Loop for Contribute<'_> {
    /// The first block that has a value of the limit or above. It and those behind it are as they were.
    type Output = Option<usize>;

    #[inline(always)]
    fn run(self) -> Option<usize> {
        for (block, (words, mine)) in self.words.chunks_mut(BLOCK).zip(memory::blocks(self.mine)).enumerate() {
            // Looked at before it is overwritten; the block is still in the first-level cache for the second loop.
            let mut largest = 0;
            for word in words.iter() {
                largest = largest.max(u32::from_le_bytes(*word) & MAGNITUDE);
            }
            if largest >= self.limit {
                return Some(block);
            }
            for (word, mine) in words.iter_mut().zip(mine) {
                *word = (mine + f32::from_le_bytes(*word)).to_le_bytes();
            }
        }
        None
    }
}

/// The first value of the limit or above, which is not finite if it is of `infinite` or above.
#[cold]
#[inline(never)]
pub(crate) fn first_bad(
    words: impl Iterator<Item = u32>,
    infinite: u32,
    limit: u32,
    before: usize,
) -> PayloadViolation {
    let found = (before..).zip(words).find(|(_, bits)| bits & MAGNITUDE >= limit);
    let (index, bits) = found.expect("invariant: the block has a value of the limit or above");
    if bits & MAGNITUDE >= infinite {
        NonFiniteValue { index, bits: bits | EXPONENT }.into()
    } else {
        PayloadViolation::Beyond { index, bits, most: limit - 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(values: &[f32]) -> Vec<u8> {
        let mut payload = Vec::new();
        encode(values, &mut payload);
        payload
    }

    /// Lengths around a block's edges.
    const LENGTHS: [usize; 8] = [0, 1, 7, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 2 * BLOCK + 3];

    #[test]
    fn a_payload_is_little_endian_and_is_appended() {
        let mut payload = vec![9];
        encode(&[1.0, -2.5], &mut payload);
        assert_eq!(payload, [9, 0, 0, 0x80, 0x3f, 0, 0, 0x20, 0xc0]);
    }

    #[test]
    fn accumulate_adds_and_store_overwrites() {
        for length in LENGTHS {
            let theirs: Vec<f32> = (0..length).map(|index| index as f32 * 0.5).collect();
            let mine: Vec<f32> = (0..length).map(|index| 3.0 - index as f32).collect();
            let mut sum = mine.clone();
            accumulate(&mut sum, &encoded(&theirs), ValueLimit::FINITE).expect("all values are finite");
            assert!(sum.iter().zip(mine.iter().zip(&theirs)).all(|(sum, (mine, theirs))| *sum == mine + theirs));
            let mut payload = encoded(&theirs);
            contribute(&mut payload, &mine, ValueLimit::FINITE).expect("all values are finite");
            assert_eq!(payload, encoded(&sum), "the same bits");
            let mut copy = mine;
            store(&mut copy, &encoded(&theirs), ValueLimit::FINITE).expect("all values are finite");
            assert_eq!(copy, theirs);
        }
    }

    #[test]
    fn bits_survive_a_store() {
        let odd = [-0.0, f32::MIN_POSITIVE / 8.0, f32::MAX, f32::MIN, 1.0 + f32::EPSILON];
        let mut copy = [0.0; 5];
        store(&mut copy, &encoded(&odd), ValueLimit::FINITE).expect("all values are finite");
        assert_eq!(copy.map(f32::to_bits), odd.map(f32::to_bits));
    }

    #[test]
    fn the_first_value_that_is_not_finite_is_named() {
        for length in LENGTHS {
            for index in [0, 1, length / 2, length.saturating_sub(1)].into_iter().filter(|index| *index < length) {
                for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                    let mut values = vec![1.0; length];
                    values[length - 1] = f32::INFINITY;
                    values[index] = bad;
                    let error = NonFiniteValue { index, bits: bad.to_bits() };
                    let received = Err(error.into());
                    assert_eq!(accumulate(&mut vec![0.0; length], &encoded(&values), ValueLimit::new(1.0)), received);
                    assert_eq!(store(&mut vec![0.0; length], &encoded(&values), ValueLimit::FINITE), received);
                    assert_eq!(contribute(&mut encoded(&values), &vec![0.0; length], ValueLimit::FINITE), received);
                    assert_eq!(quotients(&mut vec![0.0; length], &values, 2.0), Err(error));
                    let also = Some(&vec![1.0; length][..]);
                    assert_eq!(copy(&mut vec![0.0; length], &values, also, ValueLimit::FINITE), received);
                    assert_eq!(first_non_finite(&values), Some(index));
                    assert_eq!(magnitude(&values), f32::INFINITY);
                    values[length - 1] = 1.0;
                    values[index] = -2.5;
                    assert_eq!(magnitude(&values), 2.5);
                }
            }
            assert_eq!(first_non_finite(&vec![f32::MAX; length]), None);
            assert_eq!(magnitude(&vec![0.0; length]), 0.0);
        }
    }

    #[test]
    fn divide_and_scale() {
        let mut values = [3.0, -9.0, 0.0];
        let mut means = [0.0; 3];
        quotients(&mut means, &values, 3.0).expect("all values are finite");
        divide(&mut values, 3.0);
        assert_eq!((values, means), ([1.0, -3.0, 0.0], [1.0, -3.0, 0.0]));
        copy(&mut means, &[4.0, 5.0, 6.0], None, ValueLimit::FINITE).expect("all values are finite");
        assert_eq!(means, [4.0, 5.0, 6.0]);
        copy(&mut means, &[4.0, 5.0, 6.0], Some(&values), ValueLimit::FINITE).expect("all values are finite");
        assert_eq!(means, [5.0, 2.0, 6.0]);
        let mut scaled = [0.0; 3];
        scale(&mut scaled, &values, 4.0);
        assert_eq!(scaled, [4.0, -12.0, 0.0]);
    }

    #[test]
    #[should_panic(expected = "a payload is as long as the segment")]
    fn a_short_payload_is_the_callers_fault() {
        let _ = store(&mut [0.0; 2], &[0; 7], ValueLimit::FINITE);
    }
}
