//! Chunks on their way to the disk.

use std::collections::BTreeMap;
use std::io::Write;

use atomic_write_file::AtomicWriteFile;
use starling_topology::Digest;

use super::{CheckpointError, CheckpointStore};

/// Files that are open at a time: 128 MiB.
const MAX_OPEN: usize = 128;

/// Chunks that are written but not synced, nor in their place. Were each synced before the next one is written, a state would be
/// needed for as long as the disk takes, and the run wants to change it.
pub(super) struct Unsynced<'a> {
    store: &'a CheckpointStore,
    files: BTreeMap<Digest, AtomicWriteFile>,
}

impl<'a> Unsynced<'a> {
    pub(super) fn in_store(store: &'a CheckpointStore) -> Self {
        Self { store, files: BTreeMap::new() }
    }

    /// Writes a chunk, if it is not there. A damaged one is replaced.
    pub(super) fn write(&mut self, name: Digest, chunk: &[u8]) -> Result<(), CheckpointError> {
        if self.files.contains_key(&name) || self.store.read_chunk(name).is_ok() {
            return Ok(());
        }
        if self.files.len() == MAX_OPEN {
            self.sync()?;
        }
        let path = self.store.chunk_path(name);
        let mut file = AtomicWriteFile::open(&path).map_err(CheckpointError::io("write", &path))?;
        file.write_all(chunk).map_err(CheckpointError::io("write", &path))?;
        self.files.insert(name, file);
        Ok(())
    }

    /// Waits until all are on disk, in their places.
    pub(super) fn sync(&mut self) -> Result<(), CheckpointError> {
        while let Some((name, file)) = self.files.pop_first() {
            let path = self.store.chunk_path(name);
            file.commit().map_err(CheckpointError::io("write", &path))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::names;
    use super::*;
    use crate::state::snapshot::hash;

    #[test]
    fn chunks_come_to_their_places_when_they_are_synced() {
        let directory = tempfile::tempdir().expect("a temp dir");
        let store = CheckpointStore::open(directory.path(), 3).expect("a store");
        let chunks: Vec<_> = (0..2 * MAX_OPEN + 5).map(|number| number.to_le_bytes()).collect();
        let in_place = || {
            let is_there = |chunk: &&[u8; 8]| store.read_chunk(hash(*chunk)).is_ok();
            chunks.iter().filter(is_there).count()
        };
        let mut unsynced = Unsynced::in_store(&store);
        for chunk in chunks.iter().chain(&chunks) {
            unsynced.write(hash(chunk), chunk).expect("written");
        }
        assert!(unsynced.files.len() <= MAX_OPEN, "files are bounded");
        assert!(in_place() >= chunks.len() - MAX_OPEN && in_place() < chunks.len());
        unsynced.sync().expect("synced");
        assert_eq!(in_place(), chunks.len());
        // Who gives up leaves nothing.
        let before = names(&store.chunks()).expect("read");
        unsynced.write(hash(b"never synced"), b"never synced").expect("written");
        drop(unsynced);
        assert_eq!(names(&store.chunks()).expect("read"), before);
    }
}
