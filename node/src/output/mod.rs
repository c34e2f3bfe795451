//! Showing a run: a progress bar on a terminal, lines in a file, JSON for programs.
//!
//! Reports go to stdout as lines or JSON; on a terminal the bar is on stderr. Logs are on stderr always. A reader that
//! closes its end of a pipe never ends a run: other members count on this one.

pub mod console;
pub mod format;
mod json;
mod narrator;
mod plain;
mod terminal;
mod way_back;

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::sync::Arc;

pub use console::Console;
pub use json::Json;
pub use narrator::Narrator;
pub use plain::Plain;
pub use terminal::Terminal;

use crate::report::{Observer, Report};

/// How a run is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// A progress bar with lines above it.
    Terminal,
    /// Lines.
    Plain,
    /// One JSON object per line.
    Json,
}

impl Style {
    /// What fits: JSON if asked for; else a bar if both stdout and stderr are terminals that can move the cursor.
    pub fn choose(json: bool) -> Self {
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        if json {
            Self::Json
        } else if io::stdout().is_terminal() && io::stderr().is_terminal() && !is_dumb {
            Self::Terminal
        } else {
            Self::Plain
        }
    }

    /// An observer that shows a run this way.
    pub fn observer(self, console: &Console) -> Arc<dyn Observer> {
        match self {
            Self::Terminal => Arc::new(Terminal::new(console.clone())),
            Self::Plain => Arc::new(Plain::new()),
            Self::Json => Arc::new(Json),
        }
    }
}

/// Tells several observers, in order.
pub struct Tee(pub Vec<Arc<dyn Observer>>);

impl std::fmt::Debug for Tee {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tee").field("observers", &self.0.len()).finish()
    }
}

impl Observer for Tee {
    fn report(&self, report: &Report) {
        for observer in &self.0 {
            observer.report(report);
        }
    }
}

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
pub(crate) fn print_line(line: &str) {
    let _ = print(&format!("{line}\n"));
}
