//! Showing a run: a progress bar on a terminal, lines in a file, JSON for programs.
//!
//! Reports go to stdout as lines or JSON; on a terminal the bar is on stderr. Logs are on stderr always. A reader that
//! closes its end of a pipe never ends a run: other members count on this one.

pub mod clock;
pub mod console;
mod discreet;
mod drawn;
mod figures;
pub mod format;
mod line;
mod names;
mod narrator;
mod plain;
mod terminal;
mod throttle;
mod way_back;

use std::io::{self, IsTerminal};
use std::sync::Arc;

pub use console::Console;
pub use discreet::Discreet;
pub use drawn::{COLUMNS, Gauge, LEAST_POINTS, Spinner, curve, table, wide_table};
pub use figures::{figures, short_figures};
pub use line::{Line, Tone};
pub use names::Names;
pub use narrator::Narrator;
pub(crate) use narrator::limit_of;
pub use plain::Plain;
pub use terminal::Terminal;
pub use throttle::Throttle;

use starling::Observer;
use starling::parts::{JsonObserver, ObserverSet};
pub use starling_node::observe::report::{json_line, timed};
pub use starling_node::observe::stdout::{print, print_line, within};

/// How much is told, where people read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// Errors only.
    Errors,
    /// What changes for whoever watches the run.
    #[default]
    Changes,
    /// Everything.
    All,
}

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

    /// An observer that shows a run this way. What programs read is always whole.
    pub fn observer(self, console: &Console, detail: Detail) -> Arc<dyn Observer> {
        match (self, detail) {
            (Self::Json, _) => Arc::new(JsonObserver),
            (_, Detail::Errors) => Arc::new(ObserverSet(Vec::new())),
            (Self::Terminal, detail) => Arc::new(Terminal::new(console.clone(), detail)),
            (Self::Plain, detail) => Arc::new(Plain::new(detail)),
        }
    }
}
