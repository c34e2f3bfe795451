//! `starling metrics`: how the loss and the measures of a run went over its steps.

mod tensorboard;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::json;
use starling_node::observe::metrics::{Metrics, Row};
use starling_node::observe::status::Status;
use starling_node::store::data_dir::DataDirError;

use super::{CommandError, Context, EXIT_DONE};
use crate::cli::MetricsFlags;
use crate::output::{self, Gauge, curve, format};

/// How often `--follow` looks.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(500);

pub(super) async fn metrics(context: &Context, flags: &MetricsFlags) -> Result<u8, CommandError> {
    let dir = match &flags.dir {
        Some(dir) => dir.clone(),
        None => context.load(flags.data_dir.values())?.data_dir()?,
    };
    let mut metrics = Metrics::read(&dir, flags.run.as_deref())?.ok_or_else(|| DataDirError::NoMetrics(dir.clone()))?;
    if metrics.damaged > 0 {
        let (count, path) = (metrics.damaged, metrics.path.display());
        context.console.line(&format!("warning: {count} lines of {path} can't be read, and are left out"));
    }
    if let Some(folder) = &flags.tensorboard {
        let path = tensorboard::write(folder, &metrics.rows)
            .map_err(CommandError::io(format!("write to {}", folder.display())))?;
        let told = || format!("{}: {} rows\n", path.display(), format::thousands(metrics.rows.len() as u64));
        super::print(context.global.json, || json!({ "tensorboard": path, "rows": metrics.rows.len() }), told)?;
        return Ok(EXIT_DONE);
    }
    let print = |text: &str| output::print(text).map_err(CommandError::io("write to stdout"));
    if flags.csv {
        print(&csv(&metrics.rows).map_err(CommandError::io("write the table"))?)?;
        return Ok(EXIT_DONE);
    }
    let line = |row: &Row| match context.global.json {
        true => format!("{}\n", json!(row)),
        false => said(row),
    };
    if !context.global.json && !flags.follow {
        print(&page(&metrics))?;
        return Ok(EXIT_DONE);
    }
    print(&metrics.rows.iter().map(line).collect::<String>())?;
    if !flags.follow {
        return Ok(EXIT_DONE);
    }
    loop {
        // Before it looks: what is written until the end is read.
        let is_over = Status::read(&dir)?.is_none_or(|status| status.is_running() == Some(false));
        print(&metrics.read_more()?.iter().map(line).collect::<String>())?;
        if is_over {
            return Ok(EXIT_DONE);
        }
        tokio::time::sleep(FOLLOW_INTERVAL).await;
    }
}

/// The loss over the steps of the run that was measured last in a data directory, for the end of a run; empty if there is none.
pub(super) fn loss_curve(dir: &std::path::Path) -> String {
    let read = Metrics::read(dir, None).ok().flatten();
    read.map(|metrics| drawn(&metrics.rows)).filter(|drawn| !drawn.is_empty()).unwrap_or_default()
}

/// The curve of the training loss; empty where the terminal can't draw it, or there is nothing to draw.
fn drawn(rows: &[Row]) -> String {
    if Gauge::is_ascii() {
        return String::new();
    }
    let loss =
        |row: &Row| row.training.as_ref().and_then(|training| training.loss).map(|loss| (row.step, f64::from(loss)));
    let drawn = curve(&rows.iter().filter_map(loss).collect::<Vec<_>>());
    if drawn.is_empty() { drawn } else { format!("training loss\n{drawn}") }
}

/// What people see: the curve, and the last figures.
fn page(metrics: &Metrics) -> String {
    let rows = &metrics.rows;
    let mut page = drawn(rows);
    let last = |is_training: bool| rows.iter().rev().find(|row| row.training.is_some() == is_training);
    page.extend([last(true), last(false)].into_iter().flatten().map(said));
    page + &format!("{}: {} rows\n", metrics.path.display(), format::thousands(rows.len() as u64))
}

/// A row as a line.
fn said(row: &Row) -> String {
    let measures = measures(row, " ").into_iter().map(|(name, value)| format!("{name} {}", short(value)));
    format!("step {}: {}\n", row.step, measures.collect::<Vec<_>>().join(", "))
}

/// Six digits that say something.
fn short(value: f64) -> String {
    if value == value.trunc() && value.abs() < 1e15 { format!("{value}") } else { format!("{value:.4}") }
}

/// All numbers of a row, by name: `training` or `held_out`, `between`, and what was measured.
fn measures(row: &Row, between: &str) -> Vec<(String, f64)> {
    let training = row.training.iter().flat_map(|training| {
        let all = [
            ("epoch", Some(training.epoch as f64)),
            ("loss", training.loss.map(f64::from)),
            ("samples_per_s", Some(training.samples_per_s)),
            ("waiting_share", Some(training.waiting_share)),
            ("members", Some(training.members as f64)),
            ("skipped", Some(training.skipped as f64)),
        ];
        all.into_iter().filter_map(|(name, value)| Some((format!("training{between}{name}"), value?)))
    });
    training.chain(row.held_out.iter().map(|(name, mean)| (format!("held_out{between}{name}"), *mean))).collect()
}

/// A table with a column for each measure that a row has.
fn csv(rows: &[Row]) -> std::io::Result<String> {
    let names: BTreeSet<String> = rows.iter().flat_map(|row| measures(row, "_")).map(|(name, _)| name).collect();
    let mut table = csv::Writer::from_writer(Vec::new());
    table.write_record(["time", "step"].into_iter().chain(names.iter().map(String::as_str)))?;
    for row in rows {
        let measures: BTreeMap<String, f64> = measures(row, "_").into_iter().collect();
        let cells = names.iter().map(|name| measures.get(name).map_or_else(String::new, f64::to_string));
        table.write_record([row.time.clone(), row.step.to_string()].into_iter().chain(cells))?;
    }
    let bytes = table.into_inner().map_err(csv::IntoInnerError::into_error)?;
    Ok(String::from_utf8(bytes).expect("invariant: only text was written"))
}
