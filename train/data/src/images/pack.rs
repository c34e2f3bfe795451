//! Decoded images and their labels as one file: what joiners get.
//!
//! ```text
//!   STARLIMG | channels | height | width | images | classes       numbers are 4 bytes, little-endian
//!   length of a class's name in 2 bytes | name                    for each class, in their order
//!   number of its class                                           for each image
//!   one byte for each value, channel after channel                for each image
//! ```

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use atomic_write_file::AtomicWriteFile;
use starling_run::data::ImageSize;
use starling_run::manifest::MAX_CLASSES;

use super::decode::Form;
use super::folder::is_name;
use crate::DataOptions;
use crate::error::DataError;
use crate::files::opened::OpenedFile;
use crate::files::{HELD_OF_PACKED, bounded, check_length};
use crate::samples::pixels::PixelFile;
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

/// Writes these images to `path`, all or nothing.
///
/// # Errors
/// If the disk does not take it, or an image can't be read any more.
pub(super) fn write(raw: &Raw, path: &Path) -> Result<(), DataError> {
    let unwritable = |source| DataError::Unwritable { path: path.to_owned(), source };
    fs::create_dir_all(path.parent().unwrap_or(path)).map_err(unwritable)?;
    let mut file = AtomicWriteFile::open(path).map_err(unwritable)?;
    let mut out = BufWriter::new(&mut file);
    encode_header(raw, &mut out).map_err(unwritable)?;
    match &raw.values {
        Values::Bytes(pixels) => out.write_all(pixels).map_err(unwritable)?,
        Values::Pixels(pixels) => pixels.each(|bytes| out.write_all(bytes).map_err(unwritable))?,
        Values::Numbers(_) | Values::Placed(_) => unreachable!("pixels are bytes"),
    }
    out.flush().map_err(unwritable)?;
    drop(out);
    file.commit().map_err(unwritable)
}

fn encode_header(raw: &Raw, out: &mut impl Write) -> io::Result<()> {
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
    Ok(())
}

/// Reads a file as `options` say. What is larger than memory stays there, unless it is packed.
///
/// # Errors
/// If it can't be read, or is not whole.
pub(super) fn read(path: &Path, options: &DataOptions) -> Result<Raw, DataError> {
    let file = OpenedFile::open(path)?;
    if file.is_gzipped()? {
        let held = HELD_OF_PACKED.saturating_mul(options.held_bytes) / 4;
        return parse(open(path, options.max_file_bytes)?, path, held);
    }
    check_length(&file, options.max_file_bytes)?;
    let mut parser = Parser::new(BufReader::new(file.reader(0)), path);
    let header = parser.header()?;
    let place = parser.taken;
    drop(parser);
    let count = u32::try_from(header.labels.len()).expect("invariant: it was a number of four bytes");
    let features = usize::try_from(header.form.features()).expect("invariant: sides are short");
    let pixels = PixelFile::open(file, place, count, features).map_err(|order| match order {
        Ordering::Less => fault(path, "it is cut off".to_owned()),
        _ => fault(path, "something follows its end".to_owned()),
    })?;
    let values = pixels.into_values(options.held_bytes)?;
    Ok(header.raw(path, values))
}

fn open(path: &Path, max: u64) -> Result<impl Read, DataError> {
    let file = File::open(path).map_err(|source| DataError::Unreadable { path: path.to_owned(), source })?;
    bounded(file, path, max)
}

/// The same of what is given, at most so many values. The header is a claim: nothing of its size is reserved, only what is there is read.
pub(crate) fn parse(file: impl Read, path: &Path, held: u64) -> Result<Raw, DataError> {
    let mut parser = Parser::new(file, path);
    let header = parser.header()?;
    let values = header.form.features() * header.labels.len() as u64;
    let most = held.min(MAX_VALUES);
    if values > most {
        let reason = format!(
            "its images have {values} values, but of what is packed {most} at most are held: unpack it (`gunzip --keep`) and name that file, or \
             hold more (`--data-held`)"
        );
        return Err(DataError::File { path: path.to_owned(), reason });
    }
    let pixels = parser.take(values)?;
    parser.check_end()?;
    Ok(header.raw(path, Values::Bytes(pixels)))
}

