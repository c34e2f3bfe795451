//! A simulated disk: it loses what was not synced, tears it, flips bits, and fills up.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use starling_topology::Record;

use crate::rng::Rng;
use crate::state::State;

/// The folder of one peer. A file appears under its name only once it is synced (temporary file, fsync, rename, fsync
/// of the folder); what dies before that is swept away at the next start.
#[derive(Debug, Clone, Default)]
pub struct Disk {
    record: Option<Recorded>,
    checkpoints: BTreeMap<u64, Saved>,
    /// Whether the state before the newest checkpoint, if there is one, belongs to a branch that was left.
    abandoned: bool,
    full: bool,
    read_only: bool,
    hangs: bool,
}

/// The agreement record. It is written much more often than it is looked at, so its bytes are made when somebody does.
#[derive(Debug, Clone)]
enum Recorded {
    Written(Box<Record>),
    /// The record behind its checksum, as it was once, and what became of it.
    Damaged(Vec<u8>),
}

impl Recorded {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Written(record) => {
                let body = record.encode();
                let mut bytes = blake3::hash(&body).as_bytes().to_vec();
                bytes.extend_from_slice(&body);
                bytes
            }
            Self::Damaged(bytes) => bytes.clone(),
        }
    }

    fn read(&self) -> Option<Record> {
        let bytes = self.bytes();
        let (checksum, body) = bytes.split_at_checked(32)?;
        let whole = blake3::hash(body).as_bytes() == checksum;
        Record::decode(body).ok().filter(|_| whole)
    }
}

/// A checkpoint file.
#[derive(Debug, Clone)]
pub struct Saved {
    bytes: Vec<u8>,
    /// Whether it belongs to a branch that its peer has left: no more than a keepsake.
    pub abandoned: bool,
    /// Whether it reads back well, once somebody has looked.
    good: OnceCell<bool>,
}

impl Saved {
    /// A file with these bytes.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, abandoned: false, good: OnceCell::new() }
    }

    /// What is in it.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What is in it, to be changed.
    pub fn bytes_mut(&mut self) -> &mut Vec<u8> {
        self.good = OnceCell::new();
        &mut self.bytes
    }

    /// Whether it reads back well.
    pub fn is_good(&self) -> bool {
        *self.good.get_or_init(|| State::decode(&self.bytes, true).is_some())
    }
}

/// The disk has no room, or takes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused;

impl Disk {
    /// Whether there is room.
    pub fn set_full(&mut self, full: bool) {
        self.full = full;
    }

    /// Whether it takes anything.
    pub fn set_read_only(&mut self, read_only: bool) {
        self.read_only = read_only;
    }

    /// Whether it answers at all.
    pub fn set_hanging(&mut self, hangs: bool) {
        self.hangs = hangs;
    }

    /// Whether what is written to it now waits.
    pub fn hangs(&self) -> bool {
        self.hangs
    }

    /// The agreement record, as it was last written; `None` if there is none, or it does not hash to its checksum.
    pub fn record(&self) -> Option<Record> {
        self.record.as_ref()?.read()
    }

    /// Whether the agreement record is there and good.
    pub fn has_record(&self) -> bool {
        match &self.record {
            Some(Recorded::Written(_)) => true,
            Some(damaged @ Recorded::Damaged(_)) => damaged.read().is_some(),
            None => false,
        }
    }

    /// Replaces the agreement record and syncs it.
    ///
    /// # Errors
    /// [`Refused`] if it does not take it. The old one is still there then.
    pub fn write_record(&mut self, record: Box<Record>) -> Result<(), Refused> {
        if self.full || self.read_only {
            return Err(Refused);
        }
        self.record = Some(Recorded::Written(record));
        Ok(())
    }

    /// The checkpoints by step.
    pub fn checkpoints(&self) -> &BTreeMap<u64, Saved> {
        &self.checkpoints
    }

    /// Adds the checkpoint of `step`, synced.
    ///
    /// # Errors
    /// [`Refused`] if it does not take it.
    pub fn write_checkpoint(&mut self, step: u64, file: Saved) -> Result<(), Refused> {
        if self.full || self.read_only {
            return Err(Refused);
        }
        self.checkpoints.insert(step, file);
        Ok(())
    }

    /// Deletes the checkpoint of `step`.
    pub fn delete_checkpoint(&mut self, step: u64) {
        self.checkpoints.remove(&step);
    }

    /// Whether the peer has ever left a branch.
    pub fn has_abandoned(&self) -> bool {
        self.abandoned
    }

