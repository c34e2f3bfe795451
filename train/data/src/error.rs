//! What can be wrong with data.

use std::io;
use std::path::{Path, PathBuf};

use starling_run::manifest::hint::hint;
use thiserror::Error;

/// Data that cannot be used. Every message names the file and the place in it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DataError {
    /// A file cannot be read.
    #[error("cannot read `{}`: {source}{}", path.display(), hint(source))]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write `{}`: {source}", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A place in a CSV file does not hold what it should.
    #[error("`{}`, row {row}{}: {reason}", path.display(), column.as_ref().map_or_else(String::new, |column| format!(", {column}")))]
    Row {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        row: u64,
        /// The column: its 0-based index and its name, if it has one.
        column: Option<String>,
        /// What is wrong.
        reason: String,
    },
    /// A file as a whole cannot be used.
    #[error("`{}`: {reason}", path.display())]
    File {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// An IDX file's bytes do not agree with what it must hold.
    #[error("`{}`: {field} is {found}, expected {expected}", path.display())]
    Idx {
        /// The file.
        path: PathBuf,
        /// The header field, or what is counted.
        field: &'static str,
        /// What must be there.
        expected: String,
        /// What is there.
        found: String,
    },
    /// A file is no table, and may have been meant as a text.
    #[error("{error}; to learn it as a text, take `--model gpt`")]
    Text {
        /// What is wrong with it as a table.
        error: Box<Self>,
    },
    /// The data is well-formed, but no run can train on it.
    #[error("`{origin}` cannot be trained on: {reason}")]
    Unusable {
        /// Where the data comes from.
        origin: String,
        /// Why not.
        reason: String,
    },
    /// The share of held-out samples is not a share.
    #[error(
        "held_out is {held_out}, but must be at least 0 and below 1: it is the share of samples kept from training"
    )]
    HeldOut {
        /// The share.
        held_out: f32,
    },
    /// The data was split in another way than the run says.
    #[error(
        "the data was split with held_out {held_out}/1000 and seed {seed}, but the run says {wanted_held_out}/1000 and seed {wanted_seed}; load it with the run's values"
    )]
    OtherSplit {
        /// Thousandths held out of this data.
        held_out: u32,
        /// The seed of its split.
        seed: u64,
        /// Thousandths the run holds out.
        wanted_held_out: u32,
        /// The run's seed.
        wanted_seed: u64,
    },
}

impl DataError {
    /// The same of rows that follow so many others.
    pub(crate) fn behind(self, rows: u64) -> Self {
        match self {
            Self::Row { path, row, column, reason } => {
                Self::Row { path, row: row.saturating_add(rows), column, reason }
            }
            other => other,
        }
    }

    /// The same of a row of this file.
    pub(crate) fn of_file(self, path: &Path) -> Self {
        match self {
            Self::Row { row, column, reason, .. } => Self::Row { path: path.to_owned(), row, column, reason },
            other => other,
        }
    }

    /// The same of what is called as a text is.
    pub(crate) fn of_a_text(self) -> Self {
        match self {
            error @ (Self::Row { .. } | Self::File { .. }) => Self::Text { error: Box::new(error) },
            other => other,
        }
    }
}
