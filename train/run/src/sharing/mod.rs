//! A data set's files in pieces that are named by their hashes: how a machine gets the samples that it does not have.
//!
//! ```text
//!   files, by kind   table.csv, or train-images-idx3-ubyte and its labels, ...      names are given, never taken;
//!                    or tokens.json, tokenizer.json, tokens-00000.bin, ...          as many as there are, numbered
//!   each file     =  chunk 0 | chunk 1 | ... | last chunk                           1 MiB each, the last may be shorter
//!   manifest         name, length and blake3 of each chunk, for each file           its own blake3 names the whole
//! ```
//!
//! Two members may hold the same samples in other files, one compressed and one not: their manifests differ. What counts
//! in the end is that the files read as the data of the run.

mod download;
mod manifest;
mod shared;

use std::io;
use std::path::{Path, PathBuf};

pub use download::Download;
pub use manifest::{DataManifest, MAX_DATA_BYTES, MAX_DATA_MANIFEST_BYTES, SharedFile, numbered};
pub use shared::SharedDataset;
use starling_topology::Digest;
use thiserror::Error;

/// Files that can't be shared or put together.
#[derive(Debug, Error)]
pub enum SharingError {
    /// Bytes that are not a manifest.
    #[error("the bytes are not a data set's manifest: {reason}")]
    Manifest {
        /// What is wrong, as a sentence.
        reason: String,
    },
    /// A data set that is larger than it may be.
    #[error("the data set has {found} bytes, but may have {limit}")]
    TooLong {
        /// How large it is.
        found: u64,
        /// How large it may be.
        limit: u64,
    },
    /// A chunk that nobody asked for, or whose content is not what its name says.
    #[error("the data set has no chunk {0}")]
    UnknownChunk(Digest),
    /// A file can't be used.
    #[error("cannot {verb} `{}`: {source}", path.display())]
    File {
        /// `read` or `write`.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl SharingError {
    fn file(verb: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::File { verb, path: path.to_owned(), source }
    }
}

#[cfg(test)]
mod tests;
