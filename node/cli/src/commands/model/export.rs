//! `starling export`: a trained model as other programs read it.

use std::ffi::OsStr;

use serde_json::json;
use starling::export::{ExportOptions, Layout, NumberFormat};

use super::part::remove_export_when_told;
use super::{CommandError, Context, EXIT_DONE, print};
use crate::cli::{LayoutName, NumberName, OutputFlags};

pub(in super::super) fn export(context: &Context, flags: &OutputFlags) -> Result<u8, CommandError> {
    let (place, to) = (flags.model.place(), &flags.out);
    let layout = match flags.layout {
        None | Some(LayoutName::Burn) => Layout::Burn,
        Some(LayoutName::Torch) => Layout::Torch,
        Some(LayoutName::Hf) => Layout::Hf,
    };
    let numbers = match flags.dtype {
        None | Some(NumberName::F32) => NumberFormat::F32,
        Some(NumberName::Bf16) => NumberFormat::Bf16,
        Some(NumberName::F16) => NumberFormat::F16,
    };
    remove_export_when_told(to).map_err(CommandError::io("listen for signals"))?;
    let is_onnx = to.extension() == Some(OsStr::new("onnx")) && !starling_run::program::export::is_folder(to);
    let (exported, layout) = if is_onnx {
        let asked = [(flags.layout.is_some(), "--layout"), (flags.dtype.is_some(), "--dtype")];
        if let Some((_, flag)) = asked.into_iter().find(|(is_asked, _)| *is_asked) {
            return Err(CommandError::OneLayout(flag));
        }
        (place.export_onnx(to)?, "onnx")
    } else {
        (place.export_as(to, &ExportOptions::new(layout, numbers))?, layout.name())
    };
    print(
        context.global.json,
        || {
            json!({
                "file": to,
                "run": exported.run,
                "step": exported.step,
                "layout": layout,
                "dtype": numbers.name(),
                "preprocessing": exported.has_preprocessing,
            })
        },
        || {
            let told =
                format!("wrote the model after step {} to {} ({layout}, {numbers})\n", exported.step, to.display());
            let lacking =
                "without how its data is scaled and what its classes are called, which its source does not say\n";
            if exported.has_preprocessing { told } else { told + lacking }
        },
    )?;
    Ok(EXIT_DONE)
}
