//! CSV files: one sample per row, one column of labels, the others features.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use ::csv::ByteRecord;
use flate2::bufread::MultiGzDecoder;
use starling_run::Kind;
use starling_run::manifest::MAX_FEATURES;

use super::delimiter::has_decimal_comma;
use super::doubts::{Understood, column, is_rising, quoted};
use super::error::DataError;
use super::files::Capped;
use super::raw::{Columns, MAX_VALUES, Raw, Scaling, Values};
use super::source::Source;
use super::{DataSummary, Delimiter, LabelColumn, delimiter, foreign, labels, shorten};

/// What is looked at to find out what separates cells, and whether it is text at all.
const START_BYTES: u64 = 64 << 10;

/// What is said of how a table is written. The rest is found out.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TableForm<'a> {
    pub(super) label: Option<&'a LabelColumn>,
    pub(super) header: Option<bool>,
    pub(super) delimiter: Option<Delimiter>,
}

/// A table.
const KIND: Kind = Kind { name: "csv", files: &["table.csv"], holds_out: false };

/// The reader of a CSV file, gzipped or not.
#[derive(Debug)]
pub(super) struct Csv;

impl Source for Csv {
    fn kinds(&self) -> &'static [Kind] {
        &[KIND]
    }

    /// Whatever it is, it says why it is no table.
    fn knows(&self, _: &str) -> Result<bool, DataError> {
        Ok(true)
    }

    fn files(&self, source: &str) -> Result<(Kind, Vec<PathBuf>), DataError> {
        Ok((KIND, vec![source.into()]))
    }

    fn read(&self, source: &str, form: TableForm<'_>, max: u64) -> Result<Raw, DataError> {
        let path = Path::new(source);
        let file = File::open(path).map_err(|source| DataError::Unreadable { path: path.to_owned(), source })?;
        parse(file, path, form, max)
    }
}

/// Reads at most `max` bytes of CSV text from `bytes`, gzipped or not. `path` is for messages.
pub(super) fn parse(bytes: impl Read, path: &Path, form: TableForm<'_>, max: u64) -> Result<Raw, DataError> {
    let mut bytes = BufReader::new(bytes);
    let gzipped = is_gzipped(&mut bytes).map_err(|source| DataError::Unreadable { path: path.to_owned(), source })?;
    match gzipped {
        true => Table::read(Capped::new(BufReader::new(MultiGzDecoder::new(bytes)), max), path, form),
        false => Table::read(Capped::new(bytes, max), path, form),
    }
}

/// Whether the bytes start as a gzip file does. Consumes nothing.
pub(super) fn is_gzipped(bytes: &mut impl std::io::BufRead) -> std::io::Result<bool> {
    Ok(bytes.fill_buf()?.starts_with(&[0x1f, 0x8b]))
}

/// What the first row has settled.
struct Table<'a> {
    path: &'a Path,
    delimiter: Delimiter,
    is_header: bool,
    /// Empty without a header.
    names: Vec<String>,
    columns: usize,
    label: usize,
    /// Whether the user named the label.
    is_label_said: bool,
}

impl<'a> Table<'a> {
    fn read(mut text: impl Read, path: &'a Path, form: TableForm<'_>) -> Result<Raw, DataError> {
        let mut start = Vec::new();
        let begun = text.by_ref().take(START_BYTES).read_to_end(&mut start);
        begun.map_err(|source| DataError::Unreadable { path: path.to_owned(), source })?;
        if let Some(reason) = foreign::told(&start) {
            return Err(DataError::File { path: path.to_owned(), reason });
        }
        let is_whole = (start.len() as u64) < START_BYTES;
        let delimiter = form.delimiter.unwrap_or_else(|| delimiter::found(&start, is_whole));
        let mut reader = delimiter::rows(delimiter, start.as_slice().chain(text));
        let mut record = ByteRecord::new();
        if !next(&mut reader, &mut record, path)? {
            return Err(DataError::File { path: path.to_owned(), reason: "it is empty".to_owned() });
        }
        let first = cells(&record);
        let table = Self::settle(path, delimiter, &first, form)?;
        let (mut values, mut written, mut rising_rows) = (Vec::new(), Vec::new(), 0);
        let mut more = if table.is_header { next(&mut reader, &mut record, path)? } else { true };
        while more {
            let row = values.len();
            table.row(&record, &mut values, &mut written)?;
            rising_rows += usize::from(is_rising(&values[row..]));
            more = next(&mut reader, &mut record, path)?;
        }
        if written.is_empty() {
            return Err(DataError::File { path: path.to_owned(), reason: "it has a header, but no rows".to_owned() });
        }
        let (labels, class_names) = labels::classify(&written).map_err(|reason| DataError::File {
            path: path.to_owned(),
            reason: format!("{}: {reason}", table.name(table.label)),
        })?;
        let understood = Understood {
            label: table.label,
            is_label_said: table.is_label_said,
            names: &table.names,
            first: (!table.is_header && form.header.is_none()).then_some(first.as_slice()),
            rising_rows,
            values: &values,
            labels: &labels,
            classes: &class_names,
            counts: &DataSummary::count(&class_names, labels.iter()),
        };
        let doubts = understood.doubts();
        let label = u32::try_from(table.label).expect("invariant: the number of columns is bounded");
        let features = u32::try_from(table.columns - 1).expect("invariant: the number of columns is bounded");
        let (mut feature_names, mut label_name) = (table.names, None);
        if !feature_names.is_empty() {
            label_name = Some(feature_names.remove(table.label));
        }
        Ok(Raw {
            kind: KIND,
            origin: path.display().to_string(),
            shape: [1, 1, features],
            values: Values::Numbers(values),
            labels,
            class_names,
            feature_names,
            scaling: Scaling::Standardize,
            columns: Some(Columns { label, label_name, header: table.is_header, delimiter }),
            held_out: None,
            doubts,
        })
    }

