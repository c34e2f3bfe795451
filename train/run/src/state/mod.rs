//! What all members hold alike after a step: the replicated state, in one canonical form.
//!
//! ```text
//!   "STRLST05" | run: 32 bytes | step: u64 | parameters P: u64 | frozen F: u64 | moments M: u32 | scalars S: u32 | ledger L: u32
//!   | P x f32 parameters | M x P x f32 moments | F x f32 frozen | S x f64 scalars | L bytes of ledger    all little-endian, no padding
//! ```

pub mod bytes;
pub mod canonical;
pub mod initial;
pub mod record;
pub mod snapshot;
pub(crate) mod values;

use std::borrow::Cow;
use std::io::{self, Read, Write};
use std::sync::Arc;

use starling_collective::codec::kernel;
use starling_topology::ledger::MAX_LEDGER_BYTES;
use starling_topology::{Digest, Ledger, LedgerError, Lineage, RunId};
use thiserror::Error;

use crate::manifest::{MAX_PARAMETERS, Manifest};
use crate::state::bytes::{Reader, write_numbers};
use crate::state::values::Values;
use crate::training::best::{Best, Terms};
use crate::training::optimizer::averaged;

const MAGIC: &[u8; 8] = b"STRLST05";
const HEADER_BYTES: usize = 8 + 32 + 8 + 8 + 8 + 4 + 4 + 4;
/// The most vectors an optimizer keeps.
pub(crate) const MAX_MOMENTS: u32 = 8;
/// The most scalars an optimizer keeps.
pub(crate) const MAX_SCALARS: u32 = 64;

/// Parameters, optimizer state, step and ledger of a run: all that the next step depends on, besides the manifest.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplicatedState {
    /// The run it belongs to.
    pub run: RunId,
    /// The last step that it includes; 0 before the first one.
    pub step: u64,
    /// The view in which that step was committed: two states of one step and one lineage are equal. It is kept and sent
    /// beside the bytes, whose digest is that of equal trainings in any views. [`Lineage::NONE`] before the first step.
    pub lineage: Lineage,
    /// All parameters but the frozen ones: those that are trained, then those that run along. A copy of a state shares the vectors.
    pub parameters: Arc<Vec<f32>>,
    /// The frozen parameters, the same in all states of a run: a state is all of the model.
    pub frozen: Arc<Vec<f32>>,
    /// The optimizer's vectors, each as long as the parameters; in a run that may end early, the best model behind them.
    pub moments: Vec<Arc<Vec<f32>>>,
    /// The optimizer's scalars; behind them those of the loss's scale, and what is known of the held-out loss.
    pub scalars: Vec<f64>,
    /// Which samples are done, and who computes those of the next step.
    pub ledger: Ledger,
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
        /// `parameters`, `moments` or `frozen parameters`.
        what: &'static str,
        /// Its index.
        at: u64,
    },
    /// A scalar that is no power of a share.
    #[error("number {at} of the state's scalars is not within 0 and 1")]
    Scalar {
        /// Its index.
        at: u64,
    },
    /// The ledger in it cannot be read.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The ledger belongs to another step.
    #[error("the state is of step {step}, but its ledger waits for step {pending} to commit")]
    LedgerStep {
        /// The state's step.
        step: u64,
        /// The ledger's pending step.
        pending: u64,
    },
}

