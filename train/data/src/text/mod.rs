//! Text, whose windows are the samples: as bytes, of which it lies in memory once, or prepared, as the tokens of a vocabulary in files.
//!
//! ```text
//!   I n   t h e   b e g i n n i n g        context 4: window 0 is `In t` with `h` behind it,
//!   |-------+ |                            window 1 is `he b` with `e` behind it, and so on;
//!           |-------+ |                    what is left at the end is no window
//! ```
//!
//! From each byte, or token, of a window the model learns the next one. So each byte but the first is learned once in an epoch, and none of a window
//! that is held out is learned in another.

pub(super) mod arrivals;
mod engine;
pub(super) mod folder;
mod merges;
pub(super) mod prepare;
pub(super) mod shard;
mod spelling;
pub(super) mod tokenizer;

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

use starling_run::Kind;
use starling_run::data::{CONTEXT, TEXT};
use starling_topology::Digest;

use crate::error::DataError;
use crate::files::bounded;
use crate::files::foreign;
use crate::source::check_file;
use folder::TokenFolder;

/// A text.
pub(super) const KIND: Kind = Kind { name: TEXT, files: &["text.txt"], holds_out: false };
/// What a token may be.
pub(super) const BYTES: u32 = 256;
/// The longest text, in bytes.
const MAX_BYTES: u64 = 1 << 31;
/// What files are called that hold tables, whatever learns from them.
const TABLES: [&str; 2] = [".csv", ".tsv"];

/// What windows are cut from.
#[derive(Debug)]
pub(super) enum Words {
    /// A text, whose tokens are its bytes.
    Bytes(Vec<u8>),
    /// One that was prepared.
    Tokens(TokenFolder),
    /// The tokens of one that is in memory.
    Encoded(Vec<u32>),
}

impl Words {
    /// Whether all of it is here.
    pub(super) fn is_whole(&self) -> bool {
        match self {
            Self::Tokens(folder) => folder.is_whole(),
            Self::Bytes(_) | Self::Encoded(_) => true,
        }
    }

    /// Whether these tokens are here.
    pub(super) fn are_here(&self, tokens: Range<u64>) -> bool {
        match self {
            Self::Tokens(folder) => folder.are_here(tokens),
            Self::Bytes(_) | Self::Encoded(_) => true,
        }
    }

    /// Adds `count` tokens to `tokens`, from that of the number `first` on.
    ///
    /// # Errors
    /// If they can't be read.
    ///
    /// # Panics
    /// If there are not so many.
    pub(super) fn read(&self, first: u64, count: usize, tokens: &mut Vec<u32>) -> Result<(), DataError> {
        match self {
            Self::Bytes(bytes) => {
                let first = usize::try_from(first).expect("invariant: it is in memory");
                tokens.extend(bytes[first..first + count].iter().map(|byte| u32::from(*byte)));
                Ok(())
            }
            Self::Tokens(folder) => folder.read(first, count, tokens),
            Self::Encoded(all) => {
                let first = usize::try_from(first).expect("invariant: it is in memory");
                tokens.extend_from_slice(&all[first..first + count]);
                Ok(())
            }
        }
    }
}

/// A text as it was read.
#[derive(Debug)]
pub(super) struct Text {
    pub(super) path: PathBuf,
    /// UTF-8, without a mark before it.
    pub(super) bytes: Vec<u8>,
}

/// Whether `source` may be a text: it is none if its name says that it is a table.
pub(super) fn is_for(source: &str) -> bool {
    let name = source.strip_suffix(".gz").unwrap_or(source).to_ascii_lowercase();
    !TABLES.iter().any(|table| name.ends_with(table))
}

/// Reads a file of text, gzipped or not, that has at most `max` bytes, unpacked.
///
/// # Errors
/// If it can't be read, is empty, or holds something else.
pub(super) fn read(path: &Path, max: u64) -> Result<Text, DataError> {
    check_file(path)?;
    check_is_file(path)?;
    let file = File::open(path).map_err(|source| DataError::Unreadable { path: path.to_owned(), source })?;
    parse(file, path, max)
}

/// Checks that it is no folder.
pub(super) fn check_is_file(path: &Path) -> Result<(), DataError> {
    if path.is_dir() {
        let reason = "it is a folder, but a text is one file, or what `starling data prepare` has made of several; make one of them: `cat \
                      folder/*.txt > all.txt`";
        return Err(DataError::File { path: path.to_owned(), reason: reason.to_owned() });
    }
    Ok(())
}

/// The same of what is given.
pub(super) fn parse(file: impl Read, path: &Path, max: u64) -> Result<Text, DataError> {
    let fail = |reason: String| DataError::File { path: path.to_owned(), reason };
    let mut bytes = Vec::new();
    let read = bounded(file, path, max.min(MAX_BYTES))?.read_to_end(&mut bytes);
    read.map_err(|source| DataError::Unreadable { path: path.to_owned(), source })?;
    if let Some(reason) = foreign::no_text(&bytes[..bytes.len().min(64)]) {
        return Err(fail(reason));
    }
    if bytes.starts_with(foreign::MARK) {
        bytes.drain(..foreign::MARK.len());
    }
    if bytes.is_empty() {
        return Err(fail("it is empty".to_owned()));
    }
    let damaged = match std::str::from_utf8(&bytes) {
        Ok(_) => bytes.iter().position(|byte| *byte == 0).map(|at| (at, "a zero byte, which no text has")),
        Err(error) => Some((error.valid_up_to(), "no UTF-8")),
    };
    if let Some((at, what)) = damaged {
        let line = 1 + bytes[..at].iter().filter(|byte| **byte == b'\n').count();
        let start = bytes[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |feed| feed + 1);
        let (column, value) = (at - start + 1, bytes[at]);
        return Err(fail(format!(
            "line {line}, byte {column} (0x{value:02x}) is {what}; save it as UTF-8, or leave out what is no text"
        )));
    }
    Ok(Text { path: path.to_owned(), bytes })
}

impl Text {
    /// How many windows of `context` bytes it has, each with a byte behind it.
    ///
    /// # Errors
    /// If `context` is none that is possible, or there are fewer than `least`.
    pub(super) fn windows(&self, context: u32, least: u32) -> Result<u32, DataError> {
        let fail = |reason| Err(DataError::File { path: self.path.clone(), reason });
        if !CONTEXT.contains(&context) {
            let (shortest, longest) = (CONTEXT.start(), CONTEXT.end());
            return fail(format!(
                "a model can't see {context} bytes of it at once: {shortest} to {longest} are possible"
            ));
        }
        let bytes = self.bytes.len();
        let windows = (bytes - 1) / context as usize;
        if windows >= least as usize {
            return Ok(u32::try_from(windows).expect("invariant: a text's length is bounded"));
        }
        let needed = u64::from(context) * u64::from(least) + 1;
        let noun = if least == 1 { "one window" } else { "two windows" };
        fail(format!(
            "it has {bytes} bytes, but {noun} of {context} and the byte behind need {needed}; take a longer text, or a shorter --context"
        ))
    }

    /// blake3 of how long windows are, and of the text.
    pub(super) fn fingerprint(&self, context: u32) -> Digest {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&context.to_le_bytes()).update(&(self.bytes.len() as u64).to_le_bytes()).update(&self.bytes);
        Digest(*hasher.finalize().as_bytes())
    }
}

/// What each token is called: a byte by its number.
pub(super) fn token_names() -> Vec<String> {
    (0..BYTES).map(|byte| byte.to_string()).collect()
}
