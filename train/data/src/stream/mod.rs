//! Samples for a model that was trained, block by block: however many there are, no more than a block is in memory.
//!
//! Unlike [`Dataset`](crate::Dataset), it scales nothing, splits nothing, and needs no labels. Tables are read by the same parser, and so are
//! texts, which are in memory as a whole unless they were prepared.

mod fingerprint;
mod folder;
mod images;
mod pack;
mod row_records;
mod table;
mod windows;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use starling_run::data::DIGITS;
use starling_run::data::columns::{Column, ColumnKind};
use starling_run::{Delimiter, TokenizerSpec};

use crate::digits;
use crate::error::DataError;
use crate::files::unpacked;
use crate::idx;
use crate::images::decode;
use crate::shorten;
use crate::text;
pub use fingerprint::FingerprintTracker;
use folder::Folder;
use images::Images;
use pack::Pack;
pub use row_records::{RowRecord, RowSpec, SidePolicy, SplitSpec};
use table::Table;
use windows::Windows;

/// The `source` that stands for the standard input.
pub const STANDARD_INPUT: &str = "-";

/// What tells an image by its beginning.
const START_BYTES: u64 = 16;

/// What a model takes, and how the data that it was trained on was written.
#[derive(Debug, Clone, PartialEq)]
pub struct InputSpec {
    /// How many numbers a sample has.
    pub features: usize,
    /// A sample as channels, height, width.
    pub shape: [u32; 3],
    /// Whether it is a window of so many tokens of a text.
    pub is_text: bool,
    /// What makes these tokens. `None`: they are the text's bytes.
    pub tokenizer: Option<TokenizerSpec>,
    /// What the features are called, in their order. Empty if they have no names.
    pub names: Vec<String>,
    /// Of a table: its columns but for the label's. Empty if each is a number, a feature of its own.
    pub columns: Vec<Column>,
    /// Of a table: the columns that held labels, from 0.
    pub label: Vec<u32>,
    /// What these columns were called. Empty if they had no names.
    pub label_name: Vec<String>,
    /// Of a table: whether its first row held names.
    pub header: Option<bool>,
    /// Of a table: what separated its cells.
    pub delimiter: Option<Delimiter>,
    /// Of a table: by what its rows were weighed and split.
    pub rows: RowSpec,
    /// What separates the cells of the table that is read. `None`: what separated those, if that is there, else what is found.
    pub separated_by: Option<Delimiter>,
}

impl InputSpec {
    /// A column of the run's table for messages: its number from 0, and its name if it has one.
    pub fn column_name(&self, column: u32) -> String {
        let name = self.place_among_others(column).and_then(|at| self.columns.get(at)).map(|column| &*column.name);
        match name.filter(|name| !name.is_empty()) {
            Some(name) => format!("column {column} (`{}`)", shorten(name)),
            None => format!("column {column}"),
        }
    }

    /// Which of the columns but for the label's one of the run's table is.
    fn place_among_others(&self, column: u32) -> Option<usize> {
        let before = self.label.iter().filter(|label| **label < column).count();
        (!self.label.contains(&column)).then(|| (column as usize).checked_sub(before)).flatten()
    }

    /// The columns of a table but for the label's.
    fn table_columns(&self) -> Vec<Column> {
        if !self.columns.is_empty() {
            return self.columns.clone();
        }
        let name = |at: usize| self.names.get(at).cloned().unwrap_or_default();
        (0..self.features).map(|at| Column { name: name(at), coding: ColumnKind::Number }).collect()
    }
}

/// Whether labels are looked for beside images. Those of tables are in them, or are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LabelPolicy {
    /// They have to be there.
    Wanted,
    /// They need not be there. Those of a table are taken as they are, whatever they are; those of images are not looked for.
    Unused,
}

/// Samples as they are written, one after another.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Block {
    /// The features of one sample after another, before scaling. Of a text, each window's tokens and the one behind it.
    pub values: Vec<f64>,
    /// One label for each sample; empty if there are none. Of a table in which they [need not be](LabelPolicy::Unused), one may be empty.
    pub labels: Vec<String>,
    /// Where each sample is: in a table its line, counted from 1, else its number, counted from 1.
    pub rows: Vec<u64>,
    /// The file of each sample, where it is an image; else empty.
    pub files: Vec<PathBuf>,
    /// What each row says of itself, in a table that has one of the columns by which the [run's](InputSpec::rows) weighed and split them; else empty.
    pub notes: Vec<RowRecord>,
    /// Whether the files themselves hold them out of training.
    pub held_out: bool,
}

impl Block {
    /// How many samples it has.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

/// What gives blocks.
trait Blocks {
    /// At most `most` samples more; none at the end.
    fn next(&mut self, most: usize) -> Result<Block, DataError>;

    /// Whether they have labels.
    fn has_labels(&self) -> bool;

    /// Whether their rows say on which side they are.
    fn have_sides(&self) -> bool {
        false
    }

