//! A table that stays in its file: its rows are read when they are asked for.
//!
//! ```text
//!   index:   block 0: row 0, byte 18    block 1: row 40, byte 4,121    block 2: ...      12 bytes for each 4 KiB
//!   row 43: all of block 1 is read, three of its rows are passed over, and one is parsed
//! ```
//!
//! The system's cache is the cache: none of its own holds bytes.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use ::csv::ByteRecord;

use super::form::RowForm;
#[cfg(feature = "parquet")]
use super::parquet::row_groups::RowGroups;
use super::pieces::{Piece, Pieces};
use super::rows::Rows;
use super::walk::{Walk, Walked};
use crate::error::DataError;
use crate::files::opened::{OpenedFile, changed};
use crate::samples::labels::LabelTable;

/// How many values come of a piece at most.
const MAX_PIECE_VALUES: u64 = 1 << 20;
/// The fewest bytes of a row that is an object: `{"a":1}`.
const SHORTEST_OBJECT: u64 = 7;

/// Where the blocks of a table are.
#[derive(Debug, Clone, Default)]
pub(crate) struct RowIndex {
    /// The first row of each, and behind them how many there are.
    rows: Vec<u32>,
    /// Where each begins, and behind them where the last one ends.
    places: Vec<u64>,
    /// Which one the header is in: before it there may be blank lines.
    header: Option<usize>,
}

impl RowIndex {
    /// Adds the blocks of a piece.
    ///
    /// # Errors
    /// If there are more rows than can be numbered, as a sentence.
    pub(crate) fn add<T>(&mut self, walked: &Walked<T>) -> Result<(), String> {
        if self.rows.is_empty() {
            self.rows.push(0);
            self.places.push(walked.at);
            self.header = walked.header;
        }
        for (rows, end) in walked.rows.iter().zip(&walked.ends) {
            let first = self.rows.last().copied().unwrap_or_default();
            let next = first.checked_add(*rows).ok_or_else(|| {
                format!("it has more than {} rows, which are more samples than a run can number", u32::MAX)
            })?;
            self.rows.push(next);
            self.places.push(walked.at + *end as u64);
        }
        Ok(())
    }

    /// The block that a row is in.
    fn block(&self, row: u32) -> usize {
        self.rows.partition_point(|first| *first <= row) - 1
    }
}

/// Where the rows of such a table are.
pub(crate) enum RowPlaces {
    /// In blocks of a text.
    Text(Arc<OpenedFile>, RowIndex),
    /// In the row groups of a Parquet file.
    #[cfg(feature = "parquet")]
    Groups(Arc<RowGroups>),
}

/// Such a table.
pub(crate) struct RowTable {
    pub(crate) places: RowPlaces,
    pub(crate) walk: Walk,
    pub(crate) rows: Rows,
    pub(crate) labels: LabelTable,
    /// How many samples each class has.
    pub(crate) counts: Vec<u64>,
}

impl RowTable {
    /// How many rows it has.
    pub(crate) fn len(&self) -> u32 {
        match &self.places {
            RowPlaces::Text(_, index) => index.rows.last().copied().unwrap_or_default(),
            #[cfg(feature = "parquet")]
            RowPlaces::Groups(groups) => groups.rows(),
        }
    }

    /// What its user should know, as a sentence.
    pub(crate) fn doubt(&self) -> Option<String> {
        match &self.places {
            RowPlaces::Text(..) => None,
            #[cfg(feature = "parquet")]
            RowPlaces::Groups(groups) => Some(groups.doubt(self.width())),
        }
    }

    fn path(&self) -> &Path {
        &self.rows.path
    }

    /// Checks that its file is what it was.
    fn check(&self) -> Result<(), DataError> {
        match &self.places {
            RowPlaces::Text(file, _) => file.check(),
            #[cfg(feature = "parquet")]
            RowPlaces::Groups(groups) => groups.check(),
        }
    }

    /// How many features a row has.
    pub(crate) fn width(&self) -> usize {
        self.rows.taken.iter().map(|(_, coding)| coding.width()).sum()
    }

    /// All rows in their order: of each its features before scaling, and its class.
    ///
    /// # Errors
    /// If it can't be read, or has changed.
    pub(crate) fn each(&self, mut take: impl FnMut(u32, &[f64], u32)) -> Result<(), DataError> {
        let mut row = 0;
        let taken = |values: &[f64], class| {
            if row < self.len() {
                take(row, values, class);
            }
            row = row.saturating_add(1);
        };
        let read = match &self.places {
            RowPlaces::Text(file, index) => {
                let at = index.places.first().copied().unwrap_or_default();
                let path = self.path().to_owned();
                let pieces = Pieces::new(file.reader(at), at, self.walk.form.quoting(), path);
                self.fold(pieces.of_at_most(self.piece_bytes()), taken)
            }
            #[cfg(feature = "parquet")]
            RowPlaces::Groups(groups) => self.fold(groups.pieces(None, self.piece_rows())?, taken),
        };
        self.check()?;
        read?;
        match row == self.len() {
            true => Ok(()),
            false => Err(self.changed()),
        }
    }

