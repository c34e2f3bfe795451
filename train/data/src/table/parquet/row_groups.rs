//! A Parquet file that is larger than memory: its row groups are decoded when rows of them are asked for.
//!
//! ```text
//!   file:    row group 0: rows 0 to 99,999    row group 1: 100,000 to 199,999    ...
//!   cache:   the rows of those that were asked for last, as numbers, as many as there is room for
//! ```
//!
//! A column of a row group is packed as a whole, so that one of its rows costs all of them.

use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use ::parquet::arrow::arrow_reader::ArrowReaderMetadata;

use super::RowPieces;
use crate::error::DataError;
use crate::files::HELD_OF_PACKED;
use crate::files::opened::{Stamp, changed};
use crate::table::csv::PieceIterator;
use crate::table::placed::RowTable;

/// The row groups of a file that must not change.
pub(crate) struct RowGroups {
    path: PathBuf,
    stamp: Stamp,
    metadata: ArrowReaderMetadata,
    /// Where each ends, in rows.
    ends: Vec<u32>,
    cache: Mutex<GroupCache>,
}

/// The rows of those that were asked for last.
struct GroupCache {
    limit: u64,
    /// The last one was asked for last.
    held: VecDeque<(usize, GroupRows)>,
}

/// What so many rows of so many features take.
fn bytes_of(rows: u32, width: usize) -> u64 {
    u64::from(rows).saturating_mul(8 * width as u64 + 4)
}

/// The rows of one: their features before scaling, and their classes.
#[derive(Default)]
struct GroupRows {
    values: Vec<f64>,
    classes: Vec<u32>,
}

impl GroupRows {
    fn bytes(&self) -> u64 {
        8 * self.values.len() as u64 + 4 * self.classes.len() as u64
    }
}

impl RowGroups {
    /// Those of the file at `path`, of which rows that take `limit` bytes as numbers are held.
    ///
    /// # Errors
    /// As [`super::opened`], and if there are more rows than can be numbered.
    pub(crate) fn open(path: &Path, limit: u64) -> Result<Self, DataError> {
        let stamp = Stamp::at(path)?;
        let (_, metadata) = super::opened(path)?;
        let mut end = 0_u32;
        let ends = metadata.metadata().row_groups().iter().map(|group| {
            end = u32::try_from(group.num_rows()).ok().and_then(|rows| end.checked_add(rows))?;
            Some(end)
        });
        let Some(ends) = ends.collect::<Option<Vec<u32>>>() else {
            let reason = format!("it has more than {} rows, which are more samples than a run can number", u32::MAX);
            return Err(DataError::File { path: path.to_owned(), reason });
        };
        let cache = Mutex::new(GroupCache { limit, held: VecDeque::new() });
        Ok(Self { path: path.to_owned(), stamp, metadata, ends, cache })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// How many rows it has.
    pub(crate) fn rows(&self) -> u32 {
        self.ends.last().copied().unwrap_or_default()
    }

    /// How many rows the largest of its row groups has.
    fn largest(&self) -> u32 {
        (0..self.ends.len()).map(|group| self.ends[group] - self.start(group)).max().unwrap_or_default()
    }

    /// Checks that it has so many rows, and that `held` bytes are enough for each row group, if a row has so many features.
    ///
    /// # Errors
    /// If it has not, or they are not.
    pub(crate) fn check_size(&self, width: usize, rows: u64, held: u64) -> Result<(), DataError> {
        if u64::from(self.rows()) != rows {
            return Err(changed(&self.path, "its rows are others"));
        }
        let largest = self.largest();
        let bytes = bytes_of(largest, width);
        if bytes <= held {
            return Ok(());
        }
        let (mib, most) = (bytes >> 20, held >> 20);
        let reason = format!(
            "it has row groups of {largest} rows, which take {mib} MiB of memory, but {most} MiB at most are held: write it with smaller row groups \
             (`row_group_size`), hold more (`--data-held`), or save it as CSV"
        );
        Err(DataError::File { path: self.path.clone(), reason })
    }

    /// What its user should know, as a sentence, if a row has so many features.
    pub(crate) fn doubt(&self, width: usize) -> String {
        let (largest, all) = (self.largest(), bytes_of(self.rows(), width).div_ceil(HELD_OF_PACKED << 20));
        format!(
            "it is larger than memory, so that row groups of {largest} rows are decoded again wherever a batch has a row of one that is not held: hold \
             all of it (--data-held {all}), take --shuffle blocks, or save it as CSV, whose rows are read one by one"
        )
    }

    fn start(&self, group: usize) -> u32 {
        group.checked_sub(1).map_or(0, |before| self.ends[before])
    }

    /// The file, which is what it was.
    ///
    /// # Errors
    /// If it can't be opened, or has changed.
    fn file(&self) -> Result<File, DataError> {
        let unreadable = |source| DataError::Unreadable { path: self.path.clone(), source };
        let file = File::open(&self.path).map_err(unreadable)?;
        match Stamp::of(&file.metadata().map_err(unreadable)?) == self.stamp {
            true => Ok(file),
            false => Err(changed(&self.path, "its length or its time of change is another one")),
        }
    }

    /// Checks that it is what it was.
    ///
    /// # Errors
    /// If it is not.
    pub(crate) fn check(&self) -> Result<(), DataError> {
        self.file().map(drop)
    }

    /// All rows, or those of one row group, of which `most` at once.
    ///
    /// # Errors
    /// As [`Self::file`], or if it is damaged.
    pub(crate) fn pieces(&self, group: Option<usize>, most: usize) -> Result<PieceIterator<'static>, DataError> {
        let rows = super::Rows::with(self.file()?, self.metadata.clone(), group, most);
        let rows = rows.map_err(|reason| DataError::File { path: self.path.clone(), reason })?;
        Ok(Box::new(RowPieces::of(rows, &self.path)))
    }

