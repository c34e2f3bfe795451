//! CSV files: one sample per row, one column of labels, the others features.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use ::csv::{ByteRecord, ReaderBuilder};
use flate2::bufread::MultiGzDecoder;

use super::error::DataError;
use super::files::Capped;
use super::raw::{Columns, MAX_VALUES, Raw, Scaling, Values};
use super::{LabelColumn, labels};

/// Reads the CSV file at `path`, gzipped or not, with at most `max` bytes of text.
pub(super) fn read(path: &Path, label: Option<&LabelColumn>, header: Option<bool>, max: u64) -> Result<Raw, DataError> {
    let file = File::open(path).map_err(|source| DataError::Unreadable { path: path.to_owned(), source })?;
    parse(file, path, label, header, max)
}

/// Reads at most `max` bytes of CSV text from `bytes`, gzipped or not. `path` is for messages.
pub(super) fn parse(
    bytes: impl Read,
    path: &Path,
    label: Option<&LabelColumn>,
    header: Option<bool>,
    max: u64,
) -> Result<Raw, DataError> {
    let mut bytes = BufReader::new(bytes);
    let gzipped = is_gzipped(&mut bytes).map_err(|source| DataError::Unreadable { path: path.to_owned(), source })?;
    match gzipped {
        true => Table::read(Capped::new(BufReader::new(MultiGzDecoder::new(bytes)), max), path, label, header),
        false => Table::read(Capped::new(bytes, max), path, label, header),
    }
}

/// Whether the bytes start as a gzip file does. Consumes nothing.
pub(super) fn is_gzipped(bytes: &mut impl std::io::BufRead) -> std::io::Result<bool> {
    Ok(bytes.fill_buf()?.starts_with(&[0x1f, 0x8b]))
}

/// What the first row has settled.
struct Table<'a> {
    path: &'a Path,
    /// Empty without a header.
    names: Vec<String>,
    columns: usize,
    label: usize,
}

impl<'a> Table<'a> {
    fn read(
        text: impl Read,
        path: &'a Path,
        label: Option<&LabelColumn>,
        header: Option<bool>,
    ) -> Result<Raw, DataError> {
        let mut reader = ReaderBuilder::new().has_headers(false).flexible(true).from_reader(text);
        let mut record = ByteRecord::new();
        if !next(&mut reader, &mut record, path)? {
            return Err(DataError::File { path: path.to_owned(), reason: "it is empty".to_owned() });
        }
        let (table, is_header) = Self::settle(path, &record, label, header)?;
        let mut values = Vec::new();
        let mut written = Vec::new();
        let mut more = if is_header { next(&mut reader, &mut record, path)? } else { true };
        while more {
            table.row(&record, &mut values, &mut written)?;
            more = next(&mut reader, &mut record, path)?;
        }
        if written.is_empty() {
            return Err(DataError::File { path: path.to_owned(), reason: "it has a header, but no rows".to_owned() });
        }
        let (labels, class_names) = labels::classify(&written).map_err(|reason| DataError::File {
            path: path.to_owned(),
            reason: format!("{}: {reason}", table.name(table.label)),
        })?;
        let label = u32::try_from(table.label).expect("invariant: the number of columns is bounded");
        let columns = Columns { label, header: is_header };
        let features = u32::try_from(table.columns - 1).expect("invariant: the number of columns is bounded");
        let mut feature_names = table.names;
        if !feature_names.is_empty() {
            feature_names.remove(table.label);
        }
        Ok(Raw {
            kind: super::CSV,
            origin: path.display().to_string(),
            shape: [1, 1, features],
            values: Values::Numbers(values),
            labels,
            class_names,
            feature_names,
            scaling: Scaling::Standardize,
            columns: Some(columns),
            held_out: None,
        })
    }

    /// Finds out from the first row whether it is a header, and which column the label is.
    fn settle(
        path: &'a Path,
        first: &ByteRecord,
        label: Option<&LabelColumn>,
        header: Option<bool>,
    ) -> Result<(Self, bool), DataError> {
        let fail = |reason: String| DataError::File { path: path.to_owned(), reason };
        let columns = first.len();
        if columns < 2 {
            return Err(fail(
                "it has a single column, but needs features and a label; columns are separated by commas".to_owned(),
            ));
        }
        if columns > crate::manifest::MAX_FEATURES as usize {
            return Err(fail(format!("it has {columns} columns, too many to be data")));
        }
        let cells: Vec<String> = first.iter().map(|cell| String::from_utf8_lossy(cell).trim().to_owned()).collect();
        let (written, index) = match label {
            None => (None, None),
            Some(LabelColumn::Written(text)) => (Some(text), text.parse::<usize>().ok()),
            Some(LabelColumn::Index(index)) => (None, Some(*index as usize)),
        };
        let named = written.and_then(|text| cells.iter().position(|cell| cell == text));
        let is_number = |cell: &String| cell.parse::<f64>().is_ok();
        let is_header = header.unwrap_or_else(|| {
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
                let nearest = nearest(wanted, &cells).expect("invariant: there are columns");
                return Err(fail(format!("it has no column `{wanted}` for the label; did you mean `{nearest}`?")));
            }
            (Some(wanted), None) => {
                return Err(fail(format!(
                    "it has no header, so there is no column `{wanted}` for the label; give its 0-based index"
                )));
            }
        };
        let names = if is_header { cells } else { Vec::new() };
        Ok((Self { path, names, columns, label }, is_header))
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
                return Err(fail(Some(column), "it is empty".to_owned()));
            }
            if column == self.label {
                labels.push(cell.to_owned());
                continue;
            }
            let number: f64 =
                cell.parse().map_err(|_| fail(Some(column), format!("`{}` is not a number", shorten(cell))))?;
            if !number.is_finite() {
                return Err(fail(Some(column), format!("`{cell}` is not a finite number")));
            }
            values.push(number);
        }
        Ok(())
    }

    /// A column for messages: its index, and its name if it has one.
    fn name(&self, column: usize) -> String {
        match self.names.get(column) {
            Some(name) => format!("column {column} (`{name}`)"),
            None => format!("column {column}"),
        }
    }
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

/// The start of a long cell: a message is read by people.
fn shorten(cell: &str) -> String {
    match cell.char_indices().nth(40) {
        Some((end, _)) => format!("{}...", &cell[..end]),
        None => cell.to_owned(),
    }
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
