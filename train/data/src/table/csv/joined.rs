//! A table whose held-out rows are in a file of their own: as if they came behind the others in one file.

use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use ::csv::{ByteRecord, ReaderBuilder};
use atomic_write_file::AtomicWriteFile;
use starling_run::Kind;
use starling_run::data::columns::is_gap;
use starling_run::data::shorten;

use super::{
    EMPTY, FirstRow, KIND, PieceIterator, Placing, RowsSource, Table, TableForm, TableLimits, TextSource, begin,
};
use crate::DataOptions;
use crate::error::DataError;
use crate::files::opened::OpenedFile;
use crate::samples::raw::Raw;
use crate::table::delimiter;
use crate::table::form::RowForm;
use crate::table::pieces::Piece;
use crate::table::rows::Rows;
use crate::table::survey::bad_rows::{self, BadRowsReport};
use crate::table::walk::Walk;

/// Reads the table that `options` name, and the rows of `held_out`, which are held out.
///
/// # Errors
/// As of any table, with the file; and if the two have other columns.
pub(super) fn read(options: &DataOptions, held_out: &Path) -> Result<Raw, DataError> {
    let (form, limits) = (TableForm::of(options), TableLimits::of(options));
    let Joined { table, walk, files, max } = Joined::open(options, held_out, form, limits.max)?;
    let read = table.finish(&walk, || pieces(&files, &walk.form, max), limits, Placing::Nowhere);
    files.iter().try_for_each(OpenedFile::check)?;
    read
}

/// The rows of both that can't be used, of which the first `most` are told, those of `held_out` behind the others.
///
/// # Errors
/// If one can't be read, or the two have other columns.
pub(super) fn bad_rows(options: &DataOptions, held_out: &Path, most: usize) -> Result<BadRowsReport, DataError> {
    let Joined { table, walk, files, max } =
        Joined::open(options, held_out, TableForm::of(options), options.max_file_bytes)?;
    bad_rows::find(&table, &walk, || pieces(&files, &walk.form, max), most)
}

/// Writes such a table as one file into `folder`, for others.
///
/// # Errors
/// As [`read`], and if it can't be written.
pub(super) fn shared(options: &DataOptions, held_out: &Path, folder: &Path) -> Result<(Kind, Vec<PathBuf>), DataError> {
    let path = folder.join(KIND.files[0]);
    Joined::open(options, held_out, TableForm::of(options), u64::MAX)?.write(&path)?;
    Ok((KIND, vec![path]))
}

/// Such a table.
struct Joined {
    table: Table,
    walk: Walk,
    /// Of the rows to train on, and of the others.
    files: [OpenedFile; 2],
    /// The most bytes that each may have, unpacked.
    max: u64,
}

impl Joined {
    fn open(options: &DataOptions, held_out: &Path, form: TableForm<'_>, max: u64) -> Result<Self, DataError> {
        let training = Path::new(&options.source);
        let refused = |reason: String| DataError::File { path: held_out.to_owned(), reason };
        let is_same = training.canonicalize().ok().is_some_and(|path| held_out.canonicalize().ok() == Some(path));
        if is_same {
            let reason = "its rows are those to train on, and can't be held out, too (--held-out-file): name another file, or leave that out";
            return Err(refused(reason.to_owned()));
        }
        let files = [OpenedFile::open(training)?, OpenedFile::open(held_out)?];
        let (table, walk) = begin(&source(&files[0], max), training, form)?;
        let first = FirstRow::read(&source(&files[1], max), held_out, Some(table.rows.delimiter));
        let mut first = first.map_err(|error| match error {
            DataError::File { reason, .. } if reason == EMPTY => refused(without_rows(EMPTY, training)),
            other => other,
        })?;
        if let Some(fault) = first.fault.take().filter(|_| table.is_header) {
            return Err(fault);
        }
        if let Some(told) = difference(&table, matches!(walk.form, RowForm::Objects(_)), &first) {
            let training = training.display();
            return Err(refused(format!(
                "its columns are not those of `{training}`, whose held-out rows it is said to have (--held-out-file): {told}"
            )));
        }
        let walk = Walk { joined: Some(held_out.to_owned()), ..walk };
        Ok(Self { table, walk, files, max })
    }

