//! A file of which parts are read for as long as a run lasts, and that must not change meanwhile.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::{GZIP, utf16};
use crate::error::DataError;

/// What a file was when it was opened: whoever reads on from another one must say so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) bytes: u64,
    modified: Option<SystemTime>,
}

impl Stamp {
    pub(crate) fn of(found: &Metadata) -> Self {
        Self { bytes: found.len(), modified: found.modified().ok() }
    }

    /// That of the file at `path`.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn at(path: &Path) -> Result<Self, DataError> {
        let found = std::fs::metadata(path);
        found.map(|found| Self::of(&found)).map_err(|source| DataError::Unreadable { path: path.to_owned(), source })
    }
}

/// Such a file.
#[derive(Debug)]
pub(crate) struct OpenedFile {
    path: PathBuf,
    file: File,
    stamp: Stamp,
}

impl OpenedFile {
    /// # Errors
    /// If it can't be opened.
    pub(crate) fn open(path: &Path) -> Result<Self, DataError> {
        let unreadable = |source| DataError::Unreadable { path: path.to_owned(), source };
        let file = File::open(path).map_err(unreadable)?;
        let stamp = Stamp::of(&file.metadata().map_err(unreadable)?);
        Ok(Self { path: path.to_owned(), file, stamp })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it starts as a gzip file does.
    ///
    /// # Errors
    /// If it can't be read.
    pub(crate) fn is_gzipped(&self) -> Result<bool, DataError> {
        Ok(self.start()? == Some(GZIP))
    }

    /// Whether it starts as text of two bytes for each character does.
    ///
    /// # Errors
    /// If it can't be read.
    pub(crate) fn is_utf16(&self) -> Result<bool, DataError> {
        Ok(self.start()?.is_some_and(|start| utf16::is_marked(&start)))
    }

    /// Its first bytes, if there are so many.
    fn start(&self) -> Result<Option<[u8; 2]>, DataError> {
        let mut start = [0; 2];
        let is_long = self.bytes() >= start.len() as u64;
        if is_long {
            self.read_at(&mut start, 0)?;
        }
        Ok(is_long.then_some(start))
    }

    /// How long it is.
    pub(crate) fn bytes(&self) -> u64 {
        self.stamp.bytes
    }

    /// The file itself, whose own place is nobody else's.
    pub(crate) fn seekable(&self) -> &File {
        &self.file
    }

    /// Its bytes from this place on, one after another.
    pub(crate) fn reader(&self, place: u64) -> impl Read + '_ {
        Sequence { file: &self.file, place }
    }

    /// Fills `bytes` with what lies at this place.
    ///
    /// # Errors
    /// If it can't be read, or has changed since it was opened.
    pub(crate) fn read_at(&self, bytes: &mut [u8], place: u64) -> Result<(), DataError> {
        read_at(&self.file, bytes, place).map_err(|source| match source.kind() {
            io::ErrorKind::UnexpectedEof => changed(&self.path, "it has become shorter"),
            _ => DataError::Unreadable { path: self.path.clone(), source },
        })?;
        // Behind the read: what has changed before it is seen.
        self.check()
    }

    /// Checks that it is what it was when it was opened.
    ///
    /// # Errors
    /// If it is not.
    pub(crate) fn check(&self) -> Result<(), DataError> {
        let found = self.file.metadata();
        let found = found.map_err(|source| DataError::Unreadable { path: self.path.clone(), source })?;
        match Stamp::of(&found) == self.stamp {
            true => Ok(()),
            false => Err(changed(&self.path, "its length or its time of change is another one")),
        }
    }
}

/// A file that is opened each time that something is read of it, so that a run may use any number of them. It must not change meanwhile either.
#[derive(Debug)]
pub(crate) struct KnownFile {
    path: PathBuf,
    stamp: Stamp,
}

impl KnownFile {
    /// The one that is open.
    pub(crate) fn of(file: &OpenedFile) -> Self {
        Self { path: file.path.clone(), stamp: file.stamp }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Fills `bytes` with what lies at this place.
    ///
    /// # Errors
    /// If it can't be read, or has changed.
    pub(crate) fn read_at(&self, bytes: &mut [u8], place: u64) -> Result<(), DataError> {
        let file = OpenedFile::open(&self.path)?;
        if file.stamp != self.stamp {
            return Err(changed(&self.path, "its length or its time of change is another one"));
        }
        file.read_at(bytes, place)
    }
}

/// What is to be said of a file that is another one than it was.
pub(crate) fn changed(path: &Path, how: &str) -> DataError {
    let reason = format!("it was changed while it was in use ({how}); leave such files alone, and start again");
    DataError::File { path: path.to_owned(), reason }
}

/// A file's bytes from a place on. The place is its own: several read one file.
struct Sequence<'f> {
    file: &'f File,
    place: u64,
}

impl Read for Sequence<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = read_some(self.file, into, self.place)?;
        self.place += read as u64;
        Ok(read)
    }
}

/// Fills `bytes` with what lies at this place of the file.
pub(crate) fn read_at(file: &File, mut bytes: &mut [u8], mut place: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match read_some(file, bytes, place) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                bytes = &mut bytes[read..];
                place += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(unix)]
fn read_some(file: &File, bytes: &mut [u8], place: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, bytes, place)
}

#[cfg(windows)]
fn read_some(file: &File, bytes: &mut [u8], place: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, bytes, place)
}