impl ReplicatedState {
    /// The parameters of the model that is exported, `[parameters]` without the frozen ones: the best one so far, in a run of `manifest` that
    /// may end early and has evaluated one; else the moving average of what is trained, if one is kept, with what runs along; else these.
    pub fn model(&self, manifest: &Manifest) -> Cow<'_, [f32]> {
        if self.best(manifest).is_some()
            && let Some(best) = self.moments.last()
        {
            return Cow::Borrowed(best);
        }
        let optimizer = manifest.optimizer;
        let (moments, scalars) =
            (self.moments.iter().take(optimizer.moments()), self.scalars.iter().take(optimizer.scalars()));
        let (moments, scalars): (Vec<_>, Vec<_>) = (moments.cloned().collect(), scalars.copied().collect());
        model_of(averaged(optimizer, &moments, &scalars), &self.parameters, manifest.trained())
    }

    /// The step after which the best model was the present one, and its held-out loss; `None` if a run of `manifest` takes all steps, or
    /// none was evaluated yet.
    pub fn best(&self, manifest: &Manifest) -> Option<(u64, f32)> {
        self.read_best(manifest).filter(|best| best.values().is_some())?.found()
    }

    /// Whether a run of `manifest` has ended with this state, be it before its last step.
    pub fn is_last(&self, manifest: &Manifest) -> bool {
        self.step >= manifest.steps || self.read_best(manifest).is_some_and(|best| best.is_over())
    }

    fn read_best(&self, manifest: &Manifest) -> Option<Best> {
        let is_whole = (self.moments.len(), self.scalars.len()) == (manifest.moments(), manifest.scalars());
        let terms = Terms::of(manifest).filter(|_| is_whole)?;
        let values = self.moments.last().filter(|_| terms.keeps_model()).cloned().unwrap_or_default();
        Best::restore(terms, values, &self.scalars[self.scalars.len() - Best::SCALARS..])
    }

    /// The canonical bytes.
    ///
    /// # Panics
    /// If a moment is not as long as the parameters.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.encoded_len());
        StateView::of(self).write(&mut bytes).expect("invariant: writing to memory does not fail");
        bytes
    }

    /// How long the canonical bytes are.
    pub fn encoded_len(&self) -> usize {
        HEADER_BYTES
            + 4 * self.parameters.len() * (1 + self.moments.len())
            + 4 * self.frozen.len()
            + 8 * self.scalars.len()
            + self.ledger.encoded_len()
    }

    /// blake3 of the canonical bytes: it covers everything.
    ///
    /// # Panics
    /// If a moment is not as long as the parameters.
    pub fn digest(&self) -> Digest {
        StateView::of(self).digest()
    }

    /// blake3 over parameters, moments and scalars alone: two runs that learned alike have the same, whatever they are called and
    /// whoever took part.
    pub fn values(&self) -> Digest {
        Values::of(&self.parameters, &self.moments, &self.frozen, &self.scalars)
    }

    /// Reads a state from its canonical bytes, which do not tell its lineage.
    ///
    /// # Errors
    /// If the bytes are not exactly one state with finite numbers. Nothing is reserved on the word of the header.
    pub fn decode(mut bytes: &[u8]) -> Result<Self, StateError> {
        Self::read(bytes.len() as u64, &mut bytes).map(|(state, _)| state)
    }

    /// As [`Self::decode`], of `found` bytes that come one after the other, and with the hash of its [values](Self::values). If they
    /// don't come, the error speaks of their length.
    pub(crate) fn read(found: u64, from: &mut impl Read) -> Result<(Self, Digest), StateError> {
        let header = Header::read(found, from)?;
        let (mut vectors, mut values) = (Vec::new(), Values::default());
        for vector in 0..=header.moments as usize {
            values.begin(header.parameters as usize);
            let numbers = values.read(header.parameters as usize, from).map_err(|_| header.length(found))?;
            if let Some(at) = kernel::first_non_finite(&numbers) {
                return Err(header.not_finite(vector, at as u64));
            }
            vectors.push(Arc::new(numbers));
        }
        values.begin_frozen(header.frozen as usize);
        let frozen = values.read(header.frozen as usize, from).map_err(|_| header.length(found))?;
        if let Some(at) = kernel::first_non_finite(&frozen) {
            return Err(StateError::NotFinite { what: FROZEN, at: at as u64 });
        }
        let frozen = Arc::new(frozen);
        let (scalars, ledger) = header.read_tail(found, from)?;
        let parameters = vectors.remove(0);
        let (lineage, moments, values) = (Lineage::NONE, vectors, values.finish(&scalars));
        Ok((Self { run: header.run, step: header.step, lineage, parameters, frozen, moments, scalars, ledger }, values))
    }

    /// Checks that `found` bytes, which come one after the other, are those of a state: what [`Self::decode`] would check, in
    /// little memory. Says of which run and step, and the hash of its [values](Self::values).
    ///
    /// # Errors
    /// As [`Self::decode`].
    pub(crate) fn check(found: u64, from: &mut impl Read) -> Result<(RunId, u64, Digest), StateError> {
        let header = Header::read(found, from)?;
        let mut values = Values::default();
        let mut look = |values: &mut Values, total: u64| -> Result<Option<u64>, StateError> {
            let mut at = 0;
            while at < total {
                let count = (total - at).min(CHECKED_AT_ONCE);
                let numbers = values.read(count as usize, from).map_err(|_| header.length(found))?;
                if let Some(bad) = kernel::first_non_finite(&numbers) {
                    return Ok(Some(at + bad as u64));
                }
                at += count;
            }
            Ok(None)
        };
        for vector in 0..=header.moments as usize {
            values.begin(header.parameters as usize);
            if let Some(at) = look(&mut values, header.parameters)? {
                return Err(header.not_finite(vector, at));
            }
        }
        values.begin_frozen(header.frozen as usize);
        if let Some(at) = look(&mut values, header.frozen)? {
            return Err(StateError::NotFinite { what: FROZEN, at });
        }
        let (scalars, _) = header.read_tail(found, from)?;
        Ok((header.run, header.step, values.finish(&scalars)))
    }

    /// Checks that all numbers are finite, and the scalars within 0 and 1, as those of a state are that can be read back.
    ///
    /// # Errors
    /// [`StateError::NotFinite`], [`StateError::Scalar`].
    pub fn check_numbers(&self) -> Result<(), StateError> {
        let vectors = std::iter::once(("parameters", &self.parameters));
        let moments = self.moments.iter().map(|moment| ("moments", moment));
        for (what, numbers) in vectors.chain(moments).chain([(FROZEN, &self.frozen)]) {
            if let Some(at) = kernel::first_non_finite(numbers) {
                return Err(StateError::NotFinite { what, at: at as u64 });
            }
        }
        check_scalars(&self.scalars)
    }

    /// Checks that the ledger is the one after the state's step: that it waits for the next one, or for the first
    /// assignment.
    pub fn check_ledger(&self) -> Result<(), StateError> {
        check_ledger(self.step, &self.ledger)
    }

    /// Writes the canonical bytes, and gives up each vector as soon as it is written: whoever shares it can change it then
    /// without a copy. Gives the hash of its [values](Self::values).
    pub(crate) fn write_out(self, into: &mut impl Write) -> io::Result<Digest> {
        StateView::of(&self).write_head(into)?;
        let Self { parameters, frozen, moments, scalars, ledger, .. } = self;
        let mut values = Values::default();
        for numbers in std::iter::once(parameters).chain(moments) {
            values.write(&numbers, into)?;
        }
        values.write_frozen(&frozen, into)?;
        drop(frozen);
        write_tail(&scalars, &ledger, into)?;
        Ok(values.finish(&scalars))
    }
}

