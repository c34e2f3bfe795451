//! A first reading of a table: what its columns hold, so that each can be coded.

pub(crate) mod bad_rows;
pub(crate) mod sides;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

use ::csv::ByteRecord;
use starling_run::data::columns::{ColumnKind, is_gap};

use crate::Delimiter;
use crate::error::DataError;
use crate::samples::labels::Spellings;
use crate::shorten;
use crate::table::csv::Table;
use crate::table::delimiter::has_decimal_comma;
use crate::table::doubts::{HUNDREDS, is_rising, quoted};
use crate::table::pieces::Piece;
use crate::table::placed::RowIndex;
use crate::table::rows::line;
use crate::table::walk::Walk;

/// A column has so many categories at most.
const MAX_CATEGORIES: usize = 1000;
/// With at most so many, it does not matter how few rows each has.
const FEW_CATEGORIES: usize = 20;
/// From here on a number and the next one may be the same.
const MAX_COUNTED: f64 = 9_007_199_254_740_992.0;
/// With fewer rows, numbers may count up by chance.
const FEW_ROWS: u64 = 20;
/// Columns that a message names.
const MAX_NAMED: usize = 5;

/// What a first reading found.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    pub(crate) rows: u64,
    /// What is written as labels.
    pub(crate) spellings: Spellings,
    /// Whether there is nothing but numbers in the columns that are taken.
    pub(crate) is_plain: bool,
    /// Then, if they are kept, those of all rows, and the number of each one's label.
    pub(crate) values: Option<Vec<f64>>,
    pub(crate) labels: Vec<u32>,
    /// Then those of the first row.
    pub(crate) first_row: Vec<f64>,
    /// Then how many rows have nothing but whole numbers, each larger than the one before.
    pub(crate) rising_rows: u64,
    /// Then the different ones of the first column, if they may be classes.
    pub(crate) distinct: Option<BTreeSet<u64>>,
    pub(crate) index: RowIndex,
    /// Before how many rows each file begins.
    pub(crate) files: Vec<u64>,
    /// Of each row how much it counts, if a column says that.
    pub(crate) weights: Vec<f32>,
    /// Of each row what its side follows from, if that is a column.
    pub(crate) sides: Vec<u16>,
    /// Of each column that is taken.
    seen: Vec<(usize, Seen)>,
}

/// What the cells of a column are.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    numbers: u64,
    gaps: u64,
    texts: u64,
    /// The first one that is neither a number nor a gap, and its line.
    first: Option<(u64, String)>,
    counting: Counting,
}

/// Whether each number of a column is one more than the one before.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
enum Counting {
    /// There was none.
    #[default]
    Empty,
    /// From this one on, and this one is to come next.
    From(f64, f64),
    No,
}

impl Counting {
    fn then(self, next: Self) -> Self {
        match (self, next) {
            (Self::Empty, other) | (other, Self::Empty) => other,
            (Self::From(first, next), Self::From(same, last)) if next == same => Self::From(first, last),
            _ => Self::No,
        }
    }

    fn of(number: f64) -> Self {
        let is_counted = number.fract() == 0.0 && number.abs() < MAX_COUNTED;
        if is_counted { Self::From(number, number + 1.0) } else { Self::No }
    }
}

/// What some rows, one behind another, have.
#[derive(Debug, Default)]
struct Part {
    survey: Survey,
    /// The numbers of a row.
    row: Vec<f64>,
}

