//! How what must outlive a process lies on a disk: in two slots, each of which says itself whether it is whole.
//!
//! ```text
//!   "STRLSLOT" | format, u32 | run, 32 | peer, 32 | version, u64 | length, u32 | blake3 of all the rest, 32 | payload
//! ```
//!
//! Numbers are little-endian. What follows the payload means nothing: a shorter one may have been written over a longer.
//!
//! A version is written to the slot that holds less, then to the other one, each synced before the next begins; only then
//! it counts as stored. So one whole slot is enough, whatever became of the other: a version that counts lay in both, and a
//! slot is written again with a newer one only. Where neither is whole, nothing is known of what was stored.

use crate::id::{PeerId, RunId};

const MAGIC: &[u8; 8] = b"STRLSLOT";
const FORMAT: u32 = 9;
const HASH_AT: usize = 8 + 4 + 32 + 32 + 8 + 4;

/// Bytes before the payload.
pub const HEADER_BYTES: usize = HASH_AT + 32;

/// What one slot holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// The run that it is of.
    pub run: RunId,
    /// The peer whose it is.
    pub peer: PeerId,
    /// Counts what was stored.
    pub version: u64,
    /// What was stored.
    pub payload: Vec<u8>,
}

impl Slot {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let length = u32::try_from(self.payload.len()).expect("invariant: a payload is bounded far below 4 GiB");
        let mut bytes = Vec::with_capacity(HEADER_BYTES + self.payload.len());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&FORMAT.to_le_bytes());
        bytes.extend_from_slice(&self.run.0);
        bytes.extend_from_slice(&self.peer.0);
        bytes.extend_from_slice(&self.version.to_le_bytes());
        bytes.extend_from_slice(&length.to_le_bytes());
        let hash = hash(&bytes, &self.payload);
        bytes.extend_from_slice(hash.as_bytes());
        bytes.extend_from_slice(&self.payload);
        bytes
    }

    /// What lies at the beginning of these bytes; `None` if that is not, bit for bit, what [`Self::encode`] made.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, rest) = bytes.split_at_checked(HASH_AT)?;
        let (told, rest) = rest.split_at_checked(32)?;
        let fields = head.strip_prefix(MAGIC)?.strip_prefix(&FORMAT.to_le_bytes())?;
        let (run, fields) = fields.split_first_chunk::<32>()?;
        let (peer, fields) = fields.split_first_chunk::<32>()?;
        let (version, fields) = fields.split_first_chunk::<8>()?;
        let length = u32::from_le_bytes(*fields.first_chunk::<4>()?);
        let payload = rest.get(..usize::try_from(length).ok()?)?;
        (hash(head, payload).as_bytes() == told).then(|| Self {
            run: RunId(*run),
            peer: PeerId(*peer),
            version: u64::from_le_bytes(*version),
            payload: payload.to_vec(),
        })
    }
}

fn hash(head: &[u8], payload: &[u8]) -> blake3::Hash {
    blake3::Hasher::new().update(head).update(payload).finalize()
}

/// The place of the newest of two versions; `None` if there is none.
pub fn newest(versions: [Option<u64>; 2]) -> Option<usize> {
    (0..2).filter(|at| versions[*at].is_some()).max_by_key(|at| versions[*at])
}

/// In which order the slots are written: the newest whole one stays until the other one is as new.
pub fn order(versions: [Option<u64>; 2]) -> [usize; 2] {
    if newest(versions) == Some(0) { [1, 0] } else { [0, 1] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(version: u64) -> Slot {
        let payload = (0..200u32).map(|at| (at * 7 + u32::try_from(version).expect("small")) as u8).collect();
        Slot { run: RunId([1; 32]), peer: PeerId([2; 32]), version, payload }
    }

    #[test]
    fn a_slot_survives_the_trip_and_what_was_there_before() {
        let mut bytes = slot(3).encode();
        assert_eq!(Slot::decode(&bytes), Some(slot(3)));
        bytes.extend_from_slice(&[7; 100]);
        assert_eq!(Slot::decode(&bytes), Some(slot(3)));
        let empty = Slot { payload: Vec::new(), ..slot(4) };
        bytes[..HEADER_BYTES].copy_from_slice(&empty.encode());
        assert_eq!(Slot::decode(&bytes), Some(empty));
    }

    #[test]
    fn no_flipped_bit_and_no_cut_makes_another_slot() {
        let whole = slot(3).encode();
        for bit in 0..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Slot::decode(&bytes), None, "bit {bit}");
        }
        for length in 0..whole.len() {
            assert_eq!(Slot::decode(&whole[..length]), None, "{length} bytes");
        }
    }

    /// Wherever a write is cut off, over whatever was there, the loader finds the version before or the one that was being
    /// written, and never the older of two that were stored.
    #[test]
    fn a_torn_write_loses_nothing_that_was_stored() {
        let read = |slots: &[Vec<u8>; 2]| slots.each_ref().map(|bytes| Slot::decode(bytes));
        let versions = |slots: &[Vec<u8>; 2]| read(slots).map(|slot| slot.map(|slot| slot.version));
        let mut slots = [slot(1).encode(), slot(1).encode()];
        for version in 2..6 {
            let bytes = slot(version).encode();
            for (nth, at) in order(versions(&slots)).into_iter().enumerate() {
                for cut in 0..bytes.len() {
                    let mut torn = slots.clone();
                    torn[at][..cut].copy_from_slice(&bytes[..cut]);
                    let found = newest(versions(&torn)).and_then(|at| read(&torn)[at].clone()).expect("one is whole");
                    assert_eq!(found, slot(if nth == 0 { version - 1 } else { version }), "version {version}, {cut}");
                }
                slots[at].copy_from_slice(&bytes);
            }
            assert_eq!(versions(&slots), [Some(version); 2]);
        }
    }

    #[test]
    fn the_slot_that_holds_less_is_written_first() {
        assert_eq!(order([None, None]), [0, 1]);
        assert_eq!((order([Some(1), None]), order([None, Some(1)])), ([1, 0], [0, 1]));
        assert_eq!((order([Some(2), Some(1)]), order([Some(1), Some(2)])), ([1, 0], [0, 1]));
        assert_eq!(
            (newest([Some(2), Some(1)]), newest([None, Some(0)]), newest([None, None])),
            (Some(0), Some(1), None)
        );
    }
}
