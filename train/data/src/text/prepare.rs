//! Texts to a folder of tokens: a vocabulary is learned or taken, and all documents are made tokens by it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::thread;

use serde::Serialize;
use starling_run::data::MAX_TOKENS;
use starling_run::sharing::numbered;
use starling_topology::Digest;

use super::folder::{MAX_SHARDS, SHARD, TOKENIZER, TOLD, TokenFolder, Told, ToldShard};
use super::shard::{self, HEADER_BYTES, ShardHeader};
use super::tokenizer::{LEAST_TOKENS, PIECE_BYTES, Tokenizer, pieces};
use super::{engine, merges};
use crate::error::DataError;
use crate::files::opened::OpenedFile;
use crate::source::check_file;

/// A vocabulary is learned from so many bytes of text, taken evenly from all of it: more say next to nothing new, and take memory.
const LEARNED_BYTES: u64 = if cfg!(test) { 64 << 10 } else { 256 << 20 };
/// More threads than this would only take memory.
const MAX_THREADS: usize = 64;
/// Longer words are nothing that a vocabulary is for.
const MAX_WORD: usize = 256;
/// The fewest tokens of a vocabulary that is made here: the bytes, and what ends a document.
const LEAST_MADE: u32 = LEAST_TOKENS + 1;

/// Which tokenizer makes tokens of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenizerPolicy {
    /// One that learns a vocabulary of so many tokens from the text: byte pair encoding, over bytes.
    Learned(u32),
    /// A token for each byte.
    Bytes,
    /// That of a `tokenizer.json`.
    File(PathBuf),
}

impl FromStr for TokenizerPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("bpe", size)) => {
                let size = size.parse().ok().filter(|size| (LEAST_MADE..=MAX_TOKENS).contains(size));
                size.map(Self::Learned).ok_or_else(|| {
                    format!(
                        "`{text}` is no tokenizer: a vocabulary has {LEAST_MADE} to {MAX_TOKENS} tokens, of which {LEAST_TOKENS} are the bytes \
                         and one ends documents; take bpe:2048, for example"
                    )
                })
            }
            None if text == "bytes" => Ok(Self::Bytes),
            None if text == "bpe" => {
                Err("how many tokens its vocabulary has is missing; take bpe:2048, for example".to_owned())
            }
            _ if text.is_empty() => Err("no tokenizer is named; take bpe:2048, bytes, or a tokenizer.json".to_owned()),
            _ => Ok(Self::File(text.into())),
        }
    }
}

/// What is prepared, and how.
#[derive(Debug, Clone)]
pub struct PrepareOptions {
    /// The texts, a document each.
    pub documents: Vec<PathBuf>,
    /// What makes tokens of them.
    pub tokenizer: TokenizerPolicy,
    /// What the token behind each document is called, of a tokenizer that is a file. `None`: by the usual names.
    pub end: Option<String>,
    /// The folder to write.
    pub out: PathBuf,
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrepareProgress {
    /// Words are counted: documents that were read, and of how many.
    Counting(usize, usize),
    /// Merges are learned: tokens of the vocabulary, and how many it is to have.
    Learning(u32, u32),
    /// Documents are made tokens: bytes of text, and how many tokens they became.
    Encoding(u64, u64),
}

/// What is in the folder of a text that was prepared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TokensSummary {
    /// How many tokens the vocabulary has.
    pub vocabulary: u32,
    /// The token behind each document.
    pub end: u32,
    /// blake3 of the tokenizer.
    pub tokenizer: Digest,
    /// How many documents there are.
    pub documents: u64,
    /// How many bytes of text these have.
    pub bytes: u64,
    /// How many bytes their tokens spell: others, if the tokenizer changes what it reads.
    pub spelled_bytes: u64,
    /// How many bytes of text are others in what the tokens spell, at least: in no order, as these have none that is known. Where the texts
    /// are not there to be compared, by how many it is longer or shorter.
    #[serde(skip)]
    pub changed_bytes: u64,
    /// How many tokens there are.
    pub tokens: u64,
    /// In how many files.
    pub shards: usize,
}

