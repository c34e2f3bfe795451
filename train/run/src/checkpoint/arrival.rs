//! A checkpoint that comes from other peers, chunk by chunk. Chunks that are here stay, also if the process is killed on
//! the way; the manifest comes last, as with a checkpoint of one's own.

use std::collections::{BTreeMap, BTreeSet};

use starling_topology::Digest;

use super::{CheckpointError, CheckpointStore, CheckpointSummary, write_atomically};
use crate::state::snapshot::{SnapshotError, SnapshotManifest, hash};

impl CheckpointStore {
    /// The chunks of `manifest` that are not here, or are damaged, each once, in the order of the state. The others stay for now.
    pub fn missing(&self, manifest: &SnapshotManifest) -> Vec<Digest> {
        self.arriving.begin(manifest);
        let mut seen = BTreeSet::new();
        let distinct = manifest.chunks.iter().filter(|chunk| seen.insert(**chunk));
        distinct.filter(|chunk| self.read_chunk(**chunk).is_err()).copied().collect()
    }

    /// Gives up what was on its way: the chunks of checkpoints that never came whole. Nothing may be fetched or saved meanwhile.
    pub fn give_up_arriving(&self) {
        self.arriving.clear();
        self.sweep();
    }

    /// The checkpoints whose manifests are intact, by name, with their steps. Reads no chunks.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn held(&self) -> Result<BTreeMap<Digest, u64>, CheckpointError> {
        Ok(self.intact()?.into_iter().map(|(info, _)| (info.id, info.step)).collect())
    }

    /// Keeps a chunk of `manifest` that another peer sent. On disk when this returns.
    ///
    /// # Errors
    /// If its hash is that of no chunk of the manifest, its length is not that of its place, or it cannot be written.
    pub fn insert(&self, manifest: &SnapshotManifest, chunk: &[u8]) -> Result<(), CheckpointError> {
        let name = hash(chunk);
        let path = self.chunk_path(name);
        let refuse =
            |error: SnapshotError| CheckpointError::Malformed { path: path.clone(), reason: error.to_string() };
        let mut places = manifest.chunks.iter().enumerate().filter(|(_, place)| **place == name).peekable();
        if places.peek().is_none() {
            return Err(refuse(SnapshotError::UnknownChunk(name)));
        }
        let found = chunk.len() as u64;
        let wrong = places.map(|(at, _)| manifest.chunk_len(at)).find(|expected| *expected != found);
        match wrong {
            Some(expected) => Err(refuse(SnapshotError::ChunkLength { chunk: name, expected, found })),
            None => write_atomically(&path, chunk),
        }
    }

    /// Makes a checkpoint of `manifest`, all of whose chunks are here: puts the state together, verifies it, and only then
    /// writes the manifest. Removes what [`CheckpointStore::save`] would remove.
    ///
    /// # Errors
    /// If the directory holds checkpoints of another run, a chunk is missing or damaged, the whole is not the state that
    /// the manifest announces, or a file cannot be written.
    pub fn complete(&self, manifest: &SnapshotManifest) -> Result<CheckpointSummary, CheckpointError> {
        self.refuse_other_run(manifest.run)?;
        let encoded = manifest.encode();
        let id = hash(&encoded);
        let path = self.directory.join(format!("step-{:012}-{id}.json", manifest.step));
        self.read_state(manifest, &path)?;
        self.sound.note(id);
        write_atomically(&path, &encoded)?;
        self.arriving.end(manifest);
        let (info, _) = self.read_manifest(&path, manifest.step, id)?;
        self.prune(&info)?;
        Ok(info)
    }
}
