//! JSON lines: an object in each line. Its keys are the columns, in the order of the first row.
//!
//! ```text
//!   {"area": 50, "kind": "flat", "new": true}       columns area, kind, new
//!   {"kind": "house", "area": 120.5}                a key that is missing, or null, is an empty cell
//! ```
//!
//! Numbers are taken as they are written, so that a copy as CSV is the same data.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;

use json_event_parser::{JsonEvent, SliceJsonParser};

use crate::shorten;
use crate::table::row_text::{BadRow, END_OF_NAMES, END_OF_ROW, RowSource, push};

/// The longest line, in bytes.
const MAX_LINE: u64 = 16 << 20;
/// So many cells may be empty for each byte that is read, and so many in any case: work and memory are for what is there.
const EMPTY_PER_BYTE: u64 = 16;
const MAX_EMPTY: u64 = 1 << 22;
/// The same of a block in a piece.
const MAX_EMPTY_OF_BLOCK: u64 = 1 << 20;
/// What is wrong with a key that is repeated.
const TWICE: &str = "it is there twice";

/// Whether text begins as an object does.
pub(crate) fn is_for(text: &[u8]) -> bool {
    let object = text.trim_ascii_start().strip_prefix(b"{");
    object.is_some_and(|rest| rest.trim_ascii_start().first().is_some_and(|byte| b"\"}".contains(byte)))
}

/// What the first row has: each key and its place.
pub(crate) type Keys = BTreeMap<String, usize>;

/// The keys of the first row of `text`; none if it has no row.
///
/// # Errors
/// If it can't be read, or the row is none.
pub(crate) fn keys(text: impl Read) -> io::Result<Keys> {
    let (mut lines, mut row) = (JsonLines::new(text), Vec::new());
    while lines.columns.is_none() && lines.more(&mut row)? {}
    Ok(lines.columns.map(|columns| (*columns).clone()).unwrap_or_default())
}

/// The rows of some text.
pub(crate) struct JsonLines<R> {
    text: BufReader<R>,
    /// What the first row has.
    columns: Option<Arc<Keys>>,
    line: u64,
    /// How many more cells may be empty.
    empty: u64,
}

impl<R: Read> JsonLines<R> {
    pub(crate) fn new(text: R) -> Self {
        Self { text: BufReader::new(text), columns: None, line: 0, empty: MAX_EMPTY }
    }

    /// The rows of a part of a text whose first row has these keys: of a piece, or of a block in it, where fewer cells may be empty.
    pub(crate) fn behind(text: R, keys: Arc<Keys>, is_first: bool) -> Self {
        let empty = if is_first { MAX_EMPTY } else { MAX_EMPTY_OF_BLOCK };
        Self { columns: Some(keys), empty, ..Self::new(text) }
    }

    fn row(&mut self, line: &[u8], into: &mut Vec<u8>) -> Result<(), BadRow> {
        let fields = fields(line).map_err(|(column, reason)| BadRow { row: self.line, column, reason })?;
        let fault = |key: Option<&str>, reason: String| BadRow { row: self.line, column: key.map(named), reason };
        let columns = match &self.columns {
            Some(columns) => columns,
            None => {
                let mut columns = Keys::new();
                for (key, place) in fields.iter().map(|(key, _)| key).zip(0..) {
                    if columns.insert(key.clone(), place).is_some() {
                        return Err(fault(Some(key), TWICE.to_owned()));
                    }
                }
                if fields.is_empty() {
                    return Err(fault(None, "it has no keys, but those of the first row are the columns".to_owned()));
                }
                push(fields.iter().map(|(key, _)| key.as_str()), END_OF_NAMES, into);
                self.columns.insert(Arc::new(columns))
            }
        };
        let empty = columns.len().saturating_sub(fields.len()) as u64;
        let allowed = self.empty.saturating_add(EMPTY_PER_BYTE * line.len() as u64).min(u64::MAX / 2);
        let Some(left) = allowed.checked_sub(empty) else {
            let reason = "most of the keys of the first row are missing here and in the rows before; leave out those that are seldom there";
            return Err(fault(None, reason.to_owned()));
        };
        self.empty = left;
        let mut cells = vec![None; columns.len()];
        for (key, cell) in &fields {
            let Some(place) = columns.get(key) else {
                let reason = "the first row has no such key; write it there too, with null if there is nothing";
                return Err(fault(Some(key), reason.to_owned()));
            };
            if cells[*place].replace(cell).is_some() {
                return Err(fault(Some(key), TWICE.to_owned()));
            }
        }
        push(cells.into_iter().map(|cell| cell.map_or("", String::as_str)), END_OF_ROW, into);
        Ok(())
    }
}

impl<R: Read> RowSource for JsonLines<R> {
    fn more(&mut self, into: &mut Vec<u8>) -> io::Result<bool> {
        let mut line = Vec::new();
        if self.text.by_ref().take(MAX_LINE + 1).read_until(b'\n', &mut line)? == 0 {
            return Ok(false);
        }
        self.line += 1;
        if line.len() as u64 > MAX_LINE {
            let reason = format!("it has more than {MAX_LINE} bytes");
            return Err(io::Error::other(BadRow { row: self.line, column: None, reason }));
        }
        match line.trim_ascii() {
            b"" => into.push(END_OF_ROW),
            row => self.row(row, into).map_err(io::Error::other)?,
        }
        Ok(true)
    }
}

