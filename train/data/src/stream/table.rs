//! Tables for a trained model: its columns by their names, or by their places where they have none.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::Path;
use std::rc::Rc;

use ::csv::ByteRecord;
use starling_run::data::column_of;
use starling_run::data::columns::{Column, ColumnKind};

use super::row_records::RowRecords;
use super::{Block, Blocks, InputSpec, LabelPolicy};
use crate::error::DataError;
use crate::shorten;
use crate::table::pieces::MAX_ROW_BYTES;
use crate::table::rows::{Rows, Text, cells, check_names, line, next};

/// Columns that a message names.
const MAX_NAMED: usize = 5;
/// What is read for a row at most: the longest one that is trained on, and what lies in buffers behind it. A quote that is never closed would make
/// one row of the rest of the file.
const ROW_BYTES: u64 = MAX_ROW_BYTES as u64 + (64 << 10);

/// A table that is being read.
pub(super) struct Table {
    reader: ::csv::Reader<Box<dyn Read>>,
    rows: Rows,
    record: ByteRecord,
    /// Whether `record` is a row that was read to find out how the table is written.
    is_read: bool,
    budget: Rc<Cell<u64>>,
    row_bytes: u64,
    notes: RowRecords,
    /// Where they are of no use, they may be missing: they are what is to be predicted.
    labels: LabelPolicy,
}

impl Table {
    pub(super) fn open(
        bytes: Box<dyn Read>,
        path: &Path,
        inputs: &InputSpec,
        labels: LabelPolicy,
    ) -> Result<Self, DataError> {
        let budget = Rc::new(Cell::new(u64::MAX));
        let text = Text::open(Budgeted { inner: bytes, left: budget.clone() }, path)?;
        Self::begin(text, path, inputs, labels, (budget, ROW_BYTES))
    }

    /// Of text that was made of rows, which are bounded.
    #[cfg(feature = "parquet")]
    pub(super) fn of(
        text: Text<'static>,
        path: &Path,
        inputs: &InputSpec,
        labels: LabelPolicy,
    ) -> Result<Self, DataError> {
        Self::begin(text, path, inputs, labels, (Rc::default(), u64::MAX))
    }

    fn begin(
        text: Text<'static>,
        path: &Path,
        inputs: &InputSpec,
        labels: LabelPolicy,
        (budget, row_bytes): (Rc<Cell<u64>>, u64),
    ) -> Result<Self, DataError> {
        let columns = inputs.table_columns();
        // A copy may be separated by something else than the table that was trained on.
        let trained = inputs.delimiter.filter(|trained| columns.len() == 1 || text.is_separated_by(*trained));
        let is_made = text.is_made();
        let delimiter = inputs.separated_by.or(trained).filter(|_| !is_made).unwrap_or_else(|| text.delimiter());
        budget.set(row_bytes);
        let mut reader = text.rows(delimiter);
        let mut record = ByteRecord::new();
        if !next(&mut reader, &mut record, path)? {
            return Err(DataError::File { path: path.to_owned(), reason: "it is empty".to_owned() });
        }
        let first = cells(&record);
        let is_header = is_made || inputs.header.unwrap_or_else(|| is_header(&first, columns.len()));
        if is_header {
            check_names(&record, path)?;
        }
        let fail = |reason| DataError::File { path: path.to_owned(), reason };
        let Places { labels: of_labels, of_columns } = match is_header && !inputs.names.is_empty() {
            true => by_name(&first, &columns, inputs).map_err(fail)?,
            false => by_place(&first, &columns, inputs).map_err(fail)?,
        };
        let place = |column| inputs.place_among_others(column).and_then(|at| of_columns.get(at).copied().flatten());
        let notes = RowRecords::new(&inputs.rows, place);
        let codings = columns.into_iter().map(|column| column.coding);
        let taken = of_columns.into_iter().zip(codings).filter_map(|(place, coding)| Some((place?, coding)));
        let taken = taken.filter(|(_, coding)| *coding != ColumnKind::Ignored).collect();
        let names = if is_header { first.clone() } else { Vec::new() };
        let rows = Rows { path: path.to_owned(), delimiter, names, columns: first.len(), labels: of_labels, taken };
        Ok(Self { reader, rows, record, is_read: !is_header, budget, row_bytes, notes, labels })
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
            match self.labels {
                LabelPolicy::Wanted => {
                    block.labels.extend(self.rows.read(&self.record, &mut block.values)?.map(Cow::into_owned));
                }
                LabelPolicy::Unused => {
                    self.rows.read_features(&self.record, &mut block.values)?;
                    block.labels.extend(self.rows.any_label(&self.record));
                }
            }
            block.notes.extend(self.notes.of(&self.rows, &self.record));
            block.rows.push(line(&self.record));
        }
        Ok(block)
    }

    fn has_labels(&self) -> bool {
        !self.rows.labels.is_empty()
    }

    fn have_sides(&self) -> bool {
        self.notes.have_sides()
    }
}

/// Where a table has what a model takes.
struct Places {
    /// Of each label; none if not all of them are there.
    labels: Vec<usize>,
    /// For each of the model's columns, where it is; `None` if it is not there, and need not be.
    of_columns: Vec<Option<usize>>,
}

