//! What this machine has saved to sign it, kept apart from its checkpoints: a file of two [slots](starling_topology::slot), each
//! half of it. It is written before a checkpoint is signed. Whoever comes back without its checkpoints knows by it what it has lost.

use std::path::{Path, PathBuf};

use starling_topology::mark::MAX_MARK_BYTES;
use starling_topology::slot::{self, HEADER_BYTES, Slot};
use starling_topology::{Mark, PeerId, Root, RunId};

use crate::error::NodeError;
use crate::{private_file, slot_file};

const PREFIX: &str = "saved-";
/// Each slot has a block of its own, so that one that is torn leaves the other whole.
const SLOT: usize = 4096;
const MAX_BYTES: u64 = 2 * SLOT as u64;
const _: () = assert!(HEADER_BYTES + MAX_MARK_BYTES <= SLOT, "a mark fits its slot");

/// The mark of one run in a data directory.
#[derive(Debug, Clone)]
pub(crate) struct MarkFile {
    path: PathBuf,
    run: RunId,
    me: PeerId,
}

/// What a file has to say.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Loaded {
    pub(crate) mark: Option<Mark>,
    /// What is wrong with it.
    pub(crate) damage: Option<String>,
}

impl MarkFile {
    pub(crate) fn new(data_dir: &Path, run: RunId, me: PeerId) -> Self {
        Self { path: data_dir.join(format!("{PREFIX}{}", &run.to_string()[..16])), run, me }
    }

    /// Notes that this is saved, where that says more than what is noted to one whose branch has this root. In both slots, and synced,
    /// when it returns; if it fails, what was noted before still is, or this is.
    pub(crate) fn note(&self, saved: Mark, root: &Root) -> Result<(), NodeError> {
        // What can't be read is replaced as a whole.
        let before = private_file::read_up_to(&self.path, MAX_BYTES).ok().flatten().unwrap_or_default();
        let slots = self.slots(&before);
        let versions = versions(&slots);
        if versions.iter().all(Option::is_some) && newest(&slots).is_some_and(|mark| mark.covers(saved, root)) {
            return Ok(());
        }
        let version = versions.into_iter().flatten().max().unwrap_or(0) + 1;
        let bytes = Slot { run: self.run, peer: self.me, version, payload: saved.encode() }.encode();
        if before.len() == 2 * SLOT {
            return slot_file::overwrite(&self.path, SLOT, slot::order(versions), &bytes);
        }
        slot_file::create(&self.path, SLOT, &bytes)
    }

    /// What is noted. Without it a machine does not know what it has lost, and may still take part.
    pub(crate) fn load(&self) -> Loaded {
        let lost = "if this machine's checkpoints are lost too, it can't know that they are";
        match private_file::read_up_to(&self.path, MAX_BYTES) {
            Ok(None) => Loaded::default(),
            Ok(Some(bytes)) => {
                let mark = newest(&self.slots(&bytes));
                let damage = format!("{} is damaged, or another run's; {lost}", self.path.display());
                Loaded { mark, damage: mark.is_none().then_some(damage) }
            }
            Err(error) => Loaded { mark: None, damage: Some(format!("{error}; {lost}")) },
        }
    }

    /// What is whole, and ours: each with its version.
    fn slots(&self, bytes: &[u8]) -> [Option<(u64, Mark)>; 2] {
        let second = bytes.get(SLOT..).unwrap_or_default();
        let read = |bytes: &[u8]| {
            let slot = Slot::decode(bytes).filter(|slot| slot.run == self.run && slot.peer == self.me)?;
            Some((slot.version, Mark::decode(&slot.payload)?))
        };
        [read(bytes), read(second)]
    }
}

fn versions(slots: &[Option<(u64, Mark)>; 2]) -> [Option<u64>; 2] {
    slots.map(|slot| slot.map(|(version, _)| version))
}

fn newest(slots: &[Option<(u64, Mark)>; 2]) -> Option<Mark> {
    slots[slot::newest(versions(slots))?].map(|(_, mark)| mark)
}

#[cfg(test)]
mod tests {
    use super::*;
    use starling_topology::Lineage;

    const RUN: RunId = RunId([7; 32]);
    const ME: PeerId = PeerId([1; 32]);

    fn mark(step: u64) -> Mark {
        Mark { step, lineage: Lineage::NONE }
    }

    /// It admits what [`mark`] gives.
    fn root() -> Root {
        Root::default()
    }

    #[test]
    fn the_highest_mark_of_its_branch_is_kept() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let file = MarkFile::new(dir.path(), RUN, ME);
        assert_eq!(file.load(), Loaded::default());
        for (step, kept) in [(20, 20), (40, 40), (30, 40), (60, 60)] {
            file.note(mark(step), &root()).expect("noted");
            assert_eq!(file.load(), Loaded { mark: Some(mark(kept)), damage: None });
        }
        // On another branch.
        file.note(mark(10), &Root { branch: 3, ..root() }).expect("noted");
        assert_eq!(file.load().mark, Some(mark(10)));
    }

    #[test]
    fn one_slot_is_enough_and_none_is_told_and_replaced() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let file = MarkFile::new(dir.path(), RUN, ME);
        file.note(mark(20), &root()).expect("noted");
        let whole = std::fs::read(&file.path).expect("read");
        assert_eq!(whole.len(), 2 * SLOT);
        for at in [0, SLOT] {
            let mut torn = whole.clone();
            torn[at + 20] ^= 1;
            std::fs::write(&file.path, &torn).expect("written");
            assert_eq!(file.load(), Loaded { mark: Some(mark(20)), damage: None });
            file.note(mark(20), &root()).expect("noted");
            let slots = file.slots(&std::fs::read(&file.path).expect("read"));
            assert!(slots.iter().all(Option::is_some), "both are whole again");
        }
        for bytes in [&b""[..], b"nonsense", &[0; 2 * SLOT], &[0; 3 * SLOT]] {
            std::fs::write(&file.path, bytes).expect("written");
            let loaded = file.load();
            assert!(loaded.mark.is_none() && loaded.damage.is_some(), "{} bytes", bytes.len());
            file.note(mark(30), &root()).expect("noted");
            assert_eq!(file.load().mark, Some(mark(30)));
        }
        let other = MarkFile { me: PeerId([2; 32]), ..file.clone() };
        assert!(other.load().mark.is_none() && other.load().damage.is_some());
    }

    #[test]
    fn what_can_not_be_written_is_said() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let file = MarkFile::new(dir.path(), RUN, ME);
        std::fs::create_dir_all(file.path.join("in the way")).expect("made");
        assert!(file.note(mark(20), &root()).is_err());
        assert!(file.load().mark.is_none() && file.load().damage.is_some());
    }
}
