//! Tables of text: one sample per row, one column of labels, the others features.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::csv::ByteRecord;
use starling_run::Kind;
use starling_run::data::columns::{self, Column, ColumnKind, is_gap};
use starling_run::data::{MAX_LABELS, MAX_SAID};
use starling_run::manifest::MAX_FEATURES;

use crate::DataOptions;
use crate::Delimiter;
use crate::TableColumn;
use crate::error::DataError;
use crate::files::foreign::MARK;
use crate::files::opened::OpenedFile;
use crate::files::{Capped, HELD_OF_PACKED, bounded};
use crate::samples::labels::{Classes, LabelTable};
use crate::samples::raw::{Columns, Raw, Scaling, Values};
use crate::samples::split;
use crate::source::Source;
use crate::table::doubts::{Understood, column};
use crate::table::form::RowForm;
use crate::table::json_lines;
#[cfg(feature = "parquet")]
use crate::table::parquet::row_groups::RowGroups;
use crate::table::pieces::{MAX_ROW_BYTES, Piece, Pieces};
use crate::table::placed::{RowPlaces, RowTable};
use crate::table::rows::{Rows, Text, cells, check_names, next};
use crate::table::survey::Survey;
use crate::table::survey::bad_rows::{self, BadRowsReport};
use crate::table::survey::sides::Sides;
use crate::table::walk::Walk;

mod joined;

/// What is said of how a table is written. The rest is found out.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TableForm<'a> {
    pub(crate) label: Option<&'a TableColumn>,
    /// Further columns of labels.
    pub(crate) more_labels: &'a [TableColumn],
    pub(crate) header: Option<bool>,
    pub(crate) delimiter: Option<Delimiter>,
    /// The columns that are left out.
    pub(crate) ignored: &'a [TableColumn],
    /// The columns that hold categories, whatever they look like.
    pub(crate) categories: &'a [TableColumn],
    /// The column of weights.
    pub(crate) weights: Option<&'a TableColumn>,
    /// The column by which rows are held out, in which share, by which seed.
    pub(crate) split_by: Option<&'a TableColumn>,
    pub(crate) held_out: f32,
    pub(crate) seed: u64,
    /// How many rows at the end are held out, if that is said.
    pub(crate) held_out_last: Option<u64>,
    /// Whether those of a file of their own are.
    pub(crate) has_held_out_file: bool,
}

impl<'a> TableForm<'a> {
    pub(crate) fn of(options: &'a DataOptions) -> Self {
        let DataOptions { more_labels, header, delimiter, ignored, categories, held_out, seed, .. } = options;
        let [label, weights, split_by] =
            [&options.label, &options.weights, &options.split_by].map(|column| column.as_ref());
        let (header, delimiter, held_out, seed) = (*header, *delimiter, *held_out, *seed);
        let has_held_out_file = options.held_out_file.is_some();
        let held_out_last = options.held_out_last.filter(|_| !has_held_out_file);
        Self {
            label,
            more_labels,
            header,
            delimiter,
            ignored,
            categories,
            weights,
            split_by,
            held_out,
            seed,
            held_out_last,
            has_held_out_file,
        }
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

    fn without_columns(&self, _: &str) -> Result<Option<&'static str>, DataError> {
        Ok(None)
    }

    /// Whatever it is, it says why it is no table.
    fn knows(&self, _: &str) -> Result<bool, DataError> {
        Ok(true)
    }

    fn files(&self, source: &str) -> Result<(Kind, Vec<PathBuf>), DataError> {
        Ok((KIND, vec![source.into()]))
    }

    fn shared(&self, options: &DataOptions, folder: &Path) -> Result<(Kind, Vec<PathBuf>), DataError> {
        match &options.held_out_file {
            Some(held_out) => joined::shared(options, held_out, folder),
            None => self.files(&options.source),
        }
    }

    fn bad_rows(&self, options: &DataOptions, most: usize) -> Result<BadRowsReport, DataError> {
        if let Some(held_out) = &options.held_out_file {
            return joined::bad_rows(options, held_out, most);
        }
        let path = Path::new(&options.source);
        let file = OpenedFile::open(path)?;
        let source = TextSource { open: || Ok(file.reader(0)), path, max: options.max_file_bytes };
        bad_rows(&source, path, TableForm::of(options), most)
    }