impl Places {
    /// As they were in the table that the model was trained on.
    fn in_order(labels: &[u32], columns: usize) -> Self {
        let of_columns = (0..columns).map(|column| Some(column_of(labels, column))).collect();
        Self { labels: labels.iter().map(|label| *label as usize).collect(), of_columns }
    }
}

/// Whether the first row holds names, where nothing says so: no column holds a number.
fn is_header(first: &[String], columns: usize) -> bool {
    first.iter().take(columns).all(|cell| cell.parse::<f64>().is_err())
}

/// By the names in the header: each column once, the labels or not, those that the model leaves out or not, and no other.
fn by_name(header: &[String], columns: &[Column], inputs: &InputSpec) -> Result<Places, String> {
    let label_names = &inputs.label_name;
    let mut known: BTreeMap<&String, Option<usize>> = columns.iter().map(|column| (&column.name, None)).collect();
    known.extend(label_names.iter().map(|name| (name, None)));
    if known.len() < columns.len() + label_names.len() {
        return in_order(header, columns, inputs);
    }
    let (mut additional, mut twice) = (Vec::new(), Vec::new());
    for (column, name) in header.iter().enumerate() {
        match known.get_mut(name) {
            None => additional.push(name),
            Some(Some(_)) => twice.push(name),
            Some(place) => *place = Some(column),
        }
    }
    let taken: Vec<&String> =
        columns.iter().filter(|column| column.coding != ColumnKind::Ignored).map(|column| &column.name).collect();
    let missing: Vec<&String> = taken.iter().copied().filter(|name| known[name].is_none()).collect();
    if missing.is_empty() && additional.is_empty() && twice.is_empty() {
        let labels = label_names.iter().map(|name| known[name]).collect::<Option<Vec<usize>>>();
        let of_columns = columns.iter().map(|column| known[&column.name]).collect();
        return Ok(Places { labels: labels.unwrap_or_default(), of_columns });
    }
    if missing.len() == taken.len() && header.iter().any(|cell| cell.parse::<f64>().is_ok()) {
        return Err(format!(
            "its first row is `{}`, but the model takes columns by their names: write {} above it",
            shorten(&header.join(",")),
            named(&taken)
        ));
    }
    let told = [(missing, "missing"), (additional, "not the model's"), (twice, "there twice")];
    let told = told.iter().filter(|(names, _)| !names.is_empty()).map(|(names, what)| {
        let verb = if names.len() == 1 { "is" } else { "are" };
        format!("{} {verb} {what}", named(names))
    });
    let label = match &**label_names {
        [] => String::new(),
        names => format!(", and may have {}", named(&names.iter().collect::<Vec<_>>())),
    };
    let separated =
        if header.len() == 1 { "; --delimiter says what separates its cells, if that is not found" } else { "" };
    Err(format!(
        "its columns are not those that the model takes: {}; the model takes {} columns by their names{label} (`starling model \
         show`){separated}",
        told.collect::<Vec<_>>().join("; "),
        taken.len()
    ))
}

/// Of a table whose columns have no names of their own each: the same header as the table that the model was trained on, with or
/// without the label.
fn in_order(header: &[String], columns: &[Column], inputs: &InputSpec) -> Result<Places, String> {
    let mut names: Vec<&String> = columns.iter().map(|column| &column.name).collect();
    let is_header = |names: &[&String]| header.iter().eq(names.iter().copied());
    if is_header(&names) {
        return Ok(Places::in_order(&[], columns.len()));
    }
    let mut labels: Vec<(&u32, &String)> = inputs.label.iter().zip(&inputs.label_name).collect();
    labels.sort_unstable();
    for (label, name) in labels.iter().filter(|_| labels.len() == inputs.label.len()) {
        names.insert(names.len().min(**label as usize), name);
    }
    if is_header(&names) {
        return Ok(Places::in_order(&inputs.label, columns.len()));
    }
    Err("several of the model's columns have one name, so that its header must be that of the table that the model was trained on"
        .to_owned())
}

/// By their number: all columns alone, or with the label where it was.
fn by_place(first: &[String], columns: &[Column], inputs: &InputSpec) -> Result<Places, String> {
    let last = [columns.len() as u32];
    let labels = if inputs.label.is_empty() { &last[..] } else { &inputs.label };
    if first.len() == columns.len() {
        return Ok(Places::in_order(&[], columns.len()));
    }
    let all = columns.len() + labels.len();
    if first.len() == all && labels.iter().all(|label| (*label as usize) < all) {
        return Ok(Places::in_order(labels, columns.len()));
    }
    let told = match labels {
        [label] => format!("a label as column {label}"),
        labels => format!("labels as columns {}", labels.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")),
    };
    let noun = if inputs.columns.is_empty() { "features" } else { "columns" };
    Err(format!(
        "it has {} columns, but the model takes {} {noun}, or these and {told}{}",
        first.len(),
        columns.len(),
        if first.len() == 1 { "; --delimiter says what separates its cells, if that is not found" } else { "" }
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
}

impl<R: Read> Read for Budgeted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        let left = self.left.get().checked_sub(read as u64).ok_or_else(|| {
            let most = MAX_ROW_BYTES >> 20;
            io::Error::other(format!("a row has more than {most} MiB; close the quotes that open in it"))
        })?;
        self.left.set(left);
        Ok(read)
    }
}
