//! Tables of text: one sample per row, one column of labels, the others features.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use ::csv::ByteRecord;
use starling_run::Kind;
use starling_run::data::MAX_SAID;
use starling_run::data::columns::{self, Column, ColumnKind, is_gap};
use starling_run::manifest::MAX_FEATURES;

use crate::DataOptions;
use crate::DataSummary;
use crate::Delimiter;
use crate::TableColumn;
use crate::error::DataError;
use crate::files::bounded;
use crate::samples::labels;
use crate::samples::raw::{Columns, MAX_VALUES, Raw, Scaling, Values};
use crate::source::Source;
use crate::table::doubts::{Understood, column};
use crate::table::rows::{Rows, Text, cells, next};
use crate::table::survey::Survey;

/// What is said of how a table is written. The rest is found out.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TableForm<'a> {
    pub(crate) label: Option<&'a TableColumn>,
    pub(crate) header: Option<bool>,
    pub(crate) delimiter: Option<Delimiter>,
    /// The columns that are left out.
    pub(crate) ignored: &'a [TableColumn],
    /// The columns that hold categories, whatever they look like.
    pub(crate) categories: &'a [TableColumn],
}

impl<'a> TableForm<'a> {
    pub(crate) fn of(options: &'a DataOptions) -> Self {
        let DataOptions { label, header, delimiter, ignored, categories, .. } = options;
        Self { label: label.as_ref(), header: *header, delimiter: *delimiter, ignored, categories }
    }
}

/// So many times the bytes of a file that comes from others may its features take.
const MAX_GROWTH: u64 = 16;

/// A table.
pub(crate) const KIND: Kind = Kind { name: "csv", files: &["table.csv"], holds_out: false };

/// The reader of a CSV file, gzipped or not.
#[derive(Debug)]
pub(crate) struct Csv;

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

    fn read(&self, options: &DataOptions) -> Result<Raw, DataError> {
        let path = Path::new(&options.source);
        let open = || File::open(path).map_err(|source| DataError::Unreadable { path: path.to_owned(), source });
        parse(open, path, TableForm::of(options), options.max_file_bytes)
    }
}

/// Reads at most `max` bytes of CSV text from what `open` gives, gzipped or not, once or several times. `path` is for messages.
pub(crate) fn parse<R: Read>(
    open: impl Fn() -> Result<R, DataError>,
    path: &Path,
    form: TableForm<'_>,
    max: u64,
) -> Result<Raw, DataError> {
    parse_text(|| Text::open(bounded(open()?, path, max)?, path), path, form, max)
}

/// The same of text that was opened.
pub(crate) fn parse_text<'t>(
    text: impl Fn() -> Result<Text<'t>, DataError>,
    path: &Path,
    form: TableForm<'_>,
    max: u64,
) -> Result<Raw, DataError> {
    let opened = text()?;
    let is_made = opened.is_made();
    if is_made && form.header == Some(false) {
        let reason = "its columns have names, but it is said to have no header: leave --no-header out".to_owned();
        return Err(DataError::File { path: path.to_owned(), reason });
    }
    let form = if is_made { TableForm { header: Some(true), delimiter: None, ..form } } else { form };
    let delimiter = form.delimiter.unwrap_or_else(|| opened.delimiter());
    let mut reader = opened.rows(delimiter);
    let mut record = ByteRecord::new();
    if !next(&mut reader, &mut record, path)? {
        return Err(DataError::File { path: path.to_owned(), reason: "it is empty".to_owned() });
    }
    let table = Table::settle(path, delimiter, cells(&record), form)?;
    let open = || Ok(text()?.rows(delimiter));
    let survey = Survey::of(&table, open()?)?;
    table.finish(survey, open, max)
}

/// What the first row has settled.
pub(crate) struct Table {
    /// How rows are read. No column is taken yet.
    pub(crate) rows: Rows,
    first: Vec<String>,
    pub(crate) is_header: bool,
    is_header_said: bool,
    pub(crate) label: usize,
    pub(crate) is_label_said: bool,
    ignored: BTreeSet<usize>,
    pub(crate) categories: BTreeSet<usize>,
}

