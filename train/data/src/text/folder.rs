//! A text that was prepared: a folder with its tokenizer, and its tokens in files of which no more is in memory than is asked for.
//!
//! ```text
//!   tokens.json         what there is, with the hash of each other file
//!   tokenizer.json      the vocabulary
//!   tokens-00000.bin    64 MiB of tokens each, but for the last: see [`shard`]
//! ```

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};
use starling_run::data::{CONTEXT, TOKENS};
use starling_run::sharing::numbered;
use starling_run::{Kind, TokenizerSpec};
use starling_topology::Digest;

use super::prepare::TokensSummary;
use super::shard::{self, HEADER_BYTES, ShardHeader};
use super::tokenizer::Tokenizer;
use crate::error::DataError;
use crate::files::opened::{Stamp, changed, read_at};

/// A text that was prepared.
pub(crate) const KIND: Kind = Kind { name: TOKENS, files: &[TOLD, TOKENIZER, SHARD], holds_out: false };
/// What there is.
pub(super) const TOLD: &str = "tokens.json";
/// The vocabulary.
pub(super) const TOKENIZER: &str = "tokenizer.json";
/// The tokens, by the number of their file.
pub(super) const SHARD: &str = "tokens-*.bin";
/// What such a folder says that it is.
const FORMAT: &str = "starling-tokens-1";
/// The longest description, in bytes, and the longest tokenizer.
const MAX_TOLD_BYTES: u64 = 1 << 20;
const MAX_TOKENIZER_BYTES: u64 = starling_run::data::MAX_PREPROCESSING_BYTES as u64;
/// The most files of tokens: what can be shared has no more.
pub(super) const MAX_SHARDS: usize = 1024;
/// Files that stay open. Others are opened for each read: a process can't have any number of them.
const MAX_OPEN: usize = 64;
/// How much of a file is checked at once.
const BLOCK_BYTES: usize = 1 << 20;

/// What the folder says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Told {
    pub(super) format: String,
    /// blake3 of the tokenizer, in hex.
    pub(super) tokenizer: String,
    /// How many tokens the vocabulary has.
    pub(crate) vocabulary: u32,
    /// The token behind each document.
    pub(super) end: u32,
    /// How many documents there are.
    pub(super) documents: u64,
    /// How many bytes of text these have, and how many the tokens spell: fewer or more, if the tokenizer changes what it reads.
    pub(super) bytes: u64,
    pub(super) spelled_bytes: u64,
    /// How many tokens there are.
    pub(super) tokens: u64,
    pub(super) shards: Vec<ToldShard>,
}

/// What it says of a file of tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToldShard {
    pub(super) tokens: u64,
    /// blake3 of the tokens' bytes, in hex.
    pub(super) blake3: String,
}

impl Told {
    /// Of a text that is in no file yet.
    pub(super) fn begin(tokenizer: &TokenizerSpec, vocabulary: u32) -> Self {
        let (format, tokenizer, end) = (FORMAT.to_owned(), tokenizer.digest().to_string(), tokenizer.end);
        let (documents, bytes, spelled_bytes, tokens, shards) = (0, 0, 0, 0, Vec::new());
        Self { format, tokenizer, vocabulary, end, documents, bytes, spelled_bytes, tokens, shards }
    }

    /// Reads it from bytes that may be a stranger's.
    ///
    /// # Errors
    /// What is wrong, as a sentence.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let told: Self = serde_json::from_slice(bytes).map_err(|error| {
            let error = crate::shorten(&error.to_string()).escape_debug().to_string();
            format!("it does not say what `starling data prepare` writes ({error}); prepare the text again")
        })?;
        let Self { format, vocabulary, end, tokens, shards, .. } = &told;
        if format != FORMAT {
            return Err(format!(
                "its format is not `{FORMAT}`, which this release of Starling reads; prepare the text again"
            ));
        }
        let (least, most) = (super::tokenizer::LEAST_TOKENS, starling_run::data::MAX_TOKENS);
        if !(least..=most).contains(vocabulary) || end >= vocabulary {
            return Err(format!(
                "it has a vocabulary of {vocabulary} tokens and the end token {end}, but {least} to {most} tokens are possible, and one of \
                 these"
            ));
        }
        if shards.is_empty() || shards.len() > MAX_SHARDS {
            return Err(format!("it has {} files of tokens, but 1 to {MAX_SHARDS} are possible", shards.len()));
        }
        let full = shard::most_tokens(*vocabulary);
        let (last, before) = shards.split_last().expect("invariant: it is not empty");
        if before.iter().any(|shard| shard.tokens != full) || !(1..=full).contains(&last.tokens) {
            return Err(format!("all files of tokens but the last have to have {full}, and that no more"));
        }
        let counted = before.len() as u64 * full + last.tokens;
        if counted != *tokens {
            return Err(format!("it says that it has {tokens} tokens, but its files have {counted}"));
        }
        Ok(told)
    }

    /// As it is written.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec_pretty(self).expect("invariant: texts and numbers are always JSON");
        bytes.push(b'\n');
        bytes
    }
}

