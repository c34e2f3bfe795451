//! CSV files: one sample per row, one column of labels, the others features.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use ::csv::ByteRecord;
use starling_run::Kind;
use starling_run::manifest::MAX_FEATURES;

use super::doubts::{Understood, is_rising};
use super::error::DataError;
use super::files::{Capped, unpacked};
use super::raw::{Columns, MAX_VALUES, Raw, Scaling, Values};
use super::rows::{Rows, Text, cells, next};
use super::source::Source;
use super::{DataSummary, Delimiter, LabelColumn, labels};

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
    Table::read(Capped::new(unpacked(bytes, path)?, max), path, form)
}

/// What the first row has settled.
struct Table {
    rows: Rows,
    is_header: bool,
    label: usize,
}

impl Table {
    fn read(text: impl Read, path: &Path, form: TableForm<'_>) -> Result<Raw, DataError> {
        let text = Text::open(text, path)?;
        let delimiter = form.delimiter.unwrap_or_else(|| text.delimiter());
        let mut reader = text.rows(delimiter);
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
            if (row + first.len()) as u64 > MAX_VALUES {
                let reason = format!("the file has more than {MAX_VALUES} values");
                return Err(DataError::File { path: path.to_owned(), reason });
            }
            written.extend(table.rows.read(&record, &mut values)?);
            rising_rows += usize::from(is_rising(&values[row..]));
            more = next(&mut reader, &mut record, path)?;
        }
        if written.is_empty() {
            return Err(DataError::File { path: path.to_owned(), reason: "it has a header, but no rows".to_owned() });
        }
        let (labels, class_names) = labels::classify(&written).map_err(|reason| DataError::File {
            path: path.to_owned(),
            reason: format!("{}: {reason}", table.rows.name(table.label)),
        })?;
        let understood = Understood {
            label: table.label,
            is_label_said: table.rows.is_label_said,
            names: &table.rows.names,
            first: (!table.is_header && form.header.is_none()).then_some(first.as_slice()),
            rising_rows,
            values: &values,
            labels: &labels,
            classes: &class_names,
            counts: &DataSummary::count(&class_names, labels.iter()),
        };
        let doubts = understood.doubts();
        let label = u32::try_from(table.label).expect("invariant: the number of columns is bounded");
        let features = u32::try_from(first.len() - 1).expect("invariant: the number of columns is bounded");
        let (mut feature_names, mut label_name) = (table.rows.names, None);
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
    fn settle(path: &Path, delimiter: Delimiter, cells: &[String], form: TableForm<'_>) -> Result<Self, DataError> {
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
        let is_label_said = form.label.is_some();
        let rows = Rows { path: path.to_owned(), delimiter, names, columns, label: Some(label), is_label_said };
        Ok(Self { rows, is_header, label })
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
