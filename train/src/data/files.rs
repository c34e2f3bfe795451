//! The files that a data set consists of.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::error::DataError;
use super::{CSV, DIGITS, IDX, IDX_HELD_OUT, idx};

/// What the files of IDX data are called where they are copied to; the first two have the samples to train on.
const IDX_NAMES: [&str; 4] =
    ["train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"];

/// What the files of a data set of `kind` are called where they are copied to, compressed or not: the reader looks into
/// them. None for data that has no files.
pub(crate) fn names(kind: &str) -> &'static [&'static str] {
    match kind {
        CSV => &["table.csv"],
        IDX => &IDX_NAMES[..2],
        IDX_HELD_OUT => &IDX_NAMES,
        _ => &[],
    }
}

/// The `source` of a data set of `kind` whose files lie in `folder` under their [`names`].
pub fn source_in(folder: &Path, kind: &str) -> PathBuf {
    if kind == CSV { folder.join(names(CSV)[0]) } else { folder.to_owned() }
}

/// The files that `source` stands for, in the order of their [`names`], with the kind of data they hold.
pub(crate) fn files(source: &str) -> Result<(&'static str, Vec<PathBuf>), DataError> {
    if source == DIGITS {
        return Ok((DIGITS, Vec::new()));
    }
    let path = Path::new(source);
    if !path.is_dir() && !idx::is_idx(path)? {
        return Ok((CSV, vec![path.to_owned()]));
    }
    let files = idx::files(path)?;
    Ok((if files.len() == IDX_NAMES.len() { IDX_HELD_OUT } else { IDX }, files))
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
