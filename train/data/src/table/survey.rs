//! A first reading of a table: what its columns hold, so that each can be coded.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use ::csv::{ByteRecord, Reader};
use starling_run::data::columns::{ColumnKind, is_gap};

use crate::Delimiter;
use crate::error::DataError;
use crate::samples::raw::MAX_VALUES;
use crate::shorten;
use crate::table::csv::Table;
use crate::table::delimiter::has_decimal_comma;
use crate::table::doubts::{is_rising, quoted};
use crate::table::rows::line;

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
pub(crate) struct Survey {
    /// Of all rows.
    pub(crate) labels: Vec<String>,
    /// The numbers of all rows, if there is nothing else in the columns that are taken.
    pub(crate) plain: Option<Vec<f64>>,
    /// How many rows of these have nothing but whole numbers, each larger than the one before.
    pub(crate) rising_rows: usize,
    seen: BTreeMap<usize, Seen>,
}

/// What the cells of a column are.
#[derive(Debug, Default)]
struct Seen {
    numbers: u64,
    gaps: u64,
    texts: u64,
    /// The first one that is neither a number nor a gap, and its line.
    first: Option<(u64, String)>,
    /// The number that comes next, if so far each was one more than the one before.
    counted: Option<f64>,
}

impl Survey {
    /// Reads all rows of `table`.
    ///
    /// # Errors
    /// If a row has more or fewer cells than the first one, has no label, or is no text.
    pub(crate) fn of<R: Read>(table: &Table, reader: Reader<R>) -> Result<Self, DataError> {
        let taken: Vec<usize> = table.taken().collect();
        let seen = taken.iter().map(|column| (*column, Seen::default())).collect();
        let plain = table.categories.is_empty().then(Vec::new);
        let mut survey = Self { labels: Vec::new(), plain, rising_rows: 0, seen };
        table.each_row(reader, |record| survey.note(table, &taken, record))?;
        Ok(survey)
    }

    fn note(&mut self, table: &Table, taken: &[usize], record: &ByteRecord) -> Result<(), DataError> {
        let rows = &table.rows;
        rows.check_width(record)?;
        let from = self.plain.as_ref().map_or(0, Vec::len);
        let rows_now = self.labels.len() as u64 + 1;
        if rows_now.saturating_mul(taken.len() as u64) > MAX_VALUES {
            let reason = format!("the file has more than {MAX_VALUES} values");
            return Err(DataError::File { path: rows.path.clone(), reason });
        }
        for column in taken {
            let cell = rows.cell(record, *column)?;
            let number = cell.parse().ok().filter(|number: &f64| number.is_finite());
            let seen = self.seen.entry(*column).or_default();
            match number {
                Some(number) => {
                    let counts = seen.counted == Some(number) || (seen.is_empty() && number.fract() == 0.0);
                    let counts = counts && number.abs() < MAX_COUNTED;
                    seen.counted = counts.then_some(number + 1.0);
                    seen.numbers += 1;
                    self.plain.iter_mut().for_each(|plain| plain.push(number));
                    continue;
                }
                None if is_gap(cell) => seen.gaps += 1,
                None => seen.texts += 1,
            }
            seen.counted = None;
            if !is_gap(cell) && seen.first.is_none() {
                seen.first = Some((line(record), cell.to_owned()));
            }
            self.plain = None;
        }
        self.rising_rows += usize::from(self.plain.as_ref().is_some_and(|plain| is_rising(&plain[from..])));
        self.labels.extend(rows.label(record)?);
        Ok(())
    }

    /// What its user should look at, as sentences.
    pub(crate) fn doubts(&self, table: &Table) -> Vec<String> {
        let counted = self.seen.iter().filter(|(_, seen)| seen.counted.is_some() && seen.numbers >= FEW_ROWS);
        let counted = counted.map(|(column, _)| {
            format!(
                "{} counts the rows, so that a model learns their order from it: leave it out with --ignore {}, unless it was measured",
                table.rows.name(*column),
                quoted(&flag(table, *column))
            )
        });
        let missing =
            self.labels.iter().find(|label| is_gap(label)).map(|label| {
                format!("the class `{label}` may stand for labels that are missing: leave its rows out then")
            });
        counted.chain(missing).collect()
    }