    fn read(&self, options: &DataOptions) -> Result<Raw, DataError> {
        let path = Path::new(&options.source);
        if let Some(held_out) = &options.held_out_file {
            return joined::read(options, held_out);
        }
        let (form, limits) = (TableForm::of(options), TableLimits::of(options));
        let file = Arc::new(OpenedFile::open(path)?);
        if file.is_gzipped()? || file.is_utf16()? {
            return parse(|| Ok(file.reader(0)), path, form, limits);
        }
        let source = TextSource { open: || Ok(file.reader(0)), path, max: limits.max };
        let read = read(&source, path, form, limits, Placing::Text(file.clone()));
        // Of a file that has changed meanwhile, whatever is wrong is wrong for that.
        file.check()?;
        read
    }
}

/// How much a table may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TableLimits {
    /// The most bytes that a file may have, unpacked.
    pub(crate) max: u64,
    /// The most bytes that values of a file take that are held: beyond, it is read by position.
    pub(crate) held: u64,
}

impl TableLimits {
    pub(crate) fn of(options: &DataOptions) -> Self {
        Self { max: options.max_file_bytes, held: options.held_bytes }
    }
}

/// Where rows of a table are read that is too large to be held.
pub(crate) enum Placing {
    /// It can't be: all are held, or none.
    Nowhere,
    /// In this file, by where they begin.
    Text(Arc<OpenedFile>),
    /// In these row groups.
    #[cfg(feature = "parquet")]
    Groups(Arc<RowGroups>),
}

/// All rows of a table, piece by piece.
pub(crate) type PieceIterator<'t> = Box<dyn Iterator<Item = Result<Piece, DataError>> + 't>;

/// Where the rows of a table come from, as often as they are asked for.
pub(crate) trait RowsSource<'t> {
    /// The text from its beginning, as far as its first row.
    fn start(&self) -> Result<Text<'t>, DataError>;

    /// How its rows are written, if this separates cells, where there are cells.
    fn form(&self, delimiter: Delimiter, is_made: bool) -> Result<RowForm, DataError>;

    /// All of it but for names that were made.
    fn pieces(&self, form: &RowForm) -> Result<PieceIterator<'t>, DataError>;
}

/// Text, gzipped or not.
struct TextSource<'p, O> {
    open: O,
    path: &'p Path,
    max: u64,
}

impl<O> TextSource<'_, O> {
    fn bounded<'t, R: Read + 't>(&self) -> Result<Capped<Box<dyn Read + 't>>, DataError>
    where
        O: Fn() -> Result<R, DataError>,
    {
        bounded((self.open)()?, self.path, self.max)
    }
}

impl<'t, R: Read + 't, O: Fn() -> Result<R, DataError>> RowsSource<'t> for TextSource<'_, O> {
    fn start(&self) -> Result<Text<'t>, DataError> {
        // A row is no longer.
        Text::open(self.bounded()?.take(MAX_ROW_BYTES as u64), self.path)
    }

    fn form(&self, delimiter: Delimiter, is_made: bool) -> Result<RowForm, DataError> {
        if !is_made {
            return Ok(RowForm::Cells(delimiter));
        }
        let unreadable = |source| DataError::Unreadable { path: self.path.to_owned(), source };
        let (text, _) = unmarked(self.bounded()?).map_err(unreadable)?;
        Ok(RowForm::Objects(Arc::new(json_lines::keys(text).map_err(unreadable)?)))
    }

    fn pieces(&self, form: &RowForm) -> Result<PieceIterator<'t>, DataError> {
        let unreadable = |source| DataError::Unreadable { path: self.path.to_owned(), source };
        let (text, at) = unmarked(self.bounded()?).map_err(unreadable)?;
        Ok(Box::new(Pieces::new(text, at, form.quoting(), self.path.to_owned())))
    }
}

/// A text without the mark that may be before it, and where it begins.
fn unmarked(mut text: impl Read) -> io::Result<(impl Read, u64)> {
    let mut start = Vec::new();
    text.by_ref().take(MARK.len() as u64).read_to_end(&mut start)?;
    let at = if start == MARK { MARK.len() } else { 0 };
    start.drain(..at);
    Ok((io::Cursor::new(start).chain(text), at as u64))
}

