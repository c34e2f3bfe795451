//! The terminal that bars, lines and logs share.

use std::io::{self, Write};

use indicatif::{MultiProgress, ProgressDrawTarget};
use tracing_subscriber::fmt::MakeWriter;

/// Owns the bars on stderr, so that whoever writes there can have them out of the way.
#[derive(Debug, Clone)]
pub struct Console {
    bars: MultiProgress,
}

impl Console {
    /// With bars if stderr is a terminal; else they are hidden.
    pub fn new() -> Self {
        Self { bars: MultiProgress::with_draw_target(ProgressDrawTarget::stderr()) }
    }

    /// The bars.
    pub fn bars(&self) -> &MultiProgress {
        &self.bars
    }

    /// How many columns the terminal has now.
    pub fn width(&self) -> usize {
        usize::from(console::Term::stderr().size().1)
    }

    /// Writes a line to stderr, above the bars. A closed stderr is no reason to end.
    pub fn line(&self, line: &str) {
        self.bars.suspend(|| {
            let _ = writeln!(io::stderr().lock(), "{line}");
        });
    }
}

impl Default for Console {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a> MakeWriter<'a> for Console {
    type Writer = Above<'a>;

    fn make_writer(&'a self) -> Self::Writer {
        Above(&self.bars)
    }
}

/// Writes to stderr, above the bars.
#[derive(Debug)]
pub struct Above<'a>(&'a MultiProgress);

impl Write for Above<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A full disk or a closed pipe is no reason to end, nor to say so there.
        self.0.suspend(|| {
            let _ = io::stderr().lock().write_all(bytes);
        });
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let _ = io::stderr().lock().flush();
        Ok(())
    }
}
