//! Files that may be compressed, and larger than they look.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use super::error::DataError;

/// Whether the bytes start as a gzip file does. Consumes nothing.
pub(super) fn is_gzipped(bytes: &mut impl BufRead) -> io::Result<bool> {
    Ok(bytes.fill_buf()?.starts_with(&[0x1f, 0x8b]))
}

/// Undoes gzip, if the bytes are of that. `path` is for messages.
pub(super) fn unpacked<'f>(file: impl Read + 'f, path: &Path) -> Result<Box<dyn Read + 'f>, DataError> {
    let mut file = BufReader::new(file);
    let gzipped = is_gzipped(&mut file).map_err(|source| DataError::Unreadable { path: path.to_owned(), source })?;
    Ok(match gzipped {
        true => Box::new(BufReader::new(MultiGzDecoder::new(file))) as Box<dyn Read + 'f>,
        false => Box::new(file),
    })
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