impl Table {
    /// The columns that give features, in their order.
    pub(crate) fn taken(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.rows.columns).filter(|column| *column != self.label && !self.ignored.contains(column))
    }

    /// Calls `each` with all rows but the header.
    pub(crate) fn each_row<R: Read>(
        &self,
        mut reader: ::csv::Reader<R>,
        mut each: impl FnMut(&ByteRecord) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        let mut record = ByteRecord::new();
        let mut is_header = self.is_header;
        while next(&mut reader, &mut record, &self.rows.path)? {
            if !std::mem::take(&mut is_header) {
                each(&record)?;
            }
        }
        Ok(())
    }

    /// Reads the features as the survey found them to be: once more, unless they all were numbers.
    fn finish<R: Read>(
        mut self,
        survey: Survey,
        open: impl Fn() -> Result<::csv::Reader<R>, DataError>,
        max: u64,
    ) -> Result<Raw, DataError> {
        let path = self.rows.path.clone();
        let fail = |reason: String| DataError::File { path: path.clone(), reason };
        if survey.labels.is_empty() {
            return Err(fail("it has a header, but no rows".to_owned()));
        }
        let (labels, class_names) = labels::classify(&survey.labels)
            .map_err(|reason| fail(format!("{}: {reason}", self.rows.name(self.label))))?;
        let survey_doubts = survey.doubts(&self);
        let is_plain = survey.plain.is_some();
        let (coded, values, rising_rows) = match survey.plain {
            Some(values) if self.ignored.is_empty() => (Vec::new(), values, survey.rising_rows),
            Some(values) => (self.columns(|_| ColumnKind::Number), values, survey.rising_rows),
            None => {
                let codings = survey.codings(&self, &class_names, &open)?;
                let coded = self.columns(|column| codings.get(&column).cloned().unwrap_or(ColumnKind::Number));
                (coded, self.encode(codings, &survey.labels, open()?, max)?, 0)
            }
        };
        let is_guessed = self.is_header && !self.is_header_said;
        let may_be_sample = (!is_plain && !has_numbers(&coded)) || self.first.iter().any(|cell| is_gap_word(cell));
        let understood = Understood {
            label: self.label,
            is_label_said: self.is_label_said,
            names: &self.rows.names,
            first_taken: self.taken().next().unwrap_or_default(),
            first: (!self.is_header && !self.is_header_said && is_plain).then_some(&*self.first),
            taken_for_names: (is_guessed && may_be_sample).then_some(&*self.first),
            rising_rows,
            values: if is_plain { &values } else { &[] },
            labels: &labels,
            classes: &class_names,
            counts: &DataSummary::count(&class_names, labels.iter()),
        };
        let [mut doubts, class_doubts] = understood.doubts();
        doubts.extend(survey_doubts);
        let column = |column: usize| u32::try_from(column).expect("invariant: the number of columns is bounded");
        let features = values.len() / labels.len();
        let feature_names = match (&*self.rows.names, &*coded) {
            ([], _) => Vec::new(),
            (names, []) => (0..names.len()).filter(|at| *at != self.label).map(|at| names[at].clone()).collect(),
            (_, coded) => columns::feature_names(coded),
        };
        Ok(Raw {
            kind: KIND,
            origin: path.display().to_string(),
            shape: [1, 1, u32::try_from(features).map_err(|_| fail("it has too many features".to_owned()))?],
            values: Values::Numbers(values),
            labels,
            class_names,
            feature_names,
            scaling: Scaling::Standardize,
            columns: Some(Columns {
                label: column(self.label),
                label_name: self.rows.names.get(self.label).cloned(),
                header: self.is_header,
                delimiter: self.rows.delimiter,
                ignored: self.ignored.iter().copied().map(column).collect(),
                categories: self.categories.iter().copied().map(column).collect(),
            }),
            coded,
            held_out: None,
            doubts,
            class_doubts,
        })
    }

    /// All columns but the label's, those that are left out with them.
    fn columns(&self, coding: impl Fn(usize) -> ColumnKind) -> Vec<Column> {
        let others = (0..self.rows.columns).filter(|column| *column != self.label);
        let column = |at: usize| Column {
            name: self.rows.names.get(at).cloned().unwrap_or_default(),
            coding: if self.ignored.contains(&at) { ColumnKind::Ignored } else { coding(at) },
        };
        others.map(column).collect()
    }

    /// The features of all rows.
    fn encode<R: Read>(
        &mut self,
        codings: BTreeMap<usize, ColumnKind>,
        labels: &[String],
        reader: ::csv::Reader<R>,
        max: u64,
    ) -> Result<Vec<f64>, DataError> {
        let samples = labels.len();
        let path = self.rows.path.clone();
        let fail = |reason: String| DataError::File { path: path.clone(), reason };
        let width = codings.values().map(ColumnKind::width).sum::<usize>();
        if width > MAX_FEATURES as usize || width as u64 * samples as u64 > MAX_VALUES {
            let reason = "its categories become too many features: leave columns out with --ignore";
            return Err(fail(format!("{reason} ({width} features of {samples} rows)")));
        }
        self.rows.taken = codings.into_iter().collect();
        let (mut values, mut found) = (Vec::new(), 0);
        let bytes = width * samples * size_of::<f64>();
        if bytes as u64 / MAX_GROWTH > max {
            let reason = "its categories become so many features that a file as large as that must not have them";
            return Err(fail(format!("{reason} ({width} features of {samples} rows; `data.limit_mib` bounds it)")));
        }
        values.try_reserve_exact(width * samples).map_err(|_| {
            let mib = bytes >> 20;
            fail(format!("its {width} features of {samples} rows take {mib} MiB of memory, which this machine has not: leave columns out with --ignore"))
        })?;
        let mut is_other = false;
        self.each_row(reader, |record| {
            // More rows than there were would take more memory than was counted.
            if let Some(label) = labels.get(found) {
                is_other |= self.rows.read(record, &mut values)?.as_ref() != Some(label);
            }
            found += 1;
            Ok(())
        })?;
        if found == samples && !is_other { Ok(values) } else { Err(fail("it changed while it was read".to_owned())) }
    }

    /// Finds out from the first row whether it is a header, and which column the label is.
    fn settle(path: &Path, delimiter: Delimiter, cells: Vec<String>, form: TableForm<'_>) -> Result<Self, DataError> {
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
            Some(TableColumn::Written(text)) => (Some(text), text.parse::<usize>().ok()),
            Some(TableColumn::Index(index)) => (None, Some(*index as usize)),
        };
        let named = written.and_then(|text| cells.iter().position(|cell| cell == text));
        let is_number = |cell: &String| cell.parse::<f64>().is_ok();
        let mut said = form.label.into_iter().chain(form.ignored).chain(form.categories);
        let is_proven = said.any(|column| is_name(column, &cells));
        let is_header = form.header.unwrap_or_else(|| {
            let column = named.or(index).unwrap_or(columns - 1);
            let mut others = cells.iter().enumerate().filter(|(at, _)| *at != column).map(|(_, cell)| cell);
            let are_text = others.clone().all(|cell| !is_number(cell));
            // Nothing but gaps says nothing of names.
            is_proven || (are_text && others.any(|cell| !is_gap(cell)))
        });
        let names = if is_header { &*cells } else { &[] };
        let label = match form.label {
            None => columns - 1,
            Some(label) => find(label, names, columns, "the label").map_err(fail)?,
        };
        let said = |columns_said: &[TableColumn], flag: &str| {
            let found = columns_said.iter().map(|column| find(column, names, columns, flag));
            let found = found.collect::<Result<BTreeSet<usize>, String>>().map_err(fail)?;
            if found.len() > MAX_SAID {
                let count = found.len();
                let reason =
                    format!("{flag} names {count} columns, but {MAX_SAID} are possible: leave them out of the file");
                return Err(fail(reason));
            }
            match found.contains(&label) {
                true => Err(fail(format!("{flag} names {}, which is the label", column(names, label)))),
                false => Ok(found),
            }
        };
        let ignored = said(form.ignored, "--ignore")?;
        let categories = said(form.categories, "--categories")?;
        if let Some(both) = ignored.intersection(&categories).next() {
            return Err(fail(format!("--ignore and --categories both name {}", column(names, *both))));
        }
        if ignored.len() + 1 >= columns {
            return Err(fail("--ignore leaves no column to learn from".to_owned()));
        }
        let rows = Rows {
            path: path.to_owned(),
            delimiter,
            names: names.to_vec(),
            columns,
            label: Some(label),
            taken: Vec::new(),
        };
        let (is_header_said, is_label_said) = (form.header.is_some() || is_proven, form.label.is_some());
        Ok(Self { rows, first: cells, is_header, is_header_said, label, is_label_said, ignored, categories })
    }
}