impl TokensSummary {
    pub(super) fn of(folder: &TokenFolder) -> Self {
        let Told { vocabulary, end, documents, bytes, spelled_bytes, tokens, ref shards, .. } = folder.told;
        let (tokenizer, shards) = (folder.tokenizer.digest(), shards.len());
        let changed_bytes = bytes.abs_diff(spelled_bytes);
        Self { vocabulary, end, tokenizer, documents, bytes, spelled_bytes, changed_bytes, tokens, shards }
    }

    /// What its user should look at, as a sentence.
    pub fn doubt(&self) -> Option<String> {
        let Self { bytes, spelled_bytes, changed_bytes, .. } = *self;
        // A blank here and there is what some put before each document.
        (changed_bytes > bytes / 1000).then(|| {
            // Lengths say nothing of a text that became small letters.
            let others = match changed_bytes > bytes.abs_diff(spelled_bytes) {
                true => format!(", {changed_bytes} or more of them others"),
                false => String::new(),
            };
            format!(
                "the tokenizer does not keep the text as it is: of {bytes} bytes it makes tokens that spell {spelled_bytes}{others}; bits per \
                 byte are of these"
            )
        })
    }
}

/// The folder's name until it is whole: who is interrupted removes it.
///
/// # Errors
/// If `out` is there already, or can have no such name beside it.
pub fn part_of(out: &Path) -> Result<PathBuf, DataError> {
    let refused = |reason: &str| DataError::File { path: out.to_owned(), reason: reason.to_owned() };
    if out.symlink_metadata().is_ok() {
        return Err(refused("it is there already; remove it, or name another folder"));
    }
    let name = out.file_name().ok_or_else(|| refused("it has no name that a folder could have"))?;
    Ok(out.with_file_name(format!(".{}.{}.part", name.display(), std::process::id())))
}

/// Makes tokens of texts, and writes them to a folder that appears whole or not at all. The same texts give the same bytes. One document is in memory
/// at a time.
///
/// # Errors
/// If a text can't be read or is none, the tokenizer can't be had or does not take it, or the folder can't be written.
pub fn prepare(
    options: &PrepareOptions,
    progress: &mut dyn FnMut(PrepareProgress),
) -> Result<TokensSummary, DataError> {
    prepare_by(options, thread::available_parallelism().map_or(1, |cores| cores.get().min(MAX_THREADS)), progress)
}

/// The same with so many threads, which make no difference but in time.
pub(crate) fn prepare_by(
    options: &PrepareOptions,
    threads: usize,
    progress: &mut dyn FnMut(PrepareProgress),
) -> Result<TokensSummary, DataError> {
    let PrepareOptions { documents, out, .. } = options;
    if documents.is_empty() {
        let reason = "no text is named that it could be made of".to_owned();
        return Err(DataError::File { path: out.clone(), reason });
    }
    let unwritable = |source| DataError::Unwritable { path: out.clone(), source };
    let part = part_of(out)?;
    // Before the work. One that is there is another's.
    fs::create_dir(&part).map_err(|source| DataError::Unwritable { path: part.clone(), source })?;
    let part = Part(part);
    let tokenizer = tokenizer(options, threads, progress)?;
    let mut writer = TokenWriter::begin(&part.0, &tokenizer);
    for path in documents {
        let text = super::read(path, u64::MAX)?;
        let text = std::str::from_utf8(&text.bytes).expect("invariant: a text is checked when it is read");
        let all: Vec<&str> = pieces(text, PIECE_BYTES).collect();
        // Few at a time: each core is busy, and only their tokens are in memory.
        for taken in all.chunks(threads.max(1)) {
            let tokens = tokenizer.encode_pieces(taken.to_vec());
            let tokens = tokens.map_err(|reason| DataError::File { path: path.clone(), reason })?;
            writer.told.bytes += taken.iter().map(|piece| piece.len() as u64).sum::<u64>();
            taken.iter().for_each(|piece| writer.read.count(piece.as_bytes()));
            writer.push(&tokens).map_err(unwritable)?;
            progress(PrepareProgress::Encoding(writer.told.bytes, writer.told.tokens));
        }
        writer.push(&[tokenizer.spec().end]).map_err(unwritable)?;
        writer.told.documents += 1;
    }
    let changed_bytes = writer.read.distance(&writer.spelled);
    writer.finish().map_err(unwritable)?;
    let summary = TokensSummary { changed_bytes, ..TokensSummary::of(&TokenFolder::open(&part.0)?) };
    // One that came there in the meantime stays.
    let renamed = part_of(out).and_then(|_| fs::rename(&part.0, out).map_err(unwritable));
    renamed?;
    let folder = out.parent().filter(|folder| !folder.as_os_str().is_empty());
    // That the name is on disk, too, is wished for where the system can say so.
    let _ = File::open(folder.unwrap_or_else(|| Path::new("."))).and_then(|folder| folder.sync_all());
    Ok(summary)
}

