//! A text in pieces of whole rows, as they are written, so that each can be read apart from the others.
//!
//! ```text
//!   1,2,a | 3,4,b | 5,"x     Rows end at the ends of lines, but not at those between quotes. A piece has
//!   y",c | 7,8,d | ...       some blocks, of whole rows each: the smallest parts whose places are noted.
//! ```

use std::io::{self, Read};
use std::path::PathBuf;

use memchr::{memchr, memchr2, memrchr};

use super::lines::Place;
use crate::error::DataError;

/// How much is read at once; in tests, so little that their tables have several.
const PIECE_BYTES: usize = if cfg!(test) { 96 } else { 256 << 10 };
/// How long a block is, unless it is a row that is longer. Who asks for one row reads its block.
const BLOCK_BYTES: usize = if cfg!(test) { 24 } else { 4 << 10 };
/// The longest row. A quote that is never closed would make one of the rest of a file.
pub(crate) const MAX_ROW_BYTES: usize = 16 << 20;

/// Some whole rows of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Where they begin in it, in bytes.
    pub(crate) at: u64,
    /// Whether nothing comes before them.
    pub(crate) is_first: bool,
    pub(crate) bytes: Vec<u8>,
    /// Where their blocks end in these bytes, ascending; the last one with them.
    pub(crate) ends: Vec<usize>,
}

/// What is between two cells, and whether several blanks count as one; `None` where each line's end is a row's end.
pub(crate) type Quoting = Option<(u8, bool)>;

/// The pieces of a text.
pub(crate) struct Pieces<R> {
    text: R,
    path: PathBuf,
    quoting: Quoting,
    /// How long a piece is, unless it is a row that is longer.
    piece_bytes: usize,
    at: u64,
    is_first: bool,
    /// What was read and is not given.
    buffer: Vec<u8>,
    is_done: bool,
}

impl<R: Read> Pieces<R> {
    /// Of a text that goes on with `text` behind its first `at` bytes. `path` is for messages.
    pub(crate) fn new(text: R, at: u64, quoting: Quoting, path: PathBuf) -> Self {
        let piece_bytes = PIECE_BYTES;
        Self { text, path, quoting, piece_bytes, at, is_first: true, buffer: Vec::new(), is_done: false }
    }

    /// The same in pieces of at most so many bytes, as far as blocks allow.
    pub(crate) fn of_at_most(self, bytes: u64) -> Self {
        let most = usize::try_from(bytes).unwrap_or(usize::MAX);
        Self { piece_bytes: most.clamp(BLOCK_BYTES, PIECE_BYTES), ..self }
    }

    /// Has so many bytes in the buffer, or what there is.
    fn fill(&mut self, bytes: usize) -> io::Result<()> {
        let missing = bytes.saturating_sub(self.buffer.len()) as u64;
        if !self.is_done {
            let read = self.text.by_ref().take(missing).read_to_end(&mut self.buffer)?;
            self.is_done = (read as u64) < missing;
        }
        Ok(())
    }

    fn next_piece(&mut self) -> Result<Option<Piece>, DataError> {
        let mut wanted = self.piece_bytes;
        let ends = loop {
            self.fill(wanted).map_err(|source| DataError::Unreadable { path: self.path.clone(), source })?;
            if self.is_done && self.buffer.is_empty() {
                return Ok(None);
            }
            let ends = ends(&self.buffer, self.quoting, self.is_done);
            if !ends.is_empty() {
                break ends;
            }
            if wanted >= MAX_ROW_BYTES {
                let reason = format!(
                    "it has more than {} MiB; if a quote opens in it that is never closed, close it, or double it if it is a part of the text",
                    MAX_ROW_BYTES >> 20
                );
                return Err(DataError::Row { path: self.path.clone(), row: 1, column: None, reason });
            }
            wanted = (2 * wanted).min(MAX_ROW_BYTES);
        };
        let end = *ends.last().expect("invariant: it is not empty");
        let rest = self.buffer.split_off(end);
        let mut bytes = std::mem::replace(&mut self.buffer, rest);
        let mut ends = ends;
        // The last line may have no end of its own.
        if self.is_done && self.buffer.is_empty() && !matches!(bytes.last(), Some(b'\n' | b'\r')) {
            bytes.push(b'\n');
            ends.pop();
            ends.push(bytes.len());
        }
        let piece = Piece { at: self.at, is_first: std::mem::take(&mut self.is_first), bytes, ends };
        self.at += end as u64;
        Ok(Some(piece))
    }
}

impl<R: Read> Iterator for Pieces<R> {
    type Item = Result<Piece, DataError>;

    /// The row of an error counts from where the piece would begin.
    fn next(&mut self) -> Option<Self::Item> {
        self.next_piece().transpose()
    }
}

/// Where the blocks of `bytes` end, which begin with a row and are `all` there is, or go on: the last one with the last row that is
/// whole.
pub(crate) fn ends(bytes: &[u8], quoting: Quoting, all: bool) -> Vec<usize> {
    match quoting {
        Some((delimiter, merges_blanks))
            if memchr(b'"', bytes).is_some() || (memchr(b'\n', bytes).is_none() && memchr(b'\r', bytes).is_some()) =>
        {
            scanned(bytes, delimiter, merges_blanks, all)
        }
        _ => at_line_ends(bytes, all),
    }
}

