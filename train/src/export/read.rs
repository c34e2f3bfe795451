//! Exported models as they are read back: every byte checked before it is used.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use serde::Deserialize;
use starling_run::manifest::MAX_PARAMETERS;
use starling_run::manifest::schema::Entry;
use starling_run::program::export::{DESCRIPTION, MODEL};

use super::{Description, ModelError, TOKENIZER};

/// The longest file that is read: the parameters that are possible, and the longest header that readers of such files take.
const MAX_MODEL_BYTES: u64 = 4 * MAX_PARAMETERS + 100_000_000 + 8;
/// The most tensors of a file, and what each has in its header.
const MAX_TENSORS: usize = 1 << 16;
const OFFSETS: &[u8] = b"data_offsets";
/// The longest description of a folder.
const MAX_DESCRIPTION_BYTES: u64 = 64 << 20;

/// What of a folder's description tells more than the model's file.
#[derive(Debug, Deserialize)]
struct Beside {
    run: String,
    step: u64,
    digest: String,
    values: String,
    data: Option<Samples>,
    measures: Option<Vec<Measure>>,
    files: Hashes,
}

#[derive(Debug, Deserialize)]
struct Samples {
    samples: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct Measure {
    name: String,
    mean: f64,
}

#[derive(Debug, Deserialize)]
struct Hashes {
    #[serde(rename = "model.safetensors")]
    model: String,
    #[serde(rename = "tokenizer.json")]
    tokenizer: Option<String>,
}

/// A model as its file holds it.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) description: Description,
    /// The numbers of one parameter after another, in the order of the description.
    pub(super) values: Vec<f32>,
}

/// Reads an exported file, or an exported folder. A file that is still in its folder is checked as the folder is.
///
/// # Errors
/// If it can't be read, is none, or is damaged.
pub(super) fn open(path: &Path) -> Result<Held, ModelError> {
    let is_folder = path.is_dir();
    let model = if is_folder { path.join(MODEL) } else { path.to_owned() };
    let beside = model.with_file_name(DESCRIPTION);
    let bytes = read(&model, MAX_MODEL_BYTES)?;
    let is_in_folder = is_folder || (model.ends_with(MODEL) && beside.is_file());
    if !is_in_folder {
        return decode(&bytes, &model);
    }
    let text = read(&beside, MAX_DESCRIPTION_BYTES)?;
    let told: Beside = match serde_json::from_slice(&text) {
        Ok(told) => told,
        // Whatever else is called so.
        Err(_) if !is_folder => return decode(&bytes, &model),
        Err(error) => return Err(damaged(&beside, error.to_string())),
    };
    let found = blake3::hash(&bytes).to_string();
    if found != told.files.model {
        let alone = decode(&bytes, &model);
        let is_other =
            |held: &Held| (&held.description.origin.run, held.description.origin.step) != (&told.run, told.step);
        if !is_folder && alone.as_ref().is_ok_and(is_other) {
            return alone;
        }
        let reason = format!("its blake3 is {found}, but `{}` says {:?}", beside.display(), told.files.model);
        return Err(damaged(&model, reason));
    }
    let mut held = decode(&bytes, &model)?;
    // What the model goes by is in its file; other programs go by this one.
    let tokenizer = model.with_file_name(TOKENIZER);
    if let Some(said) = told.files.tokenizer.filter(|_| tokenizer.is_file()) {
        let found = blake3::hash(&read(&tokenizer, MAX_DESCRIPTION_BYTES)?).to_string();
        if found != said {
            let reason = format!("its blake3 is {found}, but `{}` says {said:?}", beside.display());
            return Err(damaged(&tokenizer, reason));
        }
    }
    let origin = &mut held.description.origin;
    (origin.digest, origin.values) = (Some(told.digest), Some(told.values));
    origin.samples = told.data.and_then(|data| data.samples);
    origin.measures = told.measures.into_iter().flatten().map(|measure| (measure.name, measure.mean)).collect();
    Ok(held)
}

/// The same of the bytes of a file. `path` is for messages.
///
/// # Errors
/// If they are no model, or were changed in a way that shows.
pub(super) fn decode(bytes: &[u8], path: &Path) -> Result<Held, ModelError> {
    let none = |reason: String| ModelError::NotAModel { path: path.to_owned(), reason };
    let Tensors { metadata, tensors } = tensors(bytes, path)?;
    let entry = |(name, tensor): &(String, TensorView<'_>)| {
        let (path, shape) = (name.clone(), tensor.shape().to_vec());
        (tensor.dtype() == Dtype::F32).then(|| Entry::trained(&path, &shape))
    };
    let entries: Option<Vec<Entry>> = tensors.iter().map(entry).collect();
    let entries = entries.ok_or_else(|| none("it has numbers that are not F32".to_owned()))?;
    let description = Description::read(&metadata, entries).map_err(none)?;
    let mut values = Vec::with_capacity(bytes.len() / 4);
    for (name, tensor) in &tensors {
        let start = values.len();
        values.extend(tensor.data().as_chunks::<4>().0.iter().map(|number| f32::from_le_bytes(*number)));
        if values[start..].iter().any(|number: &f32| !number.is_finite()) {
            return Err(damaged(path, format!("a number of `{}` is not finite", name.escape_debug())));
        }
    }
    Ok(Held { description, values })
}

/// What a safetensors file holds, by name.
#[derive(Debug)]
pub(super) struct Tensors<'a> {
    pub(super) metadata: HashMap<String, String>,
    pub(super) tensors: Vec<(String, TensorView<'a>)>,
}

/// Reads the header of a safetensors file, and checks that its tensors lie in it. `path` is for messages.
///
/// # Errors
/// If the bytes are none.
pub(super) fn tensors<'a>(bytes: &'a [u8], path: &Path) -> Result<Tensors<'a>, ModelError> {
    let none = |reason: String| ModelError::NotAModel { path: path.to_owned(), reason };
    // Each tensor says where it lies. What would be parsed into more memory than a model takes is none.
    let header = bytes.first_chunk().map_or(0, |length| u64::from_le_bytes(*length));
    let header =
        bytes.get(8..).unwrap_or_default().get(..usize::try_from(header).unwrap_or(usize::MAX)).unwrap_or_default();
    if header.windows(OFFSETS.len()).filter(|window| *window == OFFSETS).count() > MAX_TENSORS {
        return Err(none(format!("it has more than {MAX_TENSORS} tensors")));
    }
    let file = SafeTensors::deserialize(bytes)
        .map_err(|error| none(format!("it is no safetensors file, or was cut off or changed ({error})")))?;
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(|error| none(error.to_string()))?;
    let metadata = header.metadata().clone().unwrap_or_default();
    let mut tensors: Vec<(String, TensorView<'_>)> = file.tensors();
    tensors.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(Tensors { metadata, tensors })
}

fn damaged(path: &Path, reason: String) -> ModelError {
    ModelError::Damaged { path: path.to_owned(), reason }
}

/// Reads a file of at most `most` bytes.
pub(super) fn read(path: &Path, most: u64) -> Result<Vec<u8>, ModelError> {
    let unreadable = |source| ModelError::Unreadable { path: path.to_owned(), source };
    let file = File::open(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    // A file that says that it is too long is not read before.
    let length = file.metadata().map_or(0, |found| found.len());
    if length <= most {
        file.take(most + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    }
    if length.max(bytes.len() as u64) > most {
        let reason = format!("it has more than {most} bytes");
        return Err(ModelError::NotAModel { path: path.to_owned(), reason });
    }
    Ok(bytes)
}