/// Reads CSV text or JSON lines from what `open` gives, gzipped or not, once or several times, into memory. `path` is for messages.
pub(crate) fn parse<R: Read>(
    open: impl Fn() -> Result<R, DataError>,
    path: &Path,
    form: TableForm<'_>,
    limits: TableLimits,
) -> Result<Raw, DataError> {
    read(&TextSource { open, path, max: limits.max }, path, form, limits, Placing::Nowhere)
}

/// The same of rows that come from wherever; by position, if that is possible and they are too many to be held.
pub(crate) fn read<'t>(
    source: &impl RowsSource<'t>,
    path: &Path,
    form: TableForm<'_>,
    limits: TableLimits,
    placing: Placing,
) -> Result<Raw, DataError> {
    let (table, walk) = begin(source, path, form)?;
    table.finish(&walk, || source.pieces(&walk.form), limits, placing)
}

/// The rows of such a table that can't be used, of which the first `most` are told.
pub(crate) fn bad_rows<'t>(
    source: &impl RowsSource<'t>,
    path: &Path,
    form: TableForm<'_>,
    most: usize,
) -> Result<BadRowsReport, DataError> {
    let (table, walk) = begin(source, path, form)?;
    bad_rows::find(&table, &walk, || source.pieces(&walk.form), most)
}

/// Why a file without any row is refused.
const EMPTY: &str = "it is empty";

/// A table's first row, and what separates its cells.
struct FirstRow {
    cells: Vec<String>,
    delimiter: Delimiter,
    /// What seems to separate them.
    found: Delimiter,
    /// Whether nobody said that, and it takes several tabs as one.
    merges_tabs: bool,
    /// Whether it was made of rows that are written in another way.
    is_made: bool,
    /// Why it is none of names, if that shows.
    fault: Option<DataError>,
}

impl FirstRow {
    /// Reads it; `delimiter` separates its cells, if one is given and they are not made.
    fn read<'t>(source: &impl RowsSource<'t>, path: &Path, delimiter: Option<Delimiter>) -> Result<Self, DataError> {
        let opened = source.start()?;
        let is_made = opened.is_made();
        let found = opened.delimiter();
        let merges_tabs = delimiter.is_none() && opened.merges_tabs(found);
        let delimiter = delimiter.filter(|_| !is_made).unwrap_or(found);
        let mut record = ByteRecord::new();
        match next(&mut opened.rows(delimiter), &mut record, path)? {
            true => {
                let (cells, fault) = (cells(&record), check_names(&record, path).err());
                Ok(Self { cells, delimiter, found, merges_tabs, is_made, fault })
            }
            false => Err(DataError::File { path: path.to_owned(), reason: EMPTY.to_owned() }),
        }
    }
}

/// What the first row settles, and how all are gone through.
fn begin<'t>(source: &impl RowsSource<'t>, path: &Path, form: TableForm<'_>) -> Result<(Table, Walk), DataError> {
    let FirstRow { cells, delimiter, merges_tabs, is_made, fault, .. } = FirstRow::read(source, path, form.delimiter)?;
    if is_made && form.header == Some(false) {
        let reason = "its columns have names, but it is said to have no header: leave --no-header out".to_owned();
        return Err(DataError::File { path: path.to_owned(), reason });
    }
    let form = if is_made { TableForm { header: Some(true), delimiter: None, ..form } } else { form };
    let table = Table { merges_tabs, ..Table::settle(path, delimiter, cells, form)? };
    if let Some(fault) = fault.filter(|_| table.is_header) {
        return Err(fault);
    }
    let form = source.form(delimiter, is_made)?;
    let walk = Walk { path: path.to_owned(), joined: None, form, is_header: table.is_header && !is_made };
    Ok((table, walk))
}

/// What the first row has settled.
pub(crate) struct Table {
    /// How rows are read. No column is taken yet.
    pub(crate) rows: Rows,
    first: Vec<String>,
    pub(crate) is_header: bool,
    is_header_said: bool,
    /// One at least.
    pub(crate) labels: Vec<usize>,
    pub(crate) is_label_said: bool,
    ignored: BTreeSet<usize>,
    pub(crate) categories: BTreeSet<usize>,
    pub(crate) weights: Option<usize>,
    pub(crate) sides: Option<Sides>,
    /// How many rows at the end are held out, if that is said.
    held_out_last: Option<u64>,
    /// Whether it was found that several tabs are one.
    merges_tabs: bool,
}