/// The parameters that are the model: the moving average of what is trained, if one is kept, with what runs along, which belongs to the newest
/// ones.
pub(crate) fn model_of(average: Option<Vec<f32>>, parameters: &[f32], trained: usize) -> Cow<'_, [f32]> {
    let Some(mut average) = average else { return Cow::Borrowed(parameters) };
    average[trained..].copy_from_slice(&parameters[trained..]);
    Cow::Owned(average)
}

/// What an error calls the numbers that nothing changes.
const FROZEN: &str = "frozen parameters";
/// Numbers that are read at a time to be looked at.
const CHECKED_AT_ONCE: u64 = 1 << 16;

/// What comes before a state's numbers.
struct Header {
    run: RunId,
    step: u64,
    parameters: u64,
    frozen: u64,
    moments: u32,
    scalars: u32,
    ledger: u32,
}

impl Header {
    /// Reads it, and checks that `found` bytes are as many as it announces.
    fn read(found: u64, from: &mut impl Read) -> Result<Self, StateError> {
        let mut bytes = [0; HEADER_BYTES];
        let short = |_| StateError::Length { expected: HEADER_BYTES as u64, found };
        let (magic, fields) = bytes.split_at_mut(MAGIC.len());
        from.read_exact(magic).map_err(short)?;
        if magic != MAGIC {
            return Err(StateError::Magic);
        }
        from.read_exact(fields).map_err(short)?;
        let mut fields = Reader::new(fields);
        let complete = "invariant: the header has all of its fields";
        let run = RunId(fields.array().expect(complete));
        let step = fields.u64().expect(complete);
        let [parameters, frozen] = [(); 2].map(|()| fields.u64().expect(complete));
        let [moments, scalars, ledger] = [(); 3].map(|()| fields.u32().expect(complete));
        for (what, found, limit) in [
            ("parameters", parameters, MAX_PARAMETERS),
            (FROZEN, frozen, MAX_PARAMETERS),
            ("moments", u64::from(moments), u64::from(MAX_MOMENTS)),
            ("scalars", u64::from(scalars), u64::from(MAX_SCALARS)),
            ("bytes of ledger", u64::from(ledger), MAX_LEDGER_BYTES as u64),
        ] {
            if found > limit {
                return Err(StateError::TooMany { what, found, limit });
            }
        }
        let header = Self { run, step, parameters, frozen, moments, scalars, ledger };
        if header.bytes() == found { Ok(header) } else { Err(header.length(found)) }
    }

