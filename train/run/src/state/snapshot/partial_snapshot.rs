//! Putting a state together from chunks that come in any order, from anybody.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::io::{self, Read};

use starling_topology::{Digest, RunId};

use super::{SnapshotError, SnapshotManifest, hash};
use crate::state::{ReplicatedState, StateError};

/// A snapshot of which some chunks are here.
pub struct PartialSnapshot {
    manifest: SnapshotManifest,
    /// The distinct chunks; `None` while one is missing.
    chunks: BTreeMap<Digest, Option<Vec<u8>>>,
}

impl PartialSnapshot {
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

    /// The state, verified as a whole. Chunks are given up as they are read.
    ///
    /// # Errors
    /// If chunks are missing, their whole has another digest, or it is not the state that was announced.
    pub fn finish(self) -> Result<ReplicatedState, SnapshotError> {
        let missing = self.chunks.values().filter(|chunk| chunk.is_none()).count();
        if missing > 0 {
            return Err(SnapshotError::Incomplete { missing });
        }
        let Self { manifest, mut chunks } = self;
        let mut uses: BTreeMap<Digest, usize> = BTreeMap::new();
        manifest.chunks.iter().for_each(|chunk| *uses.entry(*chunk).or_default() += 1);
        let in_order = manifest.chunks.iter().map(|name| {
            let left = uses.entry(*name).or_default();
            *left -= 1;
            let chunk = if *left == 0 { chunks.remove(name).flatten() } else { chunks[name].clone() };
            Ok::<_, Infallible>(chunk.expect("invariant: none is missing"))
        });
        let Ok(state) = parse(&manifest, in_order);
        state
    }
}

impl std::fmt::Debug for PartialSnapshot {
    /// Names and sizes only: the state may be gigabytes.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PartialSnapshot")
            .field("step", &self.manifest.step)
            .field("chunks", &self.chunks.len())
            .finish_non_exhaustive()
    }
}

/// The state that chunks make, if they are what `manifest` announces. They are hashed as a whole and given up as they are
/// read: the bytes of a large state and the state itself are never there at once.
///
/// # Errors
/// The first error of a chunk, else what is wrong with the state.
pub(crate) fn parse<E>(
    manifest: &SnapshotManifest,
    chunks: impl Iterator<Item = Result<Vec<u8>, E>>,
) -> Result<Result<ReplicatedState, SnapshotError>, E> {
    let state = whole(manifest, chunks, |stream| {
        ReplicatedState::read(manifest.bytes, stream).map(|(state, values)| ((state.run, state.step, values), state))
    })?;
    Ok(state.map(|state| ReplicatedState { lineage: manifest.lineage, ..state }))
}

/// Checks that chunks make the state that `manifest` announces, without ever having all of it in memory.
///
/// # Errors
/// As [`parse`].
pub(crate) fn check<E>(
    manifest: &SnapshotManifest,
    chunks: impl Iterator<Item = Result<Vec<u8>, E>>,
) -> Result<Result<(), SnapshotError>, E> {
    whole(manifest, chunks, |stream| Ok((ReplicatedState::check(manifest.bytes, stream)?, ())))
}

/// What `read` makes of the chunks, if they are what `manifest` announces: it says of which run, step and values that is, too.
fn whole<T, I: Iterator<Item = Result<Vec<u8>, E>>, E>(
    manifest: &SnapshotManifest,
    chunks: I,
    read: impl FnOnce(&mut Stream<I, E>) -> Result<((RunId, u64, Digest), T), StateError>,
) -> Result<Result<T, SnapshotError>, E> {
    let mut stream =
        Stream { chunks, whole: blake3::Hasher::new(), bytes: 0, chunk: io::Cursor::default(), trouble: None };
    let state = read(&mut stream);
    // If it was not a state, the rest still tells whether it was what was announced.
    let _ = io::copy(&mut stream, &mut io::sink());
    let Stream { whole, bytes, trouble, .. } = stream;
    if let Some(trouble) = trouble {
        return Err(trouble);
    }
    let found = Digest(*whole.finalize().as_bytes());
    if found != manifest.digest {
        return Ok(Err(SnapshotError::Digest { expected: manifest.digest, found }));
    }
    Ok(state.map_err(SnapshotError::from).and_then(|((run, step, values), state)| {
        if bytes != manifest.bytes {
            return Err(StateError::Length { expected: manifest.bytes, found: bytes }.into());
        }
        if (run, step) != (manifest.run, manifest.step) {
            return Err(SnapshotError::OtherState { run, step });
        }
        let expected = manifest.values;
        if values == expected { Ok(state) } else { Err(SnapshotError::Values { expected, found: values }) }
    }))
}

/// Chunks as one stream of bytes, which ends with the first one that can't be had.
struct Stream<I, E> {
    chunks: I,
    whole: blake3::Hasher,
    bytes: u64,
    chunk: io::Cursor<Vec<u8>>,
    trouble: Option<E>,
}

impl<I: Iterator<Item = Result<Vec<u8>, E>>, E> Read for Stream<I, E> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.chunk.read(into)?;
            if read > 0 || into.is_empty() || self.trouble.is_some() {
                return Ok(read);
            }
            match self.chunks.next() {
                Some(Ok(chunk)) => {
                    self.whole.update(&chunk);
                    self.bytes += chunk.len() as u64;
                    self.chunk = io::Cursor::new(chunk);
                }
                Some(Err(trouble)) => self.trouble = Some(trouble),
                None => return Ok(0),
            }
        }
    }
}