impl Table {
    /// The columns that give features, in their order.
    pub(crate) fn taken(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.rows.columns).filter(|column| !self.labels.contains(column) && !self.is_left_out(*column))
    }

    /// Whether a column gives neither features nor labels.
    fn is_left_out(&self, column: usize) -> bool {
        let sides = self.sides.as_ref().map(|sides| sides.column);
        self.ignored.contains(&column) || [self.weights, sides].contains(&Some(column))
    }

    /// Reads the features as the survey finds them to be: once more, unless they all are numbers that were kept.
    fn finish<P: Iterator<Item = Result<Piece, DataError>>>(
        mut self,
        walk: &Walk,
        open: impl Fn() -> Result<P, DataError>,
        limits: TableLimits,
        placing: Placing,
    ) -> Result<Raw, DataError> {
        let path = self.rows.path.clone();
        let fail = |reason: String| DataError::File { path: path.clone(), reason };
        let held = match placing {
            Placing::Text(_) => limits.held,
            // What takes long to be read again.
            _ => limits.held.saturating_mul(HELD_OF_PACKED),
        };
        // What is that long has hardly so few values that they could be kept.
        let is_long = matches!(&placing, Placing::Text(file) if file.bytes() > held);
        let most = if is_long { 0 } else { held / size_of::<f64>() as u64 };
        let survey = Survey::of(&self, walk, open()?, most)?;
        if survey.rows == 0 {
            return Err(fail("it has a header, but no rows".to_owned()));
        }
        if let (Some(held_out), Some(before)) = (&walk.joined, survey.files.get(1)) {
            joined::check_rows(&path, held_out, [*before, survey.rows - before])?;
        }
        let Classes { of_spellings: class_of, names: class_names, counts } = survey
            .spellings
            .classify(self.labels.len())
            .map_err(|reason| fail(format!("{}: {reason}", self.rows.name(self.labels[0]))))?;
        let survey_doubts = survey.doubts(&self);
        let last = self.held_out_last.or_else(|| Some(survey.rows - survey.files.get(1)?));
        let held_out_rows = match (&self.sides, last) {
            (Some(sides), _) => Some(sides.held_out(&survey.sides).map_err(fail)?),
            (None, Some(last)) => Some(last_rows(survey.rows, last).map_err(fail)?),
            (None, None) => None,
        };
        let is_plain = survey.is_plain;
        let codings = match is_plain {
            true => self.taken().map(|column| (column, ColumnKind::Number)).collect(),
            false => survey.codings(&self, walk, &class_names, &open)?,
        };
        let is_all_taken = (0..self.rows.columns).all(|column| !self.is_left_out(column));
        let coded = match is_plain && is_all_taken {
            true => Vec::new(),
            false => self.columns(|column| codings.get(&column).cloned().unwrap_or(ColumnKind::Number)),
        };
        let width = self.take(codings, &survey, limits)?;
        let labels_known = LabelTable::new(&class_names);
        let bytes = (width as u64).saturating_mul(survey.rows).saturating_mul(size_of::<f64>() as u64);
        let (values, labels) = match (survey.values, placing) {
            (Some(values), _) => {
                let labels = survey.labels.iter().map(|label| class_of[*label as usize]).collect();
                (Values::Numbers(values), labels)
            }
            (None, _) if bytes <= held => {
                let (values, labels) = self.encode(walk, open()?, &labels_known, width, &counts)?;
                (Values::Numbers(values), labels)
            }
            (None, Placing::Text(file)) => {
                self.placed(walk, RowPlaces::Text(file, survey.index), labels_known, &counts)
            }
            #[cfg(feature = "parquet")]
            (None, Placing::Groups(groups)) => {
                groups.check_size(width, survey.rows, limits.held)?;
                self.placed(walk, RowPlaces::Groups(groups), labels_known, &counts)
            }
            (None, Placing::Nowhere) => {
                let (mib, most) = (bytes >> 20, held >> 20);
                return Err(fail(format!(
                    "its {width} features of {} rows take {mib} MiB of memory, but of what can't be read by position {most} MiB at most are held: {}, or hold \
                     more (`--data-held`)",
                    survey.rows,
                    match path.extension().is_some_and(|extension| extension == "gz") {
                        _ if walk.joined.is_some() =>
                            "say by a column of one file which rows are held out (`--split-by`)",
                        true => "unpack it (`gunzip --keep`) and name that file",
                        false => "save it as CSV, in UTF-8, and name that file",
                    }
                )));
            }
        };
        let is_guessed = self.is_header && !self.is_header_said;
        let may_be_sample = (!is_plain && !has_numbers(&coded)) || self.first.iter().any(|cell| is_gap_word(cell));
        let understood = Understood {
            label: self.labels[0],
            is_label_said: self.is_label_said,
            names: &self.rows.names,
            first_taken: self.taken().next().unwrap_or_default(),
            first: (!self.is_header && !self.is_header_said && is_plain).then_some(&*self.first),
            taken_for_names: (is_guessed && may_be_sample).then_some(&*self.first),
            rising_rows: if is_plain { survey.rising_rows } else { 0 },
            first_row: &survey.first_row,
            distinct: survey.distinct.as_ref().filter(|_| is_plain).map(BTreeSet::len),
            rows: survey.rows,
            // The first spelling is that of the first row.
            first_class: class_of.first().copied().unwrap_or_default(),
            classes: &class_names,
            counts: &counts,
        };
        let [mut doubts, class_doubts] = understood.doubts();
        doubts.extend(survey_doubts);
        doubts.extend(self.merges_tabs.then(|| {
            "blanks seem to separate its cells, so that several tabs behind each other are taken as one: pass --delimiter tab if there are empty cells \
             between them, --delimiter space if not"
                .to_owned()
        }));
        if let Values::Placed(table) = &values {
            doubts.extend(table.doubt());
        }
        let column = |column: usize| u32::try_from(column).expect("invariant: the number of columns is bounded");
        let feature_names = match (&*self.rows.names, &*coded) {
            ([], _) => Vec::new(),
            (names, []) => {
                (0..names.len()).filter(|at| !self.labels.contains(at)).map(|at| names[at].clone()).collect()
            }
            (_, coded) => columns::feature_names(coded),
        };
        Ok(Raw {
            kind: KIND,
            origin: path.display().to_string(),
            shape: [1, 1, u32::try_from(width).map_err(|_| fail("it has too many features".to_owned()))?],
            values,
            labels,
            class_names,
            feature_names,
            scaling: Scaling::Standardize,
            columns: Some(Columns {
                labels: self.labels.iter().copied().map(column).collect(),
                label_names: self.labels.iter().filter_map(|label| self.rows.names.get(*label).cloned()).collect(),
                header: self.is_header,
                delimiter: self.rows.delimiter,
                ignored: self.ignored.iter().copied().map(column).collect(),
                categories: self.categories.iter().copied().map(column).collect(),
                weights: self.weights.map(column),
                split_by: self.sides.as_ref().map(|sides| column(sides.column)),
                // Those of all rows do, or none.
                sides_said: survey.sides.first().is_some_and(|noted| Sides::says(*noted)),
                held_out_last: last,
            }),
            coded,
            weights: self.weights.map(|_| survey.weights.into()),
            held_out_rows,
            held_out: None,
            doubts,
            class_doubts,
        })
    }

    /// Settles how columns become features, and returns how many these are.
    fn take(
        &mut self,
        codings: BTreeMap<usize, ColumnKind>,
        survey: &Survey,
        limits: TableLimits,
    ) -> Result<usize, DataError> {
        let fail = |reason: String| DataError::File { path: self.rows.path.clone(), reason };
        let (width, rows) = (codings.values().map(ColumnKind::width).sum::<usize>(), survey.rows);
        if width > MAX_FEATURES as usize {
            let reason = "its categories become too many features: leave columns out with --ignore";
            return Err(fail(format!("{reason} ({width} features of {rows} rows)")));
        }
        let bytes = (width as u64).saturating_mul(rows).saturating_mul(size_of::<f64>() as u64);
        if bytes / MAX_GROWTH > limits.max {
            let reason = "its categories become so many features that a file as large as that must not have them";
            return Err(fail(format!("{reason} ({width} features of {rows} rows; `data.limit_mib` bounds it)")));
        }
        self.rows.taken = codings.into_iter().collect();
        Ok(width)
    }

    /// All columns but the label's, those that are left out with them.
    fn columns(&self, coding: impl Fn(usize) -> ColumnKind) -> Vec<Column> {
        let others = (0..self.rows.columns).filter(|column| !self.labels.contains(column));
        let column = |at: usize| Column {
            name: self.rows.names.get(at).cloned().unwrap_or_default(),
            coding: if self.is_left_out(at) { ColumnKind::Ignored } else { coding(at) },
        };
        others.map(column).collect()
    }

    /// The table that stays where it is, and no labels.
    fn placed(&self, walk: &Walk, places: RowPlaces, labels: LabelTable, counts: &[u64]) -> (Values, Vec<u32>) {
        let (walk, rows, counts) = (walk.clone(), self.rows.clone(), counts.to_vec());
        (Values::Placed(Box::new(RowTable { places, walk, rows, labels, counts })), Vec::new())
    }

    /// The features of all rows, and their classes, of which each has so many rows.
    fn encode(
        &self,
        walk: &Walk,
        pieces: impl Iterator<Item = Result<Piece, DataError>>,
        known: &LabelTable,
        width: usize,
        counts: &[u64],
    ) -> Result<(Vec<f64>, Vec<u32>), DataError> {
        let fail = |reason: String| DataError::File { path: self.rows.path.clone(), reason };
        let samples = counts.iter().sum::<u64>() as usize;
        let (mut values, mut labels) = (Vec::new(), Vec::new());
        values.try_reserve_exact(width * samples).map_err(|_| {
            let mib = (width * samples * size_of::<f64>()) >> 20;
            fail(format!("its {width} features of {samples} rows take {mib} MiB of memory, which this machine has not: leave columns out with --ignore"))
        })?;
        let mut left = counts.to_vec();
        let mut is_other = false;
        walk.fold(
            pieces,
            || (Vec::new(), Vec::new()),
            |(values, classes), record| {
                let label = self.rows.read(record, values)?;
                classes.push(label.and_then(|label| known.class(&label)));
                Ok(())
            },
            |walked| {
                let (found, classes) = walked.of_rows;
                for class in classes {
                    // More rows than there were would take more memory than was counted.
                    let left = class.and_then(|class| left.get_mut(class as usize)).filter(|left| **left > 0);
                    is_other |= left.is_none();
                    left.into_iter().for_each(|left| *left -= 1);
                    labels.extend(class);
                }
                if !is_other {
                    values.extend_from_slice(&found);
                }
                Ok(())
            },
        )?;
        let is_same = !is_other && left.iter().all(|left| *left == 0);
        if is_same { Ok((values, labels)) } else { Err(fail("it changed while it was read".to_owned())) }
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
        let labels = said_labels(form, &cells);
        let places = labels.iter().filter_map(|label| match label {
            TableColumn::Written(text) => cells.iter().position(|cell| cell == text).or_else(|| text.parse().ok()),
            TableColumn::Index(index) => Some(*index as usize),
        });
        let mut places: Vec<usize> = places.collect();
        if places.is_empty() {
            places.push(columns - 1);
        }
        let is_number = |cell: &String| cell.parse::<f64>().is_ok();
        let of_rows = [form.weights, form.split_by].into_iter().flatten();
        let mut said = labels.iter().chain(form.ignored).chain(form.categories).chain(of_rows);
        let is_proven = said.any(|column| is_name(column, &cells));
        let is_header = form.header.unwrap_or_else(|| {
            let mut others = cells.iter().enumerate().filter(|(at, _)| !places.contains(at)).map(|(_, cell)| cell);
            let are_text = others.clone().all(|cell| !is_number(cell));
            // Nothing but gaps says nothing of names.
            is_proven || (are_text && others.any(|cell| !is_gap(cell)))
        });
        let names = if is_header { &*cells } else { &[] };
        let found = labels.iter().map(|label| find(label, names, columns, "the label")).collect::<Result<Vec<_>, _>>();
        let labels = if labels.is_empty() { vec![columns - 1] } else { found.map_err(fail)? };
        let distinct: BTreeSet<&usize> = labels.iter().collect();
        if labels.len() > MAX_LABELS || distinct.len() < labels.len() {
            return Err(fail(format!(
                "--label names {} columns, but at most {MAX_LABELS}, each once, are possible",
                labels.len()
            )));
        }
        let said = |columns_said: &[TableColumn], flag: &str| {
            let found = columns_said.iter().map(|column| find(column, names, columns, flag));
            let found = found.collect::<Result<BTreeSet<usize>, String>>().map_err(fail)?;
            if found.len() > MAX_SAID {
                let count = found.len();
                let reason =
                    format!("{flag} names {count} columns, but {MAX_SAID} are possible: leave them out of the file");
                return Err(fail(reason));
            }
            match labels.iter().find(|label| found.contains(*label)) {
                Some(label) => Err(fail(format!("{flag} names {}, which is the label", column(names, *label)))),
                None => Ok(found),
            }
        };
        let ignored = said(form.ignored, "--ignore")?;
        let categories = said(form.categories, "--categories")?;
        if let Some(both) = ignored.intersection(&categories).next() {
            return Err(fail(format!("--ignore and --categories both name {}", column(names, *both))));
        }
        let of_rows = |said: Option<&TableColumn>, flag: &str| {
            let Some(said) = said else { return Ok(None) };
            let at = find(said, names, columns, flag).map_err(fail)?;
            match labels.contains(&at) || ignored.contains(&at) || categories.contains(&at) {
                true => Err(fail(format!("{flag} names {}, which is something else, too", column(names, at)))),
                false => Ok(Some(at)),
            }
        };
        let (weights, split_by) = (of_rows(form.weights, "--weights")?, of_rows(form.split_by, "--split-by")?);
        if weights.is_some() && weights == split_by {
            return Err(fail("--weights and --split-by name the same column".to_owned()));
        }
        if split_by.is_some() && (form.has_held_out_file || form.held_out_last.is_some()) {
            let reason = "--split-by and --held-out-file both say which rows are held out; leave one of them out";
            return Err(fail(reason.to_owned()));
        }
        let permille = split::permille(form.held_out)?;
        let sides = split_by.map(|column| Sides { column, permille, seed: form.seed });
        let apart = usize::from(weights.is_some()) + usize::from(sides.is_some());
        if ignored.len() + labels.len() + apart >= columns {
            let flag = if ignored.is_empty() { "--label" } else { "--ignore" };
            return Err(fail(format!("{flag} leaves no column to learn from")));
        }
        let rows = Rows {
            path: path.to_owned(),
            delimiter,
            names: names.to_vec(),
            columns,
            labels: labels.clone(),
            taken: Vec::new(),
        };
        let (is_header_said, is_label_said) = (form.header.is_some() || is_proven, form.label.is_some());
        Ok(Self {
            rows,
            first: cells,
            is_header,
            is_header_said,
            labels,
            is_label_said,
            ignored,
            categories,
            weights,
            sides,
            held_out_last: form.held_out_last,
            merges_tabs: false,
        })
    }
}

