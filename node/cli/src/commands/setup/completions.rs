//! `starling completions`: a script that completes verbs and flags in a shell.

use clap_complete::Shell;

use crate::cli;
use crate::commands::{CommandError, EXIT_DONE};
use crate::output;

pub(crate) fn completions(shell: Shell) -> Result<u8, CommandError> {
    // Into memory first: the generator panics when its writer fails.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut cli::command(), "starling", &mut script);
    output::print(&String::from_utf8_lossy(&script)).map_err(CommandError::io("write to stdout"))?;
    Ok(EXIT_DONE)
}