impl Survey {
    /// Reads all rows of `table`. Values and labels are kept as long as there are no more than `most` values.
    ///
    /// # Errors
    /// If a row has more or fewer cells than the first one, has no label, or is no text.
    pub(crate) fn of(
        table: &Table,
        walk: &Walk,
        pieces: impl Iterator<Item = Result<Piece, DataError>>,
        most: u64,
    ) -> Result<Self, DataError> {
        let width = table.taken().count() as u64;
        let begin = || Self::begin(table);
        let keeps = AtomicBool::new(most > 0);
        let mut survey = Self { values: Some(Vec::new()).filter(|_| most > 0), ..begin() };
        survey.is_plain = table.categories.is_empty();
        walk.fold(
            pieces,
            || Part { survey: begin(), row: Vec::new() },
            |part, record| part.note(table, &keeps, record),
            |walked| {
                let fail = |reason| DataError::File { path: table.rows.path.clone(), reason };
                survey.files.extend(walked.is_first.then_some(survey.rows));
                survey.index.add(&walked).map_err(fail)?;
                let of_label = |reason| fail(format!("{}: {reason}", table.rows.name(table.labels[0])));
                survey.add(walked.of_rows.survey, walked.lines_before).map_err(of_label)?;
                if !survey.is_plain || survey.rows.saturating_mul(width) > most {
                    (survey.values, survey.labels) = (None, Vec::new());
                    keeps.store(false, Ordering::Relaxed);
                }
                Ok(())
            },
        )?;
        Ok(survey)
    }

    /// Before any row is read.
    pub(crate) fn begin(table: &Table) -> Self {
        let seen = table.taken().map(|column| (column, Seen::default())).collect();
        Self { is_plain: true, values: Some(Vec::new()), distinct: Some(BTreeSet::new()), seen, ..Self::default() }
    }

    /// Adds the rows behind these, the first of which is on the line behind so many.
    ///
    /// # Errors
    /// What is wrong with the labels, as a sentence.
    fn add(&mut self, next: Self, lines: u64) -> Result<(), String> {
        let numbers = self.spellings.add(&next.spellings)?;
        if self.values.is_some() {
            self.labels.extend(next.labels.iter().map(|label| numbers[*label as usize]));
        }
        self.rows += next.rows;
        self.weights.extend(next.weights);
        self.sides.extend(next.sides);
        if self.first_row.is_empty() {
            self.first_row = next.first_row;
        }
        self.is_plain &= next.is_plain;
        if let (Some(values), Some(next)) = (&mut self.values, next.values) {
            values.extend_from_slice(&next);
        }
        self.rising_rows += next.rising_rows;
        self.distinct = self.distinct.take().zip(next.distinct).map(|(mut distinct, next)| {
            distinct.extend(next);
            distinct
        });
        self.distinct = self.distinct.take().filter(|distinct| distinct.len() <= HUNDREDS);
        for ((_, seen), (_, next)) in self.seen.iter_mut().zip(next.seen) {
            seen.add(next, lines);
        }
        Ok(())
    }

    /// Notes what the cells of a row are, and nothing else.
    ///
    /// # Errors
    /// If one is no text.
    pub(crate) fn note_kinds(&mut self, table: &Table, record: &ByteRecord) -> Result<(), DataError> {
        for (column, seen) in &mut self.seen {
            seen.note(table.rows.cell(record, *column)?, line(record));
        }
        Ok(())
    }

    /// Adds what was noted of rows behind these, the first of which is on the line behind so many.
    pub(crate) fn add_kinds(&mut self, next: Self, lines: u64) {
        for ((_, seen), (_, next)) in self.seen.iter_mut().zip(next.seen) {
            seen.add(next, lines);
        }
    }

    /// The columns that hold numbers, by most of their cells.
    pub(crate) fn numbers(&self, table: &Table) -> Vec<&(usize, Seen)> {
        let are_numbers = |(column, seen): &&(usize, Seen)| {
            !table.categories.contains(column) && !matches!(seen.are_categories(table, *column), Ok(true))
        };
        self.seen.iter().filter(are_numbers).collect()
    }

    /// What its user should look at, as sentences.
    pub(crate) fn doubts(&self, table: &Table) -> Vec<String> {
        let counts = |seen: &Seen| matches!(seen.counting, Counting::From(..)) && seen.numbers >= FEW_ROWS;
        let counted = self.seen.iter().filter(|(_, seen)| counts(seen));
        let counted = counted.map(|(column, _)| {
            format!(
                "{} counts the rows, so that a model learns their order from it: leave it out with --ignore {}, unless it was measured",
                table.rows.name(*column),
                quoted(&flag(table, *column))
            )
        });
        let missing =
            self.spellings.texts().into_iter().find(|label| is_gap(label)).map(|label| {
                format!("the class `{label}` may stand for labels that are missing: leave its rows out then")
            });
        counted.chain(missing).chain(self.first_column_doubt(table)).collect()
    }

