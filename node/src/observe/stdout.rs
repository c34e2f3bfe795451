//! What is written to stdout, whose reader may go away.

use std::io::{self, ErrorKind, Write};

/// Writes `text` to stdout.
///
/// # Errors
/// Whatever the write says, except that a closed pipe is no error: its reader has seen enough.
pub fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Writes a line to stdout, and lets it go if that is not possible: a run does not end for want of a reader.
pub fn print_line(line: &str) {
    let _ = print(&format!("{line}\n"));
}