/// What stands before the pixels.
pub(crate) struct Header {
    pub(crate) form: Form,
    pub(crate) names: Vec<String>,
    pub(crate) labels: Vec<u32>,
}

impl Header {
    /// Channels, height, width.
    pub(crate) fn shape(&self) -> [u32; 3] {
        let Form { channels, size } = self.form;
        [channels, size.height, size.width]
    }

    fn raw(self, path: &Path, values: Values) -> Raw {
        super::raw(path, self.form, values, self.labels, self.names, Vec::new())
    }
}

pub(crate) struct Parser<R> {
    file: R,
    path: PathBuf,
    /// How many bytes were taken.
    taken: u64,
}

impl<R: Read> Parser<R> {
    pub(crate) fn new(file: R, path: &Path) -> Self {
        Self { file, path: path.to_owned(), taken: 0 }
    }

    /// What stands before the pixels, which come next.
    pub(crate) fn header(&mut self) -> Result<Header, DataError> {
        if self.take(MAGIC.len() as u64)? != MAGIC {
            return Err(fault(&self.path, "it does not begin as one".to_owned()));
        }
        let [channels, height, width, count, classes] = self.numbers()?;
        let size = ImageSize { height, width };
        let sides = 1..=ImageSize::MAX_SIDE;
        let is_possible = [1, 3].contains(&channels) && sides.contains(&height) && sides.contains(&width);
        let form = Form { channels, size };
        if !is_possible || count < 2 || !(2..=MAX_CLASSES).contains(&classes) {
            let reason = format!("{count} images of {channels}x{size} in {classes} classes are not possible");
            return Err(fault(&self.path, reason));
        }
        let mut names: Vec<String> = Vec::new();
        for _ in 0..classes {
            let length = self.take(2)?;
            let length = u16::from_le_bytes([length[0], length[1]]);
            let name = String::from_utf8(self.take(length.into())?).ok().filter(|name| is_name(name));
            names.push(name.ok_or_else(|| fault(&self.path, "the names of its classes are no names".to_owned()))?);
        }
        if names.iter().collect::<BTreeSet<_>>().len() < names.len() {
            return Err(fault(&self.path, "two of its classes have one name".to_owned()));
        }
        let labels = self.take(4 * u64::from(count))?;
        let (labels, _) = labels.as_chunks::<4>();
        let labels: Vec<u32> = labels.iter().map(|label| u32::from_le_bytes(*label)).collect();
        if let Some(label) = labels.iter().find(|label| **label >= classes) {
            let reason = format!("it has {classes} classes, but an image is of class {label}");
            return Err(fault(&self.path, reason));
        }
        Ok(Header { form, names, labels })
    }

    /// The next bytes, exactly so many.
    pub(crate) fn take(&mut self, length: u64) -> Result<Vec<u8>, DataError> {
        let mut bytes = Vec::new();
        let read = self.file.by_ref().take(length).read_to_end(&mut bytes);
        read.map_err(|source| DataError::Unreadable { path: self.path.clone(), source })?;
        self.taken += bytes.len() as u64;
        match bytes.len() as u64 == length {
            true => Ok(bytes),
            false => Err(fault(&self.path, "it is cut off".to_owned())),
        }
    }

    fn numbers<const N: usize>(&mut self) -> Result<[u32; N], DataError> {
        let bytes = self.take(4 * N as u64)?;
        let (numbers, _) = bytes.as_chunks::<4>();
        let numbers: Vec<u32> = numbers.iter().map(|number| u32::from_le_bytes(*number)).collect();
        Ok(numbers.try_into().expect("invariant: so many bytes were taken"))
    }

    /// Nothing may follow them.
    pub(crate) fn check_end(&mut self) -> Result<(), DataError> {
        let mut byte = Vec::new();
        let end = self.file.by_ref().take(1).read_to_end(&mut byte);
        end.map_err(|source| DataError::Unreadable { path: self.path.clone(), source })?;
        if byte.is_empty() { Ok(()) } else { Err(fault(&self.path, "something follows its end".to_owned())) }
    }
}

fn fault(path: &Path, reason: String) -> DataError {
    let reason = format!("it is no file of decoded images: {reason}; take it from another member, or make it anew");
    DataError::File { path: path.to_owned(), reason }
}