    /// The rows of these pieces: of each its features before scaling, and its class.
    ///
    /// # Errors
    /// If they can't be read, or have changed.
    pub(super) fn fold(
        &self,
        pieces: impl Iterator<Item = Result<Piece, DataError>>,
        mut take: impl FnMut(&[f64], u32),
    ) -> Result<(), DataError> {
        let width = self.width().max(1);
        self.walk.fold(
            pieces,
            || (Vec::new(), Vec::new()),
            |(values, classes), record| {
                classes.push(self.parse(record, values)?);
                Ok(())
            },
            |walked| {
                let (values, classes) = walked.of_rows;
                values.chunks_exact(width).zip(classes).for_each(|(values, class)| take(values, class));
                Ok(())
            },
        )
    }

    /// These rows, in whatever order: of each its place among them, its features before scaling, and its class.
    ///
    /// # Errors
    /// If they can't be read, or have changed.
    ///
    /// # Panics
    /// If there is no such row.
    pub(crate) fn read(&self, numbers: &[u32], take: impl FnMut(usize, &[f64], u32)) -> Result<(), DataError> {
        let mut wanted: Vec<(u32, usize)> = numbers.iter().copied().zip(0..).collect();
        wanted.sort_unstable();
        match &self.places {
            RowPlaces::Text(file, index) => self.read_blocks(file, index, &wanted, take),
            #[cfg(feature = "parquet")]
            RowPlaces::Groups(groups) => groups.read(self, &wanted, take),
        }
    }

    /// The same of ascending rows in blocks of a text.
    fn read_blocks(
        &self,
        file: &OpenedFile,
        index: &RowIndex,
        wanted: &[(u32, usize)],
        mut take: impl FnMut(usize, &[f64], u32),
    ) -> Result<(), DataError> {
        let (mut record, mut values, mut bytes) = (ByteRecord::new(), Vec::new(), Vec::new());
        let mut at = 0;
        while let Some((first, _)) = wanted.get(at) {
            assert!(*first < self.len(), "there is no row {first} of {}", self.len());
            let block = index.block(*first);
            let (mut row, end) = (index.rows[block], index.rows[block + 1]);
            // The last line may have no end in the file.
            let [from, to] = [block, block + 1].map(|at| index.places[at].min(file.bytes()));
            bytes.resize(usize::try_from(to - from).expect("invariant: a block is in memory"), 0);
            file.read_at(&mut bytes, from)?;
            let mut rows = self.walk.form.rows(&bytes, 0);
            if index.header == Some(block) {
                self.found(rows.skip(&mut record, self.path()))?;
            }
            while let Some((wanted_row, place)) = wanted.get(at).filter(|(wanted, _)| *wanted < end) {
                // One that is asked for twice is still there.
                if *wanted_row >= row {
                    while row < *wanted_row {
                        self.found(rows.skip(&mut record, self.path()))?;
                        row += 1;
                    }
                    self.found(rows.next(&mut record, self.path()))?;
                    row += 1;
                    values.clear();
                }
                let class = match values.is_empty() {
                    true => self.parse(&record, &mut values).map_err(|_| self.changed())?,
                    false => self.class(&record)?,
                };
                take(*place, &values, class);
                at += 1;
            }
        }
        Ok(())
    }

    /// How long pieces may be, so that few values come of each: categories take much more room as numbers than they are long.
    fn piece_bytes(&self) -> u64 {
        let shortest_row = match self.walk.form {
            RowForm::Objects(_) => SHORTEST_OBJECT,
            RowForm::Cells(_) | RowForm::Made => self.rows.columns as u64 + 1,
        };
        MAX_PIECE_VALUES.saturating_mul(shortest_row) / self.width().max(1) as u64
    }

    /// The same in rows.
    #[cfg(feature = "parquet")]
    pub(super) fn piece_rows(&self) -> usize {
        MAX_PIECE_VALUES as usize / self.width().max(1)
    }

    /// Whatever was found once and is not there any more has changed.
    fn found(&self, row: Result<bool, DataError>) -> Result<(), DataError> {
        match row {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(self.changed()),
        }
    }

    /// Appends the features of a row and returns its class.
    fn parse(&self, record: &ByteRecord, values: &mut Vec<f64>) -> Result<u32, DataError> {
        self.rows.read(record, values)?;
        self.class(record)
    }

    fn class(&self, record: &ByteRecord) -> Result<u32, DataError> {
        let label = self.rows.label(record)?.unwrap_or_default();
        self.labels.class(&label).ok_or_else(|| self.changed())
    }

    fn changed(&self) -> DataError {
        changed(self.path(), "its rows are others")
    }
}

impl fmt::Debug for RowTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowTable").field("path", &self.path()).field("rows", &self.len()).finish_non_exhaustive()
    }
}
