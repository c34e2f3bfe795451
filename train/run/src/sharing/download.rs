//! The joiner's side: files that are put together from chunks in any order, and kept over restarts.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use starling_topology::Digest;

use super::{DataManifest, SharingError};
use crate::state::snapshot::{CHUNK_BYTES, hash};

/// Files of which some chunks are here.
///
/// A chunk is in its place on disk once it is taken. Which ones are there is found out by reading them, so nothing else
/// has to be kept, and a write that did not get through is seen.
#[derive(Debug)]
pub struct Download {
    manifest: DataManifest,
    /// Where they are. There may be more than a process can have open.
    files: Vec<PathBuf>,
    missing: BTreeSet<Digest>,
}

impl Download {
    /// Goes on with what `folder` holds, which may be nothing yet.
    ///
    /// # Errors
    /// If the manifest announces more than `max_bytes`, or a file can't be made or read.
    pub fn open(folder: &Path, manifest: DataManifest, max_bytes: u64) -> Result<Self, SharingError> {
        if manifest.bytes() > max_bytes {
            return Err(SharingError::TooLong { found: manifest.bytes(), limit: max_bytes });
        }
        fs::create_dir_all(folder).map_err(SharingError::file("write", folder))?;
        let (mut files, mut found) = (Vec::new(), BTreeSet::new());
        for shared in &manifest.files {
            let path = folder.join(&shared.name);
            let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
            let mut file = options.map_err(SharingError::file("write", &path))?;
            let mut look = || {
                // What was there before is looked at; the rest is a hole.
                let before = file.metadata()?.len().min(shared.bytes);
                file.set_len(shared.bytes)?;
                let mut chunk = Vec::new();
                for (at, name) in shared.chunks.iter().enumerate() {
                    if at as u64 * CHUNK_BYTES as u64 >= before {
                        break;
                    }
                    chunk.clear();
                    (&mut file).take(shared.chunk_len(at) as u64).read_to_end(&mut chunk)?;
                    if hash(&chunk) == *name {
                        found.insert((files.len(), at));
                    }
                }
                std::io::Result::Ok(())
            };
            look().map_err(SharingError::file("read", &path))?;
            files.push(path);
        }
        let missing = places(&manifest).filter(|(file, at, _)| !found.contains(&(*file, *at)));
        let missing = missing.map(|(_, _, chunk)| chunk).collect();
        Ok(Self { manifest, files, missing })
    }

    /// What is being put together.
    pub fn manifest(&self) -> &DataManifest {
        &self.manifest
    }

    /// The distinct chunks that are not here yet, in the order of the files.
    pub fn missing(&self) -> Vec<Digest> {
        let mut listed = BTreeSet::new();
        let all = places(&self.manifest).map(|(_, _, chunk)| chunk);
        all.filter(|chunk| self.missing.contains(chunk) && listed.insert(*chunk)).collect()
    }

    /// How many bytes are here.
    pub fn bytes_here(&self) -> u64 {
        let here = places(&self.manifest).filter(|(_, _, chunk)| !self.missing.contains(chunk));
        here.map(|(file, at, _)| self.manifest.files[file].chunk_len(at) as u64).sum()
    }

    /// Takes a chunk: writes it to all of its places. Returns how many more bytes are here; none if it was here already.
    ///
    /// # Errors
    /// If its hash is that of no chunk of the files, or it can't be written.
    pub fn insert(&mut self, chunk: &[u8]) -> Result<u64, SharingError> {
        let name = hash(chunk);
        if !self.missing.contains(&name) {
            let is_known = places(&self.manifest).any(|(_, _, other)| other == name);
            return if is_known { Ok(0) } else { Err(SharingError::UnknownChunk(name)) };
        }
        let mut written = 0;
        for (file, at, _) in places(&self.manifest).filter(|(_, _, other)| *other == name) {
            let path = &self.files[file];
            let write = || {
                let mut file = File::options().write(true).open(path)?;
                file.seek(SeekFrom::Start(at as u64 * CHUNK_BYTES as u64))?;
                file.write_all(chunk)
            };
            write().map_err(SharingError::file("write", path))?;
            written += chunk.len() as u64;
        }
        self.missing.remove(&name);
        Ok(written)
    }
}

/// Each place of a chunk: its file, its place in it in chunks, and its name.
fn places(manifest: &DataManifest) -> impl Iterator<Item = (usize, usize, Digest)> + '_ {
    manifest
        .files
        .iter()
        .enumerate()
        .flat_map(|(file, shared)| shared.chunks.iter().enumerate().map(move |(at, chunk)| (file, at, *chunk)))
}
