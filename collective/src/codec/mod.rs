//! How values travel: as they are, or shortened.
//!
//! Whatever the codec, all members end with the same bits. A chunk's owner keeps what the others will read of its result
//! ([`Codec::round`]), and what has been read encodes to the very bytes it was read from: `encode(decode(bytes)) == bytes`
//! for all bytes that are accepted. So a result may be passed on from the buffer, and a rank cannot tell, by what it holds,
//! whether it was the owner.

pub mod feedback;
mod half;
mod int8;
pub mod kernel;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use starling_topology::Rank;
use thiserror::Error;

use crate::codec::kernel::{EXPONENT, NonFiniteValue};
use crate::segment::layout::ELEMENT_BYTES;
use crate::session::sink::{Combine, Nowhere, Overwrite, Sink};

/// How the elements of a segment become a payload. All members of a view use the same one for an operation. As text:
/// `f32`, `bf16`, `f16` or `int8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Codec {
    /// Little-endian `f32`, 4 bytes. Loses nothing.
    #[default]
    F32,
    /// The upper half of an `f32`, rounded to even, 2 bytes: 8 bits of precision, the whole range. What would round to
    /// infinity becomes the largest finite value.
    Bf16,
    /// IEEE 754 binary16, rounded to even, 2 bytes: 11 bits of precision from 6e-5 to 65504. What is larger becomes 65504,
    /// so sums of weighted gradients rather take [`Self::Bf16`].
    F16,
    /// One signed byte, with a scale for each block of 256 elements, 1.016 bytes: the error is at most 1/253 of the block's
    /// largest value.
    Int8,
}

/// A text that is not a codec.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{text}` is not a codec; write f32, bf16, f16 or int8")]
pub struct CodecError {
    /// The text.
    pub text: String,
}

/// A payload that no correct peer sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum PayloadViolation {
    /// A value is infinite or not a number.
    #[error(transparent)]
    NonFinite(#[from] NonFiniteValue),
    /// A value is finite, but larger than all who contributed to it may have made it together.
    #[error(
        "element {index} of the payload is {:e}, where at most {:e} can come together in this run",
        f32::from_bits(*bits), f32::from_bits(*most)
    )]
    Beyond {
        /// Its position in the payload, in elements; with a codec that scales blocks, its block's first.
        index: usize,
        /// The value's bits.
        bits: u32,
        /// Those of the largest that it may be.
        most: u32,
    },
    /// A value stands for what a rank says of itself, and it has not said that.
    #[error(
        "element {index} of the payload is {:e}, and belongs to rank {}: it can't have said that here",
        f32::from_bits(*bits), rank.0
    )]
    Slot {
        /// Its position in the payload, in elements.
        index: usize,
        /// The value's bits.
        bits: u32,
        /// Whose it is.
        rank: Rank,
    },
    /// The values are finite, but this is not how the codec writes them: passed on, they would change.
    #[error("block {block} of the payload is not in the form that its codec writes: is it another version?")]
    NotCanonical {
        /// The block of elements, counted from 0.
        block: usize,
    },
}

/// The largest magnitude that values may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValueLimit(u32);

impl ValueLimit {
    /// Every finite value.
    pub const FINITE: Self = Self(EXPONENT);

    /// Up to `most`, and every finite value if that is more.
    pub fn new(most: f64) -> Self {
        // As bits, magnitudes compare like integers.
        Self(((most as f32).to_bits() & kernel::MAGNITUDE).saturating_add(1).min(EXPONENT))
    }

    /// The first bits that are refused where those from `infinite` on stand for what is not finite.
    pub(crate) fn limit(self, infinite: u32) -> u32 {
        self.0.min(infinite)
    }
}

/// A codec, and how large the values may be that are read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Within {
    codec: Codec,
    bound: ValueLimit,
}

impl Within {
    /// Adds `mine` to the payload's values, in place: the bytes are those of [`Self::accumulate`] and then
    /// [`Codec::encode`]. Hands what is lost to `lost`.
    ///
    /// # Errors
    /// As [`Codec::accumulate`]; the payload is partly updated then.
    ///
    /// # Panics
    /// As [`Codec::accumulate`].
    pub(crate) fn contribute(self, payload: &mut [u8], mine: &[f32], lost: impl Sink) -> Result<(), PayloadViolation> {
        let Self { codec, bound } = self;
        assert_eq!(payload.len(), codec.payload_bytes(mine.len()), "a payload is as long as the segment it is for");
        match codec {
            Codec::F32 => kernel::contribute(payload, mine, bound),
            Codec::Bf16 => half::contribute::<half::Bf16>(payload, mine, bound, lost),
            Codec::F16 => half::contribute::<half::F16>(payload, mine, bound, lost),
            Codec::Int8 => int8::contribute(payload, mine, bound, lost),
        }
    }