/// What a folder has before its files of tokens.
pub(super) const NAMED_FILES: usize = 2;

/// A file of tokens that a folder has, or will have.
#[derive(Debug)]
struct ShardPlace {
    path: PathBuf,
    /// As `tokens.json` says.
    header: ShardHeader,
    /// Whether it stays open.
    stays: bool,
    /// Once it is here.
    shard: OnceLock<Shard>,
}

/// A file of tokens.
#[derive(Debug)]
struct Shard {
    path: PathBuf,
    header: ShardHeader,
    stamp: Stamp,
    /// If it stays open.
    file: Option<File>,
}

/// Such a folder, of which the tokens are read as they are asked for.
#[derive(Debug)]
pub(crate) struct TokenFolder {
    path: PathBuf,
    pub(crate) told: Told,
    pub(crate) tokenizer: TokenizerSpec,
    shards: Vec<ShardPlace>,
}

/// Checks all of such a folder: that each file has the hash, the length and the counts that it should, each token is one of the vocabulary, and
/// the tokenizer has that. `progress` is told how many bytes were read, and of how many.
///
/// # Errors
/// The first that is wrong, by its file.
pub fn check(folder: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<TokensSummary, DataError> {
    let folder = TokenFolder::open(folder)?;
    folder.tokenizer()?;
    folder.check(progress)?;
    Ok(folder.summary())
}

/// What such a folder says that it holds, as far as it can be opened: no token is read.
///
/// # Errors
/// What is wrong with it, by its file.
pub fn summary(folder: &Path) -> Result<TokensSummary, DataError> {
    Ok(TokenFolder::open(folder)?.summary())
}

/// Whether `source` is such a folder.
pub fn is_one(source: &Path) -> bool {
    source.join(TOLD).is_file()
}

/// The files of such a folder, in their kind's order.
pub(crate) fn files(folder: &Path) -> Result<Vec<PathBuf>, DataError> {
    let path = folder.join(TOLD);
    let told = Told::decode(&read(&path, MAX_TOLD_BYTES)?).map_err(|reason| DataError::File { path, reason })?;
    let shards = (0..told.shards.len()).map(|at| numbered(SHARD, at));
    let names = [TOLD, TOKENIZER].map(ToOwned::to_owned).into_iter().chain(shards);
    Ok(names.map(|name| folder.join(name)).collect())
}

impl TokenFolder {
    /// Opens a folder, and checks that its parts fit each other; the tokens are [checked](Self::check) apart.
    ///
    /// # Errors
    /// If a file is not there, or another one than `tokens.json` says.
    pub(crate) fn open(path: &Path) -> Result<Self, DataError> {
        let folder = Self::open_arriving(path)?;
        folder.shards.iter().try_for_each(|place| place.open().map(|shard| drop(place.shard.set(shard))))?;
        Ok(folder)
    }

    /// The same of one whose files of tokens are still to come: each of them is to be [taken in](Self::take_in).
    ///
    /// # Errors
    /// If `tokens.json` or the tokenizer is not there, or they don't fit each other.
    pub(crate) fn open_arriving(path: &Path) -> Result<Self, DataError> {
        let fail = |path: &Path, reason: String| DataError::File { path: path.to_owned(), reason };
        let place = path.join(TOLD);
        let told = Told::decode(&read(&place, MAX_TOLD_BYTES)?).map_err(|reason| fail(&place, reason))?;
        let place = path.join(TOKENIZER);
        let json = String::from_utf8(read(&place, MAX_TOKENIZER_BYTES)?)
            .map_err(|_| fail(&place, "it is no UTF-8, which JSON is".to_owned()))?;
        let tokenizer = TokenizerSpec { json, end: told.end };
        let found = tokenizer.digest().to_string();
        if found != told.tokenizer {
            let reason = format!(
                "its blake3 is {found}, but `{TOLD}` says {}: it was changed, or is of another text; prepare the text again",
                crate::shorten(&told.tokenizer)
            );
            return Err(fail(&place, reason));
        }
        let mut shards = Vec::with_capacity(told.shards.len());
        for (at, said) in told.shards.iter().enumerate() {
            let digest = blake3::Hash::from_hex(&said.blake3).ok().map(|hash| Digest(*hash.as_bytes()));
            let digest = digest.filter(|digest| digest.to_string() == said.blake3).ok_or_else(|| {
                let said = crate::shorten(&said.blake3);
                fail(&path.join(TOLD), format!("`{said}` is no blake3, in hex; prepare the text again"))
            })?;
            let header = ShardHeader { vocabulary: told.vocabulary, tokens: said.tokens, digest };
            let place = path.join(numbered(SHARD, at));
            shards.push(ShardPlace { path: place, header, stays: at < MAX_OPEN, shard: OnceLock::new() });
        }
        Ok(Self { path: path.to_owned(), told, tokenizer, shards })
    }

    /// Reads all tokens once: that they are those which the hashes are of, and of the vocabulary. `progress` is told how many bytes were
    /// read, and of how many.
    ///
    /// # Errors
    /// The first that is wrong, by its file.
    pub(crate) fn check(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<(), DataError> {
        let of = self.shards.iter().map(|place| place.header.file_bytes()).sum();
        let mut done = 0;
        for place in &self.shards {
            place.get()?.check(&mut |bytes| {
                done += bytes;
                progress(done, of);
            })?;
        }
        Ok(())
    }

    /// Whether this file of tokens is here.
    pub(super) fn is_here(&self, shard: usize) -> bool {
        self.shards[shard].shard.get().is_some()
    }

    /// How many files of tokens there are, those that are not here yet among them.
    pub(super) fn told_shards(&self) -> usize {
        self.shards.len()
    }

    /// How long this file of tokens has to be.
    pub(super) fn told_bytes(&self, shard: usize) -> u64 {
        self.shards[shard].header.file_bytes()
    }

    /// The file that has this token, by its number among all that are shared.
    pub(super) fn file_of(&self, token: u64) -> usize {
        let shard = usize::try_from(token / shard::most_tokens(self.told.vocabulary));
        NAMED_FILES + shard.expect("invariant: files are few").min(self.shards.len() - 1)
    }

    /// Whether all of these tokens are here.
    pub(crate) fn are_here(&self, tokens: Range<u64>) -> bool {
        let [first, last] = [tokens.start, tokens.end.saturating_sub(1)].map(|token| self.file_of(token));
        (first..=last).all(|file| self.is_here(file - NAMED_FILES))
    }

    /// Whether all files are here.
    pub(crate) fn is_whole(&self) -> bool {
        self.shards.iter().all(|place| place.shard.get().is_some())
    }

    /// Checks a file that has come, all of it, and reads from it from now on.
    ///
    /// # Errors
    /// If it is another one than `tokens.json` says.
    pub(super) fn take_in(&self, shard: usize) -> Result<(), DataError> {
        let place = &self.shards[shard];
        if place.shard.get().is_none() {
            let shard = place.open()?;
            shard.check(&mut |_| {})?;
            // If another thread was faster, it has found the same.
            drop(place.shard.set(shard));
        }
        Ok(())
    }

    /// What is in it.
    pub(crate) fn summary(&self) -> TokensSummary {
        TokensSummary::of(self)
    }

    /// What makes its tokens of a text.
    ///
    /// # Errors
    /// If the file that says it holds something else.
    pub(crate) fn tokenizer(&self) -> Result<Tokenizer, DataError> {
        let fail = |reason| DataError::File { path: self.path.join(TOKENIZER), reason };
        let tokenizer = Tokenizer::open(&self.tokenizer).map_err(&fail)?;
        let (found, said) = (tokenizer.tokens(), self.told.vocabulary);
        match found == said {
            true => Ok(tokenizer),
            false => Err(fail(format!(
                "its vocabulary has {found} tokens, but `{TOLD}` says {said}; prepare the text again"
            ))),
        }
    }

    /// How many windows of `context` tokens it has, each with a token behind it.
    ///
    /// # Errors
    /// If `context` is none that is possible, or there are fewer than `least`.
    pub(crate) fn windows(&self, context: u32, least: u32) -> Result<u32, DataError> {
        let fail = |reason| Err(DataError::File { path: self.path.clone(), reason });
        if !CONTEXT.contains(&context) {
            let (shortest, longest) = (CONTEXT.start(), CONTEXT.end());
            return fail(format!(
                "a model can't see {context} tokens of it at once: {shortest} to {longest} are possible"
            ));
        }
        let tokens = self.told.tokens;
        let windows = (tokens - 1) / u64::from(context);
        if windows < u64::from(least) {
            let needed = u64::from(context) * u64::from(least) + 1;
            let noun = if least == 1 { "one window" } else { "two windows" };
            return fail(format!(
                "it has {tokens} tokens, but {noun} of {context} and the token behind need {needed}; prepare a longer text, or take a \
                 shorter --context"
            ));
        }
        u32::try_from(windows).or_else(|_| {
            fail(format!(
                "it has {windows} windows of {context} tokens, but {} are possible; take a longer --context",
                u32::MAX
            ))
        })
    }

    /// blake3 of how long windows are, of the tokenizer and of the tokens.
    pub(crate) fn fingerprint(&self, context: u32) -> Digest {
        let mut hasher = blake3::Hasher::new();
        hasher.update(FORMAT.as_bytes()).update(&context.to_le_bytes()).update(&self.tokenizer.digest().0);
        hasher.update(&self.told.end.to_le_bytes()).update(&self.told.vocabulary.to_le_bytes());
        for shard in &self.shards {
            hasher.update(&shard.header.tokens.to_le_bytes()).update(&shard.header.digest.0);
        }
        Digest(*hasher.finalize().as_bytes())
    }

    /// Adds `count` tokens to `tokens`, from that of the number `first` on.
    ///
    /// # Errors
    /// If a file can't be read, or has changed since it was opened.
    ///
    /// # Panics
    /// If there are not so many.
    pub(crate) fn read(&self, first: u64, count: usize, tokens: &mut Vec<u32>) -> Result<(), DataError> {
        let full = shard::most_tokens(self.told.vocabulary);
        let (mut at, mut left) = (first, count as u64);
        while left > 0 {
            let (shard, within) = (usize::try_from(at / full).expect("invariant: files are few"), at % full);
            let taken = left.min(self.shards[shard].header.tokens - within);
            self.shards[shard].get()?.read(within, taken, tokens)?;
            at += taken;
            left -= taken;
        }
        Ok(())
    }
}

impl ShardPlace {
    /// The file, once it is here.
    fn get(&self) -> Result<&Shard, DataError> {
        self.shard.get().ok_or_else(|| {
            let reason = "it is not here yet: it is on its way from other members".to_owned();
            DataError::File { path: self.path.clone(), reason }
        })
    }

    /// Opens it, if it says of itself what `tokens.json` says of it.
    fn open(&self) -> Result<Shard, DataError> {
        let shard = Shard::open(self.path.clone(), self.stays)?;
        let (found, said) = (shard.header, self.header);
        if found == said {
            return Ok(shard);
        }
        let reason = format!(
            "it has {} tokens of a vocabulary of {} with the blake3 {}, but `{TOLD}` says {} of {} with {}; prepare the text again",
            found.tokens, found.vocabulary, found.digest, said.tokens, said.vocabulary, said.digest
        );
        Err(DataError::File { path: self.path.clone(), reason })
    }
}

impl Shard {
    fn open(path: PathBuf, stays: bool) -> Result<Self, DataError> {
        let unreadable = |source| DataError::Unreadable { path: path.clone(), source };
        let fail = |reason: String| DataError::File { path: path.clone(), reason };
        let mut file = File::open(&path).map_err(unreadable)?;
        let stamp = Stamp::of(&file.metadata().map_err(unreadable)?);
        let mut header = [0; HEADER_BYTES];
        if stamp.bytes < HEADER_BYTES as u64 {
            return Err(fail(format!("it has {} bytes, but its header alone has {HEADER_BYTES}", stamp.bytes)));
        }
        file.read_exact(&mut header).map_err(unreadable)?;
        let header = ShardHeader::decode(&header).map_err(&fail)?;
        if header.file_bytes() != stamp.bytes {
            let (found, expected) = (stamp.bytes, header.file_bytes());
            return Err(fail(format!(
                "it has {found} bytes, but the {} tokens that it says it has take {expected}: it was cut off or changed; prepare the text \
                 again, or copy the file again",
                header.tokens
            )));
        }
        Ok(Self { header, stamp, file: stays.then_some(file), path })
    }

    /// Hashes all of it.
    fn check(&self, read: &mut dyn FnMut(u64)) -> Result<(), DataError> {
        let width = shard::width(self.header.vocabulary);
        let mut hasher = blake3::Hasher::new();
        let (mut block, mut tokens) = (Vec::new(), Vec::new());
        let mut at = 0;
        while at < self.header.tokens {
            let count = (self.header.tokens - at).min((BLOCK_BYTES / width) as u64);
            tokens.clear();
            self.read_into(at, count, &mut block, &mut tokens)?;
            hasher.update(&block);
            read(block.len() as u64);
            at += count;
        }
        let found = Digest(*hasher.finalize().as_bytes());
        if found == self.header.digest {
            return Ok(());
        }
        let reason = format!(
            "the blake3 of its tokens is {found}, but its header says {}: it was changed; prepare the text again, or copy the file again",
            self.header.digest
        );
        Err(DataError::File { path: self.path.clone(), reason })
    }

    fn read(&self, first: u64, count: u64, tokens: &mut Vec<u32>) -> Result<(), DataError> {
        self.read_into(first, count, &mut Vec::new(), tokens)
    }

    /// The bytes of these tokens, and themselves behind those that are there.
    fn read_into(&self, first: u64, count: u64, bytes: &mut Vec<u8>, tokens: &mut Vec<u32>) -> Result<(), DataError> {
        let unreadable = |source| DataError::Unreadable { path: self.path.clone(), source };
        let width = shard::width(self.header.vocabulary);
        bytes.resize(usize::try_from(count).expect("invariant: what is asked for is in memory") * width, 0);
        let again;
        let file = match &self.file {
            Some(file) => file,
            None => {
                again = File::open(&self.path).map_err(unreadable)?;
                &again
            }
        };
        read_at(file, bytes, HEADER_BYTES as u64 + first * width as u64).map_err(|source| match source.kind() {
            io::ErrorKind::UnexpectedEof => changed(&self.path, "it has become shorter"),
            _ => unreadable(source),
        })?;
        // Behind the read: what has changed before it is seen.
        if Stamp::of(&file.metadata().map_err(unreadable)?) != self.stamp {
            return Err(changed(&self.path, "its length or its time of change is another one"));
        }
        let start = tokens.len();
        shard::decode_tokens(bytes, width, tokens);
        let foreign = tokens[start..].iter().position(|token| *token >= self.header.vocabulary);
        match foreign {
            None => Ok(()),
            Some(at) => {
                let (token, at, vocabulary) = (tokens[start + at], first + at as u64, self.header.vocabulary);
                let reason = format!(
                    "token {at} of it is {token}, but the vocabulary has {vocabulary}, from 0; prepare the text again"
                );
                Err(DataError::File { path: self.path.clone(), reason })
            }
        }
    }
}

/// A file of at most `most` bytes.
fn read(path: &Path, most: u64) -> Result<Vec<u8>, DataError> {
    let unreadable = |source| DataError::Unreadable { path: path.to_owned(), source };
    let file = File::open(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > most {
        let reason = format!("it has more than {most} bytes, which no prepared text has there");
        return Err(DataError::File { path: path.to_owned(), reason });
    }
    Ok(bytes)
}