    /// All checkpoints are of a branch that is abandoned now.
    pub fn abandon_checkpoints(&mut self) {
        self.abandoned = true;
        for saved in self.checkpoints.values_mut() {
            saved.abandoned = true;
        }
    }

    /// Forgets that a branch was left: what no peer may do.
    pub fn revive_checkpoints(&mut self) {
        self.abandoned = false;
        self.checkpoints.values_mut().for_each(|saved| saved.abandoned = false);
    }

    /// Nothing is left.
    pub fn wipe(&mut self) {
        let (full, read_only, hangs) = (self.full, self.read_only, self.hangs);
        *self = Self { full, read_only, hangs, ..Self::default() };
    }

    /// Flips one bit of one file; says which one, if there is any.
    pub fn flip(&mut self, rng: &mut Rng) -> Option<String> {
        let steps: Vec<u64> = self.checkpoints.keys().copied().collect();
        let in_record = self.record.is_some() && (steps.is_empty() || rng.one_in(3));
        if in_record {
            let mut bytes = self.record.as_ref()?.bytes();
            flip_one(&mut bytes, rng)?;
            self.record = Some(Recorded::Damaged(bytes));
            return Some("the record".to_owned());
        }
        let step = rng.pick(&steps)?;
        flip_one(self.checkpoints.get_mut(&step)?.bytes_mut(), rng)?;
        Some(format!("the checkpoint of step {step}"))
    }

    /// Cuts the newest checkpoint short, as a disk that lies about syncing does; says which one, if there is any.
    pub fn tear(&mut self, rng: &mut Rng) -> Option<u64> {
        let (step, saved) = self.checkpoints.iter_mut().next_back()?;
        let length = u64::try_from(saved.bytes().len()).unwrap_or(0);
        saved.bytes_mut().truncate(usize::try_from(rng.between(0, length.saturating_sub(1))).unwrap_or(0));
        Some(*step)
    }
}

fn flip_one(bytes: &mut [u8], rng: &mut Rng) -> Option<()> {
    let last = u64::try_from(bytes.len()).ok()?.checked_sub(1)?;
    let at = usize::try_from(rng.between(0, last)).ok()?;
    bytes[at] ^= 1 << rng.between(0, 7);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use starling_topology::ledger::Ledger;
    use starling_topology::{PeerId, RunId, View};

    fn record(founder: u8) -> Record {
        Record {
            view: View::found(RunId([1; 32]), PeerId([founder; 32])),
            origin: None,
            promised: None,
            accepted: None,
        }
    }

    #[test]
    fn a_full_disk_keeps_what_it_has() {
        let mut disk = Disk::default();
        assert_eq!(disk.write_record(Box::new(record(1))), Ok(()));
        for (full, read_only) in [(true, false), (false, true)] {
            disk.set_full(full);
            disk.set_read_only(read_only);
            assert_eq!(disk.write_record(Box::new(record(2))), Err(Refused));
            assert_eq!(disk.write_checkpoint(1, Saved::new(vec![3])), Err(Refused));
        }
        assert_eq!((disk.record(), disk.checkpoints().len()), (Some(record(1)), 0));
    }

    #[test]
    fn a_record_with_a_flipped_bit_is_none() {
        for seed in 0..50 {
            let mut disk = Disk::default();
            disk.write_record(Box::new(record(1))).expect("there is room");
            assert!(disk.has_record());
            assert!(disk.flip(&mut Rng::new(seed)).is_some());
            assert_eq!((disk.record(), disk.has_record()), (None, false));
            disk.write_record(Box::new(record(2))).expect("there is room");
            assert_eq!((disk.record(), disk.has_record()), (Some(record(2)), true));
        }
    }

    #[test]
    fn bits_flip_and_files_tear() {
        let mut disk = Disk::default();
        assert_eq!((disk.flip(&mut Rng::new(1)), disk.tear(&mut Rng::new(1))), (None, None));
        let whole = State::initial(Ledger::new(1, 9, 3)).encode();
        disk.write_checkpoint(4, Saved::new(whole.clone())).expect("there is room");
        assert!(disk.checkpoints()[&4].is_good());
        assert!(disk.flip(&mut Rng::new(1)).is_some());
        assert!(!disk.checkpoints()[&4].is_good());
        assert_eq!(disk.tear(&mut Rng::new(1)), Some(4));
        assert!(disk.checkpoints()[&4].bytes().len() < whole.len());
        disk.wipe();
        assert!(disk.checkpoints().is_empty());
    }
}
