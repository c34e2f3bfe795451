//! Exchange with other programs: models as they read them, and values that they wrote.
//!
//! ```text
//!   file, folder, checkpoint -> what it holds -> [layout]: names and shapes -> [numbers]: bytes -> a file, or a folder
//!                                             -> [llama]: a folder that Hugging Face's tools open
//!                                             -> [onnx]: a graph with its weights
//!   a file of theirs -> [source]: tensors by name -> [weights] -> the values that a run begins with
//! ```

mod byte_tokenizer;
mod layout;
mod llama;
mod numbers;
mod onnx;
mod source;
#[cfg(test)]
mod tests;
mod weights;

use std::collections::BTreeMap;
use std::path::Path;

use safetensors::tensor::TensorView;
use serde_json::Value;
use starling_run::Error;
use starling_run::program::export::{
    CONFIG, TOKENIZER, TOKENIZER_CONFIG, check_name, is_folder, write_file, write_folder,
};

use super::read::{self, Held};
use super::{Description, Export, ModelError, file, folder};

pub use layout::Layout;
pub use numbers::NumberFormat;
pub(crate) use weights::read_origin;
#[cfg(test)]
use weights::read_weights;

/// What of the metadata a Llama's file has, besides what its tensors are called.
const OF_LLAMA: [&str; 6] = ["run", "step", "model", "best_step", "best_loss", "ema"];

/// How tensors are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExportOptions {
    /// What they are called, and how they are laid out.
    pub layout: Layout,
    /// Of which kind their numbers are.
    pub numbers: NumberFormat,
}

impl ExportOptions {
    /// In this layout, with such numbers.
    pub fn new(layout: Layout, numbers: NumberFormat) -> Self {
        Self { layout, numbers }
    }

    /// Whether it is as our own verbs and scripts take it.
    pub(super) fn is_plain(&self) -> bool {
        *self == Self::default()
    }
}

/// Writes an exported file or folder for other programs, and says what is known of it: a Llama to a folder, others to a folder if `to` ends with a slash or is one already, else to a file. Either appears
/// whole or not at all.
///
/// # Errors
/// If it has no such layout, a number is beyond the largest of its kind, numbers would be rounded a second time, or nothing can be written
/// there.
pub fn write_exported(from: &Path, to: &Path, options: &ExportOptions) -> Result<Description, Error> {
    let held = open(from)?;
    write(&held, to, options)?;
    Ok(held.description)
}

/// Writes an exported file or folder as an ONNX file, which appears whole or not at all, and says what is known of it.
///
/// # Errors
/// If it is a language model, a program's own task or larger than such a file may be, nothing says how its data is scaled, or it can't be
/// written there.
pub fn write_exported_onnx(from: &Path, to: &Path) -> Result<Description, Error> {
    let held = open(from)?;
    write_file(to, &onnx::encode(&held, from)?)?;
    Ok(held.description)
}

impl Export<'_> {
    /// Writes the model for other programs: as [`write_exported`].
    ///
    /// # Errors
    /// As that, and as [`Self::write`].
    pub fn write_as(&self, to: &Path, options: &ExportOptions) -> Result<(), Error> {
        write(&Held::of(self, &self.encode(to)?, to)?, to, options)
    }

    /// Writes the model as an ONNX file: as [`write_exported_onnx`].
    ///
    /// # Errors
    /// As that, and as [`Self::write`].
    pub fn write_onnx(&self, to: &Path) -> Result<(), Error> {
        write_file(to, &onnx::encode(&Held::of(self, &self.encode(to)?, to)?, to)?)
    }
}

/// Reads what was exported, with its parameters in the order of its module, where that is known here.
fn open(path: &Path) -> Result<Held, ModelError> {
    let mut held = read::open(path)?;
    if !held.description.is_of_program {
        held.module(path)?;
    }
    Ok(held)
}

fn write(held: &Held, to: &Path, options: &ExportOptions) -> Result<(), Error> {
    let model = encode(held, options)?;
    if options.layout != Layout::Hf && !is_folder(to) {
        check_name(to)?;
        return write_file(to, &model);
    }
    let mut files = folder::files(held, model, options);
    if options.layout == Layout::Hf {
        files.push((CONFIG, written(&llama::config(held, options.numbers)?)));
        files.extend(byte_tokenizer::of(held).map(|tokenizer| (TOKENIZER, written(&tokenizer))));
        if files.iter().any(|(name, _)| *name == TOKENIZER) {
            files.push((TOKENIZER_CONFIG, written(&byte_tokenizer::config(held))));
        }
    }
    write_folder(to, &files)
}

fn written(value: &Value) -> Vec<u8> {
    let text = serde_json::to_string_pretty(value).expect("invariant: texts and finite numbers are always JSON");
    (text + "\n").into_bytes()
}

/// The model as a safetensors file.
fn encode(held: &Held, options: &ExportOptions) -> Result<Vec<u8>, ModelError> {
    let ExportOptions { layout, numbers } = *options;
    let held_as = held.description.numbers;
    let refused = |how, reason| ModelError::NoSuchExport { model: held.description.model.to_string(), how, reason };
    if layout == Layout::Hf {
        llama::config(held, numbers)?;
    }
    if held_as != NumberFormat::F32 && numbers != NumberFormat::F32 && held_as != numbers {
        let reason = format!(
            "they are {held_as} already, and would be rounded twice; take --dtype {held_as} or f32, or export the checkpoint"
        );
        return Err(refused("with such numbers", reason));
    }
    let mut rest = held.values.as_slice();
    let mut tensors = Vec::with_capacity(held.description.parameters.len());
    for entry in &held.description.parameters {
        let (own, others) = rest.split_at(entry.elements());
        rest = others;
        let name = layout.tensor(entry).ok_or_else(|| {
            refused("in this layout", format!("its tensor `{}` has no place there; take --layout torch", entry.path))
        })?;
        let bytes = numbers.encode(&layout.laid_out(entry, own)).map_err(|value| {
            let reason = format!(
                "`{name}` has the number {value}, beyond the largest {numbers}; take --dtype {}",
                if numbers == NumberFormat::F16 { "bf16 or f32" } else { "f32" }
            );
            refused("with such numbers", reason)
        })?;
        tensors.push((name, layout.shape(entry), bytes));
    }
    let views = tensors.iter().map(|(name, shape, bytes)| {
        let view = TensorView::new(numbers.dtype(), shape.clone(), bytes);
        (name.as_str(), view.expect("invariant: each number of the shape has its bytes"))
    });
    let said = held.metadata.iter().map(|(key, value)| (key.as_str(), value.clone()));
    let mut metadata: BTreeMap<&str, String> = match layout {
        // Where it is not said that the tensors are PyTorch's, `transformers` opens no file.
        Layout::Hf => said.filter(|(key, _)| OF_LLAMA.contains(key)).chain([("format", "pt".to_owned())]).collect(),
        Layout::Burn | Layout::Torch => said.collect(),
    };
    metadata.insert("layout", layout.name().to_owned());
    file::serialized(views, &metadata).map_err(|reason| ModelError::NoSuchExport {
        model: held.description.model.to_string(),
        how: "at all",
        reason,
    })
}
