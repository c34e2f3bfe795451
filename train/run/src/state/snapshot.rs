//! A replicated state in pieces that are named by their hashes: how it is stored, and how it travels.
//!
//! ```text
//!   canonical bytes of the state  =  chunk 0 | chunk 1 | ... | last chunk          1 MiB each, the last one may be shorter
//!   manifest: run, step, lineage, digest of all bytes, hash of the values, how many bytes, blake3 of each chunk
//!                                                                                  its own blake3 is the snapshot's name
//! ```
//!
//! Whoever knows the name can take the manifest and each chunk from anybody: what does not hash to its name is refused
//! before it is looked at. A checkpoint's files are the same manifest and the same chunks.

mod manifest;
mod partial_snapshot;

use std::collections::BTreeMap;
use std::io::{self, Write};

pub(crate) use manifest::parse_digest;
pub use manifest::{MAX_SNAPSHOT_MANIFEST_BYTES, SnapshotManifest};
pub use partial_snapshot::PartialSnapshot;
pub(crate) use partial_snapshot::{check, parse};
use starling_topology::{Digest, Lineage, RunId};
use thiserror::Error;

use crate::state::{ReplicatedState, StateError};

/// The longest chunk, in bytes. All but the last one of a state have this length.
pub const CHUNK_BYTES: usize = 1 << 20;

/// Pieces that are not those of a replicated state.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SnapshotError {
    /// Bytes that are not a manifest.
    #[error("the bytes are not a snapshot's manifest: {reason}")]
    Manifest {
        /// What is wrong, as a sentence.
        reason: String,
    },
    /// A state that is longer than the run's states are.
    #[error("the snapshot announces {found} bytes, but the run's states have at most {limit}")]
    TooLong {
        /// How long it says it is.
        found: u64,
        /// How long it may be.
        limit: u64,
    },
    /// A chunk that nobody asked for, or whose content is not what its name says.
    #[error("the snapshot has no chunk {0}")]
    UnknownChunk(Digest),
    /// A chunk of the wrong length.
    #[error("chunk {chunk} has {found} bytes, but at its place in the snapshot are {expected}")]
    ChunkLength {
        /// Its hash.
        chunk: Digest,
        /// How long it must be.
        expected: u64,
        /// How long it is.
        found: u64,
    },
    /// The state is not all there.
    #[error("{missing} chunks of the snapshot are still missing")]
    Incomplete {
        /// How many.
        missing: usize,
    },
    /// All chunks are what their names say, but the whole is not.
    #[error("the snapshot's chunks make a state with digest {found}, but it announces {expected}")]
    Digest {
        /// The digest in the manifest.
        expected: Digest,
        /// The digest of the chunks together.
        found: Digest,
    },
    /// The whole is what was announced, but not a state.
    #[error(transparent)]
    State(#[from] StateError),
    /// The state is what was announced, but its values are said to hash to something else.
    #[error("the snapshot's parameters, moments and scalars hash to {found}, but it announces {expected}")]
    Values {
        /// The hash in the manifest.
        expected: Digest,
        /// The hash of the state's values.
        found: Digest,
    },
    /// The state is not the one that was announced.
    #[error("the snapshot's state is of run {run} and step {step}")]
    OtherState {
        /// The state's run.
        run: RunId,
        /// The state's step.
        step: u64,
    },
}

/// A state's chunks with their manifest: what a donor hands out. Equal chunks are kept once, such as those of moments that are
/// all zeros before the first step.
#[derive(Clone)]
pub struct StateSnapshot {
    manifest: SnapshotManifest,
    id: Digest,
    chunks: BTreeMap<Digest, Vec<u8>>,
}

impl StateSnapshot {
    /// The snapshot of `state`, whose vectors are given up as they are cut.
    ///
    /// # Panics
    /// If a moment is not as long as the parameters.
    pub fn of(state: ReplicatedState) -> Self {
        let (run, step, lineage) = (state.run, state.step, state.lineage);
        let mut chunks = BTreeMap::new();
        let mut splitter = Splitter::new(|name, chunk: &[u8]| {
            chunks.entry(name).or_insert_with(|| chunk.to_vec());
            Ok(())
        });
        let cut = state.write_out(&mut splitter).and_then(|values| splitter.finish(run, step, lineage, values));
        let manifest = cut.expect("invariant: writing to memory does not fail");
        Self { id: manifest.id(), manifest, chunks }
    }

    /// What it consists of.
    pub fn manifest(&self) -> &SnapshotManifest {
        &self.manifest
    }

    /// Its name: blake3 of the manifest's bytes.
    pub fn id(&self) -> Digest {
        self.id
    }

    /// The chunk with this hash.
    pub fn chunk(&self, hash: Digest) -> Option<&[u8]> {
        self.chunks.get(&hash).map(Vec::as_slice)
    }
}

impl std::fmt::Debug for StateSnapshot {
    /// Names and sizes only: the state may be gigabytes.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StateSnapshot")
            .field("id", &self.id)
            .field("step", &self.manifest.step)
            .field("bytes", &self.manifest.bytes)
            .finish_non_exhaustive()
    }
}

pub(crate) fn hash(bytes: &[u8]) -> Digest {
    Digest(*blake3::hash(bytes).as_bytes())
}

/// Cuts what is written to it into chunks and hands each to `store`, so that a state is cut without a copy of it.
pub(crate) struct Splitter<F> {
    store: F,
    pending: Vec<u8>,
    whole: blake3::Hasher,
    bytes: u64,
    chunks: Vec<Digest>,
}

impl<F: FnMut(Digest, &[u8]) -> io::Result<()>> Splitter<F> {
    pub(crate) fn new(store: F) -> Self {
        let pending = Vec::with_capacity(CHUNK_BYTES);
        Self { store, pending, whole: blake3::Hasher::new(), bytes: 0, chunks: Vec::new() }
    }

    /// The manifest of all that was written: a state with these `values`.
    pub(crate) fn finish(
        mut self,
        run: RunId,
        step: u64,
        lineage: Lineage,
        values: Digest,
    ) -> io::Result<SnapshotManifest> {
        self.cut()?;
        let digest = Digest(*self.whole.finalize().as_bytes());
        Ok(SnapshotManifest { run, step, lineage, digest, values, bytes: self.bytes, chunks: self.chunks })
    }

    fn cut(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let digest = hash(&self.pending);
        (self.store)(digest, &self.pending)?;
        self.whole.update(&self.pending);
        self.bytes += self.pending.len() as u64;
        self.pending.clear();
        self.chunks.push(digest);
        Ok(())
    }
}

impl<F: FnMut(Digest, &[u8]) -> io::Result<()>> Write for Splitter<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(CHUNK_BYTES - self.pending.len());
        self.pending.extend_from_slice(&bytes[..taken]);
        if self.pending.len() == CHUNK_BYTES {
            self.cut()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
