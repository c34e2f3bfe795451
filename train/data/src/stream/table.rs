//! Tables for a trained model: its columns by their names, or by their places where they have none.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::Path;
use std::rc::Rc;

use ::csv::ByteRecord;

use super::{Block, Blocks, Inputs};
use crate::error::DataError;
use crate::rows::{Rows, Text, cells, line, next};
use crate::shorten;

/// Columns that a message names.
const MAX_NAMED: usize = 5;
/// What a row may have, in bytes: so much for each column, and so much besides for a label. A quote that is never closed would
/// make one row of the rest of the file.
const ROW_BYTES_PER_COLUMN: u64 = 64;
const ROW_BYTES: u64 = 1 << 20;

/// A table that is being read.
pub(super) struct Table {
    reader: ::csv::Reader<Box<dyn Read>>,
    rows: Rows,
    record: ByteRecord,
    /// Whether `record` is a row that was read to find out how the table is written.
    is_read: bool,
    /// For each feature of the model, its place among the numbers of a row; `None` if they are in order.
    order: Option<Vec<usize>>,
    budget: Rc<Cell<u64>>,
    row_bytes: u64,
    /// The numbers of a row in their order in the table.
    row: Vec<f64>,
}

impl Table {
    pub(super) fn open(bytes: Box<dyn Read>, path: &Path, inputs: &Inputs) -> Result<Self, DataError> {
        let row_bytes = ROW_BYTES + ROW_BYTES_PER_COLUMN * (inputs.features as u64 + 1);
        let budget = Rc::new(Cell::new(u64::MAX));
        let text = Text::open(Budgeted { inner: bytes, left: budget.clone(), row_bytes }, path)?;
        let delimiter = inputs.delimiter.unwrap_or_else(|| text.delimiter());
        budget.set(row_bytes);
        let mut reader = text.rows(delimiter);
        let mut record = ByteRecord::new();
        if !next(&mut reader, &mut record, path)? {
            return Err(DataError::File { path: path.to_owned(), reason: "it is empty".to_owned() });
        }
        let first = cells(&record);
        let is_header = inputs.header.unwrap_or_else(|| is_header(&first, inputs.features));
        let fail = |reason| DataError::File { path: path.to_owned(), reason };
        let Places { label, order } = match is_header && !inputs.names.is_empty() {
            true => by_name(&first, inputs).map_err(fail)?,
            false => by_place(&first, inputs).map_err(fail)?,
        };
        let names = if is_header { first.clone() } else { Vec::new() };
        let (path, columns) = (path.to_owned(), first.len());
        let rows = Rows { path, delimiter, names, columns, label, is_label_said: true };
        Ok(Self { reader, rows, record, is_read: !is_header, order, budget, row_bytes, row: Vec::new() })
    }
}

impl Blocks for Table {
    fn next(&mut self, most: usize) -> Result<Block, DataError> {
        let mut block = Block::default();
        while block.len() < most {
            if !std::mem::take(&mut self.is_read) {
                self.budget.set(self.row_bytes);
                if !next(&mut self.reader, &mut self.record, &self.rows.path)? {
                    break;
                }
            }
            let label = match &self.order {
                None => self.rows.read(&self.record, &mut block.values)?,
                Some(order) => {
                    self.row.clear();
                    let label = self.rows.read(&self.record, &mut self.row)?;
                    block.values.extend(order.iter().map(|at| self.row[*at]));
                    label
                }
            };
            block.labels.extend(label);
            block.rows.push(line(&self.record));
        }
        Ok(block)
    }

    fn has_labels(&self) -> bool {
        self.rows.label.is_some()
    }
}

/// Where a table has what a model takes.
struct Places {
    label: Option<usize>,
    order: Option<Vec<usize>>,
}

/// Whether the first row holds names, where nothing says so: no feature is a number.
fn is_header(first: &[String], features: usize) -> bool {
    first.iter().take(features).all(|cell| cell.parse::<f64>().is_err())
}

