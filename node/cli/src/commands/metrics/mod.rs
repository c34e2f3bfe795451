//! `starling metrics`: how the loss and the measures of a run went over its steps.

mod tensorboard;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use serde_json::json;
use starling_node::observe::metrics::{Metrics, MetricsRecord};
use starling_node::observe::report::ACCURACY;
use starling_node::observe::status::Status;
use starling_node::store::data_dir::DataDirError;

use super::{CommandError, Context, EXIT_DONE};
use crate::cli::MetricsFlags;
use crate::output::{self, Gauge, LEAST_POINTS, curve, format};

/// How often `--follow` looks.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(500);
/// How long a run's end waits for its curve.
const LAST_LOOK: Duration = Duration::from_secs(2);

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
        let path =
            tensorboard::write(folder, &metrics).map_err(CommandError::io(format!("write to {}", folder.display())))?;
        let told = || format!("{}: {} rows\n", path.display(), format::thousands(metrics.rows.len() as u64));
        super::print(context.global.json, || json!({ "tensorboard": path, "rows": metrics.rows.len() }), told)?;
        return Ok(EXIT_DONE);
    }
    let print = |text: &str| output::print(text).map_err(CommandError::io("write to stdout"));
    if flags.csv {
        print(&csv(&metrics.rows).map_err(CommandError::io("write the table"))?)?;
        return Ok(EXIT_DONE);
    }
    let line = |row: &MetricsRecord| match context.global.json {
        // As it is in the file: a JSON value would have more digits than were measured.
        true => serde_json::to_string(row).map(|text| text + "\n").unwrap_or_default(),
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
    let is_over = || match Status::read(&dir) {
        Ok(Some(status)) => {
            Ok(status.is_running() == Some(false) || flags.run.as_ref().is_some_and(|run| !status.run.starts_with(run)))
        }
        Ok(None) => Ok(true),
        Err(error) => Err(error),
    };
    loop {
        // Before it waits: what a node writes last comes soon after it says that it ends.
        let is_over = is_over()?;
        tokio::time::sleep(FOLLOW_INTERVAL).await;
        let more = metrics.read_more()?;
        print(&more.iter().map(line).collect::<String>())?;
        if is_over && more.is_empty() {
            return Ok(EXIT_DONE);
        }
    }
}

/// The loss over the steps of a run, for its end; empty if there is nothing to draw, or the disk takes its time.
pub(super) fn loss_curve(dir: &Path, run: &str) -> String {
    let (drawn, read) = sync_channel(1);
    let (dir, run) = (dir.to_owned(), run.to_owned());
    let look = move || {
        let metrics = Metrics::read(&dir, Some(&run)).ok().flatten();
        let _ = drawn.send(metrics.map(|metrics| self::drawn(&metrics.rows)).unwrap_or_default());
    };
    std::thread::Builder::new().spawn(look).ok().and_then(|_| read.recv_timeout(LAST_LOOK).ok()).unwrap_or_default()
}

/// The curve of the training loss; empty where the terminal can't draw it, or there is nothing to draw.
fn drawn(rows: &[MetricsRecord]) -> String {
    if Gauge::is_ascii() {
        return String::new();
    }
    let drawn = curve(&losses(rows));
    if drawn.is_empty() { drawn } else { format!("training loss\n{drawn}") }
}

/// The training loss by step.
fn losses(rows: &[MetricsRecord]) -> Vec<(u64, f64)> {
    let loss = |row: &MetricsRecord| {
        row.training.as_ref().and_then(|training| training.loss).map(|loss| (row.step, f64::from(loss)))
    };
    rows.iter().filter_map(loss).collect()
}

/// What people see: the curve, and the last figures.
fn page(metrics: &Metrics) -> String {
    let rows = &metrics.rows;
    let mut page = drawn(rows);
    let points = losses(rows).len();
    if points < LEAST_POINTS {
        // A run of many steps may have few: they are told by the time.
        page += &format!(
            "no curve of the training loss: it has {points} of the {LEAST_POINTS} points that one needs, and is told a few times a second\n"
        );
    }
    let last = |is_training: bool| rows.iter().rev().find(|row| row.training.is_some() == is_training);
    page.extend([last(true), last(false)].into_iter().flatten().map(said));
    page + &format!("{}: {} rows\n", metrics.path.display(), format::thousands(rows.len() as u64))
}

/// A row as a line.
fn said(row: &MetricsRecord) -> String {
    let figures: Vec<String> = match &row.training {
        Some(training) => {
            let loss = training.loss.map(|loss| format!("loss {}", figure(f64::from(loss))));
            let speed = format::rate(training.samples_per_s);
            loss.into_iter().chain([speed, format::members(training.members)]).collect()
        }
        None => row.held_out.iter().map(|(name, mean)| measured(name, *mean)).collect(),
    };
    let what = if row.training.is_some() { "training" } else { "held-out" };
    format!("step {}: {what} {}\n", row.step, figures.join(", "))
}

fn measured(name: &str, mean: f64) -> String {
    match name {
        ACCURACY => format::measure((&name.to_owned(), &mean)),
        _ => format!("{name} {}", figure(mean)),
    }
}

/// Four digits behind the point, or as many as say something.
fn figure(value: f64) -> String {
    match value.abs() {
        size if size != 0.0 && !(1e-3..1e6).contains(&size) => format!("{value:.3e}"),
        _ => format::loss(value),
    }
}

/// All numbers of a row, by name: `training` or `held_out`, `between`, and what was measured. What is no number is left out.
fn measures(row: &MetricsRecord, between: &str) -> Vec<(String, f64)> {
    let training = row.training.iter().flat_map(|training| {
        let all = [
            ("epoch", Some(training.epoch as f64)),
            ("loss", training.loss.map(as_measured)),
            ("samples_per_s", Some(training.samples_per_s)),
            ("waiting_share", Some(training.waiting_share)),
            ("data_wait_share", Some(training.data_wait_share)),
            ("members", Some(training.members as f64)),
            ("skipped", Some(training.skipped as f64)),
        ];
        all.into_iter().filter_map(|(name, value)| Some((format!("training{between}{name}"), value?)))
    });
    let held_out = row.held_out.iter().map(|(name, mean)| (format!("held_out{between}{name}"), *mean));
    training.chain(held_out.filter(|(_, mean)| mean.is_finite())).collect()
}

/// The number that is written with as few digits: 0.3, and not 0.30000001.
fn as_measured(loss: f32) -> f64 {
    loss.to_string().parse().unwrap_or_else(|_| f64::from(loss))
}

/// A table with a column for each measure that a row has.
fn csv(rows: &[MetricsRecord]) -> std::io::Result<String> {
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
