//! How rows are written, and a reader of some of them.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use ::csv::{ByteRecord, Position};
use memchr::memchr;

use super::delimiter;
use super::json_lines::{JsonLines, Keys};
use super::pieces::{Quoting, are_plain};
use super::row_text::RowText;
use super::rows::next;
use crate::Delimiter;
use crate::error::DataError;

/// How the rows of a table are written.
#[derive(Debug, Clone)]
pub(crate) enum RowForm {
    /// As cells, with this between them.
    Cells(Delimiter),
    /// As objects with these keys.
    Objects(Arc<Keys>),
    /// As [`row_text`](super::row_text) writes them.
    #[cfg_attr(not(feature = "parquet"), expect(dead_code, reason = "the reader of Parquet files makes them"))]
    Made,
}

impl RowForm {
    /// What tells where rows end.
    pub(crate) fn quoting(&self) -> Quoting {
        match self {
            Self::Cells(delimiter) => Some((delimiter::byte(*delimiter), *delimiter == Delimiter::Space)),
            Self::Objects(_) | Self::Made => None,
        }
    }

    /// The rows of a block, of which the first line is the one behind so many.
    pub(crate) fn rows<'b>(&self, block: &'b [u8], lines: u64) -> BlockRows<'b> {
        let written = match self {
            Self::Cells(delimiter) if *delimiter != Delimiter::Space && are_plain(block) => {
                Written::Plain { rest: block, delimiter: delimiter::byte(*delimiter), line: 1 }
            }
            Self::Cells(delimiter) => Written::Parsed(delimiter::rows(*delimiter, block)),
            Self::Objects(keys) => {
                let text: Box<dyn Read + 'b> =
                    Box::new(RowText::new(JsonLines::behind(block, keys.clone(), lines == 0)));
                Written::Parsed(delimiter::made(text))
            }
            Self::Made => Written::Parsed(delimiter::made(Box::new(block))),
        };
        BlockRows { written, before: lines }
    }
}

/// The rows of a block.
pub(crate) struct BlockRows<'b> {
    written: Written<'b>,
    before: u64,
}

enum Written<'b> {
    /// Lines whose cells are what is between delimiters: without quotes there is nothing else to it.
    Plain {
        rest: &'b [u8],
        delimiter: u8,
        line: u64,
    },
    Parsed(::csv::Reader<Box<dyn Read + 'b>>),
}

impl BlockRows<'_> {
    /// Reads the next row that is not empty. False at the end.
    ///
    /// # Errors
    /// As [`next`].
    pub(crate) fn next(&mut self, record: &mut ByteRecord, path: &Path) -> Result<bool, DataError> {
        match &mut self.written {
            Written::Plain { rest, delimiter, line } => {
                let Some((row, at)) = plain_row(rest, line) else { return Ok(false) };
                record.clear();
                let mut cells = row;
                while let Some(end) = memchr(*delimiter, cells) {
                    record.push_field(&cells[..end]);
                    cells = &cells[end + 1..];
                }
                record.push_field(cells);
                place(record, self.before + at);
                Ok(true)
            }
            Written::Parsed(reader) => {
                let is_row = next(reader, record, path).map_err(|error| error.behind(self.before))?;
                if is_row {
                    let at = record.position().map_or(0, Position::line);
                    place(record, self.before + at);
                }
                Ok(is_row)
            }
        }
    }

    /// Passes over the next row. False at the end.
    ///
    /// # Errors
    /// As [`next`].
    pub(crate) fn skip(&mut self, record: &mut ByteRecord, path: &Path) -> Result<bool, DataError> {
        match &mut self.written {
            Written::Plain { rest, line, .. } => Ok(plain_row(rest, line).is_some()),
            Written::Parsed(_) => self.next(record, path),
        }
    }

    /// How many lines were read, with those before the block.
    pub(crate) fn lines(&self) -> u64 {
        let line = match &self.written {
            Written::Plain { line, .. } => *line,
            Written::Parsed(reader) => reader.position().line(),
        };
        self.before + line.saturating_sub(1)
    }
}

/// Takes the next line that is not empty, and says which one it is.
fn plain_row<'b>(rest: &mut &'b [u8], line: &mut u64) -> Option<(&'b [u8], u64)> {
    while !rest.is_empty() {
        let end = memchr(b'\n', rest).unwrap_or(rest.len());
        let (row, at) = (&rest[..end], *line);
        *rest = rest.get(end + 1..).unwrap_or_default();
        *line += 1;
        if !row.is_empty() {
            return Some((row, at));
        }
    }
    None
}

fn place(record: &mut ByteRecord, line: u64) {
    let mut position = Position::new();
    position.set_line(line);
    record.set_position(Some(position));
}
