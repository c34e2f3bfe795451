//! What comes before a run: a data directory, the configuration, completions for a shell.

pub(super) mod completions;
pub(super) mod config;
pub(super) mod init;