    /// How many bytes it announces. Within the limits, nothing here overflows.
    fn bytes(&self) -> u64 {
        let vectors = 4 * self.parameters * (1 + u64::from(self.moments)) + 4 * self.frozen;
        let numbers = vectors + 8 * u64::from(self.scalars);
        HEADER_BYTES as u64 + numbers + u64::from(self.ledger)
    }

    fn length(&self, found: u64) -> StateError {
        StateError::Length { expected: self.bytes(), found }
    }

    /// In which of the vectors, of which the parameters are the first.
    fn not_finite(&self, vector: usize, at: u64) -> StateError {
        StateError::NotFinite { what: if vector == 0 { "parameters" } else { "moments" }, at }
    }

    /// Reads what comes behind the vectors: scalars and ledger.
    fn read_tail(&self, found: u64, from: &mut impl Read) -> Result<(Vec<f64>, Ledger), StateError> {
        let cut = |_| self.length(found);
        let mut scalar = || {
            let mut bytes = [0; 8];
            from.read_exact(&mut bytes).map_err(cut).map(|()| f64::from_le_bytes(bytes))
        };
        let scalars = (0..self.scalars).map(|_| scalar()).collect::<Result<Vec<_>, _>>()?;
        check_scalars(&scalars)?;
        let mut encoded = vec![0; self.ledger as usize];
        from.read_exact(&mut encoded).map_err(cut)?;
        let ledger = Ledger::decode(&encoded)?;
        check_ledger(self.step, &ledger)?;
        Ok((scalars, ledger))
    }
}

fn check_ledger(step: u64, ledger: &Ledger) -> Result<(), StateError> {
    let pending = ledger.step();
    let is_next = step.checked_add(1) == Some(pending) || (step == 0 && !ledger.is_assigned());
    if is_next { Ok(()) } else { Err(StateError::LedgerStep { step, pending }) }
}