/// The last of all rows, which are held out.
///
/// # Errors
/// If none is, or all are, as a sentence.
pub(crate) fn last_rows(rows: u64, last: u64) -> Result<Arc<[u32]>, String> {
    let [first, end] = [rows.checked_sub(last), Some(rows)].map(|row| row.and_then(|row| u32::try_from(row).ok()));
    match (first, end) {
        (Some(first), Some(end)) if 0 < first && first < end => Ok((first..end).collect()),
        _ => Err(format!(
            "of its {rows} rows the last {last} are to be held out (--held-out-file); have some of them held out, and some not"
        )),
    }
}

/// The columns of labels that a user has named: several with commas between them, unless one column is called so.
fn said_labels(form: TableForm<'_>, first: &[String]) -> Vec<TableColumn> {
    let parts = |label: &TableColumn| match label {
        TableColumn::Written(text) if text.contains(',') && !first.contains(text) => {
            text.split(',').map(|part| TableColumn::Written(part.trim().to_owned())).collect()
        }
        _ => vec![label.clone()],
    };
    form.label.into_iter().chain(form.more_labels).flat_map(parts).collect()
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
        TableColumn::Written(text) => match (called(text, names), text.parse()) {
            (Ok(Some(column)), _) => return Ok(column),
            (Ok(None) | Err(_), Ok(index)) => index,
            (Err(several), Err(_)) => {
                let several = several.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
                return Err(format!(
                    "its columns {several} are all called `{text}`, so that {of_what} can't be told by that: give the 0-based index of the one that is meant"
                ));
            }
            (Ok(None), Err(_)) => {
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

/// The column of this name, if there is one.
///
/// # Errors
/// Which they are, if several are called so.
fn called(name: &str, names: &[String]) -> Result<Option<usize>, Vec<usize>> {
    let columns: Vec<usize> = (0..names.len()).filter(|at| names[*at] == name).collect();
    if columns.len() > 1 { Err(columns) } else { Ok(columns.first().copied()) }
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
