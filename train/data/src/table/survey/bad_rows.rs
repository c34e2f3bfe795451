//! All rows of a table that can't be used, for whoever mends it: who reads it to train stops at the first one.

use super::{Survey, check_sound};
use crate::error::DataError;
use crate::table::csv::{PieceIterator, Table};
use crate::table::form::RowForm;
use crate::table::pieces::Piece;
use crate::table::walk::Walk;

/// The rows of a table that can't be used.
#[derive(Debug, Default)]
pub struct BadRowsReport {
    /// The first ones in their order, each with the first thing that is wrong with it.
    pub rows: Vec<DataError>,
    /// How many more there are.
    pub more: u64,
}

impl BadRowsReport {
    /// How many there are.
    pub fn count(&self) -> u64 {
        self.more.saturating_add(self.rows.len() as u64)
    }

    fn add(&mut self, fault: DataError, most: usize) {
        match self.rows.len() < most {
            true => self.rows.push(fault),
            false => self.more = self.more.saturating_add(1),
        }
    }
}

/// Finds those of `table`, of which the first `most` are told. What its columns hold, the other rows say. Behind a quote that is never closed, nothing is a
/// row any more.
///
/// # Errors
/// If it can't be read.
pub(crate) fn find<'t>(
    table: &Table,
    walk: &Walk,
    open: impl Fn() -> Result<PieceIterator<'t>, DataError>,
    most: usize,
) -> Result<BadRowsReport, DataError> {
    let goes_on = |error: DataError| match walk.form {
        // Each line is a row of its own, whatever is in others.
        RowForm::Objects(_) => Ok(error),
        RowForm::Cells(_) | RowForm::Made => Err(error),
    };
    let mut survey = Survey::begin(table);
    let surveyed = walk.fold_all(
        line_by_line(open()?, walk),
        || Survey::begin(table),
        |part, record| {
            if check_sound(table, record).is_ok() {
                part.note_kinds(table, record)?;
            }
            Ok(())
        },
        |_, error| goes_on(error).map(drop),
        |walked| {
            survey.add_kinds(walked.of_rows, walked.lines_before);
            Ok(())
        },
    );
    match surveyed {
        // It is told below.
        Ok(()) | Err(DataError::Row { .. }) => {}
        Err(other) => return Err(other),
    }
    let numbers = survey.numbers(table);
    let (mut report, mut files) = (BadRowsReport::default(), 0);
    let found = walk.fold_all(
        line_by_line(open()?, walk),
        Vec::new,
        |found, record| {
            let checked = check_sound(table, record)
                .and_then(|()| numbers.iter().try_for_each(|(column, seen)| seen.check(table, *column, record)));
            found.extend(checked.err());
            Ok(())
        },
        |found, error| goes_on(error).map(|error| found.push(error)),
        |walked| {
            files += u32::from(walked.is_first);
            let faults: Vec<DataError> = walked.of_rows;
            for error in faults.into_iter().map(|error| error.behind(walked.lines_before)) {
                let error = match walk.joined.as_ref().filter(|_| files > 1) {
                    Some(path) => error.of_file(path),
                    None => error,
                };
                report.add(error, most);
            }
            Ok(())
        },
    );
    match found {
        Ok(()) => Ok(report),
        Err(last @ DataError::Row { .. }) => {
            report.add(last, most);
            Ok(report)
        }
        Err(other) => Err(other),
    }
}

/// Pieces in which each object is a block of its own: what is wrong with one says nothing of the next one.
fn line_by_line<'t>(pieces: PieceIterator<'t>, walk: &Walk) -> PieceIterator<'t> {
    match walk.form {
        RowForm::Objects(_) => Box::new(pieces.map(|piece| {
            piece.map(|piece| {
                let ends = memchr::memchr_iter(b'\n', &piece.bytes).map(|end| end + 1);
                let last = Some(piece.bytes.len()).filter(|_| piece.bytes.last() != Some(&b'\n'));
                Piece { ends: ends.chain(last).collect(), ..piece }
            })
        })),
        RowForm::Cells(_) | RowForm::Made => pieces,
    }
}
