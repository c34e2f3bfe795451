//! The checkpoints of all runs that a machine took part in.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use starling_topology::RunId;

use super::{CheckpointError, CheckpointStore, names};

/// How many hex digits of a run's id name its directory.
const NAME_DIGITS: usize = 16;

/// A directory with a store for each run, named by the first 16 hex digits of the run's id.
#[derive(Debug, Clone)]
pub struct CheckpointFolder {
    directory: PathBuf,
}

impl CheckpointFolder {
    /// The folder at `directory`, which need not be there.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into() }
    }

    /// Opens the store of `run`, as [`CheckpointStore::open`] does.
    ///
    /// # Errors
    /// If its directory cannot be made or read.
    pub fn open(&self, run: RunId, keep: usize) -> Result<CheckpointStore, CheckpointError> {
        CheckpointStore::open(self.directory.join(&run.to_string()[..NAME_DIGITS]), keep)
    }

    /// The stores of all runs that have checkpoints, [to read them](CheckpointStore::reading), the one written to last at the
    /// end. None if the folder is not there.
    ///
    /// # Errors
    /// If a directory cannot be read.
    pub fn stores(&self) -> Result<Vec<CheckpointStore>, CheckpointError> {
        if !self.directory.is_dir() {
            return Ok(Vec::new());
        }
        let mut stores = Vec::new();
        for name in names(&self.directory)?.into_iter().filter(|name| name.len() == NAME_DIGITS && is_hex(name)) {
            let store = CheckpointStore::reading(self.directory.join(&name));
            let times = store.each(|_, _, path| modified(path).map_err(CheckpointError::io("read", path)))?;
            let written = times.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().max();
            // Two that were written within one tick of the file system's clock stand in the order of their names.
            stores.extend(written.map(|written| (written, name, store)));
        }
        stores.sort_by(|(a, a_name, _), (b, b_name, _)| (a, a_name).cmp(&(b, b_name)));
        Ok(stores.into_iter().map(|(_, _, store)| store).collect())
    }

    /// The store of the run whose id begins with `prefix`, or of the run that was written to last, [to read
    /// it](CheckpointStore::reading).
    ///
    /// # Errors
    /// If there is none, several begin so, or a directory cannot be read.
    pub fn store(&self, prefix: Option<&str>) -> Result<CheckpointStore, CheckpointError> {
        let mut stores = self.stores()?;
        let none = || CheckpointError::NotFound { directory: self.directory.clone(), step: None, steps: Vec::new() };
        let Some(prefix) = prefix else { return stores.pop().ok_or_else(none) };
        let mut found = Vec::new();
        for store in stores {
            let run = store.run()?;
            found.extend(run.filter(|run| run.to_string().starts_with(prefix)).map(|_| store));
        }
        match found.len() {
            1 => found.pop().ok_or_else(none),
            found => {
                let (directory, prefix) = (self.directory.clone(), prefix.to_owned());
                Err(CheckpointError::NotOneRun { directory, prefix, found })
            }
        }
    }
}

fn modified(path: &Path) -> io::Result<std::time::SystemTime> {
    fs::metadata(path)?.modified()
}

fn is_hex(name: &str) -> bool {
    name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::state::ReplicatedState;

    fn state(run: u8, step: u64) -> ReplicatedState {
        ReplicatedState {
            run: RunId([run; 32]),
            step,
            lineage: starling_topology::Lineage::NONE,
            parameters: vec![0.5; 8].into(),
            frozen: <_>::default(),
            moments: vec![],
            scalars: vec![],
            ledger: crate::checkpoint::tests::ledger(step),
        }
    }

    #[test]
    fn runs_keep_apart_and_the_one_written_last_comes_last() {
        let directory = tempfile::tempdir().expect("a directory");
        let folder = CheckpointFolder::new(directory.path().join("checkpoints"));
        assert!(folder.stores().expect("nothing there").is_empty());
        assert!(!directory.path().join("checkpoints").exists(), "asking made it");
        for (run, age) in [(1, 10), (2, 30), (3, 20)] {
            let store = folder.open(RunId([run; 32]), 3).expect("a store");
            let info = store.save(state(run, 5)).expect("saved");
            let file = fs::File::options().write(true).open(info.path).expect("there");
            file.set_modified(SystemTime::now() - Duration::from_secs(age)).expect("set");
        }
        // A store without a checkpoint, and a folder that is none of ours.
        folder.open(RunId([4; 32]), 3).expect("a store");
        fs::create_dir(directory.path().join("checkpoints/notes")).expect("made");
        let stores = folder.stores().expect("read");
        let runs: Vec<_> = stores.iter().map(|store| store.run().expect("read")).collect();
        assert_eq!(runs, [2, 3, 1].map(|run| Some(RunId([run; 32]))));
        assert!(directory.path().join("checkpoints/0202020202020202/chunks").is_dir());
    }

    #[test]
    fn a_run_is_found_by_the_start_of_its_id() {
        let directory = tempfile::tempdir().expect("a directory");
        let folder = CheckpointFolder::new(directory.path());
        assert!(matches!(folder.store(None), Err(CheckpointError::NotFound { .. })));
        for (run, step) in [(0xa1, 5), (0xa2, 7)] {
            folder.open(RunId([run; 32]), 3).expect("a store").save(state(run, step)).expect("saved");
        }
        let steps = |prefix: &str| folder.store(Some(prefix)).map(|store| store.steps().expect("read"));
        assert_eq!(steps("a1").expect("one"), [5]);
        assert_eq!(steps(&"a2".repeat(32)).expect("one"), [7]);
        for (prefix, part) in [("a", "2 runs"), ("b", "0 runs")] {
            let error = steps(prefix).expect_err("not one").to_string();
            assert!(error.contains(part) && error.contains("starling checkpoint ls"), "{error}");
        }
        assert!(folder.store(None).is_ok());
    }
}
