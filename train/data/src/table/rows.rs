//! The rows of a table, one after another: what training and prediction read in the same way.

use std::borrow::Cow;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};

use ::csv::ByteRecord;
use starling_run::data::BETWEEN_LABELS;
use starling_run::data::columns::{CellError, ColumnKind};

use crate::Delimiter;
use crate::error::DataError;
use crate::files::foreign;
use crate::samples::labels::by_value;
use crate::shorten;
use crate::table::delimiter::{self, has_decimal_comma};
use crate::table::doubts::column;
use crate::table::json_lines::{self, JsonLines};
use crate::table::lines::OpenQuote;
use crate::table::row_text::{BadRow, RowSource, RowText};

/// What is looked at to find out what separates cells, and whether it is text at all.
const START_BYTES: u64 = 64 << 10;
/// The most that a row may count.
const MAX_WEIGHT: f32 = (1 << 20) as f32;
/// What a cell is told that is none.
const NO_TEXT: &str = "it is not UTF-8 text; save the table as UTF-8";
/// Categories that a message names.
const MAX_NAMED: usize = 5;

/// Text that may be a table, of which the beginning was looked at.
pub(crate) struct Text<'t> {
    /// Without the mark that some programs put before UTF-8.
    start: Vec<u8>,
    /// Whether nothing follows it.
    is_whole: bool,
    rest: Box<dyn Read + 't>,
    /// Whether it was made of rows that were written in another way: commas separate its cells, and its first row has names.
    is_made: bool,
}

impl<'t> Text<'t> {
    /// Looks at the beginning of `text`. `path` is for messages.
    ///
    /// # Errors
    /// If it can't be read, or is something else by its first bytes.
    pub(crate) fn open(mut text: impl Read + 't, path: &Path) -> Result<Self, DataError> {
        let mut start = Vec::new();
        let begun = text.by_ref().take(START_BYTES).read_to_end(&mut start);
        begun.map_err(|source| DataError::Unreadable { path: path.to_owned(), source })?;
        match foreign::told(&start) {
            Some(reason) => Err(DataError::File { path: path.to_owned(), reason }),
            None => {
                let is_whole = (start.len() as u64) < START_BYTES;
                let mark = if start.starts_with(foreign::MARK) { foreign::MARK.len() } else { 0 };
                start.drain(..mark);
                if json_lines::is_for(&start) {
                    return Ok(Self::of_rows(JsonLines::new(Cursor::new(start).chain(text))));
                }
                Ok(Self { start, is_whole, rest: Box::new(text), is_made: false })
            }
        }
    }

    /// What these rows are.
    pub(crate) fn of_rows(rows: impl RowSource + 't) -> Self {
        Self { start: Vec::new(), is_whole: false, rest: Box::new(RowText::new(rows)), is_made: true }
    }

    /// Whether it was made of rows that were written in another way, with names.
    pub(crate) fn is_made(&self) -> bool {
        self.is_made
    }

    /// What separates its cells, as far as its beginning tells.
    pub(crate) fn delimiter(&self) -> Delimiter {
        if self.is_made { Delimiter::Comma } else { delimiter::found(&self.start, self.is_whole) }
    }

    /// Whether tabs at its beginning are taken as one, if this separates its cells.
    pub(crate) fn merges_tabs(&self, delimiter: Delimiter) -> bool {
        delimiter::merges_tabs(delimiter, &self.start)
    }

    /// Whether this separates the cells of its first row.
    pub(crate) fn is_separated_by(&self, delimiter: Delimiter) -> bool {
        let mut rows = delimiter::rows(delimiter, &*self.start).into_byte_records();
        rows.next().is_some_and(|row| row.is_ok_and(|row| row.len() > 1))
    }

    /// All its rows.
    pub(crate) fn rows(self, delimiter: Delimiter) -> ::csv::Reader<Box<dyn Read + 't>> {
        if self.is_made {
            return delimiter::made(self.rest);
        }
        delimiter::rows(delimiter, Cursor::new(self.start).chain(self.rest))
    }
}