    /// What to say where the classes may be in the first column, as the only texts of a table without names.
    fn first_column_doubt(&self, table: &Table) -> Option<String> {
        let mut texts = self.seen.iter().filter(|(_, seen)| seen.texts > 0).map(|(column, _)| *column);
        let [label] = *table.labels else { return None };
        let is_alone = (texts.next(), texts.next()) == (Some(0), None) && !table.categories.contains(&0);
        let are_numbers = || self.spellings.texts().into_iter().all(|label| number(label).is_some());
        (is_alone && !table.is_header && !table.is_label_said && are_numbers()).then(|| {
            format!(
                "{} is the only one that holds text, and {}, the last one, was taken for the label: pass --label 0 if the texts are the classes, \
                 --label {label} if they are not",
                table.rows.name(0),
                table.rows.name(label)
            )
        })
    }

    /// How the cells of each column that is taken become features.
    ///
    /// # Errors
    /// If a column is neither of numbers nor of categories, or it is not clear which one the label is.
    pub(crate) fn codings<P: Iterator<Item = Result<Piece, DataError>>>(
        &self,
        table: &Table,
        walk: &Walk,
        classes: &[String],
        open: impl Fn() -> Result<P, DataError>,
    ) -> Result<BTreeMap<usize, ColumnKind>, DataError> {
        let (mut codings, mut texts) = (BTreeMap::new(), BTreeMap::new());
        for (column, seen) in &self.seen {
            if table.categories.contains(column) || seen.are_categories(table, *column)? {
                texts.insert(*column, BTreeSet::new());
                continue;
            }
            let has_gaps = seen.gaps > 0 && seen.numbers > 0;
            codings.insert(*column, if has_gaps { ColumnKind::Gaps } else { ColumnKind::Number });
        }
        self.check_label(table, classes)?;
        if !texts.is_empty() {
            self.collect(table, walk, &mut texts, open()?)?;
        }
        codings.extend(
            texts.into_iter().map(|(column, texts)| (column, ColumnKind::Category(texts.into_iter().collect()))),
        );
        Ok(codings)
    }

    /// Collects the texts of the columns with categories.
    fn collect(
        &self,
        table: &Table,
        walk: &Walk,
        texts: &mut BTreeMap<usize, BTreeSet<String>>,
        pieces: impl Iterator<Item = Result<Piece, DataError>>,
    ) -> Result<(), DataError> {
        let rows = &table.rows;
        let columns: Vec<usize> = texts.keys().copied().collect();
        walk.fold(
            pieces,
            || vec![BTreeSet::<String>::new(); columns.len()],
            |found, record| {
                rows.check_width(record)?;
                for (texts, column) in found.iter_mut().zip(&columns) {
                    let cell = rows.cell(record, *column)?;
                    if texts.len() <= MAX_CATEGORIES && !texts.contains(cell) {
                        texts.insert(cell.to_owned());
                    }
                }
                Ok(())
            },
            |walked| {
                for (texts, found) in texts.values_mut().zip(walked.of_rows) {
                    if texts.len() <= MAX_CATEGORIES {
                        texts.extend(found);
                    }
                }
                Ok(())
            },
        )?;
        let are_too_many = |(column, texts): &(&usize, &BTreeSet<String>)| {
            let of_column = self.seen.iter().find(|(seen, _)| seen == *column);
            let filled = of_column.map_or(0, |(_, seen)| seen.numbers + seen.texts);
            texts.len() > MAX_CATEGORIES || (texts.len() > FEW_CATEGORIES && 2 * texts.len() as u64 > filled)
        };
        let too_many: Vec<(&usize, &BTreeSet<String>)> = texts.iter().filter(are_too_many).collect();
        let Some((first, of_first)) = too_many.first() else { return Ok(()) };
        let count = match of_first.len() {
            more if more > MAX_CATEGORIES => format!("more than {MAX_CATEGORIES}"),
            count => count.to_string(),
        };
        let named: Vec<String> = too_many.iter().map(|(column, _)| flag(table, **column)).collect();
        let others = match too_many.len() {
            1 => String::new(),
            _ => format!(
                ", and {} hold as much",
                named[1..].iter().take(MAX_NAMED).cloned().collect::<Vec<_>>().join(", ")
            ),
        };
        let reason = format!(
            "{} holds {count} different texts in {} rows{others}: names, dates or numbers of rows rather than categories. Leave such \
             columns out: --ignore {}",
            rows.name(**first),
            self.rows,
            quoted(&named.join(","))
        );
        Err(DataError::File { path: rows.path.clone(), reason })
    }

