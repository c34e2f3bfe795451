//! The rows of a table, one after another: what training and prediction read in the same way.

use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};

use ::csv::ByteRecord;

use super::delimiter::{self, has_decimal_comma};
use super::doubts::{column, quoted};
use super::error::DataError;
use super::{Delimiter, foreign, shorten};

/// What is looked at to find out what separates cells, and whether it is text at all.
const START_BYTES: u64 = 64 << 10;

/// Text that may be a table, of which the beginning was looked at.
pub(super) struct Text<R> {
    start: Vec<u8>,
    rest: R,
}

impl<R: Read> Text<R> {
    /// Looks at the beginning of `text`. `path` is for messages.
    ///
    /// # Errors
    /// If it can't be read, or is something else by its first bytes.
    pub(super) fn open(mut text: R, path: &Path) -> Result<Self, DataError> {
        let mut start = Vec::new();
        let begun = text.by_ref().take(START_BYTES).read_to_end(&mut start);
        begun.map_err(|source| DataError::Unreadable { path: path.to_owned(), source })?;
        match foreign::told(&start) {
            Some(reason) => Err(DataError::File { path: path.to_owned(), reason }),
            None => Ok(Self { start, rest: text }),
        }
    }

    /// What separates its cells, as far as its beginning tells.
    pub(super) fn delimiter(&self) -> Delimiter {
        delimiter::found(&self.start, (self.start.len() as u64) < START_BYTES)
    }

    /// All its rows.
    pub(super) fn rows<'t>(self, delimiter: Delimiter) -> ::csv::Reader<Box<dyn Read + 't>>
    where
        R: 't,
    {
        delimiter::rows(delimiter, Cursor::new(self.start).chain(self.rest))
    }
}

/// How the rows of one table are read.
#[derive(Debug)]
pub(super) struct Rows {
    pub(super) path: PathBuf,
    pub(super) delimiter: Delimiter,
    /// Of the columns. Empty without a header.
    pub(super) names: Vec<String>,
    pub(super) columns: usize,
    /// Which of them holds text; all others hold numbers.
    pub(super) label: Option<usize>,
    /// Whether it is settled which one that is, so that nobody needs to be told how to say it.
    pub(super) is_label_said: bool,
}

impl Rows {
    /// Appends the numbers of a row to `values`, in the order of their columns, and returns its label if there is one.
    ///
    /// # Errors
    /// If it has more or fewer cells than the first row, or a cell is not what its column holds: with row and column.
    pub(super) fn read(&self, record: &ByteRecord, values: &mut Vec<f64>) -> Result<Option<String>, DataError> {
        let row = line(record);
        let fail = |column: Option<usize>, reason: String| DataError::Row {
            path: self.path.clone(),
            row,
            column: column.map(|column| self.name(column)),
            reason,
        };
        if record.len() != self.columns {
            return Err(fail(None, format!("it has {} columns, but the first row has {}", record.len(), self.columns)));
        }
        let mut label = None;
        for (column, cell) in record.iter().enumerate() {
            let cell =
                std::str::from_utf8(cell).map_err(|_| fail(Some(column), "it is not UTF-8 text".to_owned()))?.trim();
            if cell.is_empty() {
                return Err(fail(Some(column), "it is empty; fill it in, or leave the row out".to_owned()));
            }
            if cell.contains('\n') {
                return Err(fail(Some(column), "a quote opens in it and is not closed in its line".to_owned()));
            }
            if Some(column) == self.label {
                label = Some(cell.to_owned());
                continue;
            }
            let number: f64 = cell.parse().map_err(|_| fail(Some(column), self.not_a_number(column, cell)))?;
            if !number.is_finite() {
                return Err(fail(Some(column), format!("`{cell}` is not a finite number")));
            }
            values.push(number);
        }
        Ok(label)
    }

    /// Why a cell is no feature, with what its user may have meant.
    fn not_a_number(&self, column: usize, cell: &str) -> String {
        let told = format!("`{}` is not a number", shorten(cell));
        if self.delimiter != Delimiter::Comma && has_decimal_comma(cell) {
            return format!("{told}; write decimals with a point");
        }
        if self.is_label_said || cell.chars().all(|letter| !letter.is_alphabetic()) {
            return told;
        }
        let label = self.names.get(column).map_or_else(|| column.to_string(), |name| shorten(name));
        format!("{told}; if the column holds the classes, pass --label {}", quoted(&label))
    }

    /// A column for messages: its index, and its name if it has one.
    pub(super) fn name(&self, at: usize) -> String {
        column(&self.names, at)
    }
}

/// The line that a row begins in, counted from 1.
pub(super) fn line(record: &ByteRecord) -> u64 {
    record.position().map_or(0, ::csv::Position::line)
}

/// The cells of a row.
pub(super) fn cells(record: &ByteRecord) -> Vec<String> {
    record.iter().map(|cell| String::from_utf8_lossy(cell).trim().to_owned()).collect()
}

/// Reads the next row that is not empty. False at the end.
///
/// # Errors
/// If it can't be read.
pub(super) fn next(
    reader: &mut ::csv::Reader<impl Read>,
    record: &mut ByteRecord,
    path: &Path,
) -> Result<bool, DataError> {
    reader.read_byte_record(record).map_err(|error| {
        let line = error.position().map_or_else(|| reader.position().line(), ::csv::Position::line);
        match error.into_kind() {
            ::csv::ErrorKind::Io(source) => DataError::Unreadable { path: path.to_owned(), source },
            kind => DataError::Row { path: path.to_owned(), row: line, column: None, reason: format!("{kind:?}") },
        }
    })
}
