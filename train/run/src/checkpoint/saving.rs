//! Writing a state: its chunks, then what names them, read back before anything older goes.

use std::io;
use std::path::PathBuf;

use starling_topology::Digest;

use super::unsynced::Unsynced;
use super::{CheckpointError, CheckpointStore, CheckpointSummary, write_atomically};
use crate::state::ReplicatedState;
use crate::state::snapshot::{Splitter, hash};

impl CheckpointStore {
    /// Writes a checkpoint, reads it back, and only then removes those beyond the last `keep`, but never the last stable
    /// one that is intact, and those of branches that were [left](CheckpointStore::root_in). Saving a state that is there already
    /// repairs it if it is damaged. Each vector is given up as soon as it is written, before the disk has it for sure.
    ///
    /// # Errors
    /// If the state is of a branch that was left or is none that can be read back, the directory holds checkpoints of another
    /// run, a file cannot be written, or what was written does not read back; older checkpoints are then untouched, and chunks that
    /// none of them needs are removed.
    pub fn save(&self, state: ReplicatedState) -> Result<CheckpointSummary, CheckpointError> {
        self.save_and_tidy(state).map(|(info, _)| info)
    }

    /// As [`Self::save`], and why something that is not needed any more is still there: what was written and read back counts all
    /// the same, unless it stands in the list of those that were left.
    ///
    /// # Errors
    /// As there.
    pub fn save_and_tidy(
        &self,
        state: ReplicatedState,
    ) -> Result<(CheckpointSummary, Option<CheckpointError>), CheckpointError> {
        let refuse = |error| {
            let reason = format!("the state after step {} would be no checkpoint: {error}", state.step);
            CheckpointError::Malformed { path: self.directory.clone(), reason }
        };
        state.check_numbers().and_then(|()| state.check_ledger()).map_err(refuse)?;
        let (run, step) = (state.run, state.step);
        if self.has_left(&state) {
            return Err(CheckpointError::OtherBranch { directory: self.directory.clone(), step });
        }
        self.refuse_other_run(run)?;
        let (path, id) = self.write(state).inspect_err(|_| self.sweep())?;
        let (info, manifest) = self.read_manifest(&path, step, id)?;
        self.check_bytes(&manifest, &info.path)?;
        let untidy = self.prune(&info).err();
        let is_left = || self.abandoned().map_or(true, |abandoned| abandoned.all.contains(&info.id));
        match untidy {
            Some(error) if is_left() => Err(error),
            untidy => Ok((info, untidy)),
        }
    }

    /// Writes the chunks of a state, then its manifest. Says where that is, and its name.
    fn write(&self, state: ReplicatedState) -> Result<(PathBuf, Digest), CheckpointError> {
        let (run, step, lineage) = (state.run, state.step, state.lineage);
        let mut chunks = Unsynced::in_store(self);
        // Why a chunk could not be stored: `Write` can only say that it could not.
        let mut trouble = None;
        let mut splitter = Splitter::new(|name, chunk: &[u8]| {
            chunks.write(name, chunk).map_err(|error| {
                trouble = Some(error);
                io::Error::other("a chunk could not be stored")
            })
        });
        let written = state.write_out(&mut splitter).and_then(|values| splitter.finish(run, step, lineage, values));
        let manifest = match (written, trouble) {
            (Ok(manifest), _) => manifest,
            (Err(_), Some(error)) => return Err(error),
            (Err(source), None) => return Err(CheckpointError::io("write", &self.chunks())(source)),
        };
        chunks.sync()?;
        let encoded = manifest.encode();
        let id = hash(&encoded);
        let path = self.directory.join(format!("step-{step:012}-{id}.json"));
        write_atomically(&path, &encoded)?;
        Ok((path, id))
    }
}
