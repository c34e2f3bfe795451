//! `starling checkpoint ls`, `verify`, `export`: what is on disk, whether it is whole, and the model in it.

use std::path::PathBuf;

use serde_json::{Value, json};
use starling_train::{CheckpointInfo, CheckpointStore, Schema, Verdict, write_safetensors};

use super::{CommandError, Context, DataDirLock, EXIT_DONE, EXIT_FAILED, print};
use crate::cli::{DataDirFlag, ExportFlags};
use crate::manifest_file;
use crate::node::CHECKPOINTS;
use crate::output::format;

/// The checkpoints of a data directory that no node is using.
struct Opened {
    data_dir: PathBuf,
    store: CheckpointStore,
    // Opening a store sweeps what interrupted writes left, so no node may be writing.
    _lock: DataDirLock,
}

pub(super) fn list(context: &Context, flags: &DataDirFlag) -> Result<u8, CommandError> {
    let checkpoints = open(context, flags)?.store.list().map_err(starling_train::Error::from)?;
    let value = || json!({ "checkpoints": checkpoints.iter().map(to_json).collect::<Vec<_>>() });
    print(context.global.json, value, || checkpoints.iter().map(|info| format!("{}\n", describe(info))).collect())?;
    Ok(EXIT_DONE)
}

pub(super) fn verify(context: &Context, flags: &DataDirFlag) -> Result<u8, CommandError> {
    let verdicts = open(context, flags)?.store.verify().map_err(starling_train::Error::from)?;
    let damaged = verdicts.iter().filter(|verdict| verdict.result.is_err()).count();
    let value = || {
        let checkpoints: Vec<Value> = verdicts.iter().map(verdict_to_json).collect();
        json!({ "checkpoints": checkpoints, "damaged": damaged })
    };
    let text = || {
        let lines = verdicts.iter().map(|verdict| match &verdict.result {
            Ok(info) => format!("whole    {}\n", describe(info)),
            Err(error) => format!("damaged  step {}: {error}\n", verdict.step),
        });
        let lines: String = lines.collect();
        format!("{lines}{} whole, {damaged} damaged\n", verdicts.len() - damaged)
    };
    print(context.global.json, value, text)?;
    Ok(if damaged == 0 { EXIT_DONE } else { EXIT_FAILED })
}

pub(super) fn export(context: &Context, flags: &ExportFlags) -> Result<u8, CommandError> {
    let opened = open(context, &flags.data_dir)?;
    let state = opened.store.load(flags.step).map_err(starling_train::Error::from)?;
    let manifest = manifest_file::load(&opened.data_dir, state.run)?;
    let schema = Schema::of(&manifest.model, manifest.data.shape, manifest.data.classes);
    write_safetensors(&flags.to, &state, &schema, &manifest)?;
    print(
        context.global.json,
        || json!({ "file": flags.to, "step": state.step, "run": state.run.to_string() }),
        || format!("wrote the model after step {} to {}\n", state.step, flags.to.display()),
    )?;
    Ok(EXIT_DONE)
}

fn open(context: &Context, flags: &DataDirFlag) -> Result<Opened, CommandError> {
    let data_dir = context.load(&flags.values())?.data_dir()?;
    let directory = data_dir.join(CHECKPOINTS);
    // Asking what is there must not make it.
    if !directory.is_dir() {
        return Err(CommandError::NoCheckpoint(data_dir));
    }
    let lock = DataDirLock::acquire(&data_dir)?;
    let store = CheckpointStore::open(directory, usize::MAX).map_err(starling_train::Error::from)?;
    Ok(Opened { data_dir, store, _lock: lock })
}

fn describe(info: &CheckpointInfo) -> String {
    let run = info.run.to_string();
    format!(
        "step {:>8}  digest {}  {:>10}  run {}",
        info.step,
        info.digest,
        format::bytes(info.bytes),
        format::digest(&run)
    )
}

fn to_json(info: &CheckpointInfo) -> Value {
    json!({
        "step": info.step,
        "digest": info.digest.to_string(),
        "run": info.run.to_string(),
        "id": info.id.to_string(),
        "path": info.path,
        "bytes": info.bytes,
    })
}

fn verdict_to_json(verdict: &Verdict) -> Value {
    match &verdict.result {
        Ok(info) => {
            let mut value = to_json(info);
            value["whole"] = json!(true);
            value
        }
        Err(error) => json!({
            "step": verdict.step,
            "path": verdict.path,
            "whole": false,
            "error": error.to_string(),
        }),
    }
}
