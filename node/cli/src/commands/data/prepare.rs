//! `starling data prepare`: texts to a folder of tokens.

use std::path::Path;
use std::time::Instant;

use serde_json::json;
use starling::errors::TaskError;
use starling_train::tokens::{self, PrepareOptions, PrepareProgress, TokensSummary};

use super::super::model::part::remove_when_told;
use super::{CommandError, Context, EXIT_DONE, print};
use crate::cli::PrepareFlags;
use crate::output::{Detail, Throttle, format};

pub(super) fn prepare(context: &Context, flags: &PrepareFlags) -> Result<u8, CommandError> {
    let tokenizer = flags.tokenizer.parse().map_err(|reason: String| {
        CommandError::io(format!("take the tokenizer `{}`", flags.tokenizer))(std::io::Error::other(reason))
    })?;
    let (documents, end, out) = (flags.texts.clone(), flags.end_token.clone(), flags.out.clone());
    let options = PrepareOptions { documents, tokenizer, end, out };
    let part = tokens::part_of(&options.out).map_err(TaskError::from)?;
    remove_when_told(part).map_err(CommandError::io("listen for signals"))?;
    let mut told = told(context);
    let summary = tokens::prepare(&options, &mut told).map_err(TaskError::from)?;
    if let Some(doubt) = summary.doubt() {
        context.console.line(&format!("warning: {doubt}"));
    }
    print(
        context.global.json,
        || of(&options.out, &summary),
        || format!("wrote {}: {}\n", options.out.display(), line(&summary)),
    )?;
    Ok(EXIT_DONE)
}

/// What a text that was prepared is, for programs.
pub(super) fn of(path: &Path, summary: &TokensSummary) -> serde_json::Value {
    json!({
        "path": path,
        "vocabulary": summary.vocabulary,
        "end_token": summary.end,
        "tokenizer": summary.tokenizer.to_string(),
        "documents": summary.documents,
        "bytes": summary.bytes,
        "spelled_bytes": summary.spelled_bytes,
        "tokens": summary.tokens,
        "shards": summary.shards,
    })
}

/// The same on a line.
pub(super) fn line(summary: &TokensSummary) -> String {
    let TokensSummary { vocabulary, documents, bytes, tokens, shards, .. } = summary;
    let count =
        |count: u64, noun: &str| format!("{} {noun}{}", format::thousands(count), if count == 1 { "" } else { "s" });
    format!(
        "{} of {} are {} of {} different ones ({:.2} bytes each), in {}",
        format::bytes(*bytes),
        count(*documents, "document"),
        count(*tokens, "token"),
        format::thousands((*vocabulary).into()),
        *bytes as f64 / *tokens as f64,
        count(*shards as u64, "file")
    )
}

/// Tells now and then how far it is.
fn told(context: &Context) -> impl FnMut(PrepareProgress) {
    let (console, begun) = (context.console.clone(), Instant::now());
    let is_told = context.global.detail() > Detail::Errors && !context.global.json;
    let mut throttle = Throttle::default();
    move |progress| {
        let (line, done, whole) = match progress {
            PrepareProgress::Counting(document, of) => {
                (format!("counting words: document {} of {of}", document + 1), document as u64, of as u64)
            }
            PrepareProgress::Learning(tokens, of) => {
                (format!("learning tokens: {tokens} of {of}"), u64::from(tokens), u64::from(of))
            }
            PrepareProgress::Encoding(bytes, tokens) => {
                let line = format!("{} are {} tokens", format::bytes(bytes), format::thousands(tokens));
                (line, bytes, u64::MAX)
            }
        };
        // What is soon done needs no words.
        let now = begun.elapsed();
        if is_told && now.as_secs() >= 1 && throttle.admits(now, done, whole) {
            console.line(&line);
        }
    }
}
