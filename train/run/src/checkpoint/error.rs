//! What can be wrong with checkpoints.

use std::io;
use std::path::{Path, PathBuf};

use starling_topology::{Digest, RunId};
use thiserror::Error;

use crate::manifest::hint::hint;

/// A checkpoint that cannot be written or read.
#[derive(Debug, Error)]
pub enum CheckpointError {
    /// The system refused.
    #[error("cannot {action} `{}`: {source}{}", path.display(), hint(source))]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file's content is not what was written.
    #[error(
        "`{}` is damaged: its blake3 should be {expected}, but is {found}; remove it and restore it from another peer, or resume from an earlier step",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The hash of what was written.
        expected: Digest,
        /// The hash of what is there.
        found: Digest,
    },
    /// A file has the right hash, or none to check, but is not what it should be.
    #[error("`{}` is not a part of a checkpoint: {reason}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The directory is another run's.
    #[error(
        "`{}` holds checkpoints of run {theirs}, so run {ours} cannot save there; choose another directory",
        directory.display()
    )]
    OtherRun {
        /// The directory.
        directory: PathBuf,
        /// The run whose checkpoints are there.
        theirs: RunId,
        /// The run that wants to save.
        ours: RunId,
    },
    /// The state is of a branch that was left.
    #[error(
        "the state after step {step} is not of the branch that the member's record is of, so it is not saved in `{}`",
        directory.display()
    )]
    OtherBranch {
        /// The directory.
        directory: PathBuf,
        /// The state's step.
        step: u64,
    },
    /// A node removes checkpoints faster than they are read.
    #[error(
        "the checkpoints in `{}` are removed by the node that writes them before they are read; save less often \
         (--checkpoint-every) or keep more of them (--checkpoint-keep)",
        directory.display()
    )]
    Removed {
        /// The directory.
        directory: PathBuf,
    },
    /// There is no such checkpoint.
    #[error("`{}` has no checkpoint{}; {}", directory.display(), step.map_or_else(String::new, |step| format!(" of step {step}")), available(steps))]
    NotFound {
        /// The directory.
        directory: PathBuf,
        /// The step asked for, if one was.
        step: Option<u64>,
        /// The steps there are.
        steps: Vec<u64>,
    },
    /// The start of a run's id does not name one run.
    #[error(
        "`{}` holds checkpoints of {found} runs whose id begins with `{prefix}`; `starling checkpoint ls` lists all",
        directory.display()
    )]
    NotOneRun {
        /// The directory.
        directory: PathBuf,
        /// What was given.
        prefix: String,
        /// How many runs it fits.
        found: usize,
    },
}

impl CheckpointError {
    /// Whether trying again may help: the system refused, and not because of what was to be saved.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Io { .. })
    }

    /// Turns a system error into one that says what was tried where.
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}

fn available(steps: &[u64]) -> String {
    if steps.is_empty() {
        return "it has none at all".to_owned();
    }
    let steps: Vec<String> = steps.iter().map(u64::to_string).collect();
    format!("it has steps {}", steps.join(", "))
}
