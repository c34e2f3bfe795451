//! A table whose held-out rows are in a file of their own: as if they came behind the others in one file.

use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use ::csv::{ByteRecord, ReaderBuilder};
use atomic_write_file::AtomicWriteFile;
use starling_run::Kind;

use super::{KIND, PieceIterator, Placing, RowsSource, Table, TableForm, TableLimits, TextSource, begin};
use crate::DataOptions;
use crate::error::DataError;
use crate::files::opened::OpenedFile;
use crate::samples::raw::Raw;
use crate::table::delimiter;
use crate::table::form::RowForm;
use crate::table::pieces::Piece;
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
        let files = [OpenedFile::open(Path::new(&options.source))?, OpenedFile::open(held_out)?];
        let (table, walk) = begin(&source(&files[0], max), files[0].path(), form)?;
        let are_objects = |walk: &Walk| matches!(walk.form, RowForm::Objects(_));
        let as_first = match are_objects(&walk) {
            true => form,
            false => TableForm { header: Some(table.is_header), delimiter: Some(table.rows.delimiter), ..form },
        };
        let (other, other_walk) = begin(&source(&files[1], max), held_out, as_first)?;
        let is_alike = table.rows.columns == other.rows.columns && table.rows.names == other.rows.names;
        if !is_alike || are_objects(&walk) != are_objects(&other_walk) {
            let reason = format!(
                "its columns are not those of `{}`, whose held-out rows it is said to have (--held-out-file): name them alike, in the same order",
                files[0].path().display()
            );
            return Err(DataError::File { path: held_out.to_owned(), reason });
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

fn source<'t>(file: &'t OpenedFile, max: u64) -> impl RowsSource<'t> {
    TextSource { open: || Ok(file.reader(0)), path: file.path(), max }
}

/// All rows of both.
fn pieces<'t>(files: &'t [OpenedFile; 2], form: &RowForm, max: u64) -> Result<PieceIterator<'t>, DataError> {
    let [training, held_out] = files.each_ref().map(|file| source(file, max).pieces(form));
    Ok(Box::new(training?.chain(held_out?)))
}
