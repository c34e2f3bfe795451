//! What all members hold alike after a step: the replicated state, in one canonical form.
//!
//! ```text
//!   "STRLST01" | run: 32 bytes | step: u64 | parameters P: u64 | moments M: u32 | scalars S: u32
//!   | P x f32 parameters | M x P x f32 moments | S x f64 scalars           all little-endian, no padding
//! ```

use std::io::{self, Write};

use starling_topology::{Digest, RunId};
use thiserror::Error;

use crate::manifest::MAX_PARAMETERS;
use crate::optimizer::first_not_finite;

const MAGIC: &[u8; 8] = b"STRLST01";
const HEADER_BYTES: usize = 8 + 32 + 8 + 8 + 4 + 4;
/// The most vectors an optimizer keeps.
const MAX_MOMENTS: u32 = 8;
/// The most scalars an optimizer keeps.
const MAX_SCALARS: u32 = 64;

/// Parameters, optimizer state and step of a run. The sample order follows from the step and the manifest's seed.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplicatedState {
    /// The run it belongs to.
    pub run: RunId,
    /// The last step that it includes; 0 before the first one.
    pub step: u64,
    /// All parameters, in visit order.
    pub parameters: Vec<f32>,
    /// The optimizer's vectors, each as long as the parameters.
    pub moments: Vec<Vec<f32>>,
    /// The optimizer's scalars.
    pub scalars: Vec<f64>,
}

/// Bytes that are not a replicated state.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StateError {
    /// Too short for what must be there, or too long.
    #[error("a state of {expected} bytes was announced, but {found} bytes are there")]
    Length {
        /// How many bytes the header announces, or how many the header itself has.
        expected: u64,
        /// How many there are.
        found: u64,
    },
    /// Not the format, or not this version of it.
    #[error("the bytes do not start as a state of this version does")]
    Magic,
    /// More than any run can have.
    #[error("the state announces {found} {what}, but at most {limit} are possible")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How many are announced.
        found: u64,
        /// How many are possible.
        limit: u64,
    },
    /// A number that is not finite.
    #[error("number {at} of the state's {what} is not finite")]
    NotFinite {
        /// `parameters`, `moments` or `scalars`.
        what: &'static str,
        /// Its index.
        at: u64,
    },
}

impl ReplicatedState {
    /// The canonical bytes.
    ///
    /// # Panics
    /// If a moment is not as long as the parameters.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.encoded_len());
        self.write(&mut bytes).expect("invariant: writing to memory does not fail");
        bytes
    }

    /// How long the canonical bytes are.
    pub fn encoded_len(&self) -> usize {
        HEADER_BYTES + 4 * self.parameters.len() * (1 + self.moments.len()) + 8 * self.scalars.len()
    }

    /// blake3 of the canonical bytes: it covers everything.
    ///
    /// # Panics
    /// If a moment is not as long as the parameters.
    pub fn digest(&self) -> Digest {
        StateView::of(self).digest()
    }

    /// Reads a state from its canonical bytes.
    ///
    /// # Errors
    /// If the bytes are not exactly one state with finite numbers. Nothing is reserved on the word of the header.
    pub fn decode(bytes: &[u8]) -> Result<Self, StateError> {
        let length = |expected: u64| StateError::Length { expected, found: bytes.len() as u64 };
        let mut rest = Reader { bytes };
        let mut take = |count: usize| rest.take(count).ok_or_else(|| length(HEADER_BYTES as u64));
        if take(8)? != MAGIC {
            return Err(StateError::Magic);
        }
        let run = RunId(array(take(32)?));
        let step = u64::from_le_bytes(array(take(8)?));
        let parameters = u64::from_le_bytes(array(take(8)?));
        let moments = u32::from_le_bytes(array(take(4)?));
        let scalars = u32::from_le_bytes(array(take(4)?));
        for (what, found, limit) in [
            ("parameters", parameters, MAX_PARAMETERS),
            ("moments", u64::from(moments), u64::from(MAX_MOMENTS)),
            ("scalars", u64::from(scalars), u64::from(MAX_SCALARS)),
        ] {
            if found > limit {
                return Err(StateError::TooMany { what, found, limit });
            }
        }
        // Within the limits above, nothing here overflows.
        let expected = HEADER_BYTES as u64 + 4 * parameters * (1 + u64::from(moments)) + 8 * u64::from(scalars);
        if bytes.len() as u64 != expected {
            return Err(length(expected));
        }
        let mut vector = |what: &'static str| {
            let bytes = rest.take(4 * parameters as usize).ok_or_else(|| length(expected))?;
            let numbers: Vec<f32> = bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes(array(bytes))).collect();
            match first_not_finite(&numbers) {
                Some(at) => Err(StateError::NotFinite { what, at: at as u64 }),
                None => Ok(numbers),
            }
        };
        let parameters = vector("parameters")?;
        let moments = (0..moments).map(|_| vector("moments")).collect::<Result<Vec<_>, _>>()?;
        let scalars: Vec<f64> = rest.bytes.chunks_exact(8).map(|bytes| f64::from_le_bytes(array(bytes))).collect();
        match scalars.iter().position(|scalar| !scalar.is_finite()) {
            Some(at) => Err(StateError::NotFinite { what: "scalars", at: at as u64 }),
            None => Ok(Self { run, step, parameters, moments, scalars }),
        }
    }

    /// Writes the canonical bytes.
    pub(crate) fn write(&self, into: &mut impl Write) -> io::Result<()> {
        StateView::of(self).write(into)
    }
}