    /// As [`RowTable::read`] of such a table. Row groups are decoded one at a time.
    ///
    /// # Errors
    /// If they can't be read, or have changed.
    pub(crate) fn read(
        &self,
        table: &RowTable,
        wanted: &[(u32, usize)],
        mut take: impl FnMut(usize, &[f64], u32),
    ) -> Result<(), DataError> {
        let width = table.width();
        // Nothing behind the lock can be left half done.
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let mut left = wanted;
        while let Some((first, _)) = left.first() {
            let group = self.ends.partition_point(|end| end <= first);
            assert!(group < self.ends.len(), "there is no row {first} of {}", table.len());
            let (start, count) = (self.start(group), self.ends[group] - self.start(group));
            let rows = cache.get(group, bytes_of(count, width), || self.decoded(table, group))?;
            let (own, others) = left.split_at(left.partition_point(|(row, _)| row - start < count));
            for (row, place) in own {
                let at = (row - start) as usize;
                take(*place, &rows.values[at * width..(at + 1) * width], rows.classes[at]);
            }
            left = others;
        }
        self.check()
    }

    /// The rows of one row group.
    fn decoded(&self, table: &RowTable, group: usize) -> Result<GroupRows, DataError> {
        let count = self.ends[group] - self.start(group);
        let (mut rows, mut found) = (GroupRows::default(), 0_u32);
        // As much as was counted, and no more.
        rows.values.reserve_exact(count as usize * table.width());
        rows.classes.reserve_exact(count as usize);
        let read = table.fold(self.pieces(Some(group), table.piece_rows())?, |values, class| {
            // More than there were would take more memory than was counted.
            if found < count {
                rows.values.extend_from_slice(values);
                rows.classes.push(class);
            }
            found = found.saturating_add(1);
        });
        self.check()?;
        read?;
        match found == count {
            true => Ok(rows),
            false => Err(changed(&self.path, "its rows are others")),
        }
    }
}

impl GroupCache {
    /// The rows of a row group, which take so many bytes: made, if they are not there, once there is room for them.
    fn get(
        &mut self,
        group: usize,
        bytes: u64,
        make: impl FnOnce() -> Result<GroupRows, DataError>,
    ) -> Result<&GroupRows, DataError> {
        let known = self.held.iter().position(|(held, _)| *held == group).and_then(|at| self.held.remove(at));
        let rows = match known {
            Some((_, rows)) => rows,
            None => {
                let taken =
                    |held: &VecDeque<(usize, GroupRows)>| held.iter().map(|(_, rows)| rows.bytes()).sum::<u64>();
                while !self.held.is_empty() && taken(&self.held) + bytes > self.limit {
                    self.held.pop_front();
                }
                make()?
            }
        };
        self.held.push_back((group, rows));
        Ok(self.held.back().map(|(_, rows)| rows).expect("invariant: it was added"))
    }
}

