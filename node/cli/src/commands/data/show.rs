//! `starling data show`: the first samples as a model sees them.

use std::path::Path;

use serde_json::{Value, json};
use starling::ResumePolicy;
use starling::errors::TaskError;
use starling_node::start::dataset;
use starling_run::data::USUAL_CONTEXT;
use starling_run::{DataOptions, Program};
use starling_train::{Dataset, ModelProgram, Tokenizer, tokens};

use super::{CommandError, Context, EXIT_DONE, prepare, print};
use crate::cli::SampleFlags;
use crate::config::FlagValue;
use crate::output::format;

/// What is between two tokens where they are shown.
const BETWEEN: &str = "|";
/// Features of a row that are shown, and the largest image that is drawn.
const MAX_FEATURES: usize = 20;
const MAX_SIDES: [usize; 2] = [48, 96];
/// From dark to light.
const SHADES: &[u8] = b" .:-=+*#%@";

pub(super) fn show(context: &Context, flags: &SampleFlags) -> Result<u8, CommandError> {
    let source = FlagValue { key: "data.source", flag: "--data", values: vec![flags.path.clone()] };
    let loaded = context.load(&[flags.keys.values(), &[source]].concat())?;
    let founding = loaded.founding(ResumePolicy::Fresh)?;
    let (spec, settings) = (&founding.run, loaded.settings()?);
    let is_prepared = tokens::is_one(Path::new(&flags.path));
    let learns_text = is_prepared || ModelProgram::new(loaded.device()?).learns_text(&spec.model);
    let window = settings.context.unwrap_or(USUAL_CONTEXT);
    let options = DataOptions {
        text: learns_text,
        context: if learns_text { Some(window) } else { settings.context },
        // Of a text that was prepared all of it, in its order.
        held_out: if is_prepared { 0.0 } else { spec.held_out },
        ..dataset::options(&settings, spec.held_out, spec.seed)
    };
    let dataset = Dataset::load(&options).map_err(TaskError::from)?;
    let shown = u32::try_from(dataset.training().len()).unwrap_or(u32::MAX).min(flags.samples.into());
    let numbers: Vec<u32> = (0..shown).collect();
    match learns_text {
        true => show_windows(context, Path::new(&flags.path), &dataset, is_prepared, &numbers),
        false => show_rows(context, &dataset, &numbers),
    }
}

/// Windows of a text.
fn show_windows(
    context: &Context,
    path: &Path,
    dataset: &Dataset,
    is_prepared: bool,
    numbers: &[u32],
) -> Result<u8, CommandError> {
    let summary = is_prepared.then(|| tokens::summary(path)).transpose().map_err(TaskError::from)?;
    let samples = dataset.training();
    let windows = samples.windows(numbers).map_err(TaskError::from)?;
    let length = samples.features() + 1;
    let spelled = |window: &[u32]| -> Vec<String> {
        let name = |token: &u32| match dataset.tokenizer() {
            Some(tokenizer) => name(tokenizer, *token),
            None => u8::try_from(*token).map_or_else(|_| String::new(), |byte| byte.escape_ascii().to_string()),
        };
        window.iter().map(name).collect()
    };
    print(
        context.global.json,
        || {
            let mut value =
                summary.as_ref().map_or_else(|| json!({ "data": dataset.summary() }), |it| prepare::of(path, it));
            if let Some(summary) = &summary {
                value["bytes_per_token"] = json!(summary.bytes as f64 / summary.tokens as f64);
            }
            value["context"] = json!(samples.features());
            value["samples"] = json!(samples.len());
            let each = windows.chunks_exact(length);
            value["windows"] = each.map(|window| json!({ "tokens": window, "texts": spelled(window) })).collect();
            value
        },
        || {
            let mut lines = match &summary {
                Some(summary) => vec![
                    format!("{}: {}", path.display(), prepare::line(summary)),
                    format!("tokenizer {}, end token {}", summary.tokenizer, summary.end),
                ],
                None => vec![dataset.summary().to_string()],
            };
            lines.push(format!(
                "{} windows of {} tokens; the first {}, each with the token behind it:",
                format::thousands(samples.len() as u64),
                samples.features(),
                numbers.len()
            ));
            lines.extend(windows.chunks_exact(length).map(|window| format!("  {}", spelled(window).join(BETWEEN))));
            lines.iter().map(|line| format::visible(line) + "\n").collect()
        },
    )?;
    Ok(EXIT_DONE)
}