    /// Finds out from the first row whether it is a header, and which column the label is.
    fn settle(path: &'a Path, delimiter: Delimiter, cells: &[String], form: TableForm<'_>) -> Result<Self, DataError> {
        let fail = |reason: String| DataError::File { path: path.to_owned(), reason };
        let columns = cells.len();
        if columns < 2 {
            let names = Delimiter::ALL.map(Delimiter::name).join(", ");
            return Err(fail(match form.delimiter {
                Some(said) => format!("it has a single column, separated by {said}; --delimiter is one of {names}"),
                None => format!(
                    "it has a single column, but needs features and a label, separated by one of {names} (--delimiter)"
                ),
            }));
        }
        if columns > MAX_FEATURES as usize {
            return Err(fail(format!("it has {columns} columns, too many to be data")));
        }
        let (written, index) = match form.label {
            None => (None, None),
            Some(LabelColumn::Written(text)) => (Some(text), text.parse::<usize>().ok()),
            Some(LabelColumn::Index(index)) => (None, Some(*index as usize)),
        };
        let named = written.and_then(|text| cells.iter().position(|cell| cell == text));
        let is_number = |cell: &String| cell.parse::<f64>().is_ok();
        let is_header = form.header.unwrap_or_else(|| {
            let column = named.or(index).unwrap_or(columns - 1);
            let features_are_text = cells.iter().enumerate().all(|(at, cell)| at == column || !is_number(cell));
            // A label that is named, and is not a number, can only be in a header.
            features_are_text || (named.is_some() && index.is_none())
        });
        let named = named.filter(|_| is_header);
        let label = match (written, named.or(index)) {
            (None, None) => columns - 1,
            (_, Some(column)) if column < columns => column,
            (_, Some(column)) => {
                return Err(fail(format!("the label is column {column}, but columns run from 0 to {}", columns - 1)));
            }
            (Some(wanted), None) if is_header => {
                let nearest = nearest(wanted, cells).expect("invariant: there are columns");
                return Err(fail(format!("it has no column `{wanted}` for the label; did you mean `{nearest}`?")));
            }
            (Some(wanted), None) => {
                return Err(fail(format!(
                    "it has no header, so there is no column `{wanted}` for the label; give its 0-based index"
                )));
            }
        };
        let names = if is_header { cells.to_vec() } else { Vec::new() };
        Ok(Self { path, delimiter, is_header, names, columns, label, is_label_said: form.label.is_some() })
    }

    /// Takes one row of data in.
    fn row(&self, record: &ByteRecord, values: &mut Vec<f64>, labels: &mut Vec<String>) -> Result<(), DataError> {
        let row = record.position().map_or(0, ::csv::Position::line);
        let fail = |column: Option<usize>, reason: String| DataError::Row {
            path: self.path.to_owned(),
            row,
            column: column.map(|column| self.name(column)),
            reason,
        };
        if record.len() != self.columns {
            return Err(fail(None, format!("it has {} columns, but the first row has {}", record.len(), self.columns)));
        }
        if (values.len() + self.columns) as u64 > MAX_VALUES {
            return Err(fail(None, format!("the file has more than {MAX_VALUES} values")));
        }
        for (column, cell) in record.iter().enumerate() {
            let cell =
                std::str::from_utf8(cell).map_err(|_| fail(Some(column), "it is not UTF-8 text".to_owned()))?.trim();
            if cell.is_empty() {
                return Err(fail(Some(column), "it is empty; fill it in, or leave the row out".to_owned()));
            }
            if cell.contains('\n') {
                return Err(fail(Some(column), "a quote opens in it and is not closed in its line".to_owned()));
            }
            if column == self.label {
                labels.push(cell.to_owned());
                continue;
            }
            let number: f64 = cell.parse().map_err(|_| fail(Some(column), self.not_a_number(column, cell)))?;
            if !number.is_finite() {
                return Err(fail(Some(column), format!("`{cell}` is not a finite number")));
            }
            values.push(number);
        }
        Ok(())
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
    fn name(&self, at: usize) -> String {
        column(&self.names, at)
    }
}

/// The cells of a row.
fn cells(record: &ByteRecord) -> Vec<String> {
    record.iter().map(|cell| String::from_utf8_lossy(cell).trim().to_owned()).collect()
}

/// Reads the next row that is not empty. False at the end.
fn next(reader: &mut ::csv::Reader<impl Read>, record: &mut ByteRecord, path: &Path) -> Result<bool, DataError> {
    reader.read_byte_record(record).map_err(|error| {
        let line = error.position().map_or_else(|| reader.position().line(), ::csv::Position::line);
        match error.into_kind() {
            ::csv::ErrorKind::Io(source) => DataError::Unreadable { path: path.to_owned(), source },
            kind => DataError::Row { path: path.to_owned(), row: line, column: None, reason: format!("{kind:?}") },
        }
    })
}

/// The name with the smallest edit distance to `wanted`, the first of several.
fn nearest<'n>(wanted: &str, names: &'n [String]) -> Option<&'n String> {
    names.iter().min_by_key(|name| edits(&wanted.to_lowercase(), &name.to_lowercase()))
}

/// How many characters must be inserted, removed or replaced to turn one text into the other (Levenshtein).
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (at, left) in from.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], at + 1);
        for (column, right) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(left != *right);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
}