    /// Whether each sample is a file.
    fn are_files(&self) -> bool {
        false
    }
}

/// Reads samples.
pub struct Reader {
    path: PathBuf,
    parts: Vec<Box<dyn Blocks>>,
    at: usize,
}

impl Reader {
    /// Opens a table, images or a text, each gzipped or not: `-`, the standard input; `digits`, the built-in ones; a file; a folder
    /// of IDX files, of which those that are held out come last; or a folder of images, or of such folders.
    ///
    /// # Errors
    /// If it can't be read, is none of them, or does not have the columns or the size that `inputs` says.
    pub fn open(source: &str, inputs: &InputSpec, labels: LabelPolicy) -> Result<Self, DataError> {
        let path = PathBuf::from(source);
        if source == DIGITS && !inputs.is_text {
            let table = unpacked(digits::ROWS, Path::new("digits (embedded)"))?;
            let inputs = InputSpec {
                names: Vec::new(),
                columns: Vec::new(),
                label: u32::try_from(inputs.features).into_iter().collect(),
                label_name: Vec::new(),
                header: Some(false),
                delimiter: Some(Delimiter::Comma),
                rows: RowSpec::default(),
                separated_by: None,
                ..inputs.clone()
            };
            let table = Table::open(table, Path::new("digits (embedded)"), &inputs, labels)?;
            return Ok(Self { path, parts: vec![Box::new(table)], at: 0 });
        }
        if source == STANDARD_INPUT {
            return Self::of(io::stdin(), Path::new("standard input"), inputs, labels);
        }
        if inputs.is_text {
            if text::folder::is_one(&path) {
                let part = Windows::of_folder(&path, inputs)?;
                return Ok(Self { path, parts: vec![Box::new(part)], at: 0 });
            }
            text::check_is_file(&path)?;
            if !text::is_for(source) {
                let reason = "it is a table by its name, but the model takes a text (`starling model show`); one that is a text all the same \
                              needs another name";
                return Err(DataError::File { path, reason: reason.to_owned() });
            }
        }
        if !inputs.is_text && crate::images::are_listed(&path)? {
            let part = Folder::open(&path, inputs, labels)?;
            return Ok(Self { path, parts: vec![Box::new(part)], at: 0 });
        }
        if !path.is_dir() {
            #[cfg(feature = "parquet")]
            if !inputs.is_text && crate::table::parquet::is_one(&path)? {
                let part = Table::of(crate::table::parquet::text(&path)?, &path, inputs, labels)?;
                return Ok(Self { path, parts: vec![Box::new(part)], at: 0 });
            }
            let file = File::open(&path).map_err(|source| DataError::Unreadable { path: path.clone(), source })?;
            return Self::of(file, &path, inputs, labels);
        }
        if !idx::is_folder(&path)? {
            if !inputs.label.is_empty() {
                let reason = "it is a folder, but the model takes a table's rows; name the table".to_owned();
                return Err(DataError::File { path, reason });
            }
            // Which says what it lacks.
            let part = Folder::open(&path, inputs, labels)?;
            return Ok(Self { path, parts: vec![Box::new(part)], at: 0 });
        }
        let (training, held_out) = idx::images(&path)?;
        let files = [Some((training, false)), held_out.map(|held_out| (held_out, true))];
        let open = |(images, is_held_out): (PathBuf, bool)| {
            let part = Images::open(idx::open(&images)?, &images, inputs, labels, is_held_out)?;
            Ok(Box::new(part) as Box<dyn Blocks>)
        };
        let parts = files.into_iter().flatten().map(open).collect::<Result<_, DataError>>()?;
        Ok(Self { path, parts, at: 0 })
    }

    /// Reads a table, images or a text from `bytes`, gzipped or not. `path` is for messages, and labels of images lie beside it.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn of(
        bytes: impl Read + 'static,
        path: &Path,
        inputs: &InputSpec,
        labels: LabelPolicy,
    ) -> Result<Self, DataError> {
        if inputs.is_text {
            let part = Windows::open(bytes, path, inputs)?;
            return Ok(Self { path: path.to_owned(), parts: vec![Box::new(part)], at: 0 });
        }
        let mut bytes = unpacked(bytes, path)?;
        let mut start = Vec::new();
        let begun = bytes.by_ref().take(START_BYTES).read_to_end(&mut start);
        begun.map_err(|source| DataError::Unreadable { path: path.to_owned(), source })?;
        let are_images = start.starts_with(&idx::IMAGES);
        if decode::is_image(&start) && labels == LabelPolicy::Unused {
            let part = Folder::of_one(io::Cursor::new(start).chain(bytes), path, inputs)?;
            return Ok(Self { path: path.to_owned(), parts: vec![Box::new(part)], at: 0 });
        }
        if start.starts_with(&idx::LABELS) {
            let reason = "it holds the labels of images; name the file of the images, which lies beside it".to_owned();
            return Err(DataError::File { path: path.to_owned(), reason });
        }
        let are_decoded = start.starts_with(crate::images::MAGIC);
        let bytes = Box::new(io::Cursor::new(start).chain(bytes));
        let part: Box<dyn Blocks> = match are_images {
            true => Box::new(Images::open(bytes, path, inputs, labels, false)?),
            false if are_decoded => Box::new(Pack::open(bytes, path, inputs)?),
            false => Box::new(Table::open(bytes, path, inputs, labels)?),
        };
        Ok(Self { path: path.to_owned(), parts: vec![part], at: 0 })
    }

    /// Where they come from, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether all samples have labels.
    pub fn has_labels(&self) -> bool {
        self.parts.iter().all(|part| part.has_labels())
    }

    /// Whether all samples are rows of a table with the column by which the run held rows out.
    pub fn has_sides(&self) -> bool {
        self.parts.iter().all(|part| part.have_sides())
    }

    /// Whether each sample is a file of its own.
    pub fn are_files(&self) -> bool {
        self.parts.iter().all(|part| part.are_files())
    }

    /// Whether the files themselves hold samples out of training.
    pub fn holds_out(&self) -> bool {
        self.parts.len() > 1
    }

    /// At most `most` samples more, in their order; `None` at the end.
    ///
    /// # Errors
    /// If a sample is not what it should be: with its row, and its column if it is in a table.
    pub fn next_block(&mut self, most: usize) -> Result<Option<Block>, DataError> {
        while let Some(part) = self.parts.get_mut(self.at) {
            let block = part.next(most.max(1))?;
            if !block.is_empty() {
                return Ok(Some(block));
            }
            self.at += 1;
        }
        Ok(None)
    }
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("path", &self.path).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
