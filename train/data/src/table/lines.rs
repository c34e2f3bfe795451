//! The lines of a table, as its parser counts them.

use std::error::Error;
use std::fmt;
use std::io::{self, Read};

/// Text whose lines all end with `\n`, the last one too, as editors count them. Line ends between quotes are a part of their cell, and
/// become `\n` as well: two copies that differ in nothing else are the same data.
pub(crate) struct Lines<R> {
    inner: R,
    delimiter: u8,
    /// Whether blanks and tabs between cells are taken as one blank, and none at the ends of a line.
    merges_blanks: bool,
    buffer: Vec<u8>,
    at: Place,
    /// The line that is being read, from 1.
    line: u64,
    /// Where the last quote opened.
    opened: u64,
    /// Whether a carriage return was the last byte: a line feed belongs to it.
    is_returned: bool,
    /// Whether a blank waits for what comes after it.
    is_owed: bool,
    /// Whether nothing of the line has come yet.
    is_line_start: bool,
    is_done: bool,
}

/// Where in a cell a byte is: quotes open at its start alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Start,
    Bare,
    Quoted,
    /// Behind a quote between quotes: the cell's end, or the first of two that stand for one.
    Quote,
}

impl Place {
    /// The place behind this byte, for which `\n` comes if it ends a line, however it does that.
    pub(crate) fn after(self, byte: u8, delimiter: u8, merges_blanks: bool) -> Self {
        match byte {
            b'"' if self == Self::Quoted => Self::Quote,
            _ if self == Self::Quoted => Self::Quoted,
            b' ' | b'\t' if merges_blanks => Self::Start,
            b'"' if matches!(self, Self::Quote | Self::Start) => Self::Quoted,
            b'\n' => Self::Start,
            byte if byte == delimiter => Self::Start,
            _ => Self::Bare,
        }
    }
}

impl<R> Lines<R> {
    /// Of `inner`, which has no byte order mark.
    pub(crate) fn new(inner: R, delimiter: u8, merges_blanks: bool) -> Self {
        Self {
            inner,
            delimiter,
            merges_blanks,
            buffer: Vec::new(),
            at: Place::Start,
            line: 1,
            opened: 1,
            is_returned: false,
            is_owed: false,
            is_line_start: true,
            is_done: false,
        }
    }

    /// Takes one byte, for which at most two are written from `into[at]` on; returns where the next one goes.
    fn take(&mut self, byte: u8, into: &mut [u8], mut at: usize) -> usize {
        let is_returned = std::mem::replace(&mut self.is_returned, byte == b'\r');
        if byte == b'\n' && is_returned {
            return at;
        }
        let byte = if byte == b'\r' { b'\n' } else { byte };
        let is_quoted = self.at == Place::Quoted;
        let is_end = byte == b'\n';
        self.line += u64::from(is_end);
        let before = self.at;
        self.at = before.after(byte, self.delimiter, self.merges_blanks);
        if self.merges_blanks && !is_quoted && matches!(byte, b' ' | b'\t') {
            self.is_owed = true;
            return at;
        }
        if std::mem::take(&mut self.is_owed) && !is_end && !self.is_line_start {
            into[at] = b' ';
            at += 1;
        }
        self.is_line_start = is_end && !is_quoted;
        if byte == b'"' && before == Place::Start {
            self.opened = self.line;
        }
        into[at] = byte;
        at + 1
    }
}

impl<R: Read> Read for Lines<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        // A byte may come with the blank that was owed before it.
        let half = into.len() / 2;
        if half == 0 {
            return Err(io::Error::other("a buffer of two bytes at least is needed"));
        }
        while !self.is_done {
            let mut buffer = std::mem::take(&mut self.buffer);
            buffer.resize(half, 0);
            let read = self.inner.read(&mut buffer)?;
            let written = buffer[..read].iter().fold(0, |written, byte| self.take(*byte, into, written));
            self.buffer = buffer;
            if written > 0 {
                return Ok(written);
            }
            self.is_done = read == 0;
        }
        if self.at == Place::Quoted {
            return Err(io::Error::other(OpenQuote { line: self.opened }));
        }
        if std::mem::replace(&mut self.is_line_start, true) {
            return Ok(0);
        }
        into[0] = b'\n';
        Ok(1)
    }
}

/// A quote that opens and is closed nowhere.
#[derive(Debug)]
pub(crate) struct OpenQuote {
    /// The line in which it opens, from 1.
    pub(crate) line: u64,
}

impl OpenQuote {
    /// The one that an error is about, if it is about one.
    pub(crate) fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref().and_then(|inner| inner.downcast_ref())
    }
}

impl fmt::Display for OpenQuote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a quote opens in it that is never closed: close it, or double it if it is a part of the text")
    }
}

impl Error for OpenQuote {}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is read of `text` in pieces of so many bytes.
    fn read(text: &str, delimiter: u8, piece: usize) -> Result<String, io::Error> {
        let mut lines = Lines::new(text.as_bytes(), delimiter, delimiter == b' ');
        let (mut all, mut buffer) = (Vec::new(), vec![0; piece]);
        loop {
            match lines.read(&mut buffer)? {
                0 => return Ok(String::from_utf8(all).expect("text")),
                read => all.extend_from_slice(&buffer[..read]),
            }
        }
    }

    /// However the bytes come, this is read.
    fn check(delimiter: u8, cases: &[(&str, &str)]) {
        for (text, expected) in cases {
            for piece in [2, 3, 64] {
                assert_eq!(read(text, delimiter, piece).expect("closed"), *expected, "{text:?} by {piece}");
            }
        }
    }

    #[test]
    fn all_lines_end_alike_however_the_bytes_come() {
        let cases = [
            ("a,b\r\n1,2\r\n", "a,b\n1,2\n"),
            ("a,b\r1,2\r\r3,4", "a,b\n1,2\n\n3,4\n"),
            ("\r\n\n\ra,b\n\n1,2", "\n\n\na,b\n\n1,2\n"),
            ("a,\"b\r\nc\"\r\n", "a,\"b\nc\"\n"),
            ("a,\"b\"\"\n\",5\"\n1", "a,\"b\"\"\n\",5\"\n1\n"),
            ("", ""),
            ("\n", "\n"),
        ];
        check(b',', &cases);
    }

    #[test]
    fn blanks_are_taken_as_one_but_between_quotes() {
        let cases = [
            ("  1   2\t \"a  b\"  \n3 4 c\r\n", "1 2 \"a  b\"\n3 4 c\n"),
            // A quote in the middle of a word opens nothing.
            ("5\"   nail\n6\"\t\tnail", "5\" nail\n6\" nail\n"),
            ("1 \"a\n  b\"   2\n \t \n3", "1 \"a\n  b\" 2\n\n3\n"),
        ];
        check(b' ', &cases);
    }

    #[test]
    fn a_quote_that_is_never_closed_is_told_with_its_line() {
        for (text, line) in [("a\r\n\r\n1,\"b\n\n", 3), ("\"a\"\n\"b\n\"\n\"c\"\"\n", 4), ("\"", 1)] {
            let error = read(text, b',', 64).expect_err("open");
            assert_eq!(OpenQuote::of(&error).map(|quote| quote.line), Some(line), "{text:?}");
        }
        assert!(OpenQuote::of(&io::Error::other("something else")).is_none());
    }
}