    /// How the cells of each column that is taken become features.
    ///
    /// # Errors
    /// If a column is neither of numbers nor of categories, or it is not clear which one the label is.
    pub(crate) fn codings<R: Read>(
        &self,
        table: &Table,
        classes: &[String],
        open: impl Fn() -> Result<Reader<R>, DataError>,
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
        self.collect(table, &mut texts, open()?)?;
        codings.extend(
            texts.into_iter().map(|(column, texts)| (column, ColumnKind::Category(texts.into_iter().collect()))),
        );
        Ok(codings)
    }

    /// Collects the texts of the columns with categories.
    fn collect<R: Read>(
        &self,
        table: &Table,
        texts: &mut BTreeMap<usize, BTreeSet<String>>,
        reader: Reader<R>,
    ) -> Result<(), DataError> {
        let rows = &table.rows;
        table.each_row(reader, |record| {
            rows.check_width(record)?;
            for (column, texts) in texts.iter_mut().filter(|(_, texts)| texts.len() <= MAX_CATEGORIES) {
                let cell = rows.cell(record, *column)?;
                if !texts.contains(cell) {
                    texts.insert(cell.to_owned());
                }
            }
            Ok(())
        })?;
        let are_too_many = |(column, texts): &(&usize, &BTreeSet<String>)| {
            let filled = self.seen.get(column).map_or(0, |seen| seen.numbers + seen.texts);
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
            self.labels.len(),
            quoted(&named.join(","))
        );
        Err(DataError::File { path: rows.path.clone(), reason })
    }

    /// Refuses to guess that the last column is the label, where that holds measurements and another one holds text.
    fn check_label(&self, table: &Table, classes: &[String]) -> Result<(), DataError> {
        let texts = self.seen.iter().filter(|(column, seen)| seen.texts > 0 && !table.categories.contains(column));
        let Some((column, _)) = texts.min_by_key(|(column, _)| **column).filter(|_| !table.is_label_said) else {
            return Ok(());
        };
        let are_numbers = classes.iter().all(|class| class.parse::<f64>().is_ok());
        let are_measured = classes.len() > FEW_CATEGORIES || classes.iter().any(|class| class.parse::<i64>().is_err());
        if !are_numbers || !are_measured {
            return Ok(());
        }
        let (text, last) = (table.rows.name(*column), table.rows.name(table.label));
        let reason = format!(
            "which column is the label? {text} holds text, and {last}, the last one, holds measurements: pass --label {}, or --label {} \
             if it is that one",
            quoted(&flag(table, *column)),
            quoted(&flag(table, table.label))
        );
        Err(DataError::File { path: table.rows.path.clone(), reason })
    }
}

impl Seen {
    fn is_empty(&self) -> bool {
        self.numbers + self.gaps + self.texts == 0
    }

    /// Whether the column holds categories: more texts than numbers.
    fn are_categories(&self, table: &Table, column: usize) -> Result<bool, DataError> {
        let Some((line, text)) = &self.first else { return Ok(false) };
        let has_decimals = table.rows.delimiter != Delimiter::Comma && has_decimal_comma(text);
        let is_formatted = is_formatted(text);
        if self.texts > self.numbers && !has_decimals && !is_formatted {
            return Ok(true);
        }
        let told = format!("`{}` is not a number", shorten(text));
        let (path, row, column_name) = (table.rows.path.clone(), *line, table.rows.name(column));
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
                let header = if *line == 1 { "pass --header if the first row has the columns' names, " } else { "" };
                let (flag, numbers, cells) = (quoted(&flag(table, column)), self.numbers, self.numbers + self.texts);
                format!(
                    "{told}, as {numbers} of {cells} cells of the column are; {header}mend it, or pass --categories {flag} if they are no \
                     measurements"
                )
            }
        };
        Err(DataError::Row { path, row, column: Some(column_name), reason })
    }
}

/// Whether a text is a number for people: with commas, a percent sign or a currency.
fn is_formatted(text: &str) -> bool {
    let bare: String = text.chars().filter(|letter| !"$€£%, ".contains(*letter)).collect();
    bare.len() < text.len() && bare.parse::<f64>().is_ok()
}

/// A column as flags take it: by its name, unless that can't be written in a list.
fn flag(table: &Table, column: usize) -> String {
    let name = table.rows.names.get(column).filter(|name| !name.is_empty() && !name.contains(',') && name.len() <= 40);
    name.cloned().unwrap_or_else(|| column.to_string())
}
