//! What a data set's files consist of.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use starling_topology::Digest;

use super::SharingError;
use crate::state::snapshot::{CHUNK_BYTES, hash};

/// The largest data set that can be shared, in bytes: more than the largest that can be read takes as a table.
pub const MAX_DATA_BYTES: u64 = 64 << 30;
/// The most files that data of any kind has: the largest data set in pieces of 64 MiB, and what is said of them.
const MAX_FILES: usize = 1026;
/// What stands for a number in a name.
const NUMBER: char = '*';
/// The longest encoded manifest, in bytes: enough for the chunks of the largest data set, at 32 bytes each.
pub const MAX_DATA_MANIFEST_BYTES: usize = 3 << 20;

/// What a data set's files consist of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataManifest {
    /// The files, in the order that their kind of data gives them.
    #[serde(deserialize_with = "starling_topology::message::bounded::list::<_, _, MAX_FILES>")]
    pub files: Vec<SharedFile>,
}

/// What one file consists of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedFile {
    /// What it is called in the folder that it is copied to.
    pub name: String,
    /// How long it is.
    pub bytes: u64,
    /// blake3 of each chunk, in order. Chunks may be equal.
    pub chunks: Vec<Digest>,
}

impl DataManifest {
    /// The canonical bytes: postcard.
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("invariant: a manifest has no type that cannot be encoded")
    }

    /// The name of the whole: blake3 of the canonical bytes.
    pub fn id(&self) -> Digest {
        hash(&self.encode())
    }

    /// How many bytes all files have together.
    pub fn bytes(&self) -> u64 {
        self.files.iter().fold(0, |bytes: u64, file| bytes.saturating_add(file.bytes))
    }

    /// That of some of its files alone, by their numbers; `None` if it has not so many.
    pub fn part(&self, files: &[usize]) -> Option<Self> {
        let files = files.iter().map(|file| self.files.get(*file).cloned()).collect::<Option<_>>()?;
        Some(Self { files })
    }

    /// Reads the manifest of a data set whose files have these names, which may end with a [numbered](super::numbered) one, from its canonical bytes, which may come from anybody.
    ///
    /// # Errors
    /// If the bytes are too long or not exactly one manifest; if the files are not those of these names; or if lengths and chunks
    /// don't agree.
    pub fn decode(bytes: &[u8], names: &[&str]) -> Result<Self, SharingError> {
        let fail = |reason: String| SharingError::Manifest { reason };
        if bytes.len() > MAX_DATA_MANIFEST_BYTES {
            return Err(fail(format!("it is longer than {MAX_DATA_MANIFEST_BYTES} bytes")));
        }
        let (manifest, rest): (Self, _) = postcard::take_from_bytes(bytes).map_err(|error| fail(error.to_string()))?;
        manifest.check(names).map_err(fail)?;
        if !rest.is_empty() || manifest.encode() != bytes {
            return Err(fail("it is not in its canonical form".to_owned()));
        }
        Ok(manifest)
    }

    /// Checks that a data set whose files have these names can consist of this.
    pub(super) fn check(&self, names: &[&str]) -> Result<(), String> {
        // Files get no other names than these, so there is nothing that a name could do.
        if names.is_empty() || !self.files.iter().map(|file| file.name.clone()).eq(in_full(names, self.files.len())) {
            return Err(format!("its files are not those that such a data set has: {}", names.join(", ")));
        }
        if self.files.len() > MAX_FILES {
            return Err(format!("it has more than {MAX_FILES} files"));
        }
        if self.bytes() > MAX_DATA_BYTES {
            return Err(format!("it has more than {MAX_DATA_BYTES} bytes"));
        }
        let mut lengths = BTreeMap::new();
        for file in &self.files {
            if file.bytes.div_ceil(CHUNK_BYTES as u64) != file.chunks.len() as u64 {
                return Err(format!("{} bytes do not make {} chunks", file.bytes, file.chunks.len()));
            }
            for (at, chunk) in file.chunks.iter().enumerate() {
                let length = file.chunk_len(at);
                if *lengths.entry(*chunk).or_insert(length) != length {
                    return Err(format!("chunk {chunk} is said to have two lengths"));
                }
            }
        }
        Ok(())
    }
}

/// What so many files are called whose kind has these names: a numbered one stands for all that are left, one at least.
pub(super) fn in_full(names: &[&str], files: usize) -> Vec<String> {
    let Some((last, fixed)) = names.split_last().filter(|(last, _)| last.contains(NUMBER)) else {
        return names.iter().map(|name| (*name).to_owned()).collect();
    };
    let several = (0..files.saturating_sub(fixed.len()).max(1)).map(|at| numbered(last, at));
    fixed.iter().map(|name| (*name).to_owned()).chain(several).collect()
}

/// The name of the file of this number, from 0, among those that `name` stands for: a star in it is the number.
pub fn numbered(name: &str, at: usize) -> String {
    name.replacen(NUMBER, &format!("{at:05}"), 1)
}

impl SharedFile {
    /// How long the chunk at `at` is.
    pub(super) fn chunk_len(&self, at: usize) -> usize {
        let left = self.bytes - at as u64 * CHUNK_BYTES as u64;
        usize::try_from(left).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES))
    }
}
