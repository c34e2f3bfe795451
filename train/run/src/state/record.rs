//! The outcome of one all-reduce: what commits a step.
//!
//! ```text
//!   "STRLRR02" | step: u64 | lineage: 48 bytes | after: 48 bytes | members N: u32 | elements E: u64
//!   | N x 32 bytes | E x f32                                                     little-endian, no padding
//! ```
//!
//! A member keeps the record of its newest step for those that were cut off one step behind; a member that downloads
//! the state queues records until it can apply them.

use starling_collective::codec::kernel;
use starling_topology::ledger::MAX_SHARES;
use starling_topology::{Digest, Lineage, PeerId};
use thiserror::Error;

use crate::manifest::MAX_PARAMETERS;
use crate::state::bytes::{Reader, write_numbers};
use crate::training::buffer::ReducedSize;

const MAGIC: &[u8; 8] = b"STRLRR02";
const HEADER_BYTES: usize = 8 + 8 + 2 * Lineage::BYTES + 4 + 8;

/// What the members of one view reduced together for one step. All members of the view hold the same bits.
#[derive(Debug, Clone, PartialEq)]
pub struct ResultRecord {
    /// The step.
    pub step: u64,
    /// That of the state after it: of the view that reduced it.
    pub lineage: Lineage,
    /// That of the state that it is applied to.
    pub after: Lineage,
    /// The members of the view whose ring reduced it, sorted.
    pub members: Vec<PeerId>,
    /// The reduced buffer, divided by the batch size, as [`BufferLayout`](crate::BufferLayout) says and
    /// [`contribution`](crate::training::contribution) lays them out.
    pub mean: Vec<f32>,
}

/// A record that no view can have reduced.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RecordError {
    /// Too short, too long, or not of the run's model.
    #[error("a result of {expected} {what} was expected, but {found} are there")]
    Length {
        /// `bytes` or `numbers`.
        what: &'static str,
        /// How many there should be.
        expected: u64,
        /// How many there are.
        found: u64,
    },
    /// Not the format, or not this version of it.
    #[error("the bytes do not start as a result of this version does")]
    Magic,
    /// The members are not those of a view.
    #[error("the result's members are not sorted and distinct, or are none, or more than {MAX_SHARES}")]
    Members,
    /// A number that is not finite.
    #[error("number {at} of the result is not finite")]
    NotFinite {
        /// Its index.
        at: u64,
    },
}

