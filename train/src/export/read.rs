//! Exported models as they are read back: every byte checked before it is used.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use safetensors::SafeTensors;
use safetensors::tensor::TensorView;
use serde::Deserialize;
use starling_run::Error;
use starling_run::data::shorten;
use starling_run::manifest::MAX_PARAMETERS;
use starling_run::manifest::schema::Entry;
use starling_run::program::export::{DESCRIPTION, MODEL};

use super::folder::{Data, Tensor, hash_of};
use super::{Description, Export, Layout, ModelError, NumberFormat, TOKENIZER};
use crate::network::forward::AnyModule;
use crate::network::models;

/// The longest file that is read: the parameters that are possible, and the longest header that readers of such files take.
const MAX_MODEL_BYTES: u64 = 4 * MAX_PARAMETERS + 100_000_000 + 8;
/// The most tensors of a file, and what each has in its header.
const MAX_TENSORS: usize = 1 << 16;
const OFFSETS: &[u8] = b"data_offsets";
/// In how many digits an id may have been changed by damage: those of two runs differ in many more.
const MAX_FLIPPED: usize = 8;
/// The longest description of a folder.
const MAX_DESCRIPTION_BYTES: u64 = 64 << 20;

/// What a folder's description tells: of the model's file, and more than that.
#[derive(Debug, Deserialize)]
struct Beside {
    format: String,
    model: String,
    run: String,
    step: u64,
    layout: String,
    tensors: Vec<Tensor>,
    classes: Option<Vec<String>>,
    digest: Option<String>,
    values: Option<String>,
    data: Option<Data>,
    measures: Option<Vec<Measure>>,
    files: Hashes,
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
    #[serde(rename = "model.json")]
    description: Option<String>,
}

impl Beside {
    /// What it says otherwise than the model's file, whose metadata these are; `None` if nothing.
    fn contradiction(&self, file: &Tensors<'_>) -> Option<&'static str> {
        let says = |key: &str, told: &str| file.metadata.get(key).is_none_or(|said| said == told);
        let shapes: BTreeMap<&str, &[usize]> =
            file.tensors.iter().map(|(name, tensor)| (name.as_str(), tensor.shape())).collect();
        let listed: BTreeMap<&str, &[usize]> =
            self.tensors.iter().map(|tensor| (tensor.name.as_str(), &*tensor.shape)).collect();
        let classes = file.metadata.get("class_names").map(|text| serde_json::from_str::<Vec<String>>(text).ok());
        let are_classes = |told: &Vec<String>| classes.as_ref().is_none_or(|said| said.as_ref() == Some(told));
        let all = [
            // A Llama's file has the format of another program.
            ("format", self.layout == Layout::Hf.name() || says("format", &self.format)),
            ("model", says("model", &self.model)),
            ("run", says("run", &self.run)),
            ("step", says("step", &self.step.to_string())),
            ("layout", says("layout", &self.layout)),
            ("tensors", shapes == listed),
            ("classes", self.classes.as_ref().is_none_or(are_classes)),
        ];
        all.into_iter().find(|(_, is_alike)| !is_alike).map(|(what, _)| what)
    }
}

/// A model as its file holds it.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) description: Description,
    /// The numbers of one parameter after another, in the order of the description.
    pub(super) values: Vec<f32>,
    /// What the file says.
    pub(super) metadata: HashMap<String, String>,
    /// What it was trained on; a file alone does not say it.
    pub(super) data: Option<Data>,
}

impl Held {
    /// What is to be exported, of the bytes that it is [encoded](Export::encode) to. `path` is for messages.
    ///
    /// # Errors
    /// If the bytes are of something else.
    pub(super) fn of(export: &Export<'_>, bytes: &[u8], path: &Path) -> Result<Self, Error> {
        let mut held = decode(bytes, path)?;
        held.description.origin = export.origin();
        held.data = Some(Data::of(export.manifest));
        held.put_in_order(export.schema.entries()).map_err(|reason| Error::Export { path: path.to_owned(), reason })?;
        Ok(held)
    }