    /// Refuses to guess that the last column is the label, where that holds measurements and another one holds text.
    fn check_label(&self, table: &Table, classes: &[String]) -> Result<(), DataError> {
        let mut texts = self.seen.iter().filter(|(column, seen)| seen.texts > 0 && !table.categories.contains(column));
        let Some((column, _)) = texts.next().filter(|_| !table.is_label_said) else {
            return Ok(());
        };
        let are_numbers = classes.iter().all(|class| class.parse::<f64>().is_ok());
        let are_measured = classes.len() > FEW_CATEGORIES || classes.iter().any(|class| class.parse::<i64>().is_err());
        if !are_numbers || !are_measured {
            return Ok(());
        }
        let (text, last) = (table.rows.name(*column), table.rows.name(table.labels[0]));
        let reason = format!(
            "which column is the label? {text} holds text, and {last}, the last one, holds measurements: pass --label {}, or --label {} \
             if it is that one",
            quoted(&flag(table, *column)),
            quoted(&flag(table, table.labels[0]))
        );
        Err(DataError::File { path: table.rows.path.clone(), reason })
    }
}

impl Part {
    fn note(&mut self, table: &Table, keeps: &AtomicBool, record: &ByteRecord) -> Result<(), DataError> {
        let (rows, survey) = (&table.rows, &mut self.survey);
        rows.check_width(record)?;
        self.row.clear();
        for (column, seen) in &mut survey.seen {
            let cell = rows.cell(record, *column)?;
            self.row.extend(seen.note(cell, line(record)));
        }
        let is_plain = self.row.len() == survey.seen.len();
        survey.is_plain &= is_plain;
        let keeps = keeps.load(Ordering::Relaxed);
        if is_plain {
            survey.rising_rows += u64::from(is_rising(&self.row));
            let first = self.row.first().copied().unwrap_or_default();
            let may_be_class = survey.distinct.as_mut().is_some_and(|distinct| {
                first.fract() == 0.0 && {
                    distinct.insert(first.to_bits());
                    distinct.len() <= HUNDREDS
                }
            });
            survey.distinct = survey.distinct.take().filter(|_| may_be_class);
            if survey.first_row.is_empty() {
                survey.first_row.clone_from(&self.row);
            }
        }
        match &mut survey.values {
            Some(values) if is_plain && keeps => values.extend_from_slice(&self.row),
            _ => survey.values = None,
        }
        survey.rows += 1;
        if let Some(column) = table.weights {
            survey.weights.push(rows.weight(record, column)?);
        }
        if let Some(sides) = &table.sides {
            survey.sides.push(sides.note(rows, record)?);
        }
        if let Some(label) = rows.label(record)? {
            let label = survey.spellings.note(&label);
            if keeps {
                survey.labels.push(label);
            }
        }
        Ok(())
    }
}

impl Seen {
    /// Notes one more cell, on this line. Returns its number, if it is one.
    fn note(&mut self, cell: &str, line: u64) -> Option<f64> {
        let number = number(cell);
        match number {
            Some(number) => {
                self.counting = self.counting.then(Counting::of(number));
                self.numbers += 1;
                return Some(number);
            }
            None if is_gap(cell) => self.gaps += 1,
            None => {
                self.texts += 1;
                if self.first.is_none() {
                    self.first = Some((line, cell.to_owned()));
                }
            }
        }
        self.counting = Counting::No;
        None
    }

