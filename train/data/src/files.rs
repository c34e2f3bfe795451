//! The files that a data set consists of.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use starling_run::data::names;

use super::error::DataError;
use super::{CSV, DIGITS, IDX, IDX_HELD_OUT, idx};

/// The files that `source` stands for, in the order of their [`names`], with the kind of data they hold.
///
/// # Errors
/// If a file cannot be read, or a directory does not hold the files of one data set.
pub fn files(source: &str) -> Result<(&'static str, Vec<PathBuf>), DataError> {
    if source == DIGITS {
        return Ok((DIGITS, Vec::new()));
    }
    let path = Path::new(source);
    if !path.is_dir() && !idx::is_idx(path)? {
        return Ok((CSV, vec![path.to_owned()]));
    }
    let files = idx::files(path)?;
    Ok((if files.len() == names(IDX_HELD_OUT).len() { IDX_HELD_OUT } else { IDX }, files))
}

/// A reader that fails behind a number of bytes, so that a small file cannot unpack to a huge one.
pub(super) struct Capped<R> {
    inner: R,
    left: u64,
    max: u64,
}

impl<R> Capped<R> {
    pub(super) fn new(inner: R, max: u64) -> Self {
        Self { inner, left: max, max }
    }
}

impl<R: Read> Read for Capped<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.left = self
            .left
            .checked_sub(read as u64)
            .ok_or_else(|| io::Error::other(format!("it has more than {} bytes, unpacked", self.max)))?;
        Ok(read)
    }
}
