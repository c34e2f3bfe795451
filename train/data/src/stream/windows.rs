//! The windows of a text for a trained model.

use std::io::Read;
use std::path::Path;

use super::{Block, Blocks, InputSpec};
use crate::error::DataError;
use crate::text::folder::TokenFolder;
use crate::text::tokenizer::Tokenizer;
use crate::text::{self, Words};

/// A text, and how many of its windows were given.
pub(super) struct Windows {
    words: Words,
    context: usize,
    count: usize,
    given: usize,
}

impl Windows {
    /// Of a text that is read whole, and made tokens if the model takes such: one document.
    pub(super) fn open(bytes: impl Read, path: &Path, inputs: &InputSpec) -> Result<Self, DataError> {
        let text = text::parse(bytes, path, u64::MAX)?;
        let context = u32::try_from(inputs.features).unwrap_or(u32::MAX);
        let Some(tokenizer) = &inputs.tokenizer else {
            let count = text.windows(context, 1)? as usize;
            return Ok(Self { words: Words::Bytes(text.bytes), context: inputs.features, count, given: 0 });
        };
        let fail = |reason| DataError::File { path: path.to_owned(), reason };
        let tokenizer = Tokenizer::open(tokenizer).map_err(fail)?;
        let letters = std::str::from_utf8(&text.bytes).expect("invariant: a text is checked when it is read");
        let mut tokens = tokenizer.encode(letters).map_err(fail)?;
        tokens.push(tokenizer.spec().end);
        let count = (tokens.len() - 1) / inputs.features.max(1);
        if count == 0 {
            let needed = inputs.features + 1;
            return Err(fail(format!(
                "it has {} tokens, but a window of {} and the token behind need {needed}; take a longer text",
                tokens.len(),
                inputs.features
            )));
        }
        Ok(Self { words: Words::Encoded(tokens), context: inputs.features, count, given: 0 })
    }

    /// Of one that was prepared, as the model's was.
    pub(super) fn of_folder(path: &Path, inputs: &InputSpec) -> Result<Self, DataError> {
        let folder = TokenFolder::open(path)?;
        let fail = |reason: String| DataError::File { path: path.to_owned(), reason };
        if inputs.tokenizer.as_ref() != Some(&folder.tokenizer) {
            let theirs = inputs.tokenizer.as_ref().map_or_else(
                || "takes bytes".to_owned(),
                |theirs| format!("was trained on tokens of one with the blake3 {}", theirs.digest()),
            );
            return Err(fail(format!(
                "its tokenizer has the blake3 {}, but the model {theirs}; name a text that is not prepared",
                folder.tokenizer.digest()
            )));
        }
        let context = u32::try_from(inputs.features).unwrap_or(u32::MAX);
        let count = folder.windows(context, 1)? as usize;
        folder.check(&mut |_, _| {})?;
        Ok(Self { words: Words::Tokens(folder), context: inputs.features, count, given: 0 })
    }
}

impl Blocks for Windows {
    fn next(&mut self, most: usize) -> Result<Block, DataError> {
        let first = self.given;
        let last = self.count.min(first.saturating_add(most));
        self.given = last;
        let mut tokens = Vec::new();
        for at in first..last {
            self.words.read(at as u64 * self.context as u64, self.context + 1, &mut tokens)?;
        }
        Ok(Block {
            values: tokens.into_iter().map(f64::from).collect(),
            labels: Vec::new(),
            rows: (first as u64 + 1..=last as u64).collect(),
            files: Vec::new(),
            notes: Vec::new(),
            held_out: false,
        })
    }

    fn has_labels(&self) -> bool {
        true
    }
}
