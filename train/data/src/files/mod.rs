//! Files that may be compressed, larger than they look, or text of another encoding.

pub(crate) mod foreign;
pub(crate) mod in_order;
pub(crate) mod opened;
pub(crate) mod utf16;

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::rc::Rc;

use flate2::bufread::MultiGzDecoder;

use crate::error::DataError;
use opened::OpenedFile;
use utf16::Utf16;

/// Gzip makes a thousand times less of some texts. Beyond so many bytes, a file that is packed may grow so many times: tables do so
/// five to twenty times.
const MAX_GROWTH_FROM: u64 = 256 << 20;
const MAX_GROWTH: u64 = 200;

/// So many times [`DataOptions::held_bytes`](crate::DataOptions::held_bytes) may data take that can't be read by position.
pub(crate) const HELD_OF_PACKED: u64 = 4;
/// How a gzip file starts.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Whether the bytes start as a gzip file does. Consumes nothing.
pub(crate) fn is_gzipped(bytes: &mut impl BufRead) -> io::Result<bool> {
    Ok(bytes.fill_buf()?.starts_with(&GZIP))
}

/// Undoes gzip, if the bytes are of that, and decodes UTF-16 that begins with its mark. `path` is for messages.
pub(crate) fn unpacked<'f>(file: impl Read + 'f, path: &Path) -> Result<Box<dyn Read + 'f>, DataError> {
    Ok(opened(file, path)?.0)
}

/// The same of what is held in memory: a file of more than `max` bytes, unpacked, fails there, and so does one of gzip that grows
/// beyond all measure.
pub(crate) fn bounded<'f>(
    file: impl Read + 'f,
    path: &Path,
    max: u64,
) -> Result<Capped<Box<dyn Read + 'f>>, DataError> {
    let packed = Rc::new(Cell::new(0));
    let (inner, is_gzipped) = opened(Counted { inner: file, read: packed.clone() }, path)?;
    Ok(Capped { packed: is_gzipped.then_some(packed), ..Capped::new(inner, max) })
}

fn opened<'f>(file: impl Read + 'f, path: &Path) -> Result<(Box<dyn Read + 'f>, bool), DataError> {
    let mut file = BufReader::new(file);
    let gzipped = is_gzipped(&mut file).map_err(|source| DataError::Unreadable { path: path.to_owned(), source })?;
    let unpacked = match gzipped {
        true => decoded(BufReader::new(MultiGzDecoder::new(file))),
        false => decoded(file),
    };
    Ok((unpacked, gzipped))
}

/// UTF-8, if it is text with the mark of another encoding. What can't be read says so when it is read.
fn decoded<'f>(mut text: impl BufRead + 'f) -> Box<dyn Read + 'f> {
    match text.fill_buf().is_ok_and(utf16::is_marked) {
        true => Box::new(Utf16::new(text)),
        false => Box::new(text),
    }
}

/// A reader that fails behind a number of bytes, so that a small file cannot unpack to a huge one.
pub(crate) struct Capped<R> {
    inner: R,
    read: u64,
    max: u64,
    /// How many bytes of gzip have become those that were read.
    packed: Option<Rc<Cell<u64>>>,
}

impl<R> Capped<R> {
    pub(crate) fn new(inner: R, max: u64) -> Self {
        Self { inner, read: 0, max, packed: None }
    }
}

impl<R: Read> Read for Capped<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.read = self.read.saturating_add(read as u64);
        if self.read > self.max {
            return Err(too_long(self.max));
        }
        let packed = self.packed.as_ref().map_or(u64::MAX, |packed| packed.get());
        if self.read > MAX_GROWTH_FROM && self.read > packed.saturating_mul(MAX_GROWTH) {
            let mib = MAX_GROWTH_FROM >> 20;
            return Err(io::Error::other(format!(
                "it unpacks to more than {mib} MiB and {MAX_GROWTH} times its size, which might fill this machine's memory; if it is \
                 meant to, unpack it (`gunzip --keep`) and name the unpacked file"
            )));
        }
        Ok(read)
    }
}

/// Checks that a file that is read by position has at most `max` bytes.
pub(crate) fn check_length(file: &OpenedFile, max: u64) -> Result<(), DataError> {
    match file.bytes() <= max {
        true => Ok(()),
        false => Err(DataError::Unreadable { path: file.path().to_owned(), source: too_long(max) }),
    }
}

fn too_long(max: u64) -> io::Error {
    io::Error::other(format!(
        "it has more than {max} bytes, unpacked (`data.limit_mib`; of a text never more than 2 GiB)"
    ))
}

/// A reader that counts.
struct Counted<R> {
    inner: R,
    read: Rc<Cell<u64>>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.read.set(self.read.get().saturating_add(read as u64));
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).expect("in memory");
        encoder.finish().expect("in memory")
    }

    fn read(bytes: &[u8]) -> io::Result<u64> {
        let mut file = bounded(bytes, Path::new("table.csv.gz"), u64::MAX).expect("opened");
        io::copy(&mut file, &mut io::sink())
    }

    #[test]
    fn a_small_file_that_unpacks_to_a_huge_one_is_not_read_to_its_end() {
        // Files of gzip one behind another are one.
        let (mib, many) = (gzip(&vec![b'\n'; 1 << 20]), (MAX_GROWTH_FROM >> 20) as usize);
        assert_eq!(read(&mib.repeat(many)).expect("as large as any may be"), MAX_GROWTH_FROM);
        let error = read(&mib.repeat(many + 1)).expect_err("larger").to_string();
        assert!(error.contains("more than 256 MiB and 200 times its size") && error.contains("gunzip"), "{error}");
        // What is not packed, or packed as text is, may be larger.
        let noise: Vec<u8> = (0..1_u32 << 18).flat_map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        assert_eq!(read(&gzip(&noise).repeat(many + 1)).expect("it grows little"), MAX_GROWTH_FROM + (1 << 20));
        assert_eq!(read(&noise.repeat(many + 1)).expect("it does not grow"), MAX_GROWTH_FROM + (1 << 20));
    }
}
