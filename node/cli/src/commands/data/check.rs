//! `starling data check`: what a run would understand of data.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use serde_json::json;
use starling::errors::TaskError;
use starling::{Error as NodeError, ResumePolicy};
use starling_node::start::dataset;
use starling_run::{DataOptions, DataSummary, Program};
use starling_train::{DataError, Dataset, ModelProgram, tokens};

use super::{CommandError, Context, EXIT_DONE, prepare, print};
use crate::cli::CheckFlags;
use crate::commands::run;
use crate::config::FlagValue;
use crate::output::{Detail, Throttle, format};

pub(super) fn check(context: &Context, flags: &CheckFlags) -> Result<u8, CommandError> {
    let source = FlagValue { key: "data.source", flag: "--data", values: vec![flags.path.clone()] };
    let loaded = context.load(&[flags.keys.values(), &[source]].concat())?;
    let founding = loaded.founding(ResumePolicy::Fresh)?;
    let (spec, settings) = (&founding.run, loaded.settings()?);
    let path = Path::new(&flags.path);
    let prepared = match tokens::is_one(path) {
        true => Some(tokens::check(path, &mut told(context)).map_err(TaskError::from)?),
        false => None,
    };
    let program = ModelProgram::new(loaded.device()?);
    let learns_text = program.learns_text(&spec.model);
    let options = dataset::options(&settings, spec.held_out, spec.seed);
    // Only one kind of model takes it.
    let options = DataOptions { text: learns_text || prepared.is_some(), ..options };
    let spinner = context.spinner("reading the data");
    let loaded_data = Dataset::load(&options);
    drop(spinner);
    let dataset = match loaded_data {
        Err(error @ (DataError::Row { .. } | DataError::Text { .. })) if tells_bad_rows(context, &options)? => {
            // Of what is called as texts are, none of its lines may be a row.
            let instead = match error {
                DataError::Text { .. } => "; to learn it as a text, take `--model gpt`",
                _ => "",
            };
            let reason = format!("rows of it can't be used, as told above; mend them, or leave them out{instead}");
            return Err(TaskError::from(DataError::File { path: path.to_owned(), reason }).into());
        }
        loaded => loaded.map_err(TaskError::from)?,
    };
    let dataset = Arc::new(dataset);
    // Of a text that was prepared, tokens are checked before anybody has chosen a model.
    if learns_text || prepared.is_none() {
        let checked = founding.check(program.workload(dataset.clone()).as_ref());
        checked.map_err(|error| run::at_its_key(&loaded, NodeError::Run(error).into()))?;
    }
    let as_classes = prepared.is_none() && program.learns_classes(&spec.model);
    let (description, warnings) = (dataset.description(), dataset.warnings(spec.batch_size, as_classes));
    let are_numbers = program.learns_numbers(&spec.model);
    let summary = DataSummary { are_numbers, ..dataset.summary().clone() };
    // What a column without features is for, if it is for something.
    let role = |at: usize| match u32::try_from(description.column_of(at)).ok() {
        Some(number) if Some(number) == description.weights => Some("how much each row counts (--weights)"),
        Some(number) if Some(number) == description.split_by => Some("by which rows are held out (--split-by)"),
        Some(_) | None => None,
    };
    let stays_in_file = !description.is_text() && !dataset.training().are_held();
    print(
        context.global.json,
        || {
            let mut value = json!({
                "data": summary,
                "columns": dataset.preprocessing().columns,
                "feature_names": dataset.feature_names(),
                "stays_in_file": stays_in_file,
                "warnings": warnings,
                "fingerprint": description.fingerprint.to_string(),
            });
            if let Some(summary) = &prepared {
                value["tokens"] = prepare::of(path, summary);
            }
            value
        },
        || {
            let mut lines = vec![summary.to_string()];
            lines.extend(prepared.as_ref().map(|summary| format!("{}: all as it should be", prepare::line(summary))));
            lines.extend(stays_in_file.then(|| {
                format!(
                    "its samples stay where they lie, since their values take more than {} (--data-held)",
                    format::bytes(settings.data_held)
                )
            }));
            let columns = &dataset.preprocessing().columns;
            lines.extend(columns.iter().take(MAX_COLUMNS).enumerate().map(|(at, column)| {
                let coding = role(at).map_or_else(|| column.coding.to_string(), ToOwned::to_owned);
                match &*column.name {
                    "" => format!("  column {at} but for the label: {coding}"),
                    name => format!("  `{}`: {coding}", starling_run::data::shorten(name)),
                }
            }));
            let more = columns.len().saturating_sub(MAX_COLUMNS);
            lines.extend((more > 0).then(|| format!("  and {more} columns more")));
            lines.extend(warnings.iter().map(|warning| format!("warning: {warning}")));
            lines.push(format!("fingerprint {}", description.fingerprint));
            lines.iter().map(|line| format::visible(line) + "\n").collect()
        },
    )?;
    Ok(EXIT_DONE)
}

/// Prints what is wrong with the rows of a table, if more than one can't be used; whether it did.
fn tells_bad_rows(context: &Context, options: &DataOptions) -> Result<bool, CommandError> {
    let report = Dataset::bad_rows(options, MAX_BAD_ROWS).map_err(TaskError::from)?;
    if report.count() < 2 {
        return Ok(false);
    }
    print(
        context.global.json,
        || {
            let rows = report.rows.iter().map(|fault| match fault {
                DataError::Row { path, row, column, reason } => {
                    json!({ "file": path.display().to_string(), "row": row, "column": column, "reason": reason })
                }
                other => json!({ "file": null, "row": null, "column": null, "reason": other.to_string() }),
            });
            json!({ "bad_rows": rows.collect::<Vec<_>>(), "more_bad_rows": report.more })
        },
        || {
            let more = (report.more > 0).then(|| format!("and {} rows more", format::thousands(report.more)));
            let lines = report.rows.iter().map(ToString::to_string).chain(more);
            lines.map(|line| format::visible(&line) + "\n").collect()
        },
    )?;
    Ok(true)
}

/// Rows that can't be used of which each is told.
const MAX_BAD_ROWS: usize = 20;
/// Columns that are listed.
const MAX_COLUMNS: usize = 100;

/// Tells now and then how far it is.
fn told(context: &Context) -> impl FnMut(u64, u64) {
    let (console, begun) = (context.console.clone(), Instant::now());
    let is_told = context.global.detail() > Detail::Errors && !context.global.json;
    let mut throttle = Throttle::default();
    move |bytes, of| {
        let now = begun.elapsed();
        if is_told && now.as_secs() >= 1 && throttle.admits(now, bytes, of) {
            console.line(&format!("checked {} of {}", format::bytes(bytes), format::bytes(of)));
        }
    }
}