/// Rows of a table, or images.
fn show_rows(context: &Context, dataset: &Dataset, numbers: &[u32]) -> Result<u8, CommandError> {
    let samples = dataset.training();
    let (rows, labels) = samples.read(numbers).map_err(TaskError::from)?;
    let rows = || rows.chunks_exact(samples.features().max(1)).zip(&labels);
    let count = dataset.description().label.len().max(1);
    let label = |class: u32| -> Value {
        match (
            dataset.class_names().get(class as usize),
            dataset.label_numbers().chunks_exact(count).nth(class as usize),
        ) {
            (Some(name), _) => json!(name),
            (None, Some([number])) => json!(number),
            (None, numbers) => json!(numbers),
        }
    };
    print(
        context.global.json,
        || {
            json!({
                "data": dataset.summary(),
                "feature_names": dataset.feature_names(),
                "samples": rows().map(|(row, class)| json!({ "label": label(*class), "features": row })).collect::<Vec<_>>(),
            })
        },
        || {
            let mut lines = vec![
                dataset.summary().to_string(),
                format!("the first {} samples to train on, as a model sees them:", numbers.len()),
            ];
            for (row, class) in rows() {
                let told = match label(*class) {
                    Value::String(name) => name,
                    number => number.to_string(),
                };
                lines.push(format!("  {}: {}", starling_run::data::shorten(&told), features(dataset, row)));
                lines.extend(drawn(dataset.description().shape, row).into_iter().map(|line| format!("    {line}")));
            }
            lines.iter().map(|line| format::visible(line) + "\n").collect()
        },
    )?;
    Ok(EXIT_DONE)
}

/// The features of a row on one line, as far as they are shown.
fn features(dataset: &Dataset, row: &[f32]) -> String {
    let names = dataset.feature_names();
    let feature = |(at, value): (usize, &f32)| match names.get(at) {
        Some(name) => format!("{} {value:.4}", starling_run::data::shorten(name)),
        None => format!("{value:.4}"),
    };
    let told: Vec<String> = row.iter().enumerate().take(MAX_FEATURES).map(feature).collect();
    let more = row.len().saturating_sub(MAX_FEATURES);
    told.join(", ") + &if more > 0 { format!(", and {more} more") } else { String::new() }
}

/// An image by letters, all its channels together; nothing of what is none, or too large.
fn drawn([channels, height, width]: [u32; 3], row: &[f32]) -> Vec<String> {
    let [channels, height, width] = [channels, height, width].map(|side| side as usize);
    if height < 2 || width < 2 || height > MAX_SIDES[0] || width > MAX_SIDES[1] {
        return Vec::new();
    }
    let shade = |at: usize| {
        let light = (0..channels).map(|channel| row[channel * height * width + at]).sum::<f32>() / channels as f32;
        char::from(SHADES[((light * SHADES.len() as f32) as usize).min(SHADES.len() - 1)])
    };
    let line = |y: usize| (0..width).map(|x| shade(y * width + x)).collect::<String>();
    (0..height).map(|y| line(y).trim_end().to_owned()).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_images_are_drawn_from_dark_to_light() {
        assert_eq!(drawn([1, 2, 3], &[0.0, 0.5, 1.0, 1.0, 0.0, 0.0]), [" +@", "@"]);
        // Channels are taken together.
        assert_eq!(drawn([2, 2, 2], &[1.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]), ["@+", ""]);
        assert!(drawn([1, 1, 64], &[0.0; 64]).is_empty() && drawn([1, 49, 2], &[0.0; 98]).is_empty());
    }
}
