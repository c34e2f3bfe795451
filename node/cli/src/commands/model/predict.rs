//! `starling predict`: what a trained model says of samples.

use std::ffi::OsStr;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde_json::{Map, json};
use starling::export::{
    EvaluationSet, Format, InputSpec, LabelPolicy, Model, ModelError, PredictionOptions, PredictionReport, Reader,
};
use starling_node::store::private_file::for_others;
use starling_run::program::export::file_place;

use super::part::Part;
use super::{CommandError, Context, EXIT_DONE, print};
use crate::cli::{FormatName, PredictFlags};
use crate::output::format;

pub(in super::super) fn predict(context: &Context, flags: &PredictFlags) -> Result<u8, CommandError> {
    if context.global.json && flags.out.is_none() && flags.format == Some(FormatName::Csv) {
        return Err(CommandError::OneFormat);
    }
    let place = flags.out.as_ref().map(|out| place_of(out, flags)).transpose()?;
    let device = context.load(&flags.values())?.device()?;
    let model = flags.model.place().open(device)?;
    model.check_labels()?;
    let inputs = InputSpec { separated_by: flags.delimiter, ..model.inputs()? };
    let mut reader = Reader::open(&flags.data, &inputs, LabelPolicy::Unused).map_err(ModelError::from)?;
    let shown = PredictionOptions {
        format: format_of(flags, context.global.json),
        probabilities: flags.proba,
        top: flags.top_k.unwrap_or(0).into(),
    };
    let Some((path, place)) = flags.out.as_ref().zip(place) else {
        return match model.predict_all(&mut reader, &shown, &mut BufWriter::new(io::stdout())) {
            // Who reads has seen enough.
            Err(ModelError::Output(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(EXIT_DONE),
            result => Ok(result.map(|_| EXIT_DONE)?),
        };
    };
    let spinner = context.spinner("predicting");
    let report = write(path, place, &model, &mut reader, &shown)?;
    drop(spinner);
    let samples = report.samples;
    print(
        context.global.json,
        || {
            let mut told = json!({ "file": path, "samples": samples, "model": model.name() });
            if let Some((which, measured)) = &report.measured {
                let measures: Map<_, _> =
                    measured.measures.iter().map(|(name, mean)| ((*name).to_owned(), json!(mean))).collect();
                let is_held_out = *which == EvaluationSet::HeldOut;
                told["measured"] =
                    json!({ "samples": measured.samples, "held_out": is_held_out, "measures": measures });
            }
            told
        },
        || {
            let told = format!("wrote {} predictions to {}\n", format::thousands(samples), path.display());
            told + &measured(&report)
        },
    )?;
    Ok(EXIT_DONE)
}

/// How good the predictions are, as a line; empty if nothing says what is right.
fn measured(report: &PredictionReport) -> String {
    let Some((which, measured)) = &report.measured else { return String::new() };
    let of = match which {
        EvaluationSet::HeldOut => "samples that the run held out",
        EvaluationSet::All => "samples with labels",
    };
    let told = measured.measures.iter().filter(|(_, mean)| mean.is_finite());
    let told: Vec<String> = told.map(|(name, mean)| format::measure((&(*name).to_owned(), mean))).collect();
    format!("{} on the {} {of}\n", told.join(", "), format::thousands(measured.samples))
}

/// Where predictions are written that are to be at `out`: not over what they are made of.
fn place_of(out: &Path, flags: &PredictFlags) -> Result<PathBuf, CommandError> {
    let refused = |reason: String| CommandError::io(format!("write {}", out.display()))(io::Error::other(reason));
    let place = file_place(out).map_err(|error| match error {
        starling_run::Error::Export { reason, .. } => refused(reason),
        other => other.into(),
    })?;
    if let Ok(there) = place.canonicalize() {
        let sources = [Path::new(&flags.data), flags.model.model.as_path()].map(Path::canonicalize);
        let is_source = |source: &PathBuf| there == *source || there.parent() == Some(source.as_path());
        if let Some(source) = sources.into_iter().flatten().find(is_source) {
            let reason =
                format!("it is what the predictions are made of, or lies in {}; name another file", source.display());
            return Err(refused(reason));
        }
    }
    Ok(place)
}

/// Until all is written, the file has another name: who is interrupted leaves nothing.
fn write(
    path: &Path,
    place: PathBuf,
    model: &Model,
    reader: &mut Reader,
    shown: &PredictionOptions,
) -> Result<PredictionReport, CommandError> {
    let failed = || CommandError::io(format!("write {}", path.display()));
    let part = Part::begin(place).map_err(failed())?;
    let mut file = BufWriter::new(&part.file);
    let report = model.predict_all(reader, shown, &mut file)?;
    file.flush().map_err(failed())?;
    drop(file);
    for_others(path, || part.finish()).map_err(failed())?;
    Ok(report)
}

fn format_of(flags: &PredictFlags, json: bool) -> Format {
    let by_name = flags.out.as_ref().map_or(json, |out| out.extension() == Some(OsStr::new("jsonl")));
    match flags.format {
        Some(FormatName::Jsonl) => Format::JsonLines,
        None if by_name => Format::JsonLines,
        Some(FormatName::Csv) | None => Format::Csv,
    }
}