    /// Puts the parameters in the order of their module, which has to have the same.
    ///
    /// # Errors
    /// What is otherwise, as a sentence.
    fn put_in_order(&mut self, ours: &[Entry]) -> Result<(), String> {
        self.values = in_order(ours, &self.description.parameters, &self.values)?;
        self.description.parameters = ours.to_vec();
        Ok(())
    }

    /// The module that it says it is, which is described and holds no values; the values come to stand in its order.
    ///
    /// # Errors
    /// If this program lacks it, or it has other parameters: what a file claims to be is as large as what it holds.
    pub(super) fn module(
        &mut self,
        path: &Path,
    ) -> Result<(&'static dyn models::Model, Box<dyn AnyModule>), ModelError> {
        let none = |reason: String| ModelError::NotAModel { path: path.to_owned(), reason };
        let Description { model: spec, shape, classes, labels, .. } = &self.description;
        if spec.name().and_then(models::find).is_none() {
            let (model, ours) = (spec.to_string(), models::names().collect());
            return Err(ModelError::UnknownModel { path: path.to_owned(), model, ours });
        }
        let chosen = models::choose(spec).map_err(|error| none(error.to_string()))?;
        let models::Chosen { model, sizes, options } = chosen;
        let outputs = model.learns().of_labels(*labels).outputs(*classes, *labels);
        let computes = model.computes(&sizes, &options, *shape, outputs).map_err(none)?;
        self.put_in_order(computes.schema().entries()).map_err(none)?;
        Ok((model, computes))
    }
}

/// Reads an exported file, or an exported folder. A file that is still in its folder is checked as the folder is.
///
/// # Errors
/// If it can't be read, is none, or is damaged.
pub(super) fn open(path: &Path) -> Result<Held, ModelError> {
    let (model, bytes) = file_of(path, MAX_MODEL_BYTES)?;
    let told = beside(path, &bytes)?;
    let mut held = decode(&bytes, &model)?;
    let Some(told) = told else { return Ok(held) };
    let origin = &mut held.description.origin;
    (origin.digest, origin.values) = (told.digest, told.values);
    origin.samples = told.data.as_ref().map(|data| data.samples);
    origin.fingerprint = told.data.as_ref().map(|data| data.fingerprint.clone());
    held.data = told.data;
    origin.measures = told.measures.into_iter().flatten().map(|measure| (measure.name, measure.mean)).collect();
    Ok(held)
}

/// The model's file that is meant by `path`, a file or a folder with one, and its bytes, of which there are at most `most`.
///
/// # Errors
/// If it can't be read, or is longer.
pub(super) fn file_of(path: &Path, most: u64) -> Result<(PathBuf, Vec<u8>), ModelError> {
    let model = if path.is_dir() { path.join(MODEL) } else { path.to_owned() };
    let bytes = read(&model, most)?;
    Ok((model, bytes))
}

/// Checks a model's file by the description in its folder. `path` is the folder or the file.
///
/// # Errors
/// If either has been changed since they were written.
pub(super) fn check(path: &Path, bytes: &[u8]) -> Result<(), ModelError> {
    beside(path, bytes).map(drop)
}

/// What lies beside the bytes of a model's file and tells of it, once both are checked; `None` of a file that is alone, or in the folder of
/// another one.
fn beside(path: &Path, bytes: &[u8]) -> Result<Option<Beside>, ModelError> {
    let is_folder = path.is_dir();
    let model = if is_folder { path.join(MODEL) } else { path.to_owned() };
    let place = model.with_file_name(DESCRIPTION);
    let is_in_folder = is_folder || (model.ends_with(MODEL) && place.is_file());
    if !is_in_folder {
        return Ok(None);
    }
    let text = read(&place, MAX_DESCRIPTION_BYTES)?;
    let text = std::str::from_utf8(&text).map_err(|error| error.to_string());
    let told =
        text.and_then(|text| Ok((text, serde_json::from_str::<Beside>(text).map_err(|error| error.to_string())?)));
    let (text, told) = match told {
        Ok(told) => told,
        // Whatever else is called so.
        Err(_) if !is_folder => return Ok(None),
        Err(reason) => return Err(damaged(&place, reason)),
    };
    check_description(&told, text).map_err(|reason| damaged(&place, reason))?;
    let found = blake3::hash(bytes).to_string();
    let file = tensors(bytes, &model);
    if found != told.files.model {
        if !is_folder && file.is_ok_and(|file| is_of_another(&file, &told.run)) {
            return Ok(None);
        }
        let reason = format!("its blake3 is {found}, but `{}` says {:?}", place.display(), told.files.model);
        return Err(damaged(&model, reason));
    }
    if let Some(what) = told.contradiction(&file?) {
        return Err(damaged(&place, format!("its `{what}` is not what `{MODEL}` says")));
    }
    // What the model goes by is in its file; other programs go by this one.
    let tokenizer = model.with_file_name(TOKENIZER);
    if let Some(said) = told.files.tokenizer.as_ref().filter(|_| tokenizer.is_file()) {
        let found = blake3::hash(&read(&tokenizer, MAX_DESCRIPTION_BYTES)?).to_string();
        if found != *said {
            let reason = format!("its blake3 is {found}, but `{}` says {said:?}", place.display());
            return Err(damaged(&tokenizer, reason));
        }
    }
    Ok(Some(told))
}

