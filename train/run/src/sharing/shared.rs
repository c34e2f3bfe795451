//! The donor's side: files that chunks are read from.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use starling_topology::Digest;

use super::manifest::in_full;
use super::{DataManifest, SharedFile, SharingError};
use crate::state::snapshot::{CHUNK_BYTES, hash};

/// The files of a data set, cut into chunks that stay on disk until they are asked for.
#[derive(Debug)]
pub struct SharedDataset {
    manifest: DataManifest,
    id: Digest,
    /// Where each chunk is: its file and its place in it, in chunks.
    places: BTreeMap<Digest, (PathBuf, usize)>,
}

impl SharedDataset {
    /// Reads the files at `paths`, in the order of their `names`, whatever they are called here. `None` for data that has no files:
    /// all have it.
    ///
    /// # Errors
    /// If a file can't be read, or they are more than [`MAX_DATA_BYTES`](super::MAX_DATA_BYTES).
    pub fn open(names: &[&str], paths: &[PathBuf]) -> Result<Option<Self>, SharingError> {
        if names.is_empty() {
            return Ok(None);
        }
        let (mut files, mut places) = (Vec::new(), BTreeMap::new());
        for (name, path) in in_full(names, paths.len()).iter().zip(paths) {
            let file = cut(path, name)?;
            places.extend(file.chunks.iter().enumerate().map(|(at, chunk)| (*chunk, (path.clone(), at))));
            files.push(file);
        }
        let manifest = DataManifest { files };
        manifest.check(names).map_err(|reason| SharingError::Manifest { reason })?;
        Ok(Some(Self { id: manifest.id(), manifest, places }))
    }

    /// What it consists of.
    pub fn manifest(&self) -> &DataManifest {
        &self.manifest
    }

    /// Its name: blake3 of the manifest's bytes.
    pub fn id(&self) -> Digest {
        self.id
    }

    /// The chunk with this hash; `None` if there is none, or if its file has changed.
    ///
    /// # Errors
    /// If its file can't be read.
    pub fn chunk(&self, name: Digest) -> Result<Option<Vec<u8>>, SharingError> {
        let Some((path, at)) = self.places.get(&name) else { return Ok(None) };
        let read = || {
            let mut file = File::open(path)?;
            file.seek(SeekFrom::Start(*at as u64 * CHUNK_BYTES as u64))?;
            next_chunk(&mut file)
        };
        let chunk = read().map_err(SharingError::file("read", path))?;
        Ok((hash(&chunk) == name).then_some(chunk))
    }
}

/// What the file at `path` consists of.
fn cut(path: &Path, name: &str) -> Result<SharedFile, SharingError> {
    let read = || {
        let mut file = File::open(path)?;
        let mut cut = SharedFile { name: name.to_owned(), bytes: 0, chunks: Vec::new() };
        loop {
            let chunk = next_chunk(&mut file)?;
            if chunk.is_empty() {
                return Ok(cut);
            }
            cut.bytes += chunk.len() as u64;
            cut.chunks.push(hash(&chunk));
        }
    };
    read().map_err(SharingError::file("read", path))
}

/// The next bytes of a file: a whole chunk, but at its end.
fn next_chunk(file: &mut File) -> std::io::Result<Vec<u8>> {
    let mut chunk = Vec::with_capacity(CHUNK_BYTES);
    file.take(CHUNK_BYTES as u64).read_to_end(&mut chunk)?;
    Ok(chunk)
}