    fn add(&mut self, next: Self, lines: u64) {
        self.numbers += next.numbers;
        self.gaps += next.gaps;
        self.texts += next.texts;
        let first = self.first.take();
        self.first = first.or_else(|| next.first.map(|(line, text)| (line.saturating_add(lines), text)));
        self.counting = self.counting.then(next.counting);
    }

    /// Whether the column holds categories: more texts than numbers.
    fn are_categories(&self, table: &Table, column: usize) -> Result<bool, DataError> {
        let Some((line, text)) = &self.first else { return Ok(false) };
        let has_decimals = table.rows.delimiter != Delimiter::Comma && has_decimal_comma(text);
        match self.texts > self.numbers && !has_decimals && !is_formatted(text) {
            true => Ok(true),
            false => Err(self.fault(table, column, *line, text, *line == 1)),
        }
    }

    /// Checks that the cell of a row is a number, or nothing, as others are.
    ///
    /// # Errors
    /// If it is not.
    pub(crate) fn check(&self, table: &Table, column: usize, record: &ByteRecord) -> Result<(), DataError> {
        let cell = table.rows.cell(record, column)?;
        match number(cell).is_some() || is_gap(cell) {
            true => Ok(()),
            false => Err(self.fault(table, column, line(record), cell, false)),
        }
    }

    /// What is to be said of a cell on this line that is no number, and may be a name.
    fn fault(&self, table: &Table, column: usize, line: u64, text: &str, is_name: bool) -> DataError {
        let has_decimals = table.rows.delimiter != Delimiter::Comma && has_decimal_comma(text);
        let is_formatted = is_formatted(text);
        let told = format!("`{}` is not a number", shorten(text));
        let (path, row, column_name) = (table.rows.path.clone(), line, table.rows.name(column));
        let reason = match has_decimals {
            true => format!("{told}; write decimals with a point"),
            false if text.parse::<f64>().is_ok() => format!("`{}` is not a finite number", shorten(text)),
            false if is_formatted => {
                let flag = quoted(&flag(table, column));
                format!(
                    "{told} as it is written; write it with a point for decimals and nothing else, or pass --categories {flag} if it is none"
                )
            }
            false => {
                let header = if is_name { "pass --header if the first row has the columns' names, " } else { "" };
                let (flag, numbers, cells) = (quoted(&flag(table, column)), self.numbers, self.numbers + self.texts);
                format!(
                    "{told}, as {numbers} of {cells} cells of the column are; {header}mend it, or pass --categories {flag} if they are no \
                     measurements"
                )
            }
        };
        DataError::Row { path, row, column: Some(column_name), reason }
    }
}

/// Checks what any row must be, whatever its columns hold.
///
/// # Errors
/// If it has more or fewer cells than the first one, has no label, no weight or no side where these are columns, or is no text.
pub(crate) fn check_sound(table: &Table, record: &ByteRecord) -> Result<(), DataError> {
    table.rows.check_width(record)?;
    table.taken().try_for_each(|column| table.rows.cell(record, column).map(drop))?;
    table.weights.map(|column| table.rows.weight(record, column)).transpose()?;
    table.sides.as_ref().map(|sides| sides.note(&table.rows, record)).transpose()?;
    table.rows.label(record).map(drop)
}

/// The number that a cell is, if it is one.
fn number(cell: &str) -> Option<f64> {
    cell.parse().ok().filter(|number: &f64| number.is_finite())
}

/// Whether a text is a number for people: with commas, a percent sign or a currency.
fn is_formatted(text: &str) -> bool {
    let bare: String = text.chars().filter(|letter| !"$€£%, ".contains(*letter)).collect();
    bare.len() < text.len() && bare.parse::<f64>().is_ok()
}

/// A column as flags take it: by its name, unless that can't be written in a list.
fn flag(table: &Table, column: usize) -> String {
    let names = &table.rows.names;
    let is_alone = |name: &String| names.iter().filter(|other| *other == name).count() == 1;
    let name = names.get(column).filter(|name| !name.is_empty() && !name.contains(',') && name.len() <= 40);
    let name = name.filter(|name| is_alone(name));
    name.cloned().unwrap_or_else(|| column.to_string())
}