/// Whether a file says that it is of another run, or of none. A byte that was flipped makes no other run's id.
fn is_of_another(file: &Tensors<'_>, run: &str) -> bool {
    match file.metadata.get("run") {
        Some(said) => {
            said.len() == run.len() && said.bytes().zip(run.bytes()).filter(|(a, b)| a != b).count() > MAX_FLIPPED
        }
        None => !file.metadata.contains_key("model"),
    }
}

/// Checks a description by its own hash.
fn check_description(told: &Beside, text: &str) -> Result<(), String> {
    let said = told.files.description.as_deref().ok_or("it does not say its own blake3")?;
    let found = hash_of(text, said).ok_or("what it says of itself is no blake3")?;
    if found == said { Ok(()) } else { Err(format!("its blake3, without itself, is {found}, but it says {said:?}")) }
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
        Entry::trained(&path, &shape)
    };
    let entries: Vec<Entry> = tensors.iter().map(entry).collect();
    let numbers = tensors.first().map_or(Some(NumberFormat::F32), |(_, tensor)| NumberFormat::of(tensor.dtype()));
    let is_alike = |format: &NumberFormat| tensors.iter().all(|(_, it)| NumberFormat::of(it.dtype()) == Some(*format));
    let numbers =
        numbers.filter(is_alike).ok_or_else(|| none("its numbers are not all F32, all BF16 or all F16".to_owned()))?;
    let description = Description::read(&metadata, entries, numbers).map_err(none)?;
    let mut values = Vec::with_capacity(bytes.len() / 4);
    for (name, tensor) in &tensors {
        let start = values.len();
        values.extend(numbers.decode(tensor.data()));
        if values[start..].iter().any(|number: &f32| !number.is_finite()) {
            return Err(damaged(path, format!("a number of `{}` is not finite", name.escape_debug())));
        }
    }
    Ok(Held { description, values, metadata, data: None })
}

/// The numbers of a file in the order of a model, which has to have the same parameters.
fn in_order(ours: &[Entry], theirs: &[Entry], values: &[f32]) -> Result<Vec<f32>, String> {
    let mut starts = Vec::with_capacity(theirs.len());
    let mut end = 0;
    for entry in theirs {
        starts.push(end);
        end += entry.elements();
    }
    if let Some(other) = theirs.iter().find(|entry| !ours.iter().any(|own| own.path == entry.path)) {
        return Err(format!("its tensor `{}` is none of its model's", shorten(&other.path).escape_debug()));
    }
    let mut parameters = Vec::with_capacity(values.len());
    for own in ours {
        let place = theirs.iter().position(|entry| entry.path == own.path);
        let place = place.ok_or_else(|| format!("its tensor `{}` is missing", own.path))?;
        if theirs[place].shape != own.shape {
            return Err(format!(
                "its tensor `{}` is {:?}, but its model has {:?}",
                own.path, theirs[place].shape, own.shape
            ));
        }
        parameters.extend_from_slice(&values[starts[place]..starts[place] + own.elements()]);
    }
    Ok(parameters)
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