fn joined(labels: &[Cow<'_, str>]) -> String {
    labels.join(&*BETWEEN_LABELS.encode_utf8(&mut [0; 4]))
}

/// How the rows of one table are read.
#[derive(Debug, Clone)]
pub(crate) struct Rows {
    pub(crate) path: PathBuf,
    pub(crate) delimiter: Delimiter,
    /// Of the columns. Empty without a header.
    pub(crate) names: Vec<String>,
    pub(crate) columns: usize,
    /// Which of them hold labels, in the order of a model's outputs.
    pub(crate) labels: Vec<usize>,
    /// Which of them have features, in the order of those, and how they become them.
    pub(crate) taken: Vec<(usize, ColumnKind)>,
}

impl Rows {
    /// Appends the features of a row to `values`, before scaling, and returns its label if there is one.
    ///
    /// # Errors
    /// If it has more or fewer cells than the first row, or a cell is not what its column holds: with row and column.
    pub(crate) fn read<'r>(
        &self,
        record: &'r ByteRecord,
        values: &mut Vec<f64>,
    ) -> Result<Option<Cow<'r, str>>, DataError> {
        self.read_features(record, values)?;
        self.label(record)
    }

    /// Appends the features of a row alone, whatever its label is.
    ///
    /// # Errors
    /// As [`Self::read`], but for the label.
    pub(crate) fn read_features(&self, record: &ByteRecord, values: &mut Vec<f64>) -> Result<(), DataError> {
        self.check_width(record)?;
        for (column, coding) in &self.taken {
            let cell = self.cell(record, *column)?;
            let coded = coding.encode(cell, values);
            coded.map_err(|unknown| self.fault(record, Some(*column), self.unknown(unknown, cell, coding)))?;
        }
        Ok(())
    }

    /// The label of a row, if it has one; of several columns their numbers, with [`BETWEEN_LABELS`] between them.
    ///
    /// # Errors
    /// If it is empty, or no text; of several, if one is no number.
    pub(crate) fn label<'r>(&self, record: &'r ByteRecord) -> Result<Option<Cow<'r, str>>, DataError> {
        if let [_, _, ..] = *self.labels {
            let labels =
                self.labels.iter().map(|column| self.number(record, *column)).collect::<Result<Vec<_>, _>>()?;
            // However they are written.
            let labels: Vec<Cow<'_, str>> = labels.into_iter().map(by_value).collect();
            return Ok(Some(joined(&labels).into()));
        }
        let Some(&column) = self.labels.first() else { return Ok(None) };
        match self.cell(record, column)? {
            "" => {
                let reason = "the label is empty; fill it in, or leave the row out".to_owned();
                Err(self.fault(record, Some(column), reason))
            }
            label => Ok(Some(label.into())),
        }
    }

    /// A label that is one of several.
    fn number<'r>(&self, record: &'r ByteRecord, column: usize) -> Result<&'r str, DataError> {
        let cell = self.cell(record, column)?;
        match cell.parse().is_ok_and(f64::is_finite) {
            true => Ok(cell),
            false => {
                let told = shorten(cell);
                let reason = format!(
                    "the label `{told}` is no number, which all of several label columns are; mend it, or leave the row out"
                );
                Err(self.fault(record, Some(column), reason))
            }
        }
    }

    /// How much a row counts.
    ///
    /// # Errors
    /// If that is no number, or none that a row can count.
    pub(crate) fn weight(&self, record: &ByteRecord, column: usize) -> Result<f32, DataError> {
        let cell = self.cell(record, column)?;
        let weight = cell.parse().ok().filter(|weight| (0.0..=MAX_WEIGHT).contains(weight));
        weight.ok_or_else(|| {
            let reason = format!("`{}` is no weight: a row counts 0 to {MAX_WEIGHT}", shorten(cell));
            self.fault(record, Some(column), reason)
        })
    }

    /// The label of a row whatever it is: empty if it is no text, too.
    pub(crate) fn any_label(&self, record: &ByteRecord) -> Option<String> {
        let cell = |column: &usize| Cow::from(self.cell(record, *column).unwrap_or_default());
        let cells: Vec<Cow<'_, str>> = self.labels.iter().map(cell).collect();
        (!cells.is_empty()).then(|| joined(&cells))
    }

    /// Checks that a row has as many cells as the first one.
    ///
    /// # Errors
    /// If it has not.
    pub(crate) fn check_width(&self, record: &ByteRecord) -> Result<(), DataError> {
        if record.len() == self.columns {
            return Ok(());
        }
        let breaks = line_breaks(record);
        let quote = match breaks {
            0 => String::new(),
            _ => format!("; a quote opens in it that closes in row {}", line(record) + breaks),
        };
        let reason = format!("it has {} columns, but the first row has {}{quote}", record.len(), self.columns);
        Err(self.fault(record, None, reason))
    }

    /// The cell in `column`, without blanks around it.
    ///
    /// # Errors
    /// If it is no text.
    pub(crate) fn cell<'r>(&self, record: &'r ByteRecord, column: usize) -> Result<&'r str, DataError> {
        let bytes = record.get(column).unwrap_or_default();
        let fail = |reason: &str| self.fault(record, Some(column), reason.to_owned());
        Ok(bare(std::str::from_utf8(bytes).map_err(|_| fail(NO_TEXT))?))
    }

    /// What is wrong in a row, and where.
    pub(crate) fn fault(&self, record: &ByteRecord, column: Option<usize>, reason: String) -> DataError {
        let column = column.map(|column| self.name(column));
        DataError::Row { path: self.path.clone(), row: line(record), column, reason }
    }

    /// Why a cell has no features, with what its user may have meant.
    fn unknown(&self, unknown: CellError, cell: &str, coding: &ColumnKind) -> String {
        let told = format!("`{}`", shorten(cell));
        match (unknown, coding) {
            (CellError::Category, ColumnKind::Category(texts)) => {
                let known: Vec<String> =
                    texts.iter().take(MAX_NAMED).map(|text| format!("`{}`", shorten(text))).collect();
                let more = if texts.len() > MAX_NAMED { ", ..." } else { "" };
                format!("{told} is none of the column's {} categories: {}{more}", texts.len(), known.join(", "))
            }
            _ if self.delimiter != Delimiter::Comma && has_decimal_comma(cell) => {
                format!("{told} is not a number; write decimals with a point")
            }
            _ if cell.parse::<f64>().is_ok() => format!("{told} is not a finite number"),
            _ => format!("{told} is not a number"),
        }
    }

    /// A column for messages: its index, and its name if it has one.
    pub(crate) fn name(&self, at: usize) -> String {
        column(&self.names, at)
    }
}