/// By the names in the header: each feature once, the label or not, and no other.
fn by_name(header: &[String], inputs: &Inputs) -> Result<Places, String> {
    let label_name = inputs.label_name.as_ref();
    let mut known: BTreeMap<&String, Option<usize>> = inputs.names.iter().map(|name| (name, None)).collect();
    known.extend(label_name.map(|name| (name, None)));
    if known.len() < inputs.names.len() + usize::from(label_name.is_some()) {
        return in_order(header, inputs);
    }
    let (mut additional, mut twice) = (Vec::new(), Vec::new());
    for (column, name) in header.iter().enumerate() {
        match known.get_mut(name) {
            None => additional.push(name),
            Some(Some(_)) => twice.push(name),
            Some(place) => *place = Some(column),
        }
    }
    let missing: Vec<&String> = inputs.names.iter().filter(|name| known[name].is_none()).collect();
    if missing.is_empty() && additional.is_empty() && twice.is_empty() {
        let label = label_name.and_then(|name| known[name]);
        // Numbers are counted without the label's column.
        let place = |column: usize| column - usize::from(label.is_some_and(|label| label < column));
        let order: Vec<usize> = inputs.names.iter().filter_map(|name| known[name]).map(place).collect();
        return Ok(Places { label, order: (!order.is_sorted()).then_some(order) });
    }
    if missing.len() == inputs.names.len() && header.iter().any(|cell| cell.parse::<f64>().is_ok()) {
        return Err(format!(
            "its first row is `{}`, but the model takes columns by their names: write {} above it",
            shorten(&header.join(",")),
            named(&inputs.names.iter().collect::<Vec<_>>())
        ));
    }
    let told = [(missing, "missing"), (additional, "not the model's"), (twice, "there twice")];
    let told = told.iter().filter(|(names, _)| !names.is_empty()).map(|(names, what)| {
        let verb = if names.len() == 1 { "is" } else { "are" };
        format!("{} {verb} {what}", named(names))
    });
    let label = label_name.map(|name| format!(", and may have `{}`", shorten(name))).unwrap_or_default();
    Err(format!(
        "its columns are not those that the model takes: {}; the model takes {} columns by their names{label} (`starling model show`)",
        told.collect::<Vec<_>>().join("; "),
        inputs.names.len()
    ))
}

/// Of a table whose columns have no names of their own each: the same header as the table that the model was trained on, with or
/// without the label.
fn in_order(header: &[String], inputs: &Inputs) -> Result<Places, String> {
    if header == inputs.names {
        return Ok(Places { label: None, order: None });
    }
    let mut names = inputs.names.clone();
    let label = inputs.label.map(|label| label as usize).filter(|label| *label <= names.len());
    if let (Some(label), Some(name)) = (label, &inputs.label_name) {
        names.insert(label, name.clone());
        if header == names {
            return Ok(Places { label: Some(label), order: None });
        }
    }
    Err("several of the model's columns have one name, so that its header must be that of the table that the model was trained on"
        .to_owned())
}

/// By their number: the features alone, or with the label where it was.
fn by_place(first: &[String], inputs: &Inputs) -> Result<Places, String> {
    let (columns, features) = (first.len(), inputs.features);
    let label = inputs.label.map_or(features, |label| label as usize);
    if columns == features {
        return Ok(Places { label: None, order: None });
    }
    if columns == features + 1 {
        return Ok(Places { label: Some(label), order: None });
    }
    Err(format!(
        "it has {columns} columns, but the model takes {features} features, or these and a label as column {label}{}",
        if columns == 1 {
            "; what separates its cells is what separated those that the model was trained on"
        } else {
            ""
        }
    ))
}

/// Some names, the first few of many.
fn named(names: &[&String]) -> String {
    let shown: Vec<String> = names.iter().take(MAX_NAMED).map(|name| format!("`{}`", shorten(name))).collect();
    match names.len().saturating_sub(MAX_NAMED) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// A reader that fails when more is read than a row may have.
struct Budgeted<R> {
    inner: R,
    left: Rc<Cell<u64>>,
    row_bytes: u64,
}

impl<R: Read> Read for Budgeted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        let left = self.left.get().checked_sub(read as u64).ok_or_else(|| {
            let most = self.row_bytes;
            io::Error::other(format!("a row has more than {most} bytes; close the quotes that open in it"))
        })?;
        self.left.set(left);
        Ok(read)
    }
}
