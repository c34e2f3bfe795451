//! Decoded images and their labels as one file: what joiners get.
//!
//! ```text
//!   STARLIMG | channels | height | width | images | classes       numbers are 4 bytes, little-endian
//!   length of a class's name in 2 bytes | name                    for each class, in their order
//!   number of its class                                           for each image
//!   one byte for each value, channel after channel                for each image
//! ```

use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};
use std::path::Path;

use atomic_write_file::AtomicWriteFile;
use starling_run::data::ImageSize;
use starling_run::manifest::MAX_CLASSES;

use super::decode::Form;
use super::folder::is_name;
use crate::error::DataError;
use crate::files::bounded;
use crate::samples::raw::{MAX_VALUES, Raw, Values};

/// How it begins.
pub(crate) const MAGIC: &[u8; 8] = b"STARLIMG";

/// Whether the file at `path` is one, packed or not.
pub(super) fn is_one(path: &Path) -> Result<bool, DataError> {
    let mut start = Vec::new();
    // What is damaged at its start is no pack; whoever reads it next says what is wrong.
    let _ = open(path, u64::MAX)?.take(MAGIC.len() as u64).read_to_end(&mut start);
    Ok(start == MAGIC)
}

/// Writes the images of a folder to `path`, all or nothing.
///
/// # Errors
/// If the disk does not take it.
pub(super) fn write(raw: &Raw, path: &Path) -> Result<(), DataError> {
    let written = || {
        fs::create_dir_all(path.parent().unwrap_or(path))?;
        let mut file = AtomicWriteFile::open(path)?;
        let mut out = BufWriter::new(&mut file);
        encode(raw, &mut out)?;
        out.flush()?;
        drop(out);
        file.commit()
    };
    written().map_err(|source| DataError::Unwritable { path: path.to_owned(), source })
}

fn encode(raw: &Raw, out: &mut impl Write) -> std::io::Result<()> {
    let Values::Bytes(pixels) = &raw.values else { unreachable!("pixels are bytes") };
    out.write_all(MAGIC)?;
    let count = |length: usize| u32::try_from(length).expect("invariant: readers bound samples and classes");
    let numbers = [count(raw.labels.len()), count(raw.class_names.len())];
    for number in raw.shape.iter().chain(&numbers) {
        out.write_all(&number.to_le_bytes())?;
    }
    for name in &raw.class_names {
        let length = u16::try_from(name.len()).expect("invariant: names of classes are short");
        out.write_all(&length.to_le_bytes())?;
        out.write_all(name.as_bytes())?;
    }
    for label in &raw.labels {
        out.write_all(&label.to_le_bytes())?;
    }
    out.write_all(pixels)
}

/// Reads a file that has at most `max` bytes, unpacked.
///
/// # Errors
/// If it can't be read, or is not whole.
pub(super) fn read(path: &Path, max: u64) -> Result<Raw, DataError> {
    parse(open(path, max)?, path)
}

fn open(path: &Path, max: u64) -> Result<impl Read, DataError> {
    let file = File::open(path).map_err(|source| DataError::Unreadable { path: path.to_owned(), source })?;
    bounded(file, path, max)
}

/// The same of what is given. The header is a claim: nothing of its size is reserved, only what is there is read.
pub(crate) fn parse(file: impl Read, path: &Path) -> Result<Raw, DataError> {
    let mut parser = Parser { file, path };
    if parser.take(MAGIC.len() as u64)? != MAGIC {
        return Err(parser.fault("it does not begin as one".to_owned()));
    }
    let [channels, height, width, count, classes] = parser.numbers()?;
    let size = ImageSize { height, width };
    let sides = 1..=ImageSize::MAX_SIDE;
    let is_possible = [1, 3].contains(&channels) && sides.contains(&height) && sides.contains(&width);
    let form = Form { channels, size };
    let values = form.features().checked_mul(count.into()).filter(|values| *values <= MAX_VALUES);
    let Some(values) = values.filter(|_| is_possible && count >= 2 && (2..=MAX_CLASSES).contains(&classes)) else {
        let reason = format!("{count} images of {channels}x{size} in {classes} classes are not possible");
        return Err(parser.fault(reason));
    };
    let mut names: Vec<String> = Vec::new();
    for _ in 0..classes {
        let length = parser.take(2)?;
        let length = u16::from_le_bytes([length[0], length[1]]);
        let name = String::from_utf8(parser.take(length.into())?).ok().filter(|name| is_name(name));
        let name = name.filter(|name| names.last().is_none_or(|last| last < name));
        names.push(name.ok_or_else(|| parser.fault("the names of its classes are no rising names".to_owned()))?);
    }
    let labels = parser.take(4 * u64::from(count))?;
    let (labels, _) = labels.as_chunks::<4>();
    let labels: Vec<u32> = labels.iter().map(|label| u32::from_le_bytes(*label)).collect();
    if let Some(label) = labels.iter().find(|label| **label >= classes) {
        return Err(parser.fault(format!("it has {classes} classes, but an image is of class {label}")));
    }
    let pixels = parser.take(values)?;
    parser.check_end()?;
    Ok(super::raw(path, form, pixels, labels, names, Vec::new()))
}

struct Parser<'p, R> {
    file: R,
    path: &'p Path,
}

impl<R: Read> Parser<'_, R> {
    /// The next bytes, exactly so many.
    fn take(&mut self, length: u64) -> Result<Vec<u8>, DataError> {
        let mut bytes = Vec::new();
        let read = self.file.by_ref().take(length).read_to_end(&mut bytes);
        read.map_err(|source| DataError::Unreadable { path: self.path.to_owned(), source })?;
        match bytes.len() as u64 == length {
            true => Ok(bytes),
            false => Err(self.fault("it is cut off".to_owned())),
        }
    }

    fn numbers<const N: usize>(&mut self) -> Result<[u32; N], DataError> {
        let bytes = self.take(4 * N as u64)?;
        let (numbers, _) = bytes.as_chunks::<4>();
        let numbers: Vec<u32> = numbers.iter().map(|number| u32::from_le_bytes(*number)).collect();
        Ok(numbers.try_into().expect("invariant: so many bytes were taken"))
    }

    fn check_end(&mut self) -> Result<(), DataError> {
        let mut byte = Vec::new();
        let end = self.file.by_ref().take(1).read_to_end(&mut byte);
        end.map_err(|source| DataError::Unreadable { path: self.path.to_owned(), source })?;
        if byte.is_empty() { Ok(()) } else { Err(self.fault("something follows its end".to_owned())) }
    }

    fn fault(&self, reason: String) -> DataError {
        let reason = format!("it is no file of decoded images: {reason}; take it from another member, or make it anew");
        DataError::File { path: self.path.to_owned(), reason }
    }
}
