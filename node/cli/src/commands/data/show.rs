//! `starling data show`: a text that was prepared, as a model sees it.

use serde_json::json;
use starling::errors::TaskError;
use starling_run::DataOptions;
use starling_train::{Dataset, Tokenizer, tokens};

use super::{CommandError, Context, EXIT_DONE, prepare, print};
use crate::cli::WindowFlags;
use crate::output::format;

/// What is between two tokens where they are shown.
const BETWEEN: &str = "|";

pub(super) fn show(context: &Context, flags: &WindowFlags) -> Result<u8, CommandError> {
    let summary = tokens::summary(&flags.path).map_err(TaskError::from)?;
    let options = DataOptions {
        source: flags.path.display().to_string(),
        text: true,
        context: Some(flags.context),
        // All of it, in its order.
        held_out: 0.0,
        ..DataOptions::default()
    };
    // Which reads and checks all of it.
    let dataset = Dataset::load(&options).map_err(TaskError::from)?;
    let samples = dataset.training();
    let shown = u32::try_from(samples.len()).unwrap_or(u32::MAX).min(flags.windows.into());
    let numbers: Vec<u32> = (0..shown).collect();
    let windows = samples.windows(&numbers).map_err(TaskError::from)?;
    let length = samples.features() + 1;
    let spelled = |window: &[u32]| -> Vec<String> {
        let tokenizer = dataset.tokenizer();
        window.iter().map(|token| tokenizer.map_or_else(String::new, |tokenizer| name(tokenizer, *token))).collect()
    };
    print(
        context.global.json,
        || {
            let mut value = prepare::of(&flags.path, &summary);
            value["bytes_per_token"] = json!(summary.bytes as f64 / summary.tokens as f64);
            value["context"] = json!(flags.context);
            value["samples"] = json!(samples.len());
            let each = windows.chunks_exact(length);
            value["windows"] = each.map(|window| json!({ "tokens": window, "texts": spelled(window) })).collect();
            value
        },
        || {
            let mut lines = vec![
                format!("{}: {}", flags.path.display(), prepare::line(&summary)),
                format!("tokenizer {}, end token {}", summary.tokenizer, summary.end),
                format!(
                    "{} windows of {} tokens; the first {shown}, each with the token behind it:",
                    format::thousands(samples.len() as u64),
                    flags.context
                ),
            ];
            lines.extend(windows.chunks_exact(length).map(|window| format!("  {}", spelled(window).join(BETWEEN))));
            lines.iter().map(|line| format::visible(line) + "\n").collect()
        },
    )?;
    Ok(EXIT_DONE)
}

/// What a token spells, on one line.
fn name(tokenizer: &Tokenizer, token: u32) -> String {
    let spelled = tokenizer.spelled(token);
    match std::str::from_utf8(spelled) {
        _ if spelled.is_empty() => format!("<{token}>"),
        Ok(text) => text.escape_debug().to_string(),
        Err(_) => spelled.escape_ascii().to_string(),
    }
}