/// The key that is at fault, if it is one, and why.
type Fault = (Option<String>, String);

/// The keys and values of the object that a line is, as they are written.
fn fields(line: &[u8]) -> Result<Vec<(String, String)>, Fault> {
    let mut parser = SliceJsonParser::new(line);
    let mut next = |key: Option<&str>| {
        parser.parse_next().map_err(|error| {
            (key.map(named), format!("it is no JSON object, or not in one line: {}", shorten(error.message())))
        })
    };
    if next(None)? != JsonEvent::StartObject {
        return Err((None, "it is no JSON object, but a table has one in each line".to_owned()));
    }
    let mut fields = Vec::new();
    // Nothing but a key can be there, or the object's end.
    while let JsonEvent::ObjectKey(key) = next(None)? {
        let key = key.into_owned();
        let cell = match next(Some(&key))? {
            JsonEvent::String(text) | JsonEvent::Number(text) => text.into_owned(),
            JsonEvent::Boolean(is_true) => is_true.to_string(),
            JsonEvent::Null => String::new(),
            _ => {
                let reason = "it holds several values, but a cell has one: write each under a key of its own";
                return Err((Some(named(&key)), reason.to_owned()));
            }
        };
        fields.push((key, cell));
    }
    // Whatever follows is refused by the parser.
    next(None)?;
    Ok(fields)
}

/// A key for messages.
fn named(key: &str) -> String {
    format!("key `{}`", shorten(key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::row_text::RowText;

    fn read(text: &[u8]) -> io::Result<String> {
        let mut all = String::new();
        RowText::new(JsonLines::new(text)).read_to_string(&mut all)?;
        Ok(all)
    }

    #[test]
    fn objects_become_rows_below_the_keys_of_the_first() {
        let text = br#"
            {"a": 1.50, "b": "x, \"y\"", "c": null}

            { "c": true, "a": -1e400 }"#;
        assert_eq!(
            read(text).expect("rows"),
            "\n\"a\",\"b\",\"c\"\r\"1.50\",\"x, \"\"y\"\"\",\"\"\n\n\"-1e400\",\"\",\"true\"\n"
        );
        assert_eq!(read(b"{\"a\\nb\":\"c\\r\\nd\"}\r\n").expect("rows"), "\"a b\"\r\"c  d\"\n");
    }

    #[test]
    fn rows_that_are_mostly_empty_end_before_they_cost_more_than_was_read() {
        let keys: Vec<String> = (0..4096).map(|key| format!("\"{key}\":1")).collect();
        let text = |rows: usize| format!("{{{}}}\n{}", keys.join(","), "{\"0\":1}\n".repeat(rows));
        read(text(900).as_bytes()).expect("some of it may be empty");
        let error = read(text(2000).as_bytes()).expect_err("too much is empty");
        assert!(error.to_string().contains("leave out those that are seldom there"), "{error}");
    }

    #[test]
    fn what_is_no_object_of_single_values_is_refused_with_row_and_key() {
        for (text, row, key, reason) in [
            ("{\"a\":1}\n{\"a\":[1]}", 2, Some("key `a`"), "several values"),
            ("{\"a\":{\"b\":1}}", 1, Some("key `a`"), "several values"),
            ("{\"a\":1}\n\n{\"b\":1}", 3, Some("key `b`"), "first row has no such key"),
            ("{\"a\":1}\n{\"a\":1,\"a\":2}", 2, Some("key `a`"), "twice"),
            ("{\"a\":1,\"a\":2}", 1, Some("key `a`"), "twice"),
            ("{}", 1, None, "no keys"),
            ("{\"a\":1} {\"a\":2}", 1, None, "no JSON object, or not in one line"),
            ("{\"a\":\n1}", 1, Some("key `a`"), "no JSON object, or not in one line"),
            ("{\"a\":1", 1, None, "no JSON object"),
            ("{\"a\":1}\n[1]", 2, None, "no JSON object"),
            ("{\"a\":nan}", 1, Some("key `a`"), "no JSON object"),
        ] {
            let error = read(text.as_bytes()).expect_err("no row");
            let bad = BadRow::of(&error).expect("of a row");
            assert_eq!((bad.row, bad.column.as_deref()), (row, key), "{text}: {error}");
            assert!(bad.reason.contains(reason), "{text}: {error}");
        }
        assert!(read(b"{\"a\":\"\xff\"}").is_err(), "no UTF-8");
        let nested = [b"{\"a\":".to_vec(), vec![b'['; 1 << 20]].concat();
        assert!(read(&nested).is_err(), "no deeper than one");
        let long = [b"{\"a\":\"".to_vec(), vec![b'x'; MAX_LINE as usize], b"\"}".to_vec()].concat();
        assert!(read(&long).expect_err("too long").to_string().contains("more than 16777216 bytes"));
    }

    #[test]
    fn objects_are_told_from_other_text() {
        for text in ["{\"a\":1}", " \n{ \"a\": 1}", "{}"] {
            assert!(is_for(text.as_bytes()), "{text}");
        }
        for text in ["", "{", "{a},b\n", "[{\"a\":1}]", "a,{\"b\":1}"] {
            assert!(!is_for(text.as_bytes()), "{text}");
        }
    }
}