    /// As [`Codec::is_lossy`].
    pub(crate) fn is_lossy(self) -> bool {
        self.codec.is_lossy()
    }

    /// As [`Codec::payload_bytes`].
    pub(crate) fn payload_bytes(self, elements: usize) -> usize {
        self.codec.payload_bytes(elements)
    }

    /// As [`Codec::accumulate`].
    pub(crate) fn accumulate(self, into: &mut [f32], payload: &[u8]) -> Result<(), PayloadViolation> {
        self.fold(Combine(into, |mine, theirs| mine + theirs), payload)
    }

    /// As [`Codec::conclude`].
    pub(crate) fn conclude(self, into: &mut [f32], payload: &[u8], divisor: f32) -> Result<(), PayloadViolation> {
        self.fold(Combine(into, |mine, theirs| (mine + theirs) / divisor), payload)
    }

    /// As [`Codec::store`].
    pub(crate) fn store(self, into: &mut [f32], payload: &[u8]) -> Result<(), PayloadViolation> {
        self.fold(Overwrite::all(into), payload)
    }

    /// Hands the payload's values to `sink`.
    fn fold(self, sink: impl Sink, payload: &[u8]) -> Result<(), PayloadViolation> {
        match self.codec {
            Codec::F32 => kernel::fold(sink, payload, EXPONENT, self.bound, f32::from_le_bytes),
            Codec::Bf16 => half::fold::<half::Bf16>(sink, payload, self.bound),
            Codec::F16 => half::fold::<half::F16>(sink, payload, self.bound),
            Codec::Int8 => int8::fold(sink, payload, self.bound),
        }
    }
}

impl Codec {
    /// All codecs.
    pub const ALL: [Self; 4] = [Self::F32, Self::Bf16, Self::F16, Self::Int8];

    /// How many bytes `elements` elements take.
    pub fn payload_bytes(self, elements: usize) -> usize {
        match self {
            Self::F32 => elements * ELEMENT_BYTES,
            Self::Bf16 | Self::F16 => elements * half::WORD_BYTES,
            Self::Int8 => int8::payload_bytes(elements),
        }
    }

    /// Whether what is read may differ from what was written.
    pub fn is_lossy(self) -> bool {
        self != Self::F32
    }

    /// Writes the payload of `from` over `into`. A value that is not finite is written so that the receiver finds it.
    ///
    /// # Panics
    /// If `into` is not as long as the payload.
    pub fn encode(self, from: &[f32], into: &mut [u8]) {
        self.encode_losing(from, into, Nowhere(from.len()));
    }

    /// As [`Self::encode`]. Hands to `lost` by how much each value is more than what a receiver will read.
    pub(crate) fn encode_losing(self, from: &[f32], into: &mut [u8], lost: impl Sink) {
        assert_eq!(into.len(), self.payload_bytes(from.len()), "a payload's room is as long as the payload");
        match self {
            Self::F32 => kernel::write(from, into),
            Self::Bf16 => half::encode::<half::Bf16>(from, into, lost),
            Self::F16 => half::encode::<half::F16>(from, into, lost),
            Self::Int8 => int8::encode(from, into, lost),
        }
    }

    /// The same, of values of this size only.
    pub(crate) fn within(self, bound: ValueLimit) -> Within {
        Within { codec: self, bound }
    }

    /// Adds the payload's values to `into`, in one pass that also checks them.
    ///
    /// # Errors
    /// [`PayloadViolation`] for the first value or block that no correct peer sends; `into` is partly updated then and the
    /// operation must end.
    ///
    /// # Panics
    /// If the payload's length is not that of `into`: the caller has checked it against the layout.
    pub fn accumulate(self, into: &mut [f32], payload: &[u8]) -> Result<(), PayloadViolation> {
        self.within(ValueLimit::FINITE).accumulate(into, payload)
    }

    /// Adds the payload's values to `into` and divides the sums, in one pass that also checks the values.
    ///
    /// # Errors
    /// As [`Self::accumulate`].
    ///
    /// # Panics
    /// As [`Self::accumulate`].
    pub fn conclude(self, into: &mut [f32], payload: &[u8], divisor: f32) -> Result<(), PayloadViolation> {
        self.within(ValueLimit::FINITE).conclude(into, payload, divisor)
    }