/// The line that a row begins in, counted from 1.
pub(crate) fn line(record: &ByteRecord) -> u64 {
    record.position().map_or(0, ::csv::Position::line)
}

/// The cells of a row.
pub(crate) fn cells(record: &ByteRecord) -> Vec<String> {
    record.iter().map(|cell| bare(&String::from_utf8_lossy(cell)).to_owned()).collect()
}

/// Checks that a row, the first one, is of names.
///
/// # Errors
/// If one is no text.
pub(crate) fn check_names(record: &ByteRecord, path: &Path) -> Result<(), DataError> {
    let Some(bad) = record.iter().position(|cell| std::str::from_utf8(cell).is_err()) else { return Ok(()) };
    let (column, reason) = (Some(column(&[], bad)), NO_TEXT.to_owned());
    Err(DataError::Row { path: path.to_owned(), row: line(record), column, reason })
}

/// A cell without the blanks around it, and without quotes that a blank before them has kept from being taken for such.
fn bare(cell: &str) -> &str {
    let bare = cell.trim();
    let is_quoted = cell.len() > bare.len() && bare.len() > 1;
    let inner = bare.strip_prefix('"').and_then(|inner| inner.strip_suffix('"')).filter(|_| is_quoted);
    inner.map_or(bare, str::trim)
}

/// How many lines a row has besides the first one: a break is in a cell if it is between quotes.
fn line_breaks(record: &ByteRecord) -> u64 {
    record.as_slice().iter().filter(|byte| **byte == b'\n').count() as u64
}

/// Reads the next row that is not empty. False at the end.
///
/// # Errors
/// If it can't be read, or a quote opens in it that is never closed.
pub(crate) fn next(
    reader: &mut ::csv::Reader<impl Read>,
    record: &mut ByteRecord,
    path: &Path,
) -> Result<bool, DataError> {
    let path = || path.to_owned();
    let is_row = reader.read_byte_record(record).map_err(|error| {
        let line = error.position().map_or_else(|| reader.position().line(), ::csv::Position::line);
        match error.into_kind() {
            ::csv::ErrorKind::Io(source) => match OpenQuote::of(&source) {
                Some(quote) => {
                    DataError::Row { path: path(), row: quote.line, column: None, reason: quote.to_string() }
                }
                None => match BadRow::of(&source) {
                    Some(BadRow { row, column, reason }) => {
                        DataError::Row { path: path(), row: *row, column: column.clone(), reason: reason.clone() }
                    }
                    None => DataError::Unreadable { path: path(), source },
                },
            },
            kind => DataError::Row { path: path(), row: line, column: None, reason: format!("{kind:?}") },
        }
    })?;
    if is_row {
        // The parser has it begin where the row before it ended, whatever blank lines are between them. All end with a line's end.
        let mut position = reader.position().clone();
        // Names that were made of the first row have no line of their own.
        position.set_line(position.line().saturating_sub(1 + line_breaks(record)).max(1));
        record.set_position(Some(position));
    }
    Ok(is_row)
}
