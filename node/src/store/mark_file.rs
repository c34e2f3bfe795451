//! What this machine has saved to sign it, kept apart from its checkpoints: a file of two [slots](starling_topology::vote::slot), each
//! half of it. It is there before there is a vote, and written before a checkpoint is signed. Whoever comes back without its
//! checkpoints knows by it what it has lost; without it too, that it does not know that.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use starling_topology::view::mark::MAX_MARK_BYTES;
use starling_topology::vote::slot::{self, HEADER_BYTES, Slot};
use starling_topology::{Mark, MarkStatus, PeerId, Root, RunId};

use crate::error::NodeError;
use crate::store::private_file;
use crate::store::slot_file;

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
    /// Two threads write it: the one that stores votes, and the one that saves checkpoints.
    turn: Arc<Mutex<()>>,
}

/// What a file has to say.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Loaded {
    pub(crate) noted: MarkStatus,
    /// What is wrong with it.
    pub(crate) damage: Option<String>,
}

impl MarkFile {
    pub(crate) fn new(data_dir: &Path, run: RunId, me: PeerId) -> Self {
        Self { path: data_dir.join(format!("{PREFIX}{}", &run.to_string()[..16])), run, me, turn: Arc::default() }
    }

    /// Notes that nothing is saved, if there is no file at all: before there is a vote, so that one without a note has lost it.
    pub(crate) fn begin(&self) -> Result<(), NodeError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        match private_file::read_up_to(&self.path, MAX_BYTES) {
            Ok(None) => slot_file::create(&self.path, SLOT, &self.slot(1, MarkStatus::Nothing)),
            // What is there stays, and what can't be read is not taken for nothing.
            Ok(Some(_)) | Err(_) => Ok(()),
        }
    }

    /// Notes that this is saved, where that says more than what is noted to one whose branch has this root. In both slots, and synced,
    /// when it returns; if it fails, what was noted before still is, or this is.
    pub(crate) fn note(&self, saved: Mark, root: &Root) -> Result<(), NodeError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        // What can't be read is replaced as a whole.
        let before = private_file::read_up_to(&self.path, MAX_BYTES).ok().flatten().unwrap_or_default();
        let slots = self.slots(&before);
        let versions = versions(&slots);
        if versions.iter().all(Option::is_some) && newest(&slots).is_some_and(|noted| noted.covers(saved, root)) {
            return Ok(());
        }
        let version = versions.into_iter().flatten().max().unwrap_or(0) + 1;
        let bytes = self.slot(version, MarkStatus::Saved(saved));
        if before.len() == 2 * SLOT {
            return slot_file::overwrite(&self.path, SLOT, slot::order(versions), &bytes);
        }
        slot_file::create(&self.path, SLOT, &bytes)
    }

    /// What is noted. Without it a machine does not know what it has lost, and still takes part: if it has a vote, those that it votes with
    /// wait for whoever may hold what it may have signed.
    pub(crate) fn load(&self) -> Loaded {
        let path = self.path.display();
        let found = match private_file::read_up_to(&self.path, MAX_BYTES) {
            Ok(None) => Err(format!("there is no {path}")),
            Ok(Some(bytes)) => {
                newest(&self.slots(&bytes)).ok_or_else(|| format!("{path} is damaged, or another run's"))
            }
            Err(error) => Err(error.to_string()),
        };
        match found {
            Ok(noted) => Loaded { noted, damage: None },
            Err(reason) => Loaded { noted: MarkStatus::Unknown, damage: Some(format!("{reason}; {LOST}")) },
        }
    }

    fn slot(&self, version: u64, noted: MarkStatus) -> Vec<u8> {
        let payload = noted.encode().expect("invariant: nobody writes what is not known");
        Slot { run: self.run, peer: self.me, version, payload }.encode()
    }

    /// What is whole, and ours: each with its version.
    pub(crate) fn slots(&self, bytes: &[u8]) -> [Option<(u64, MarkStatus)>; 2] {
        let second = bytes.get(SLOT..).unwrap_or_default();
        let read = |bytes: &[u8]| {
            let slot = Slot::decode(bytes).filter(|slot| slot.run == self.run && slot.peer == self.me)?;
            Some((slot.version, MarkStatus::decode(&slot.payload)?))
        };
        [read(bytes), read(second)]
    }
}

fn versions(slots: &[Option<(u64, MarkStatus)>; 2]) -> [Option<u64>; 2] {
    slots.map(|slot| slot.map(|(version, _)| version))
}

fn newest(slots: &[Option<(u64, MarkStatus)>; 2]) -> Option<MarkStatus> {
    slots[slot::newest(versions(slots))?].map(|(_, noted)| noted)
}

/// What follows from a note that is gone.
const LOST: &str = "this member does not know what it had saved before, and says so until it saves its state again: where it votes, \
    nobody goes on without whoever may hold more";

#[cfg(test)]
mod tests {
    use super::*;
    use starling_topology::Lineage;

    const RUN: RunId = RunId([7; 32]);
    const ME: PeerId = PeerId([1; 32]);

    fn mark(step: u64) -> Mark {
        Mark { step, lineage: Lineage::NONE }
    }

    fn known(step: u64) -> Loaded {
        Loaded { noted: MarkStatus::Saved(mark(step)), damage: None }
    }

    fn is_lost(file: &MarkFile) -> bool {
        let Loaded { noted, damage } = file.load();
        noted == MarkStatus::Unknown && damage.is_some()
    }

    /// It admits what [`mark`] gives.
    fn root() -> Root {
        Root::default()
    }

    #[test]
    fn the_highest_mark_of_its_branch_is_kept() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let file = MarkFile::new(dir.path(), RUN, ME);
        assert_eq!(file.load().noted, MarkStatus::Unknown);
        file.begin().expect("noted");
        assert_eq!(file.load(), Loaded { noted: MarkStatus::Nothing, damage: None });
        for (step, kept) in [(20, 20), (40, 40), (30, 40), (60, 60)] {
            file.note(mark(step), &root()).expect("noted");
            file.begin().expect("it is there");
            assert_eq!(file.load(), known(kept));
        }
        // On another branch.
        file.note(mark(10), &Root { branch: 3, ..root() }).expect("noted");
        assert_eq!(file.load().noted, MarkStatus::Saved(mark(10)));
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
            assert_eq!(file.load(), known(20));
            file.note(mark(20), &root()).expect("noted");
            let slots = file.slots(&std::fs::read(&file.path).expect("read"));
            assert!(slots.iter().all(Option::is_some), "both are whole again");
        }
        for bytes in [&b""[..], b"nonsense", &[0; 2 * SLOT], &[0; 3 * SLOT]] {
            std::fs::write(&file.path, bytes).expect("written");
            assert!(is_lost(&file), "{} bytes", bytes.len());
            file.begin().expect("it is there");
            assert!(is_lost(&file), "it is not taken for one that has saved nothing");
            file.note(mark(30), &root()).expect("noted");
            assert_eq!(file.load().noted, MarkStatus::Saved(mark(30)));
        }
        let other = MarkFile { me: PeerId([2; 32]), ..file.clone() };
        assert!(is_lost(&other));
    }

    #[test]
    fn what_can_not_be_written_is_said() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let file = MarkFile::new(dir.path(), RUN, ME);
        std::fs::create_dir_all(file.path.join("in the way")).expect("made");
        assert!(file.note(mark(20), &root()).is_err());
        assert!(is_lost(&file));
    }
}