    /// Overwrites `into` with the payload's values, in one pass that also checks them.
    ///
    /// # Errors
    /// As [`Self::accumulate`].
    ///
    /// # Panics
    /// As [`Self::accumulate`].
    pub fn store(self, into: &mut [f32], payload: &[u8]) -> Result<(), PayloadViolation> {
        self.within(ValueLimit::FINITE).store(into, payload)
    }

    /// Makes of `values` what a receiver would read of their payload.
    pub fn round(self, values: &mut [f32]) {
        let lost = Nowhere(values.len());
        self.round_losing(values, lost);
    }

    /// As [`Self::round`]. Hands to `lost` by how much each value was more than it is now.
    pub(crate) fn round_losing(self, values: &mut [f32], lost: impl Sink) {
        match self {
            Self::F32 => {}
            Self::Bf16 => half::round::<half::Bf16>(values, lost),
            Self::F16 => half::round::<half::F16>(values, lost),
            Self::Int8 => int8::round(values, lost),
        }
    }

    /// The byte that stands for it on the wire.
    pub fn tag(self) -> u8 {
        match self {
            Self::F32 => 0,
            Self::Bf16 => 1,
            Self::F16 => 2,
            Self::Int8 => 3,
        }
    }

    /// The codec that a byte stands for.
    pub fn from_tag(tag: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|codec| codec.tag() == tag)
    }
}

impl FromStr for Codec {
    type Err = CodecError;

    fn from_str(text: &str) -> Result<Self, CodecError> {
        let found = Self::ALL.into_iter().find(|codec| codec.to_string() == text.trim());
        found.ok_or_else(|| CodecError { text: text.to_owned() })
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
            Self::Int8 => "int8",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of all sizes, without a power function: the same on every machine.
    fn samples(count: usize) -> Vec<f32> {
        let mut state = 0x9e37_79b9u32;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state
        };
        // Exponents around one, the sign and the fraction as they come.
        (0..count).map(|_| next()).map(|bits| f32::from_bits(bits & 0x807f_ffff | (100 + bits % 45) << 23)).collect()
    }

    fn encoded(codec: Codec, values: &[f32]) -> Vec<u8> {
        let mut payload = vec![0; codec.payload_bytes(values.len())];
        codec.encode(values, &mut payload);
        payload
    }

    #[test]
    fn a_codec_is_read_and_written_as_text() {
        for codec in Codec::ALL {
            assert_eq!(codec.to_string().parse(), Ok(codec));
            assert_eq!(Codec::from_tag(codec.tag()), Some(codec));
        }
        let message = "int4".parse::<Codec>().expect_err("none").to_string();
        assert!(message.contains("`int4`") && message.contains("bf16"), "{message}");
    }

    /// Long slices go through vectors of whatever width, slices of one element through none.
    #[test]
    fn vectors_compute_what_single_elements_do() {
        for codec in [Codec::F32, Codec::Bf16, Codec::F16] {
            let values = samples(5_000);
            let payload = encoded(codec, &values);
            let single: Vec<u8> = values.iter().flat_map(|value| encoded(codec, &[*value])).collect();
            assert_eq!(payload, single, "{codec}");
            let (mut stored, mut sum) = (vec![0.0; 5_000], values.clone());
            codec.store(&mut stored, &payload).expect("our own form");
            codec.accumulate(&mut sum, &payload).expect("our own form");
            let mut rounded = values.clone();
            codec.round(&mut rounded);
            let width = codec.payload_bytes(1);
            for (index, value) in values.iter().enumerate() {
                let mut one = [0.0];
                codec.store(&mut one, &payload[index * width..][..width]).expect("our own form");
                let expected = [one[0], one[0], value + one[0]].map(f32::to_bits);
                assert_eq!(
                    [stored[index], rounded[index], sum[index]].map(f32::to_bits),
                    expected,
                    "{codec}, {value:e}"
                );
            }
        }
    }