    /// Writes all of it as one file, with one header.
    fn write(&self, path: &Path) -> Result<(), DataError> {
        let unwritable = |source| DataError::Unwritable { path: path.to_owned(), source };
        path.parent().map_or(Ok(()), fs::create_dir_all).map_err(unwritable)?;
        let mut file = AtomicWriteFile::open(path).map_err(unwritable)?;
        let mut out = BufWriter::new(&mut file);
        let mut files = 0;
        for piece in pieces(&self.files, &self.walk.form, self.max)? {
            let Piece { is_first, bytes, .. } = piece?;
            files += u32::from(is_first);
            let rows_from = if is_first && files > 1 && self.walk.is_header { self.first_row(&bytes) } else { 0 };
            out.write_all(&bytes[rows_from..]).map_err(unwritable)?;
        }
        out.flush().map_err(unwritable)?;
        drop(out);
        file.commit().map_err(unwritable)
    }

    /// How long the header is.
    fn first_row(&self, bytes: &[u8]) -> usize {
        let delimiter = delimiter::byte(self.table.rows.delimiter);
        let mut reader = ReaderBuilder::new();
        let mut reader = reader.has_headers(false).flexible(true).delimiter(delimiter).from_reader(bytes);
        match reader.read_byte_record(&mut ByteRecord::new()) {
            Ok(true) => usize::try_from(reader.position().byte()).unwrap_or(bytes.len()).min(bytes.len()),
            _ => 0,
        }
    }
}

/// Checks that there are rows to train on, and some that are held out; so many are in each of these files.
///
/// # Errors
/// If one has none.
pub(super) fn check_rows(training: &Path, held_out: &Path, rows: [u64; 2]) -> Result<(), DataError> {
    match rows {
        [0, _] => {
            let reason = "it has a header, but no rows to train on".to_owned();
            Err(DataError::File { path: training.to_owned(), reason })
        }
        [_, 0] => {
            let reason = without_rows("it has a header, but no rows", training);
            Err(DataError::File { path: held_out.to_owned(), reason })
        }
        _ => Ok(()),
    }
}

/// What to say of a file of held-out rows in which there are none.
fn without_rows(found: &str, training: &Path) -> String {
    format!(
        "{found}, though it is said to have the held-out rows (--held-out-file): put them there, or leave that out and say which share of `{}` is held out \
         (--held-out)",
        training.display()
    )
}

/// How a file that begins with this row is written otherwise than the table, and what to do, as a sentence; `None` if in no way. `are_objects`
/// says whether the table's rows are JSON objects.
fn difference(table: &Table, are_objects: bool, first: &FirstRow) -> Option<String> {
    let Rows { names, columns, delimiter, .. } = &table.rows;
    if are_objects != first.is_made {
        let [this, other] = match first.is_made {
            true => ["lines of JSON", "a table of cells"],
            false => ["a table of cells", "lines of JSON"],
        };
        return Some(format!("it is {this}, and the other {other}; save both in one form"));
    }
    let cells = &first.cells;
    let is_number = |cell: &String| cell.parse::<f64>().is_ok();
    let begins = || format!("it begins with `{}`", shorten(&cells.join(",")));
    if cells.len() != *columns {
        let separated = match first.found {
            found if found == *delimiter => String::new(),
            found => format!(", since {found} seems to separate its cells, and {delimiter} those of the other"),
        };
        return Some(format!(
            "{}, {} columns where there are {columns} in the other{separated}; write both alike",
            begins(),
            cells.len()
        ));
    }
    if names.is_empty() {
        // Each number of the other's first row is none here.
        let mut numbers = cells.iter().zip(&table.first).filter(|(_, first)| is_number(first)).map(|(cell, _)| cell);
        let are_names = !table.is_header_said
            && numbers.clone().count() > 0
            && numbers.all(|cell| !is_number(cell) && !is_gap(cell));
        return are_names.then(|| {
            format!("{}, which seem to be names, and the other has none; leave them out, or write them above the other's rows, too", begins())
        });
    }
    let other = (0..*columns).find(|at| cells[*at] != names[*at])?;
    if cells.iter().any(is_number) && !cells.iter().any(|cell| names.contains(cell)) {
        return Some(format!("{}, which are no names; write the other's first row above it", begins()));
    }
    let [this, other_name] = [&cells[other], &names[other]].map(|name| shorten(name));
    Some(format!("its column {other} is `{this}`, and the other's `{other_name}`; name them alike, in the same order"))
}

fn source<'t>(file: &'t OpenedFile, max: u64) -> impl RowsSource<'t> {
    TextSource { open: || Ok(file.reader(0)), path: file.path(), max }
}

/// All rows of both.
fn pieces<'t>(files: &'t [OpenedFile; 2], form: &RowForm, max: u64) -> Result<PieceIterator<'t>, DataError> {
    let [training, held_out] = files.each_ref().map(|file| source(file, max).pieces(form));
    Ok(Box::new(training?.chain(held_out?)))
}
