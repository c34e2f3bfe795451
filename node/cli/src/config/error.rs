//! Why a configuration can't be used.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::layers::Origin;

/// Something that the user wrote, or did not write, keeps the node from starting.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// A file can't be read.
    #[error("can't read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is no TOML.
    #[error("{}:{line}: {reason}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What the parser says.
        reason: String,
    },
    /// There is no such section or key.
    #[error("{origin}: there is no {what} `{name}`{suggestion}; `starling config show` lists all keys")]
    Unknown {
        /// Where it is written.
        origin: Origin,
        /// `section`, `key` or `variable`.
        what: &'static str,
        /// What is written.
        name: String,
        /// ` (did you mean ...?)`, or nothing.
        suggestion: String,
    },
    /// A value has another type than its key, or is out of range.
    #[error("{origin}: {key} is {value}, but must be {allowed}")]
    Invalid {
        /// Where it is written.
        origin: Origin,
        /// The key.
        key: &'static str,
        /// What is written.
        value: String,
        /// What could be.
        allowed: String,
    },
    /// A value does not say what its key needs.
    #[error("{origin}: {key}: {reason}")]
    Meaning {
        /// Where it is written.
        origin: Origin,
        /// The key.
        key: &'static str,
        /// Why, and what to write.
        reason: String,
    },
    /// An environment variable is not text.
    #[error("the environment variable {0} is not valid UTF-8")]
    NotText(String),
    /// There is no place for the data directory.
    #[error("can't tell where the user's data folder is ({0}); pass --data-dir")]
    NoDataDir(String),
    /// There is no ticket.
    #[error(
        "there is no ticket: `-` reads it from standard input, --ticket-file from a file, and STARLING_TICKET may hold it"
    )]
    NoTicket,
    /// Neither a ticket nor an address.
    #[error("`{target}` is no ticket and no address: {reason}")]
    Target {
        /// What was given.
        target: String,
        /// Why it is neither.
        reason: String,
    },
    /// A file that should hold a secret does not.
    #[error("{} holds no secret: {reason}; it should be 64 hex digits, or a copy of the secret-... file in a member's data directory", path.display())]
    Secret {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}