/// A folder that goes when it is dropped, unless it has another name by then.
struct Part(PathBuf);

impl Drop for Part {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn tokenizer(
    options: &PrepareOptions,
    threads: usize,
    progress: &mut dyn FnMut(PrepareProgress),
) -> Result<Tokenizer, DataError> {
    let unusable = |reason| DataError::Unusable { origin: options.documents[0].display().to_string(), reason };
    let size = match &options.tokenizer {
        TokenizerPolicy::File(path) => return Tokenizer::read(path, options.end.as_deref()),
        TokenizerPolicy::Bytes => return Tokenizer::of_merges(&[]).map_err(unusable),
        TokenizerPolicy::Learned(size) => *size,
    };
    let words = words(&options.documents, threads, progress)?;
    let merges = merges::learn(&words, LEAST_MADE, size, &mut |tokens| {
        progress(PrepareProgress::Learning(tokens, size));
    });
    Tokenizer::of_merges(&merges).map_err(unusable)
}

/// How many bytes a document has, unpacked.
fn text_bytes(path: &Path) -> Result<u64, DataError> {
    check_file(path)?;
    super::check_is_file(path)?;
    let file = OpenedFile::open(path)?;
    match file.is_gzipped()? {
        // Nothing else says it of any such file.
        true => Ok(super::read(path, u64::MAX)?.bytes.len() as u64),
        false => Ok(file.bytes()),
    }
}

/// The words of the documents, with how often each comes.
fn words(
    documents: &[PathBuf],
    threads: usize,
    progress: &mut dyn FnMut(PrepareProgress),
) -> Result<BTreeMap<Vec<u8>, u64>, DataError> {
    let bytes = documents.iter().map(|path| text_bytes(path)).sum::<Result<u64, DataError>>()?;
    let every = usize::try_from(bytes.div_ceil(LEARNED_BYTES)).unwrap_or(usize::MAX).max(1);
    let mut words = BTreeMap::new();
    let mut number = 0_usize;
    for (at, path) in documents.iter().enumerate() {
        progress(PrepareProgress::Counting(at, documents.len()));
        let text = super::read(path, u64::MAX)?;
        let text = std::str::from_utf8(&text.bytes).expect("invariant: a text is checked when it is read");
        let taken = pieces(text, PIECE_BYTES).filter(|_| {
            number += 1;
            (number - 1).is_multiple_of(every)
        });
        let taken: Vec<&str> = taken.collect();
        let counted = thread::scope(|scope| {
            let shares = taken.chunks(taken.len().div_ceil(threads.max(1)).max(1));
            let threads: Vec<_> = shares.map(|share| scope.spawn(|| counted(share))).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().map_err(|_| "counting its words went wrong".to_owned())?)
                .collect::<Result<Vec<_>, String>>()
        });
        // Sums don't depend on who has counted what.
        for (word, count) in
            counted.map_err(|reason| DataError::File { path: path.clone(), reason })?.into_iter().flatten()
        {
            *words.entry(word).or_default() += count;
        }
    }
    Ok(words)
}

fn counted(pieces: &[&str]) -> Result<BTreeMap<Vec<u8>, u64>, String> {
    let mut words: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    for piece in pieces {
        engine::words(piece, &mut |word| {
            let Some(bytes) = super::spelling::letters(word).filter(|bytes| bytes.len() <= MAX_WORD) else { return };
            match words.get_mut(&bytes) {
                Some(count) => *count += 1,
                None => drop(words.insert(bytes, 1)),
            }
        })?;
    }
    Ok(words)
}

