//! Flags of the verbs that look at data, and prepare texts.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::keys::{KeyFlags, RUN};

const PREPARE_EXAMPLES: &str = "\
Examples:
  starling data prepare book.txt --out text/
  starling data prepare notes/*.txt --tokenizer bpe:8192 --out text/
  starling data prepare book.txt --tokenizer tokenizer.json --end-token '</s>' --out text/
  starling run --model gpt:4x128 --data text/

Each TEXT is a document, plain UTF-8 or gzipped; the end token comes behind each. The same texts and tokenizer give the same bytes, on any
machine. DIR appears once it is whole; who is interrupted leaves nothing. A tokenizer.json is one of Hugging Face's `tokenizers`: trust it
as you trust the data, since how long its regular expressions take is up to it.";

const CHECK_EXAMPLES: &str = "\
Examples:
  starling data check text/
  starling data check table.csv --label species
  starling data check images/ --image-size 32 --held-out 0.1 --json

It says what `starling run` with the same flags would understand of the data, and trains nothing. Of a text that was prepared, every byte
is read and checked. A text that was not needs `--model gpt`, as in `starling run`.";

/// `starling data`.
#[derive(Debug, Clone, Subcommand)]
pub enum DataVerb {
    /// Make tokens of texts, by a vocabulary that is learned from them or taken from a file, for `--data` of a language model
    #[command(after_help = PREPARE_EXAMPLES)]
    Prepare(PrepareFlags),
    /// Check data, and say what a run would understand of it; exit code 1 if it can't be used
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckFlags),
    /// Show the first samples of data as a model sees them, and what is in a text that was prepared
    Show(SampleFlags),
}

/// `starling data prepare`.
#[derive(Debug, Clone, Args)]
pub struct PrepareFlags {
    /// The texts, a document each
    #[arg(value_name = "TEXT", required = true)]
    pub texts: Vec<PathBuf>,
    /// bpe:N to learn a vocabulary of N tokens from the texts, 257 to 1048576; bytes for a token each; or a tokenizer.json
    #[arg(long, value_name = "bpe:N|bytes|FILE", default_value = "bpe:2048", value_parser = tokenizer)]
    pub tokenizer: String,
    /// Of a tokenizer.json: the token behind each document, by its name [default: the first that it has of the usual ones]
    #[arg(long, value_name = "NAME", allow_hyphen_values = true)]
    pub end_token: Option<String>,
    /// The folder to write; it must not be there
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}

/// `starling data check`.
#[derive(Debug, Clone, Args)]
pub struct CheckFlags {
    /// What `--data` of a run would name: a table, images, a text, a folder that was prepared, or `digits`
    #[arg(value_name = "PATH", conflicts_with = "data.source")]
    pub path: String,
    /// Flags, as `starling run` would take them.
    #[command(flatten)]
    pub keys: KeyFlags<RUN>,
}

/// `starling data show`.
#[derive(Debug, Clone, Args)]
pub struct SampleFlags {
    /// What `--data` of a run would name: a table, images, a folder that was prepared, `digits`, or, with `--model gpt`, a text
    #[arg(value_name = "PATH", conflicts_with = "data.source")]
    pub path: String,
    /// How many samples are shown
    #[arg(long, visible_alias = "windows", value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub samples: u16,
    /// Flags, as `starling run` would take them.
    #[command(flatten)]
    pub keys: KeyFlags<RUN>,
}

/// A tokenizer, if one can be called so.
fn tokenizer(text: &str) -> Result<String, String> {
    #[cfg(feature = "train")]
    text.parse::<starling_train::tokens::TokenizerPolicy>()?;
    Ok(text.to_owned())
}
