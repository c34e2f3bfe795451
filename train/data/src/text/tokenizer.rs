//! Text to tokens and back, by a vocabulary that a `tokenizer.json` holds.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde_json::Value;
use starling_run::TokenizerSpec;
use starling_run::data::{MAX_PREPROCESSING_BYTES, MAX_TOKENS};

use super::engine::Engine;
use super::spelling::{Spelling, byte_letter};
use crate::error::DataError;

/// The longest `tokenizer.json` that is read: written with blanks, it may be several times what is kept of it.
const MAX_FILE_BYTES: u64 = 64 << 20;
/// The longest that is kept: it travels with what is known of the data, whose other parts take next to nothing.
const MAX_JSON_BYTES: usize = MAX_PREPROCESSING_BYTES - 1024;
/// A vocabulary has no fewer tokens: a byte each.
pub(crate) const LEAST_TOKENS: u32 = 256;
/// What the token behind each document is called in a vocabulary that is made here.
pub(crate) const END: &str = "<|endoftext|>";
/// What it is called in others, the first that there is.
const ENDS: [&str; 6] = [END, "<|end_of_text|>", "</s>", "<eos>", "<|im_end|>", "[SEP]"];
/// A text is made tokens in pieces of about so many bytes.
pub(crate) const PIECE_BYTES: usize = if cfg!(test) { 1 << 10 } else { 1 << 20 };

/// So many of them at a time.
const PIECES_AT_ONCE: usize = 8;

/// Makes tokens of text, and text of tokens.
pub struct Tokenizer {
    spec: TokenizerSpec,
    /// What all tokens spell, one after another, and where each of them ends.
    spelled: Vec<u8>,
    ends: Vec<u32>,
    engine: Engine,
}

impl Tokenizer {
    /// As a run's data says it.
    ///
    /// # Errors
    /// What is wrong with it, as a sentence.
    pub fn open(spec: &TokenizerSpec) -> Result<Self, String> {
        Self::new(Engine::open(&spec.json)?, spec.json.clone(), spec.end)
    }

    /// As a file of Hugging Face's `tokenizers` holds it. The token behind each document is called `end`, or as those that are usual.
    ///
    /// # Errors
    /// If it can't be read, is too long, or holds something else.
    pub fn read(path: &Path, end: Option<&str>) -> Result<Self, DataError> {
        let fail = |reason: String| DataError::File { path: path.to_owned(), reason };
        let unreadable = |source| DataError::Unreadable { path: path.to_owned(), source };
        let file = File::open(path).map_err(unreadable)?;
        let mut text = Vec::new();
        if file.metadata().map_or(0, |found| found.len()) <= MAX_FILE_BYTES {
            file.take(MAX_FILE_BYTES + 1).read_to_end(&mut text).map_err(unreadable)?;
        }
        if text.is_empty() || text.len() as u64 > MAX_FILE_BYTES {
            return Err(fail(format!(
                "it is empty, or has more than {MAX_FILE_BYTES} bytes; no tokenizer is that long"
            )));
        }
        let text = String::from_utf8(text).map_err(|_| fail("it is no UTF-8, which JSON is".to_owned()))?;
        let engine = Engine::open(&text).map_err(&fail)?;
        // Without its blanks, and without what cuts or fills texts.
        let json = engine.json().map_err(&fail)?;
        let end = match end {
            Some(name) => engine.token(name).ok_or_else(|| {
                fail(format!("it has no token `{}`; --end-token names one that it has", crate::shorten(name)))
            })?,
            None => ENDS.iter().find_map(|name| engine.token(name)).ok_or_else(|| {
                let usual = ENDS.join(", ");
                fail(format!(
                    "it has no token that ends a document by one of the usual names ({usual}); say which one does: --end-token NAME"
                ))
            })?,
        };
        Self::new(engine, json, end).map_err(fail)
    }

    /// Of a vocabulary of bytes, and of these merges, each of two tokens that come before it.
    ///
    /// # Errors
    /// If it is too large, as a sentence.
    pub(crate) fn of_merges(merges: &[(u32, u32)]) -> Result<Self, String> {
        let end = LEAST_TOKENS;
        let mut names: Vec<String> = (0..=u8::MAX).map(|byte| byte_letter(byte).to_string()).collect();
        names.push(END.to_owned());
        for (first, second) in merges {
            names.push([&*names[*first as usize], &*names[*second as usize]].concat());
        }
        let pairs = merges.iter().map(|(first, second)| [*first, *second].map(|token| names[token as usize].clone()));
        let json = made(&names, pairs.collect(), end)?;
        let engine = Engine::open(&json)?;
        let json = engine.json()?;
        Self::new(engine, json, end)
    }