fn check_scalars(scalars: &[f64]) -> Result<(), StateError> {
    // An update divides by what is left to 1, and takes the root of what it gets.
    match scalars.iter().position(|scalar| !(0.0..=1.0).contains(scalar)) {
        Some(at) => Err(StateError::Scalar { at: at as u64 }),
        None => Ok(()),
    }
}

/// How long the canonical bytes of a state with these numbers of values are at most: with the longest ledger.
pub(crate) fn max_encoded_len([parameters, frozen]: [usize; 2], moments: usize, scalars: usize) -> u64 {
    (HEADER_BYTES + 4 * parameters * (1 + moments) + 4 * frozen + 8 * scalars + MAX_LEDGER_BYTES) as u64
}

/// A state whose parts are borrowed: whoever holds one in parts has its digest without a copy.
#[derive(Debug)]
pub struct StateView<'a> {
    /// As of [`ReplicatedState`].
    pub run: RunId,
    /// As of [`ReplicatedState`].
    pub step: u64,
    /// As of [`ReplicatedState`].
    pub parameters: &'a [f32],
    /// As of [`ReplicatedState`].
    pub frozen: &'a [f32],
    /// As of [`ReplicatedState`].
    pub moments: &'a [Arc<Vec<f32>>],
    /// As of [`ReplicatedState`].
    pub scalars: &'a [f64],
    /// As of [`ReplicatedState`].
    pub ledger: &'a Ledger,
}

impl<'a> StateView<'a> {
    fn of(state: &'a ReplicatedState) -> Self {
        Self {
            run: state.run,
            step: state.step,
            parameters: &state.parameters,
            frozen: &state.frozen,
            moments: &state.moments,
            scalars: &state.scalars,
            ledger: &state.ledger,
        }
    }

    /// As [`ReplicatedState::digest`].
    ///
    /// # Panics
    /// If a moment is not as long as the parameters.
    pub fn digest(&self) -> Digest {
        let mut hasher = blake3::Hasher::new();
        self.write(&mut hasher).expect("invariant: hashing does not fail");
        Digest(*hasher.finalize().as_bytes())
    }

    fn write(&self, into: &mut impl Write) -> io::Result<()> {
        self.write_head(into)?;
        write_numbers(self.parameters, into)?;
        self.moments.iter().try_for_each(|moment| write_numbers(moment, into))?;
        write_numbers(self.frozen, into)?;
        write_tail(self.scalars, self.ledger, into)
    }

    fn write_head(&self, into: &mut impl Write) -> io::Result<()> {
        for moment in self.moments {
            assert_eq!(moment.len(), self.parameters.len(), "a moment is as long as the parameters");
        }
        into.write_all(MAGIC)?;
        into.write_all(&self.run.0)?;
        into.write_all(&self.step.to_le_bytes())?;
        into.write_all(&(self.parameters.len() as u64).to_le_bytes())?;
        into.write_all(&(self.frozen.len() as u64).to_le_bytes())?;
        into.write_all(&(self.moments.len() as u32).to_le_bytes())?;
        into.write_all(&(self.scalars.len() as u32).to_le_bytes())?;
        into.write_all(&(self.ledger.encoded_len() as u32).to_le_bytes())
    }
}

