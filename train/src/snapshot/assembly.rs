//! Putting a state together from chunks that come in any order, from anybody.

use std::collections::{BTreeMap, BTreeSet};

use starling_topology::Digest;

use super::{SnapshotError, SnapshotManifest, hash};
use crate::state::ReplicatedState;

/// A snapshot of which some chunks are here.
pub struct Assembly {
    manifest: SnapshotManifest,
    /// The distinct chunks; `None` while one is missing.
    chunks: BTreeMap<Digest, Option<Vec<u8>>>,
}

impl Assembly {
    /// Begins with nothing. Holds no more than the manifest announces, and nothing in advance.
    ///
    /// # Errors
    /// If the manifest announces more than `max_bytes`: what states of the run have at most.
    pub fn new(manifest: SnapshotManifest, max_bytes: u64) -> Result<Self, SnapshotError> {
        if manifest.bytes > max_bytes {
            return Err(SnapshotError::TooLong { found: manifest.bytes, limit: max_bytes });
        }
        let chunks = manifest.chunks.iter().map(|chunk| (*chunk, None)).collect();
        Ok(Self { manifest, chunks })
    }

    /// What is being put together.
    pub fn manifest(&self) -> &SnapshotManifest {
        &self.manifest
    }

    /// The distinct chunks that are not here yet, in the order of the state.
    pub fn missing(&self) -> Vec<Digest> {
        let mut listed = BTreeSet::new();
        let is_missing = |chunk: &&Digest| matches!(self.chunks.get(chunk), Some(None));
        self.manifest.chunks.iter().filter(is_missing).filter(|chunk| listed.insert(**chunk)).copied().collect()
    }

    /// Takes a chunk. One that is here already changes nothing.
    ///
    /// # Errors
    /// If its hash is that of no chunk of the snapshot, or its length is not that of its place.
    pub fn insert(&mut self, chunk: Vec<u8>) -> Result<(), SnapshotError> {
        let name = hash(&chunk);
        let room = self.chunks.get_mut(&name).ok_or(SnapshotError::UnknownChunk(name))?;
        let found = chunk.len() as u64;
        let places = self.manifest.chunks.iter().enumerate().filter(|(_, place)| **place == name);
        for (at, _) in places {
            let expected = self.manifest.chunk_len(at);
            if found != expected {
                return Err(SnapshotError::ChunkLength { chunk: name, expected, found });
            }
        }
        *room = Some(chunk);
        Ok(())
    }

    /// The state, verified as a whole before it is parsed.
    ///
    /// # Errors
    /// If chunks are missing, their whole has another digest, or it is not the state that was announced.
    pub fn finish(self) -> Result<ReplicatedState, SnapshotError> {
        let missing = self.chunks.values().filter(|chunk| chunk.is_none()).count();
        if missing > 0 {
            return Err(SnapshotError::Incomplete { missing });
        }
        let mut bytes = Vec::new();
        for chunk in &self.manifest.chunks {
            bytes.extend_from_slice(self.chunks[chunk].as_deref().unwrap_or_default());
        }
        drop(self.chunks);
        parse(&self.manifest, &bytes)
    }
}

impl std::fmt::Debug for Assembly {
    /// Names and sizes only: the state may be gigabytes.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Assembly")
            .field("step", &self.manifest.step)
            .field("chunks", &self.chunks.len())
            .finish_non_exhaustive()
    }
}

/// The state that `bytes` are, if they are what `manifest` announces.
pub(crate) fn parse(manifest: &SnapshotManifest, bytes: &[u8]) -> Result<ReplicatedState, SnapshotError> {
    let found = hash(bytes);
    if found != manifest.digest {
        return Err(SnapshotError::Digest { expected: manifest.digest, found });
    }
    let state = ReplicatedState::decode(bytes)?;
    if (state.run, state.step) != (manifest.run, manifest.step) {
        return Err(SnapshotError::OtherState { run: state.run, step: state.step });
    }
    Ok(state)
}