impl ResultRecord {
    /// The canonical bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + 32 * self.members.len() + 4 * self.mean.len());
        bytes.extend(MAGIC);
        bytes.extend(self.step.to_le_bytes());
        bytes.extend(self.lineage.to_bytes());
        bytes.extend(self.after.to_bytes());
        bytes.extend((self.members.len() as u32).to_le_bytes());
        bytes.extend((self.mean.len() as u64).to_le_bytes());
        bytes.extend(self.members.iter().flat_map(|member| member.0));
        write_numbers(&self.mean, &mut bytes).expect("invariant: writing to memory does not fail");
        bytes
    }

    /// Reads a record from its canonical bytes, of a run whose members bring so much.
    ///
    /// # Errors
    /// If the bytes are not exactly one record for such a model, with finite numbers and the members of a view. Nothing
    /// is reserved on the word of the bytes.
    pub fn decode(bytes: &[u8], reduced: impl Into<ReducedSize>) -> Result<Self, RecordError> {
        let (reduced, found) = (reduced.into(), bytes.len() as u64);
        let short = RecordError::Length { what: "bytes", expected: HEADER_BYTES as u64, found };
        let mut rest = Reader::new(bytes);
        if rest.take(8).ok_or_else(|| short.clone())? != MAGIC {
            return Err(RecordError::Magic);
        }
        let step = rest.u64().ok_or_else(|| short.clone())?;
        let lineage = rest.array().map(Lineage::from_bytes).ok_or_else(|| short.clone())?;
        let after = rest.array().map(Lineage::from_bytes).ok_or_else(|| short.clone())?;
        let members = rest.u32().ok_or_else(|| short.clone())?;
        let elements = rest.u64().ok_or(short)?;
        if !(1..=MAX_SHARES).contains(&(members as usize)) {
            return Err(RecordError::Members);
        }
        let of_model = reduced.buffer(members as usize).elements() as u64;
        if elements != of_model || reduced.trained as u64 > MAX_PARAMETERS {
            return Err(RecordError::Length { what: "numbers", expected: of_model, found: elements });
        }
        let expected = HEADER_BYTES as u64 + 32 * u64::from(members) + 4 * elements;
        if found != expected {
            return Err(RecordError::Length { what: "bytes", expected, found });
        }
        let length = RecordError::Length { what: "bytes", expected, found };
        let members = (0..members)
            .map(|_| rest.array().map(PeerId).ok_or_else(|| length.clone()))
            .collect::<Result<Vec<_>, _>>()?;
        let mean = rest.numbers(elements as usize).ok_or(length)?;
        let record = Self { step, lineage, after, members, mean };
        record.check(reduced)?;
        match kernel::first_non_finite(&record.mean) {
            Some(at) => Err(RecordError::NotFinite { at: at as u64 }),
            None => Ok(record),
        }
    }

    /// What the members said of themselves, divided by the batch size, in their order.
    pub fn slots(&self) -> &[f32] {
        &self.mean[self.mean.len() - self.members.len()..]
    }

    /// blake3 of the canonical bytes.
    pub fn digest(&self) -> Digest {
        Digest(*blake3::hash(&self.encode()).as_bytes())
    }

    /// Checks that the record has the members of a view, and as many numbers as they reduce who
    /// bring so much.
    pub fn check(&self, reduced: impl Into<ReducedSize>) -> Result<(), RecordError> {
        let is_view = (1..=MAX_SHARES).contains(&self.members.len()) && self.members.is_sorted_by(|a, b| a < b);
        if !is_view {
            return Err(RecordError::Members);
        }
        let expected = reduced.into().buffer(self.members.len()).elements();
        let found = self.mean.len();
        if expected == found {
            return Ok(());
        }
        Err(RecordError::Length { what: "numbers", expected: expected as u64, found: found as u64 })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record() -> ResultRecord {
        ResultRecord {
            step: 7,
            lineage: Lineage { branch: 3, ..Lineage::NONE },
            after: Lineage { branch: 4, ..Lineage::NONE },
            members: vec![PeerId([1; 32]), PeerId([2; 32])],
            mean: vec![0.5, -0.0, 3.5e-40, 2.0, 0.0, 8.0],
        }
    }

    #[test]
    fn a_record_survives_its_bytes_to_the_bit() {
        let bytes = record().encode();
        let decoded = ResultRecord::decode(&bytes, 3).expect("canonical bytes");
        assert_eq!(decoded.encode(), bytes);
        assert_eq!(decoded, record());
        assert_eq!(record().digest(), Digest(*blake3::hash(&bytes).as_bytes()));
        assert_ne!(record().digest(), ResultRecord { step: 8, ..record() }.digest());
    }

    #[test]
    fn what_no_view_reduces_is_refused() {
        let refused = |record: ResultRecord| ResultRecord::decode(&record.encode(), 3).expect_err("refused");
        let members = |names: &[u8]| names.iter().map(|name| PeerId([*name; 32])).collect::<Vec<_>>();
        assert_eq!(refused(ResultRecord { members: members(&[2, 1]), ..record() }), RecordError::Members);
        assert_eq!(refused(ResultRecord { members: members(&[1, 1]), ..record() }), RecordError::Members);
        assert_eq!(refused(ResultRecord { members: vec![], ..record() }), RecordError::Members);
        assert_eq!(refused(ResultRecord { members: vec![PeerId([0; 32]); 1025], ..record() }), RecordError::Members);
        let numbers = |expected, found| RecordError::Length { what: "numbers", expected, found };
        assert_eq!(refused(ResultRecord { mean: vec![0.0; 5], ..record() }), numbers(6, 5));
        assert_eq!(refused(ResultRecord { members: members(&[1]), ..record() }), numbers(5, 6));
        assert_eq!(ResultRecord::decode(&record().encode(), 4), Err(numbers(7, 6)));
        for bad in [f32::NAN, f32::INFINITY] {
            let mut record = record();
            record.mean[4] = bad;
            assert_eq!(refused(record), RecordError::NotFinite { at: 4 });
        }
        let bytes = record().encode();
        for len in 0..bytes.len() {
            assert!(ResultRecord::decode(&bytes[..len], 3).is_err(), "cut at {len}");
        }
        assert!(ResultRecord::decode(&[&bytes[..], &[0]].concat(), 3).is_err());
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic_and_never_decode_to_other_bytes(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            keep in any::<bool>(), cut in any::<prop::sample::Index>(), noise in prop::collection::vec(any::<u8>(), 0..150),
        ) {
            let mut bytes = record().encode();
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if !keep {
                bytes.truncate(cut.index(bytes.len()));
            }
            for bytes in [&bytes, &noise] {
                if let Ok(decoded) = ResultRecord::decode(bytes, 3) {
                    prop_assert_eq!(&decoded.encode(), bytes);
                }
            }
        }
    }
}