/// A state whose parts are borrowed: a trainer's, without a copy of it.
pub(crate) struct StateView<'a> {
    pub(crate) run: RunId,
    pub(crate) step: u64,
    pub(crate) parameters: &'a [f32],
    pub(crate) moments: &'a [Vec<f32>],
    pub(crate) scalars: &'a [f64],
}

impl<'a> StateView<'a> {
    fn of(state: &'a ReplicatedState) -> Self {
        Self {
            run: state.run,
            step: state.step,
            parameters: &state.parameters,
            moments: &state.moments,
            scalars: &state.scalars,
        }
    }

    pub(crate) fn digest(&self) -> Digest {
        let mut hasher = blake3::Hasher::new();
        self.write(&mut hasher).expect("invariant: hashing does not fail");
        Digest(*hasher.finalize().as_bytes())
    }

    fn write(&self, into: &mut impl Write) -> io::Result<()> {
        into.write_all(MAGIC)?;
        into.write_all(&self.run.0)?;
        into.write_all(&self.step.to_le_bytes())?;
        into.write_all(&(self.parameters.len() as u64).to_le_bytes())?;
        into.write_all(&(self.moments.len() as u32).to_le_bytes())?;
        into.write_all(&(self.scalars.len() as u32).to_le_bytes())?;
        write_numbers(self.parameters, into)?;
        for moment in self.moments {
            assert_eq!(moment.len(), self.parameters.len(), "a moment is as long as the parameters");
            write_numbers(moment, into)?;
        }
        self.scalars.iter().try_for_each(|scalar| into.write_all(&scalar.to_le_bytes()))
    }
}

/// Writes numbers as little-endian bytes, in blocks: a write per number would cost more than the hash.
pub(crate) fn write_numbers(numbers: &[f32], into: &mut impl Write) -> io::Result<()> {
    const BLOCK: usize = 4096;
    let mut bytes = [0_u8; 4 * BLOCK];
    for block in numbers.chunks(BLOCK) {
        for (bytes, number) in bytes.chunks_exact_mut(4).zip(block) {
            bytes.copy_from_slice(&number.to_le_bytes());
        }
        into.write_all(&bytes[..4 * block.len()])?;
    }
    Ok(())
}

struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(count)?;
        self.bytes = rest;
        Some(taken)
    }
}