/// Whether one of these columns is a number.
fn has_numbers(coded: &[Column]) -> bool {
    coded.iter().any(|column| matches!(column.coding, ColumnKind::Number | ColumnKind::Gaps))
}

/// Whether a user has written the name of a column, and no index, that the first row has: that can only be a header.
fn is_name(column: &TableColumn, first: &[String]) -> bool {
    let TableColumn::Written(text) = column else { return false };
    text.parse::<usize>().is_err() && first.contains(text)
}

/// Whether a cell is a word for a gap: a column is hardly called so, unless it holds sodium.
fn is_gap_word(cell: &str) -> bool {
    !cell.is_empty() && cell != "Na" && is_gap(cell)
}

/// Which of `columns` columns is meant, by its name in the header or its 0-based index. `of_what` is for messages.
fn find(wanted: &TableColumn, names: &[String], columns: usize, of_what: &str) -> Result<usize, String> {
    let index = match wanted {
        TableColumn::Index(index) => *index as usize,
        TableColumn::Written(text) => match (names.iter().position(|name| name == text), text.parse()) {
            (Some(column), _) => return Ok(column),
            (None, Ok(index)) => index,
            (None, Err(_)) => {
                return Err(match nearest(text, names) {
                    Some(nearest) => {
                        format!("it has no column `{text}` for {of_what}; did you mean `{nearest}`?")
                    }
                    None => {
                        format!(
                            "it has no header, so there is no column `{text}` for {of_what}; give its 0-based index"
                        )
                    }
                });
            }
        },
    };
    match index < columns {
        true => Ok(index),
        false => Err(format!("{of_what} is column {index}, but columns run from 0 to {}", columns - 1)),
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