/// Tokens on their way to the files of a folder.
struct TokenWriter<'a> {
    folder: &'a Path,
    tokenizer: &'a Tokenizer,
    told: Told,
    /// The texts, and what their tokens spell.
    read: ByteCounts,
    spelled: ByteCounts,
    /// The one that is being written.
    shard: Option<Writing>,
}

/// How often each byte comes.
struct ByteCounts([u64; 256]);

impl ByteCounts {
    const NONE: Self = Self([0; 256]);

    fn count(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0[usize::from(*byte)] += 1;
        }
    }

    /// How many bytes were lost or have come between these and those, whichever are more.
    fn distance(&self, others: &Self) -> u64 {
        let more = |these: &Self, those: &Self| {
            these.0.iter().zip(&those.0).map(|(these, those)| these.saturating_sub(*those)).sum::<u64>()
        };
        more(self, others).max(more(others, self))
    }
}

struct Writing {
    file: File,
    hasher: blake3::Hasher,
    tokens: u64,
}

impl<'a> TokenWriter<'a> {
    fn begin(folder: &'a Path, tokenizer: &'a Tokenizer) -> Self {
        let told = Told::begin(tokenizer.spec(), tokenizer.tokens());
        Self { folder, tokenizer, told, read: ByteCounts::NONE, spelled: ByteCounts::NONE, shard: None }
    }

    fn push(&mut self, mut tokens: &[u32]) -> io::Result<()> {
        let tokenizer = self.tokenizer;
        for token in tokens {
            let spelled = tokenizer.spelled(*token);
            self.told.spelled_bytes += spelled.len() as u64;
            self.spelled.count(spelled);
        }
        let (full, width) = (shard::most_tokens(self.told.vocabulary), shard::width(self.told.vocabulary));
        let mut bytes = Vec::new();
        while !tokens.is_empty() {
            let writing = match &mut self.shard {
                Some(writing) => writing,
                None => {
                    let mut file = File::create_new(self.folder.join(numbered(SHARD, self.told.shards.len())))?;
                    file.write_all(&[0; HEADER_BYTES])?;
                    self.shard.insert(Writing { file, hasher: blake3::Hasher::new(), tokens: 0 })
                }
            };
            let room = usize::try_from(full - writing.tokens).unwrap_or(usize::MAX).min(tokens.len());
            let (taken, rest) = tokens.split_at(room);
            bytes.clear();
            shard::encode_tokens(taken, width, &mut bytes);
            writing.hasher.update(&bytes);
            writing.file.write_all(&bytes)?;
            writing.tokens += taken.len() as u64;
            self.told.tokens += taken.len() as u64;
            let is_full = writing.tokens == full;
            tokens = rest;
            if is_full {
                self.end_shard()?;
            }
        }
        Ok(())
    }

    /// The header is written once it is known what it says.
    fn end_shard(&mut self) -> io::Result<()> {
        let Some(Writing { mut file, hasher, tokens }) = self.shard.take() else { return Ok(()) };
        let digest = Digest(*hasher.finalize().as_bytes());
        let header = ShardHeader { vocabulary: self.told.vocabulary, tokens, digest };
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&header.encode())?;
        file.sync_all()?;
        if self.told.shards.len() == MAX_SHARDS {
            return Err(io::Error::other(format!(
                "it would be more than {MAX_SHARDS} files of tokens; prepare fewer texts"
            )));
        }
        self.told.shards.push(ToldShard { tokens, blake3: digest.to_string() });
        Ok(())
    }

    fn finish(mut self) -> io::Result<()> {
        self.end_shard()?;
        for (name, bytes) in [(TOKENIZER, self.tokenizer.spec().json.as_bytes()), (TOLD, &self.told.encode())] {
            let mut file = File::create_new(self.folder.join(name))?;
            file.write_all(bytes)?;
            file.sync_all()?;
        }
        Ok(())
    }
}