/// Where each line's end is a row's.
fn at_line_ends(bytes: &[u8], all: bool) -> Vec<usize> {
    let last = if all { bytes.len() } else { memrchr(b'\n', bytes).map_or(0, |at| at + 1) };
    let (mut ends, mut at) = (Vec::new(), 0);
    while at < last {
        let from = (at + BLOCK_BYTES - 1).min(last);
        at = memchr(b'\n', &bytes[from..last]).map_or(last, |found| from + found + 1);
        ends.push(at);
    }
    ends
}

/// Where some are between quotes.
fn scanned(bytes: &[u8], delimiter: u8, merges_blanks: bool, all: bool) -> Vec<usize> {
    let (mut ends, mut row_end, mut place, mut at) = (Vec::new(), 0, Place::Start, 0);
    while at < bytes.len() {
        if place == Place::Quoted {
            // Nothing else matters there.
            at += memchr(b'"', &bytes[at..]).unwrap_or(bytes.len() - at);
            if at == bytes.len() {
                break;
            }
        } else if place == Place::Bare && !merges_blanks {
            // Nor anything but what ends the cell; a line may also end with a return.
            let found = memchr::memchr3(delimiter, b'\n', b'\r', &bytes[at..]);
            at += found.unwrap_or(bytes.len() - at);
            if at == bytes.len() {
                break;
            }
        }
        let byte = if bytes[at] == b'\r' { b'\n' } else { bytes[at] };
        let ends_row = byte == b'\n' && place != Place::Quoted;
        place = place.after(byte, delimiter, merges_blanks);
        at += 1;
        if !ends_row {
            continue;
        }
        if bytes[at - 1] == b'\r' {
            match bytes.get(at) {
                Some(b'\n') => at += 1,
                // A line feed that may follow belongs to it.
                None if !all => break,
                _ => {}
            }
        }
        row_end = at;
        if row_end - ends.last().copied().unwrap_or(0) >= BLOCK_BYTES {
            ends.push(row_end);
        }
    }
    let last = if all { bytes.len() } else { row_end };
    if last > ends.last().copied().unwrap_or(0) {
        ends.push(last);
    }
    ends
}

/// Whether rows of these bytes are written without quotes, and lines end with `\n`.
pub(crate) fn are_plain(bytes: &[u8]) -> bool {
    memchr2(b'"', b'\r', bytes).is_none()
}

#[cfg(test)]
mod tests {
    use starling_topology::SplitMix64Generator;

    use super::*;
    use crate::table::lines::Lines;

    /// The lines of a text, and whether it ends within quotes.
    fn read(text: &[u8], delimiter: u8) -> (Vec<u8>, bool) {
        let mut lines = Lines::new(text, delimiter, delimiter == b' ');
        let (mut all, mut buffer) = (Vec::new(), [0; 64]);
        loop {
            match lines.read(&mut buffer) {
                Ok(0) => return (all, false),
                Ok(read) => all.extend_from_slice(&buffer[..read]),
                Err(_) => return (all, true),
            }
        }
    }

    /// The lines of all pieces, read apart; and of the text, read as one.
    fn both(text: &[u8], delimiter: u8) -> [(Vec<u8>, bool); 2] {
        let (mut apart, mut is_open, mut at) = (Vec::new(), false, 0);
        for piece in Pieces::new(text, 0, Some((delimiter, delimiter == b' ')), "text".into()) {
            let piece = piece.expect("in memory");
            assert_eq!((piece.at, piece.is_first), (at, at == 0));
            at += piece.bytes.len() as u64;
            let mut from = 0;
            for end in piece.ends {
                assert!(!is_open, "quotes are closed before a row ends");
                let (lines, ends_open) = read(&piece.bytes[from..end], delimiter);
                apart.extend(lines);
                (is_open, from) = (ends_open, end);
            }
            assert_eq!(from, piece.bytes.len());
        }
        let (whole, ends_open) = read(text, delimiter);
        // How many lines without anything are behind all rows makes no difference.
        [(apart.trim_ascii_end().to_vec(), is_open), (whole.trim_ascii_end().to_vec(), ends_open)]
    }

    #[test]
    fn pieces_are_whole_rows_wherever_quotes_and_line_ends_are() {
        let mut generator = SplitMix64Generator::new(11);
        for round in 0..20_000 {
            let length = generator.below(400);
            let letters: &[u8] = if round % 3 == 0 { b"a,1 \n\n\r" } else { b"aa,,1 \t\"\"\n\r" };
            let text: Vec<u8> = (0..length).map(|_| letters[generator.below(letters.len() as u32) as usize]).collect();
            for delimiter in [b',', b' '] {
                let [apart, whole] = both(&text, delimiter);
                let shown = |(lines, is_open): (Vec<u8>, bool)| (String::from_utf8_lossy(&lines).into_owned(), is_open);
                assert_eq!(shown(apart), shown(whole), "{:?}", String::from_utf8_lossy(&text));
            }
        }
    }

    #[test]
    fn a_row_that_is_too_long_is_an_error_and_one_that_is_not_is_read() {
        let text = |length: usize| [b"1,2\n\"".to_vec(), vec![b'x'; length], b"\",3\n4,5\n".to_vec()].concat();
        let pieces =
            |text: &[u8]| Pieces::new(text, 0, Some((b',', false)), "text".into()).collect::<Result<Vec<_>, _>>();
        let long = text(MAX_ROW_BYTES - 16);
        let read = pieces(&long).expect("as long as it may be");
        assert_eq!(read.iter().map(|piece| piece.bytes.len()).sum::<usize>(), long.len());
        let error = pieces(&text(MAX_ROW_BYTES)).expect_err("longer").to_string();
        assert!(error.contains("row 1") && error.contains("more than 16 MiB; if a quote opens"), "{error}");
    }
}
