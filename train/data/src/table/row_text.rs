//! Rows that come from elsewhere than a table of text, as the text that its parser reads: a line of names, and a line for each row.

use std::error::Error;
use std::fmt;
use std::io::{self, Read};

/// What gives rows.
pub(crate) trait RowSource {
    /// Appends some more rows to `into`, each by [`push`]; false at the end.
    ///
    /// # Errors
    /// If it can't be read, or a row is none: [`BadRow`].
    fn more(&mut self, into: &mut Vec<u8>) -> io::Result<bool>;
}

/// What ends the line of names: it is none of the lines that are counted, so that a row has the number of its own line.
pub(crate) const END_OF_NAMES: u8 = b'\r';
/// What ends a row.
pub(crate) const END_OF_ROW: u8 = b'\n';

/// Appends a row of these cells, between quotes. A line's end in a cell becomes a blank.
pub(crate) fn push<'c>(cells: impl Iterator<Item = &'c str>, end: u8, into: &mut Vec<u8>) {
    for (at, cell) in cells.enumerate() {
        into.extend_from_slice(if at == 0 { b"\"" } else { b",\"" });
        for byte in cell.bytes() {
            match byte {
                b'"' => into.extend_from_slice(b"\"\""),
                b'\n' | b'\r' => into.push(b' '),
                other => into.push(other),
            }
        }
        into.push(b'"');
    }
    into.push(end);
}

/// Their text.
pub(crate) struct RowText<S> {
    source: S,
    text: Vec<u8>,
    /// How much of `text` was read.
    given: usize,
}

impl<S> RowText<S> {
    pub(crate) fn new(source: S) -> Self {
        Self { source, text: Vec::new(), given: 0 }
    }
}

impl<S: RowSource> Read for RowText<S> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.given == self.text.len() {
            (self.text, self.given) = (std::mem::take(&mut self.text), 0);
            self.text.clear();
            if !self.source.more(&mut self.text)? {
                return Ok(0);
            }
        }
        let read = (&self.text[self.given..]).read(into)?;
        self.given += read;
        Ok(read)
    }
}

/// What is wrong with a row.
#[derive(Debug)]
pub(crate) struct BadRow {
    /// Counted from 1.
    pub(crate) row: u64,
    pub(crate) column: Option<String>,
    pub(crate) reason: String,
}

impl BadRow {
    /// The one that an error is about, if it is about one.
    pub(crate) fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref().and_then(|inner| inner.downcast_ref())
    }
}

impl fmt::Display for BadRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "row {}: {}", self.row, self.reason)
    }
}

impl Error for BadRow {}
