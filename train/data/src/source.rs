//! Where data comes from.
//!
//! One file holds one [`Source`]: what it reads, and how. [`REGISTRY`] lists them, and whatever opens, shares or names data goes by
//! that list: a new reader is a file and a line there.

use std::fmt;
use std::path::{Path, PathBuf};

use starling_run::Kind;
use starling_run::data::DIGITS;

use crate::DataOptions;
use crate::digits::Digits;
use crate::error::DataError;
use crate::idx::Idx;
use crate::images::Images;
use crate::samples::raw::Raw;
use crate::table::csv::Csv;
#[cfg(feature = "parquet")]
use crate::table::parquet::Parquet;
use crate::table::survey::bad_rows::BadRowsReport;
use crate::text;
use crate::text::folder;

/// All readers: the first that knows a source has it. The last one takes whatever is left.
pub(super) const REGISTRY: &[&dyn Source] = &[
    &Digits,
    &Images,
    &Idx,
    #[cfg(feature = "parquet")]
    &Parquet,
    &Csv,
];

/// A reader of data.
pub(super) trait Source: fmt::Debug + Sync {
    /// The kinds of data that it reads.
    fn kinds(&self) -> &'static [Kind];

    /// What the data of `source` is that has no columns, as a sentence's beginning; `None` of tables, and where nothing of its kind is found.
    ///
    /// # Errors
    /// If it can't be read.
    fn without_columns(&self, source: &str) -> Result<Option<&'static str>, DataError>;

    /// Whether it is for `source`: by its name, or by how its file begins.
    fn knows(&self, source: &str) -> Result<bool, DataError>;

    /// The files that `source` stands for, in their kind's order; none where they are made for others.
    fn files(&self, source: &str) -> Result<(Kind, Vec<PathBuf>), DataError>;

    /// The files that others get, in their kind's order. What is made for them lies in `folder`.
    fn shared(&self, options: &DataOptions, folder: &Path) -> Result<(Kind, Vec<PathBuf>), DataError> {
        let _ = folder;
        self.files(&options.source)
    }

    /// The rows that can't be used of a table, of which the first `most` are told.
    fn bad_rows(&self, options: &DataOptions, most: usize) -> Result<BadRowsReport, DataError> {
        let _ = (options, most);
        Ok(BadRowsReport::default())
    }

    /// Reads the source as `options` say. No file of others may have more bytes than they allow, unpacked.
    fn read(&self, options: &DataOptions) -> Result<Raw, DataError>;
}

/// The reader of `source`.
pub(super) fn find(source: &str) -> Result<&'static dyn Source, DataError> {
    check_file(Path::new(source))?;
    for reader in REGISTRY {
        if reader.knows(source)? {
            return Ok(*reader);
        }
    }
    Err(DataError::File { path: source.into(), reason: "no reader knows it".to_owned() })
}

/// Whether it is the folder of a text that was prepared.
pub(super) fn is_prepared(source: &str) -> bool {
    source != DIGITS && folder::is_one(Path::new(source))
}

/// Checks that what lies there can be read again: whatever is read only once is gone when its kind is known.
pub(super) fn check_file(path: &Path) -> Result<(), DataError> {
    if std::fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
        let reason = "it is a pipe or a device, but data to train on is read several times: write it to a file first";
        return Err(DataError::File { path: path.to_owned(), reason: reason.to_owned() });
    }
    Ok(())
}

/// All kinds of data that are read: those of the readers, and text, which no file is by its bytes alone, also prepared.
pub fn kinds() -> impl Iterator<Item = Kind> {
    REGISTRY.iter().flat_map(|reader| reader.kinds()).copied().chain([text::KIND, folder::KIND])
}

/// The files that others get of the data that `options` name, in their kind's order: those that it stands for, or what is made of it in
/// `folder`.
///
/// # Errors
/// As [`files`], and if a file cannot be written.
pub fn shared_files(options: &DataOptions, folder: &Path) -> Result<(Kind, Vec<PathBuf>), DataError> {
    if is_prepared(&options.source) {
        return files(&options.source);
    }
    find(&options.source)?.shared(options, folder)
}

/// The files that `source` stands for, in their kind's order; none where they are made for others: [`shared_files`].
///
/// # Errors
/// If a file cannot be read, or a directory does not hold the files of one data set.
pub fn files(source: &str) -> Result<(Kind, Vec<PathBuf>), DataError> {
    if is_prepared(source) {
        return Ok((folder::KIND, folder::files(Path::new(source))?));
    }
    find(source)?.files(source)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn kinds_have_names_of_their_own_that_a_manifest_can_hold() {
        let names: BTreeSet<&str> = kinds().map(|kind| kind.name).collect();
        assert_eq!(names.len(), kinds().count());
        let digits = crate::Dataset::load(&crate::DataOptions::default()).expect("embedded").description();
        for name in names {
            let description = crate::DataDescription { kind: name.to_owned(), ..digits.clone() };
            assert_eq!(description.check(), Ok(()));
        }
    }
}
