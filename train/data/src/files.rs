//! Files that may be larger than they look.

use std::io::{self, Read};

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
