//! `starling predict`: what a trained model says of samples.

use std::ffi::OsStr;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::Path;

use atomic_write_file::AtomicWriteFile;
use serde_json::json;
use starling::export::{Format, Labels, Model, ModelError, Reader, Shown};
use starling_node::store::private_file::for_others;

use super::{CommandError, Context, EXIT_DONE, print};
use crate::cli::{FormatName, PredictFlags};
use crate::output::format;

pub(in super::super) fn predict(context: &Context, flags: &PredictFlags) -> Result<u8, CommandError> {
    let device = context.load(&flags.values())?.device()?;
    let model = flags.model.place().open(device)?;
    let mut reader = Reader::open(&flags.data, &model.inputs()?, Labels::Unused).map_err(ModelError::from)?;
    let shown = Shown {
        format: format_of(flags, context.global.json),
        probabilities: flags.proba,
        top: flags.top_k.unwrap_or(0).into(),
    };
    let Some(path) = &flags.out else {
        return match model.predict_all(&mut reader, &shown, &mut BufWriter::new(io::stdout().lock())) {
            // Who reads has seen enough.
            Err(ModelError::Output(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(EXIT_DONE),
            result => Ok(result.map(|_| EXIT_DONE)?),
        };
    };
    let samples = write(path, &model, &mut reader, &shown)?;
    print(
        context.global.json,
        || json!({ "file": path, "samples": samples, "model": model.name() }),
        || format!("wrote {} predictions to {}\n", format::thousands(samples), path.display()),
    )?;
    Ok(EXIT_DONE)
}

/// Until all is written, the file has no name: who is interrupted leaves nothing.
fn write(path: &Path, model: &Model, reader: &mut Reader, shown: &Shown) -> Result<u64, CommandError> {
    let failed = || CommandError::io(format!("write {}", path.display()));
    let mut file = BufWriter::new(AtomicWriteFile::open(path).map_err(failed())?);
    let samples = model.predict_all(reader, shown, &mut file)?;
    file.flush().map_err(failed())?;
    let file = file.into_inner().map_err(|error| failed()(error.into_error()))?;
    for_others(path, || file.commit()).map_err(failed())?;
    Ok(samples)
}

fn format_of(flags: &PredictFlags, json: bool) -> Format {
    let by_name = flags.out.as_ref().map_or(json, |out| out.extension() == Some(OsStr::new("jsonl")));
    match flags.format {
        Some(FormatName::Jsonl) => Format::JsonLines,
        None if by_name => Format::JsonLines,
        Some(FormatName::Csv) | None => Format::Csv,
    }
}