impl fmt::Debug for RowGroups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowGroups").field("path", &self.path).field("groups", &self.ends.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use ::parquet::arrow::ArrowWriter;
    use ::parquet::file::properties::WriterProperties;
    use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
    use starling_topology::SplitMix64Generator;

    use crate::{DataOptions, Dataset};

    const ROWS: i64 = 1000;

    /// Numbers with gaps, categories, and two classes, in row groups of so many rows.
    fn written(path: &std::path::Path, group: usize) {
        let sizes = (0..ROWS).map(|row| (row % 9 != 0).then(|| (row * 37 % 211) as f64 / 4.0));
        let colors = (0..ROWS).map(|row| ["red", "light, blue"][row as usize % 3 % 2]);
        let kinds = (0..ROWS).map(|row| row * row % 7 % 2);
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("size", Arc::new(Float64Array::from_iter(sizes))),
            ("color", Arc::new(StringArray::from_iter_values(colors))),
            ("kind", Arc::new(Int64Array::from_iter_values(kinds))),
        ];
        let batch = RecordBatch::try_from_iter(columns).expect("equally long");
        let properties = WriterProperties::builder().set_max_row_group_row_count(Some(group)).build();
        let file = fs::File::create(path).expect("created");
        let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).expect("written");
        writer.write(&batch).expect("written");
        writer.close().expect("written");
    }

    fn load(path: &std::path::Path, held_bytes: u64) -> Result<Dataset, String> {
        let options = DataOptions { source: path.display().to_string(), held_bytes, ..DataOptions::default() };
        Dataset::load(&options).map_err(|error| error.to_string())
    }

    /// A row takes 36 bytes here: two features for a number with gaps and two for categories, and its class.
    #[test]
    fn rows_of_row_groups_are_those_that_would_be_held() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("table.parquet");
        let mut generator = SplitMix64Generator::new(5);
        for (group, held_bytes) in [(100, 3600), (70, 36 * 75), (64, 36 * 64 * 3), (199, 36 * 199)] {
            written(&path, group);
            let (held, placed) = (load(&path, 1 << 20).expect("held"), load(&path, held_bytes).expect("placed"));
            assert!(held.training().are_held() && !placed.training().are_held(), "{group}");
            assert_eq!(held.description(), placed.description());
            for (of_held, of_placed) in [(held.training(), placed.training()), (held.held_out(), placed.held_out())] {
                for _ in 0..30 {
                    let count = of_held.len() as u32;
                    let indices: Vec<u32> = (0..40).map(|_| generator.below(count)).collect();
                    assert_eq!(of_placed.read(&indices).expect("read"), of_held.read(&indices).expect("read"));
                }
            }
            let doubt = placed.warnings(8, true).join("\n");
            assert!(
                doubt.contains(&format!("row groups of {group} rows")) && doubt.contains("--data-held 1"),
                "{doubt}"
            );
            assert_eq!(held.warnings(8, true).len() + 1, placed.warnings(8, true).len());
        }
    }

    #[test]
    fn row_groups_beyond_what_may_be_held_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("table.parquet");
        written(&path, 100);
        assert!(load(&path, 3600).is_ok());
        let error = load(&path, 3599).expect_err("too large");
        assert!(error.contains("row groups of 100 rows") && error.contains("--data-held"), "{error}");
    }

    #[test]
    fn a_file_that_changes_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("table.parquet");
        written(&path, 100);
        let dataset = load(&path, 3600).expect("placed");
        dataset.training().read(&[1, 500]).expect("as it was");
        written(&path, 90);
        // The last row group is held still.
        let error = dataset.training().read(&[500]).expect_err("changed").to_string();
        assert!(error.contains("table.parquet") && error.contains("changed while it was in use"), "{error}");
        fs::remove_file(&path).expect("removed");
        let error = dataset.training().read(&[3]).expect_err("gone").to_string();
        assert!(error.contains("cannot read") && error.contains("table.parquet"), "{error}");
    }
}
