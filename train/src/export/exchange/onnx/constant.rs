//! A constant of an ONNX file. Its numbers stay where they are until they are asked for.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Component, Path};

use starling_run::data::shorten;

use super::super::NumberFormat;
use super::parts::Fault;
use super::wire::{Field, Fields, NoMessage, number};

/// The most sides of a constant.
const MAX_SIDES: usize = 8;
/// The kind of 32-bit numbers.
const FLOAT: u64 = 1;
/// The field of floats in a tensor, and in an operation's setting.
const OF_TENSOR: u64 = 4;
const OF_LIST: u64 = 7;

/// A constant of a graph.
#[derive(Debug)]
pub(super) struct Constant<'a> {
    pub(super) shape: Vec<usize>,
    kind: u64,
    message: &'a [u8],
    /// The field that has its numbers, if they are floats.
    floats: u64,
}

impl<'a> Constant<'a> {
    /// That of a tensor, and what it is called.
    pub(super) fn read(message: &'a [u8]) -> Result<(String, Self), Fault> {
        let (mut name, mut kind, mut shape) = ("", 0, Vec::new());
        for field in Fields::of(message) {
            match field? {
                (1, Field::Number(side)) => shape.push(side),
                (1, Field::Bytes(mut sides)) => {
                    while !sides.is_empty() && shape.len() <= MAX_SIDES {
                        shape.push(number(&mut sides).ok_or(Fault::NoMessage)?);
                    }
                }
                (2, Field::Number(found)) => kind = found,
                (8, field) => name = field.text().ok_or(Fault::NoMessage)?,
                _ => {}
            }
            if shape.len() > MAX_SIDES {
                let name = shorten(name).escape_debug().to_string();
                return Err(Fault::Other(format!("`{name}` has more than {MAX_SIDES} sides")));
            }
        }
        let shape: Result<Vec<usize>, _> = shape.into_iter().map(usize::try_from).collect();
        let shape = shape.map_err(|_| Fault::NoMessage)?;
        Ok((name.to_owned(), Self { shape, kind, message, floats: OF_TENSOR }))
    }

    /// That of an operation's list of floats.
    pub(super) fn of_list(attribute: &'a [u8]) -> Result<Self, Fault> {
        let mut bytes = 0;
        for field in Fields::of(attribute) {
            if let (OF_LIST, Field::Bytes(floats)) = field? {
                bytes += floats.len();
            }
        }
        Ok(Self { shape: vec![bytes / size_of::<f32>()], kind: FLOAT, message: attribute, floats: OF_LIST })
    }

    /// Of which kind its numbers are, if they are those of weights.
    fn format(&self) -> Option<NumberFormat> {
        match self.kind {
            FLOAT => Some(NumberFormat::F32),
            10 => Some(NumberFormat::F16),
            16 => Some(NumberFormat::Bf16),
            _ => None,
        }
    }

    /// Whole numbers, truths and texts, and single numbers are what graphs compute with: sides, places, divisors. All else may be weights, also
    /// in kinds that are not read: of 64 bits, of 8 and less.
    pub(super) fn may_be_weight(&self) -> bool {
        !matches!(self.kind, 6..=9 | 12 | 13) && !self.shape.is_empty()
    }

    /// What it holds. External data lies in `folder`.
    ///
    /// # Errors
    /// Why that can't be read, as the rest of a sentence.
    pub(super) fn numbers(&self, folder: &Path) -> Result<Vec<f32>, String> {
        let format = self.format().ok_or_else(|| {
            format!("holds numbers of ONNX's kind {}, where FLOAT, FLOAT16 or BFLOAT16 is expected", self.kind)
        })?;
        let elements = self.shape.iter().try_fold(1_usize, |product, side| product.checked_mul(*side));
        let elements = elements.ok_or("is too large")?;
        let bytes = elements.checked_mul(format.bytes()).ok_or("is too large")?;
        let is_tensor = self.floats == OF_TENSOR;
        if is_tensor && self.first(14, Field::number)? == Some(1) {
            return Ok(format.decode(&self.external(folder, bytes)?));
        }
        if is_tensor && let Some(raw) = self.first(9, Field::bytes)? {
            return if raw.len() == bytes { Ok(format.decode(raw)) } else { Err("is cut off".to_owned()) };
        }
        // One by one, or several in a field.
        let mut numbers = Vec::new();
        for field in Fields::of(self.message) {
            match (format, field.map_err(|NoMessage| "is cut off")?) {
                (NumberFormat::F32, (tag, Field::Bytes(floats))) if tag == self.floats => {
                    numbers.extend(format.decode(floats));
                }
                (NumberFormat::F16 | NumberFormat::Bf16, (5, Field::Number(bits))) => {
                    numbers.extend(format.decode(&(bits as u16).to_le_bytes()));
                }
                (NumberFormat::F16 | NumberFormat::Bf16, (5, Field::Bytes(mut several))) => {
                    while !several.is_empty() {
                        let bits = number(&mut several).ok_or("is cut off")?;
                        numbers.extend(format.decode(&(bits as u16).to_le_bytes()));
                    }
                }
                _ => {}
            }
            if numbers.len() > elements {
                return Err("has more numbers than its sides say".to_owned());
            }
        }
        if numbers.len() == elements { Ok(numbers) } else { Err("is cut off".to_owned()) }
    }

    fn first<T>(&self, tag: u64, read: impl Fn(Field<'a>) -> Option<T>) -> Result<Option<T>, String> {
        Fields::of(self.message).first(tag, read).map_err(|NoMessage| "is cut off".to_owned())
    }

    /// So many bytes of a file beside the model's. Of others, and of what a link leads to elsewhere, nothing is read.
    fn external(&self, folder: &Path, bytes: usize) -> Result<Vec<u8>, String> {
        let (mut location, mut offset, mut length) = (None, 0, None);
        for field in Fields::of(self.message) {
            let Ok((13, Field::Bytes(entry))) = field else { continue };
            let of = |tag| Fields::of(entry).first(tag, Field::text).ok().flatten();
            match (of(1), of(2)) {
                (Some("location"), text) => location = text,
                (Some("offset"), text) => offset = text.and_then(|text| text.parse().ok()).ok_or("has a bad offset")?,
                (Some("length"), text) => length = text.and_then(|text| text.parse::<u64>().ok()),
                _ => {}
            }
        }
        let location = location.ok_or("lies in another file, which is not named")?;
        let told = format!("lies in `{}`", shorten(location).escape_debug());
        let mut components = Path::new(location).components();
        let (Some(Component::Normal(name)), None) = (components.next(), components.next()) else {
            return Err(format!("{told}, which is no file beside the model's"));
        };
        if length.is_some_and(|length| length != bytes as u64) {
            return Err(format!("{told} with {} bytes, where it takes {bytes}", length.unwrap_or_default()));
        }
        let path = folder.join(name);
        if std::fs::symlink_metadata(&path).is_ok_and(|found| !found.is_file()) {
            return Err(format!("{told}, which is no file of its own; if it is a link, copy it beside the model"));
        }
        let read = || {
            let mut file = File::open(&path)?;
            file.seek(SeekFrom::Start(offset))?;
            let mut held = Vec::new();
            file.take(bytes as u64).read_to_end(&mut held)?;
            Ok(held)
        };
        let held: Vec<u8> = read().map_err(|error: std::io::Error| format!("{told}, which can't be read: {error}"))?;
        match held.len() == bytes {
            true => Ok(held),
            false => Err(format!("{told}, which ends before it does")),
        }
    }
}