/// A slice of known length as an array.
fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("invariant: the slice was taken with this length")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::Generator;

    fn state() -> ReplicatedState {
        ReplicatedState {
            run: RunId([7; 32]),
            step: 12,
            parameters: vec![1.0, -0.0, 3.5e-40],
            moments: vec![vec![0.5, 0.25, 0.0], vec![1.0, 2.0, 3.0]],
            scalars: vec![0.9, 0.999],
        }
    }

    #[test]
    fn a_state_survives_its_bytes_to_the_bit() {
        let large = ReplicatedState {
            parameters: (0..10_000).map(|at| at as f32).collect(),
            moments: Vec::new(),
            scalars: Vec::new(),
            ..state()
        };
        let empty = ReplicatedState { parameters: Vec::new(), moments: Vec::new(), scalars: Vec::new(), ..state() };
        for state in [state(), large, empty] {
            let bytes = state.encode();
            assert_eq!(bytes.len(), state.encoded_len());
            let decoded = ReplicatedState::decode(&bytes).expect("canonical bytes");
            assert_eq!(decoded.encode(), bytes);
            assert_eq!(decoded, state);
            assert_eq!(state.digest(), Digest(*blake3::hash(&bytes).as_bytes()));
        }
    }

    #[test]
    fn the_digest_covers_everything() {
        let changes: [fn(&mut ReplicatedState); 6] = [
            |state| state.run.0[31] ^= 1,
            |state| state.step += 1,
            |state| state.parameters[1] = 0.0,
            |state| state.moments[1][2] = 4.0,
            |state| state.scalars[1] = 0.998,
            |state| state.moments.swap(0, 1),
        ];
        for (at, change) in changes.into_iter().enumerate() {
            let mut changed = state();
            change(&mut changed);
            assert_ne!(changed.digest(), state().digest(), "change {at}");
        }
    }

    #[test]
    fn every_truncation_and_extension_is_refused() {
        let mut bytes = state().encode();
        for len in 0..bytes.len() {
            assert!(ReplicatedState::decode(&bytes[..len]).is_err(), "cut at {len}");
        }
        bytes.push(0);
        assert_eq!(
            ReplicatedState::decode(&bytes),
            Err(StateError::Length { expected: bytes.len() as u64 - 1, found: bytes.len() as u64 })
        );
    }

    #[test]
    fn headers_that_lie_are_refused_before_anything_is_reserved() {
        let with = |at: usize, value: &[u8]| {
            let mut bytes = state().encode();
            bytes[at..at + value.len()].copy_from_slice(value);
            ReplicatedState::decode(&bytes).expect_err("a lie")
        };
        assert_eq!(with(0, b"STRLST02"), StateError::Magic);
        let too_many = |what, found, limit| StateError::TooMany { what, found, limit };
        assert_eq!(with(48, &u64::MAX.to_le_bytes()), too_many("parameters", u64::MAX, MAX_PARAMETERS));
        assert_eq!(with(56, &9_u32.to_le_bytes()), too_many("moments", 9, 8));
        assert_eq!(with(60, &u32::MAX.to_le_bytes()), too_many("scalars", u64::from(u32::MAX), 64));
        let found = state().encoded_len() as u64;
        let expected = 64 + 4 * MAX_PARAMETERS * 3 + 16;
        assert_eq!(with(48, &MAX_PARAMETERS.to_le_bytes()), StateError::Length { expected, found });
    }

    #[test]
    fn numbers_that_are_not_finite_are_refused_by_place() {
        let refused = |change: fn(&mut ReplicatedState)| {
            let mut state = state();
            change(&mut state);
            ReplicatedState::decode(&state.encode()).expect_err("not finite")
        };
        let not_finite = |what, at| StateError::NotFinite { what, at };
        assert_eq!(refused(|state| state.parameters[2] = f32::NAN), not_finite("parameters", 2));
        assert_eq!(refused(|state| state.moments[1][0] = f32::INFINITY), not_finite("moments", 0));
        assert_eq!(refused(|state| state.scalars[1] = f64::NAN), not_finite("scalars", 1));
    }

    #[test]
    fn random_bytes_never_panic_and_never_decode_to_other_bytes() {
        let mut generator = Generator::new(11);
        let valid = state().encode();
        for _ in 0..20_000 {
            let mut bytes = valid.clone();
            for _ in 0..=generator.below(4) {
                let at = generator.below(bytes.len() as u32) as usize;
                bytes[at] = generator.next_u64() as u8;
            }
            bytes.truncate(generator.below(bytes.len() as u32 * 4) as usize);
            if let Ok(state) = ReplicatedState::decode(&bytes) {
                assert_eq!(state.encode(), bytes);
            }
        }
    }
}
