//! What an audit can find.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::manifest::hint::hint;

/// An audit file that cannot be written or read, or that proves that something went wrong.
#[derive(Debug, Error)]
pub enum AuditError {
    /// The system refused.
    #[error("cannot {action} the audit file `{}`: {source}{}", path.display(), hint(source))]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// There is nothing to check.
    #[error("no audit file has a record of a step; name the files that members wrote with --audit")]
    Empty,
    /// A line that no member writes.
    #[error("{}:{line} is not a line of an audit file: {reason}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What is wrong.
        reason: String,
    },
    /// A file of another run.
    #[error("{}:{line} is of another run than the other files: {reason}", path.display())]
    OtherRun {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What differs.
        reason: String,
    },
    /// Two members tell different stories of one step.
    #[error(
        "{}:{line} and {}:{other_line} disagree on {what} of step {step}; the members did not hold one state",
        path.display(), other_path.display()
    )]
    Disagreement {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// The file that says otherwise.
        other_path: PathBuf,
        /// Its line.
        other_line: u64,
        /// The step.
        step: u64,
        /// `the epoch`, `the contributions` or `the digest`.
        what: &'static str,
    },
    /// Steps of which no file has a record.
    #[error("no file has steps {from} to {to}; {}:{line} goes on after them; add the files of members that were there", path.display())]
    Missing {
        /// The first one.
        from: u64,
        /// The last one.
        to: u64,
        /// The file that goes on.
        path: PathBuf,
        /// Its line.
        line: u64,
    },
    /// Samples that were not contributed exactly once in an epoch.
    #[error("{lost} samples were lost and {repeated} repeated; the first offence is {}:{line}: {reason}", path.display())]
    Samples {
        /// How many samples of complete epochs nobody contributed.
        lost: u64,
        /// How many contributions were of samples contributed before in the same epoch.
        repeated: u64,
        /// The file of the first offence.
        path: PathBuf,
        /// Its line.
        line: u64,
        /// What the first offence is.
        reason: String,
    },
}

impl AuditError {
    /// Turns a system error into one that says what was tried where.
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}