    fn new(engine: Engine, json: String, end: u32) -> Result<Self, String> {
        if json.len() > MAX_JSON_BYTES {
            return Err(format!(
                "its tokenizer takes {} bytes as JSON without blanks, but {MAX_JSON_BYTES} are possible: it travels with what is known of \
                 the data; take one with a smaller vocabulary",
                json.len()
            ));
        }
        let tokens = engine.tokens();
        if !(LEAST_TOKENS..=MAX_TOKENS).contains(&tokens) {
            return Err(format!("its vocabulary has {tokens} tokens, but {LEAST_TOKENS} to {MAX_TOKENS} are possible"));
        }
        if end >= tokens {
            return Err(format!("its end token is {end}, but it has {tokens} tokens, from 0"));
        }
        let value: Value = serde_json::from_str(&json).map_err(|error| error.to_string())?;
        let spelling = Spelling::of(&value);
        let (mut spelled, mut ends) = (Vec::new(), Vec::with_capacity(tokens as usize));
        for token in 0..tokens {
            match engine.name(token) {
                Some((name, Role::Ordinary)) => spelled.extend(spelling.bytes(&name)),
                Some((name, Role::Added)) => spelled.extend(name.as_bytes()),
                // They stand for nothing in a text.
                Some((_, Role::Special)) | None => {}
            }
            ends.push(u32::try_from(spelled.len()).map_err(|_| "its tokens spell more than 4 GiB".to_owned())?);
        }
        Ok(Self { spec: TokenizerSpec { json, end }, spelled, ends, engine })
    }

    /// How it stands in what is known of a run's data.
    pub fn spec(&self) -> &TokenizerSpec {
        &self.spec
    }

    /// How many tokens there are; those that no text becomes are counted, too.
    pub fn tokens(&self) -> u32 {
        u32::try_from(self.ends.len()).expect("invariant: it was checked")
    }

    /// The bytes that a token stands for, which may be part of a character. None of one that marks something, or that there is not.
    pub fn spelled(&self, token: u32) -> &[u8] {
        let Some(end) = self.ends.get(token as usize) else { return &[] };
        let start = (token as usize).checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.spelled[start as usize..*end as usize]
    }

    /// The tokens of a text. What its letters say, they say: none of them becomes a token that marks something.
    ///
    /// # Errors
    /// If the vocabulary's file does not allow it, as a sentence.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, String> {
        let all: Vec<&str> = pieces(text, PIECE_BYTES).collect();
        let mut tokens = Vec::new();
        // Few at a time: until they are numbers, tokens take many times the memory.
        for taken in all.chunks(PIECES_AT_ONCE) {
            tokens.extend(self.encode_pieces(taken.to_vec())?);
        }
        Ok(tokens)
    }

    /// The same of a text that is in pieces already.
    pub(crate) fn encode_pieces(&self, pieces: Vec<&str>) -> Result<Vec<u32>, String> {
        let tokens = self.engine.encode(pieces)?;
        let (most, all) = (self.tokens(), tokens.concat());
        match all.iter().find(|token| **token >= most) {
            Some(token) => Err(format!("it made the token {token} of the text, but has {most}, from 0")),
            None => Ok(all),
        }
    }
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokenizer").field("tokens", &self.tokens()).field("end", &self.spec.end).finish_non_exhaustive()
    }
}

/// What a token is besides its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "tokenizers"), allow(dead_code))]
pub(crate) enum Role {
    /// Of the vocabulary.
    Ordinary,
    /// A text of its own, which stands for itself.
    Added,
    /// A mark, which stands for no text.
    Special,
}

/// A `tokenizer.json` of the bytes' letters and merges of them.
fn made(names: &[String], merges: Vec<[String; 2]>, end: u32) -> Result<String, String> {
    let tokens: serde_json::Map<String, Value> =
        names.iter().zip(0..).map(|(name, id)| (name.clone(), id.into())).collect();
    if tokens.len() != names.len() {
        return Err("two of its tokens spell the same".to_owned());
    }
    let byte_level = serde_json::json!({
        "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": !merges.is_empty()
    });
    let file = serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [{
            "id": end, "content": END, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true
        }],
        "normalizer": null, "pre_tokenizer": byte_level, "post_processor": null, "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null,
            "fuse_unk": false, "byte_fallback": false, "ignore_merges": false, "vocab": tokens, "merges": merges
        }
    });
    Ok(file.to_string())
}

/// A text in pieces of about so many bytes, which end behind lines where there are such: a word that a piece cut would become other tokens.
pub(crate) fn pieces(text: &str, about: usize) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (piece, behind) = rest.split_at(piece_end(rest, about));
        rest = behind;
        Some(piece)
    })
}

/// Where the first piece ends: behind the first end of a line that follows so many bytes, or, if none comes soon, wherever it may.
fn piece_end(text: &str, about: usize) -> usize {
    let bytes = text.as_bytes();
    if bytes.len() <= about.saturating_mul(2) {
        return bytes.len();
    }
    let is_end = |at: &usize| bytes[at - 1] == b'\n' && !bytes[*at].is_ascii_whitespace();
    let end = (about..about.saturating_mul(2)).find(is_end).unwrap_or(about);
    (end..=bytes.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_the_text_and_end_behind_lines() {
        let text = "one line\nanother\n\n\tand é more\n".repeat(40);
        for about in [1, 2, 7, 30, 1000] {
            let pieces: Vec<&str> = pieces(&text, about).collect();
            assert_eq!(pieces.concat(), text);
            assert!(pieces.iter().all(|piece| piece.len() <= 2 * about + 4), "{about}");
        }
        let long: Vec<&str> = pieces(&text, 100).collect();
        assert!(long.len() > 5 && long.iter().all(|piece| piece.ends_with('\n')));
    }
}