fn write_tail(scalars: &[f64], ledger: &Ledger, into: &mut impl Write) -> io::Result<()> {
    scalars.iter().try_for_each(|scalar| into.write_all(&scalar.to_le_bytes()))?;
    into.write_all(&ledger.encode())
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;

    use starling_topology::{PeerId, SplitMix64Generator};

    use super::*;

    fn ledger(step: u64) -> Ledger {
        let mut ledger = Ledger::new(3, 50, 7);
        let members = [PeerId([1; 32]), PeerId([2; 32])];
        ledger.assign(&members);
        (1..=step).for_each(|step| drop(ledger.commit(step, &members, &[20, 50])));
        ledger
    }

    fn state() -> ReplicatedState {
        ReplicatedState {
            run: RunId([7; 32]),
            step: 12,
            lineage: Lineage::NONE,
            parameters: vec![1.0, -0.0, 3.5e-40].into(),
            frozen: vec![-7.5, 0.25].into(),
            moments: vec![vec![0.5, 0.25, 0.0].into(), vec![1.0, 2.0, 3.0].into()],
            scalars: vec![0.9, 0.999],
            ledger: ledger(12),
        }
    }

    #[test]
    fn a_state_survives_its_bytes_to_the_bit() {
        let large = ReplicatedState {
            parameters: Arc::new((0..10_000).map(|at| at as f32).collect()),
            moments: Vec::new(),
            scalars: Vec::new(),
            ..state()
        };
        let none = Arc::<Vec<f32>>::default();
        let empty = ReplicatedState {
            parameters: none.clone(),
            frozen: none,
            moments: Vec::new(),
            scalars: Vec::new(),
            ..state()
        };
        let fresh = ReplicatedState { step: 0, ledger: Ledger::new(3, 50, 7), ..state() };
        let begun = ReplicatedState { step: 0, ledger: ledger(0), ..state() };
        for state in [state(), large, empty, fresh, begun] {
            let bytes = state.encode();
            assert_eq!(bytes.len(), state.encoded_len());
            let decoded = ReplicatedState::decode(&bytes).expect("canonical bytes");
            assert_eq!(decoded.encode(), bytes);
            assert_eq!(decoded, state);
            assert_eq!(state.digest(), Digest(*blake3::hash(&bytes).as_bytes()));
        }
    }

    /// Counts the bytes written, and notes at each write which vectors are still held.
    struct Witness {
        vectors: Vec<Weak<Vec<f32>>>,
        seen: Vec<(usize, usize)>,
        bytes: usize,
    }

    impl Write for Witness {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let held = self.vectors.iter().filter(|vector| vector.strong_count() > 0).count();
            self.seen.push((self.bytes, held));
            self.bytes += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn vectors_are_given_up_once_they_are_written() {
        let state = state();
        let all = std::iter::once(&state.parameters).chain(&state.moments).chain([&state.frozen]);
        let mut witness = Witness { vectors: all.map(Arc::downgrade).collect(), seen: Vec::new(), bytes: 0 };
        let length = state.encoded_len();
        state.write_out(&mut witness).expect("written");
        let vector = |at: usize| HEADER_BYTES + at * 12;
        for expected in [(0, 4), (vector(0), 4), (vector(1), 3), (vector(2), 2), (vector(3), 1), (vector(3) + 8, 0)] {
            assert!(witness.seen.contains(&expected), "{expected:?} in {:?}", witness.seen);
        }
        assert_eq!(witness.bytes, length);
    }

    #[test]
    fn the_digest_covers_everything() {
        let changes: [fn(&mut ReplicatedState); 8] = [
            |state| state.run.0[31] ^= 1,
            |state| state.step += 1,
            |state| Arc::make_mut(&mut state.parameters)[1] = 0.0,
            |state| Arc::make_mut(&mut state.moments[1])[2] = 4.0,
            |state| Arc::make_mut(&mut state.frozen)[1] = 4.0,
            |state| state.scalars[1] = 0.998,
            |state| state.moments.swap(0, 1),
            |state| state.ledger = ledger(13),
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
        assert_eq!(with(0, b"STRLST01"), StateError::Magic);
        let too_many = |what, found, limit| StateError::TooMany { what, found, limit };
        assert_eq!(with(48, &u64::MAX.to_le_bytes()), too_many("parameters", u64::MAX, MAX_PARAMETERS));
        assert_eq!(with(56, &u64::MAX.to_le_bytes()), too_many("frozen parameters", u64::MAX, MAX_PARAMETERS));
        assert_eq!(with(64, &9_u32.to_le_bytes()), too_many("moments", 9, 8));
        assert_eq!(with(68, &u32::MAX.to_le_bytes()), too_many("scalars", u64::from(u32::MAX), 64));
        let found = state().encoded_len() as u64;
        let too_long = too_many("bytes of ledger", u64::from(u32::MAX), MAX_LEDGER_BYTES as u64);
        assert_eq!(with(72, &u32::MAX.to_le_bytes()), too_long);
        let expected = 76 + 4 * MAX_PARAMETERS * 3 + 8 + 16 + state().ledger.encoded_len() as u64;
        assert_eq!(with(48, &MAX_PARAMETERS.to_le_bytes()), StateError::Length { expected, found });
    }

    #[test]
    fn a_ledger_of_another_step_is_refused() {
        for (ledger, pending) in [(ledger(11), 12), (ledger(13), 14), (Ledger::new(3, 50, 7), 0)] {
            let bytes = ReplicatedState { ledger, ..state() }.encode();
            assert_eq!(ReplicatedState::decode(&bytes), Err(StateError::LedgerStep { step: 12, pending }));
        }
        let mut bytes = state().encode();
        let last = bytes.len() - 1;
        bytes[last] = 0xff;
        assert!(matches!(ReplicatedState::decode(&bytes), Err(StateError::Ledger(_))));
    }

    #[test]
    fn numbers_that_are_not_finite_are_refused_by_place() {
        let refused = |change: fn(&mut ReplicatedState)| {
            let mut state = state();
            change(&mut state);
            ReplicatedState::decode(&state.encode()).expect_err("not finite")
        };
        let not_finite = |what, at| StateError::NotFinite { what, at };
        assert_eq!(refused(|state| Arc::make_mut(&mut state.parameters)[2] = f32::NAN), not_finite("parameters", 2));
        assert_eq!(refused(|state| Arc::make_mut(&mut state.moments[1])[0] = f32::INFINITY), not_finite("moments", 0));
        let frozen = not_finite("frozen parameters", 1);
        assert_eq!(refused(|state| Arc::make_mut(&mut state.frozen)[1] = f32::NAN), frozen);
        let changes: [fn(&mut ReplicatedState); 2] =
            [|state| state.scalars[1] = f64::NAN, |state| state.scalars[1] = 1.5];
        for change in changes {
            assert_eq!(refused(change), StateError::Scalar { at: 1 });
        }
    }

    #[test]
    fn what_can_not_be_read_back_is_known_before_it_is_written() {
        assert_eq!(state().check_numbers(), Ok(()));
        let changes: [fn(&mut ReplicatedState); 4] = [
            |state| Arc::make_mut(&mut state.parameters)[2] = f32::NAN,
            |state| Arc::make_mut(&mut state.frozen)[0] = f32::NAN,
            |state| Arc::make_mut(&mut state.moments[1])[0] = f32::INFINITY,
            |state| state.scalars[1] = f64::NEG_INFINITY,
        ];
        for change in changes {
            let mut state = state();
            change(&mut state);
            let error = state.check_numbers().expect_err("not finite");
            assert_eq!(ReplicatedState::decode(&state.encode()), Err(error));
        }
    }

    #[test]
    fn random_bytes_never_panic_and_never_decode_to_other_bytes() {
        let mut generator = SplitMix64Generator::new(11);
        let valid = state().encode();
        for _ in 0..20_000 {
            let mut bytes = valid.clone();
            for _ in 0..=generator.below(4) {
                let at = generator.below(bytes.len() as u32) as usize;
                bytes[at] = generator.next_u64() as u8;
            }
            bytes.truncate(generator.below(bytes.len() as u32 * 4) as usize);
            let decoded = ReplicatedState::decode(&bytes);
            let checked = ReplicatedState::check(bytes.len() as u64, &mut bytes.as_slice());
            assert_eq!(checked, decoded.clone().map(|state| (state.run, state.step, state.values())));
            if let Ok(state) = decoded {
                assert_eq!(state.encode(), bytes);
            }
        }
    }
}
