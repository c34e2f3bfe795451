//! Reading `starling.toml`: every value with the line it stands in.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use toml::de::DeTable;
use toml::{Table, Value};

use super::error::ConfigError;

/// The largest configuration file that is read, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// One `name = value` of a file, or a section's head.
#[derive(Debug, PartialEq)]
pub(super) struct Line {
    /// The section it stands in.
    pub(super) section: String,
    /// The key's name; `None` if the section itself is no table, or is only a head.
    pub(super) entry: Option<(String, Value)>,
    /// Counted from 1.
    pub(super) line: usize,
}

/// The text of the file at `path`.
pub(super) fn read(path: &Path) -> Result<String, ConfigError> {
    let read = || {
        let mut text = String::new();
        let length = File::open(path)?.take(MAX_BYTES + 1).read_to_string(&mut text)?;
        if length as u64 > MAX_BYTES {
            return Err(std::io::Error::other("it is larger than 1 MiB"));
        }
        Ok(text)
    };
    read().map_err(|source| ConfigError::Read { path: path.to_owned(), source })
}

/// All sections and values of `text`, in the order of their names.
pub(super) fn lines(path: &Path, text: &str) -> Result<Vec<Line>, ConfigError> {
    let line_at = |position: usize| text.as_bytes()[..position.min(text.len())].split(|byte| *byte == b'\n').count();
    let syntax = |error: toml::de::Error| ConfigError::Syntax {
        path: path.to_owned(),
        line: error.span().map_or(1, |span| line_at(span.start)),
        reason: error.message().replace('\n', " "),
    };
    // Parsed twice: once for the values, once for where they stand.
    let values: Table = toml::from_str(text).map_err(syntax)?;
    let places = DeTable::parse(text).map_err(syntax)?;
    let mut lines = Vec::new();
    for (section, place) in places.get_ref() {
        let name: &str = section.get_ref();
        let head = Line { section: name.to_owned(), entry: None, line: line_at(section.span().start) };
        lines.push(head);
        let (Some(entries), Some(Value::Table(values))) = (place.get_ref().as_table(), values.get(name)) else {
            continue;
        };
        for key in entries.keys() {
            let entry: &str = key.get_ref();
            let value = values.get(entry).expect("invariant: both parses see one document").clone();
            let line = line_at(key.span().start);
            lines.push(Line { section: name.to_owned(), entry: Some((entry.to_owned(), value)), line });
        }
    }
    Ok(lines)
}