    /// What a pass does at once comes to the same bits as its parts; and what is lost is what a receiver does not read.
    #[test]
    fn a_contribution_is_a_sum_that_is_written_and_nothing_is_lost_unsaid() {
        for codec in Codec::ALL {
            for length in [0, 1, 255, 256, 257, 3_000] {
                let (mine, theirs) = (samples(length), samples(2 * length).split_off(length));
                let mut payload = encoded(codec, &theirs);
                let mut exact = mine.clone();
                codec.accumulate(&mut exact, &payload).expect("our own form");
                let (mut lost, mut lost_before) = (vec![1.0; length], vec![0.0; length]);
                codec
                    .within(ValueLimit::FINITE)
                    .contribute(&mut payload, &mine, Combine(&mut lost, |one, lost| one + lost))
                    .expect("our own form");
                let mut expected = vec![0; payload.len()];
                codec.encode_losing(&exact, &mut expected, Overwrite::all(&mut lost_before));
                assert_eq!(payload, expected, "{codec}, {length}");
                let mut rounded = exact.clone();
                let mut lost_in_place = vec![0.0; length];
                codec.round_losing(&mut rounded, Overwrite::all(&mut lost_in_place));
                let losses = exact.iter().zip(&rounded).map(|(exact, rounded)| exact - rounded);
                for (at, loss) in losses.enumerate() {
                    let found = [lost_before[at], lost_in_place[at], lost[at]];
                    let all = [loss, loss, 1.0 + loss];
                    assert_eq!(found.map(f32::to_bits), all.map(f32::to_bits), "{codec}, element {at} of {length}");
                }
            }
        }
    }

    /// The first block that is bad is named, wherever it is.
    #[test]
    fn nothing_is_contributed_to_what_no_correct_peer_sends() {
        for codec in Codec::ALL {
            for bad in [0, 255, 256, 700, 1_023] {
                let mut values = vec![1.0; 1_024];
                values[bad] = f32::NAN;
                let mut payload = encoded(codec, &values);
                let expected = codec.store(&mut values, &payload);
                let mine = vec![1.0; 1_024];
                let contributed = codec.within(ValueLimit::FINITE).contribute(&mut payload, &mine, Nowhere(1_024));
                assert_eq!(contributed, expected, "{codec}, {bad}");
                assert!(expected.is_err());
            }
        }
    }

    /// Whatever reads them, values up to the bound are taken, and one beyond it is named.
    #[test]
    fn values_are_read_up_to_the_bound() {
        for codec in Codec::ALL {
            for (at, most) in [(0, 8.0), (700, 1.5), (1_023, 65_000.0)] {
                let mut values = vec![0.5; 1_024];
                values[at] = most;
                let payload = encoded(codec, &values);
                let mut read = vec![0.0; 1_024];
                codec.store(&mut read, &payload).expect("our own form");
                let largest = f64::from(read.iter().fold(0f32, |largest, value| largest.max(value.abs())));
                for (bound, is_taken) in [(largest, true), (largest * 1.001, true), (largest * 0.999, false)] {
                    let within = codec.within(ValueLimit::new(bound));
                    let all = [
                        within.store(&mut vec![0.0; 1_024], &payload),
                        within.accumulate(&mut vec![0.0; 1_024], &payload),
                        within.conclude(&mut vec![0.0; 1_024], &payload, 2.0),
                        within.contribute(&mut payload.clone(), &vec![0.0; 1_024], Nowhere(1_024)),
                    ];
                    for outcome in all {
                        let named = matches!(outcome, Err(PayloadViolation::Beyond { index, bits, .. })
                            if index / 256 == at / 256 && f64::from(f32::from_bits(bits)) == largest);
                        assert!(if is_taken { outcome.is_ok() } else { named }, "{codec}, {bound}: {outcome:?}");
                    }
                }
            }
        }
        assert_eq!(ValueLimit::new(f64::INFINITY), ValueLimit::FINITE);
        assert_eq!(ValueLimit::new(f64::from(f32::MAX)), ValueLimit::FINITE);
    }

    /// Members on different machines must read and write the same: these are the bytes, whatever the processor.
    #[test]
    fn the_bytes_are_the_same_on_every_machine() {
        let digest = |codec| {
            let payload = encoded(codec, &samples(10_000));
            let mut sum = vec![1.0; 10_000];
            codec.accumulate(&mut sum, &payload).expect("our own form");
            let bytes = payload.into_iter().chain(sum.into_iter().flat_map(f32::to_le_bytes));
            // FNV-1a (G. Fowler, L. C. Noll, P. Vo).
            bytes.fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
        };
        // As computed from the definitions by another programme, in double precision.
        let expected = [
            8_515_122_869_581_269_083,
            668_102_127_689_387_296,
            10_895_949_794_012_985_982,
            11_521_859_214_050_760_702,
        ];
        assert_eq!(Codec::ALL.map(digest), expected);
    }

    #[test]
    fn tags_come_back() {
        for tag in 0..=u8::MAX {
            assert!(Codec::from_tag(tag).is_none_or(|codec| codec.tag() == tag));
        }
        assert!(Codec::ALL.iter().all(|codec| Codec::from_tag(codec.tag()) == Some(*codec)));
    }
}
