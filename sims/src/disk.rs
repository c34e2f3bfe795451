//! A simulated disk: it loses what was not synced, tears it, flips bits, and fills up.

use std::collections::BTreeMap;

use crate::rng::Rng;

/// The folder of one peer. A file appears under its name only once it is synced (temporary file, fsync, rename, fsync
/// of the folder); what dies before that is swept away at the next start.
#[derive(Debug, Clone, Default)]
pub struct Disk {
    record: Option<Vec<u8>>,
    checkpoints: BTreeMap<u64, Saved>,
    /// Whether the state before the newest checkpoint, if there is one, belongs to a branch that was left.
    abandoned: bool,
    full: bool,
}

/// A checkpoint file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Saved {
    /// What is in it.
    pub bytes: Vec<u8>,
    /// Whether it belongs to a branch that its peer has left: no more than a keepsake.
    pub abandoned: bool,
}

/// There is no room left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

impl Disk {
    /// Whether there is room.
    pub fn set_full(&mut self, full: bool) {
        self.full = full;
    }

    /// The agreement record, as it was last written.
    pub fn record(&self) -> Option<&[u8]> {
        self.record.as_deref()
    }

    /// Replaces the agreement record and syncs it.
    ///
    /// # Errors
    /// [`Full`] if there is no room. The old one is still there then.
    pub fn write_record(&mut self, bytes: Vec<u8>) -> Result<(), Full> {
        if self.full {
            return Err(Full);
        }
        self.record = Some(bytes);
        Ok(())
    }

    /// The checkpoints by step.
    pub fn checkpoints(&self) -> &BTreeMap<u64, Saved> {
        &self.checkpoints
    }

    /// Adds the checkpoint of `step`, synced.
    ///
    /// # Errors
    /// [`Full`] if there is no room.
    pub fn write_checkpoint(&mut self, step: u64, bytes: Vec<u8>) -> Result<(), Full> {
        if self.full {
            return Err(Full);
        }
        self.checkpoints.insert(step, Saved { bytes, abandoned: false });
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
        *self = Self { full: self.full, ..Self::default() };
    }

    /// Flips one bit of one file; says which one, if there is any.
    pub fn flip(&mut self, rng: &mut Rng) -> Option<String> {
        let steps: Vec<u64> = self.checkpoints.keys().copied().collect();
        let in_record = self.record.is_some() && (steps.is_empty() || rng.one_in(3));
        let (name, bytes) = if in_record {
            ("the record".to_owned(), self.record.as_mut()?)
        } else {
            let step = rng.pick(&steps)?;
            (format!("the checkpoint of step {step}"), &mut self.checkpoints.get_mut(&step)?.bytes)
        };
        let last = u64::try_from(bytes.len()).ok()?.checked_sub(1)?;
        let at = usize::try_from(rng.between(0, last)).ok()?;
        bytes[at] ^= 1 << rng.between(0, 7);
        Some(name)
    }

    /// Cuts the newest checkpoint short, as a disk that lies about syncing does; says which one, if there is any.
    pub fn tear(&mut self, rng: &mut Rng) -> Option<u64> {
        let (step, saved) = self.checkpoints.iter_mut().next_back()?;
        let length = u64::try_from(saved.bytes.len()).unwrap_or(0);
        saved.bytes.truncate(usize::try_from(rng.between(0, length.saturating_sub(1))).unwrap_or(0));
        Some(*step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_keeps_what_it_has() {
        let mut disk = Disk::default();
        assert_eq!(disk.write_record(vec![1]), Ok(()));
        disk.set_full(true);
        assert_eq!((disk.write_record(vec![2]), disk.write_checkpoint(1, vec![3])), (Err(Full), Err(Full)));
        assert_eq!((disk.record(), disk.checkpoints().len()), (Some(&[1][..]), 0));
    }

    #[test]
    fn bits_flip_and_files_tear() {
        let mut disk = Disk::default();
        assert_eq!((disk.flip(&mut Rng::new(1)), disk.tear(&mut Rng::new(1))), (None, None));
        let whole = vec![0; 9];
        disk.write_checkpoint(4, whole.clone()).expect("there is room");
        assert!(disk.flip(&mut Rng::new(1)).is_some());
        assert_ne!(disk.checkpoints()[&4].bytes, whole);
        assert_eq!(disk.tear(&mut Rng::new(1)), Some(4));
        assert!(disk.checkpoints()[&4].bytes.len() < whole.len());
        disk.wipe();
        assert!(disk.checkpoints().is_empty());
    }
}
