//! Tensors of a file that this program or another one wrote, by name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use pytorch_reader::{DType, PytorchReader};
use starling_run::data::shorten;
use starling_run::manifest::schema::Entry;
use starling_run::{Manifest, RenameSpec, ReplicatedState};

use super::super::ModelError;
use super::super::read::{self, Tensors};
use super::NumberFormat;
use super::onnx::Constants;

/// What `torch.save` begins its files with: they are ZIP archives.
const ARCHIVE: &[u8] = b"PK\x03\x04";

/// What an ONNX file's name ends with: nothing that it begins with tells it.
const ONNX: &str = "onnx";

/// The longest list of tensors that a file of Burn's may begin with, in CBOR.
const MAX_LISTED_BYTES: u32 = 4 << 20;

/// A file of safetensors, ONNX or Burn in memory, or one of PyTorch's, which is read tensor by tensor.
pub(super) enum Source<'a> {
    Safetensors(Tensors<'a>),
    /// Those that are parameters of the model, as it calls and lays them out.
    Onnx(Constants<'a>),
    /// Its names without what they all begin with.
    Pytorch(BTreeMap<String, pytorch_reader::Tensor>),
    /// Likewise.
    Burnpack(BTreeMap<String, burn_pack::Tensor>),
    /// Those of a state, with their shapes.
    State(BTreeMap<String, (Vec<usize>, Vec<f32>)>),
}

/// The largest pickle, which has the names of tensors and not what they hold.
const MAX_PICKLE_BYTES: u64 = 4 << 20;
/// The most files in an archive: one for each tensor, and a few.
const MAX_FILES: usize = 1 << 16;

/// Checks that an archive is as `torch.save` makes them: of files that are not packed, so that none unpacks to more than there is.
///
/// # Errors
/// What is otherwise, as a part of a sentence.
fn check_archive(path: &Path) -> Result<(), String> {
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let mut archive = zip::ZipArchive::new(std::io::BufReader::new(file)).map_err(|error| error.to_string())?;
    if archive.len() > MAX_FILES {
        return Err(format!("it has {} files, but {MAX_FILES} are possible", archive.len()));
    }
    for at in 0..archive.len() {
        let entry = archive.by_index_raw(at).map_err(|error| error.to_string())?;
        if entry.compression() != zip::CompressionMethod::Stored {
            return Err("its files are packed".to_owned());
        }
        let is_pickle = entry.name().is_ok_and(|name| name.ends_with("data.pkl"));
        if is_pickle && entry.size() > MAX_PICKLE_BYTES {
            return Err(format!("its pickle has {} bytes, but {MAX_PICKLE_BYTES} are possible", entry.size()));
        }
    }
    Ok(())
}

/// Whether the file at `path` is one of PyTorch's; `false` if it can't be read.
pub(super) fn is_pytorch(path: &Path) -> bool {
    begins_with(path, ARCHIVE)
}

/// Whether the file at `path` begins with these bytes; `false` if it can't be read.
fn begins_with(path: &Path, mark: &[u8]) -> bool {
    let mut start = vec![0; mark.len()];
    let read = std::fs::File::open(path).and_then(|mut file| std::io::Read::read_exact(&mut file, &mut start));
    read.is_ok() && start == mark
}

/// Whether the file at `path` is what Burn's `BurnpackStore` wrote; `false` if it can't be read.
pub(super) fn is_burnpack(path: &Path) -> bool {
    begins_with(path, &burn_pack::MAGIC_NUMBER.to_le_bytes())
}

/// Whether a file is one of ONNX, by its name.
pub(super) fn is_onnx(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(ONNX))
}

/// What the names of a model all begin with in a file that has these; `None` if it does not have all of them.
///
/// # Errors
/// That it has all of them more than once, as a sentence.
pub(super) fn part(names: &[String], found: &BTreeSet<&str>) -> Result<Option<String>, String> {
    let first = names.first().map_or("", String::as_str);
    let has_all = |before: &&str| names.iter().all(|name| found.contains(&*format!("{before}{name}")));
    let parts = found.iter().filter_map(|found| found.strip_suffix(first));
    let parts: Vec<&str> = parts.filter(|part| part.is_empty() || part.ends_with('.')).filter(has_all).collect();
    match parts[..] {
        [] => Ok(None),
        [part] => Ok(Some(part.to_owned())),
        _ if parts.contains(&"") => Ok(Some(String::new())),
        [one, other, ..] => {
            let [one, other] = [one, other].map(|part| shorten(part).escape_debug().to_string());
            Err(format!("it has all of the model as `{one}` and as `{other}`; save the one that is meant alone"))
        }
    }
}

/// Tensors as a model calls them.
///
/// # Errors
/// That two are called alike then, as a sentence.
fn renamed<T>(
    tensors: impl IntoIterator<Item = (String, T)>,
    renames: &[RenameSpec],
) -> Result<BTreeMap<String, T>, String> {
    let mut all = BTreeMap::new();
    for (name, tensor) in tensors {
        let name = RenameSpec::rename(renames, &name);
        let is_second = all.contains_key(&name);
        if is_second && !renames.is_empty() {
            return Err(format!("two of its tensors are called `{}` by --init-map", shorten(&name).escape_debug()));
        }
        all.insert(name, tensor);
    }
    Ok(all)
}

/// Of the tensors of a file those in the part that has all `names`, without what that puts before them; all, as they are called, if no part has.
///
/// # Errors
/// As [`part`].
fn in_part<T>(names: &[String], tensors: BTreeMap<String, T>) -> Result<BTreeMap<String, T>, String> {
    let found = tensors.keys().map(String::as_str).collect();
    // What is missing is told by its name.
    let Some(part) = part(names, &found)? else { return Ok(tensors) };
    let under = tensors.into_iter().filter_map(|(name, it)| Some((name.strip_prefix(&part)?.to_owned(), it)));
    Ok(under.collect())
}

impl<'a> Source<'a> {
    /// The tensors in the bytes of a safetensors file.
    ///
    /// # Errors
    /// If they are none, or two are called alike by the `renames`.
    pub(super) fn safetensors(bytes: &'a [u8], path: &Path, renames: &[RenameSpec]) -> Result<Self, ModelError> {
        let read::Tensors { metadata, tensors } = read::tensors(bytes, path)?;
        let unfit = |reason| ModelError::OtherWeights { path: path.to_owned(), reason };
        let tensors = renamed(tensors, renames).map_err(unfit)?.into_iter().collect();
        Ok(Self::Safetensors(read::Tensors { metadata, tensors }))
    }

    /// Those of the constants in the bytes of an ONNX file that are these parameters.
    ///
    /// # Errors
    /// If the file is none.
    pub(super) fn onnx(bytes: &'a [u8], path: &Path, entries: &[Entry]) -> Result<Self, ModelError> {
        let unfit = |reason| ModelError::OtherWeights { path: path.to_owned(), reason };
        Constants::read(bytes, path, entries).map(Self::Onnx).map_err(unfit)
    }

    /// Those in a file that `torch.save` wrote: of a state, or of something that has one in it, as `{"state_dict": ..}`, which is found by its
    /// having all `names`. No code in its pickle is run, and what the tensors hold is read as it is asked for.
    ///
    /// # Errors
    /// If it can't be read, is none, or has the names in several parts.
    pub(super) fn pytorch(
        path: &Path,
        names: &[String],
        renames: &[RenameSpec],
    ) -> Result<Source<'static>, ModelError> {
        let unfit = |reason: String| ModelError::OtherWeights { path: path.to_owned(), reason };
        check_archive(path).map_err(|reason| unfit(format!("it is no file that `torch.save` wrote: {reason}")))?;
        let reader = PytorchReader::new(path).map_err(|error| {
            let reason = error.to_string();
            unfit(format!("it is no file of PyTorch's that could be read: {}", shorten(&reason).escape_debug()))
        })?;
        let tensors = renamed(reader.into_tensors(), renames).map_err(unfit)?;
        in_part(names, tensors).map(Source::Pytorch).map_err(unfit)
    }

    /// Those in the bytes of a file that Burn's `BurnpackStore` wrote, of a module that has all `names` or has one in it that does.
    ///
    /// # Errors
    /// If it is none, or has the names in several parts.
    pub(super) fn burnpack(
        bytes: Vec<u8>,
        path: &Path,
        names: &[String],
        renames: &[RenameSpec],
    ) -> Result<Source<'static>, ModelError> {
        let unfit = |reason: String| ModelError::OtherWeights { path: path.to_owned(), reason };
        let told = |reason: String| {
            unfit(format!("it is no burnpack file that could be read: {}", shorten(&reason).escape_debug()))
        };
        let header = bytes.first_chunk::<{ burn_pack::HEADER_SIZE }>();
        let listed = header.and_then(|header| header.last_chunk()).map(|length| u32::from_le_bytes(*length));
        if listed.is_some_and(|listed| listed > MAX_LISTED_BYTES) {
            return Err(told(format!("its list of tensors has more than {MAX_LISTED_BYTES} bytes")));
        }
        let read = || burn_pack::Reader::from_bytes(burn_pack::Bytes::from_bytes_vec(bytes))?.into_tensors();
        let tensors = read().map_err(|error| told(error.to_string()))?;
        let tensors = tensors.into_iter().map(|tensor| (tensor.name.clone(), tensor));
        let tensors = renamed(tensors, renames).map_err(unfit)?;
        in_part(names, tensors).map(Source::Burnpack).map_err(unfit)
    }

    /// Those of the model in a state of a run.
    ///
    /// # Errors
    /// If its tensors are too many to be listed by its manifest.
    pub(super) fn state(
        (manifest, state): (&Manifest, &ReplicatedState),
        path: &Path,
        renames: &[RenameSpec],
    ) -> Result<Source<'static>, ModelError> {
        let unfit = |reason| ModelError::OtherWeights { path: path.to_owned(), reason };
        if manifest.leaves.is_empty() {
            let reason = "it is of a model with more tensors than a manifest lists; export it, and begin with that";
            return Err(unfit(reason.to_owned()));
        }
        let (listed, model) = (manifest.listed(), state.model(manifest));
        let mut numbers = model.iter().chain(&*state.frozen).copied();
        let tensor = |entry: &Entry| {
            let values = numbers.by_ref().take(entry.elements()).collect();
            (entry.path.clone(), (entry.shape.clone(), values))
        };
        renamed(listed.entries().iter().map(tensor), renames).map(Source::State).map_err(unfit)
    }

    /// What the tensors are called.
    pub(super) fn names(&self) -> Vec<&String> {
        match self {
            Self::Safetensors(file) => file.tensors.iter().map(|(name, _)| name).collect(),
            Self::Onnx(constants) => constants.names(),
            Self::Pytorch(tensors) => tensors.keys().collect(),
            Self::Burnpack(tensors) => tensors.keys().collect(),
            Self::State(tensors) => tensors.keys().collect(),
        }
    }

    /// The shape of the tensor of this name; `None` if there is none.
    pub(super) fn shape(&self, name: &str) -> Option<Vec<usize>> {
        match self {
            Self::Safetensors(file) => {
                file.tensors.iter().find(|(found, _)| found == name).map(|(_, tensor)| tensor.shape().to_vec())
            }
            Self::Onnx(constants) => constants.shape(name),
            Self::Pytorch(tensors) => tensors.get(name).map(|tensor| tensor.shape().to_vec()),
            Self::Burnpack(tensors) => tensors.get(name).map(|tensor| tensor.shape.to_vec()),
            Self::State(tensors) => tensors.get(name).map(|(shape, _)| shape.clone()),
        }
    }

    /// The numbers of the tensor of this name.
    ///
    /// # Errors
    /// Why there are none, as the rest of a sentence about it.
    pub(super) fn numbers(&self, name: &str) -> Result<Vec<f32>, String> {
        let other = |found: String| format!("holds {found}, where F32, BF16 or F16 is expected; write it as F32");
        match self {
            Self::Safetensors(file) => {
                let tensor = file.tensors.iter().find(|(found, _)| found == name).map(|(_, tensor)| tensor);
                let tensor = tensor.ok_or("is not there")?;
                let format = NumberFormat::of(tensor.dtype()).ok_or_else(|| other(format!("{:?}", tensor.dtype())))?;
                Ok(format.decode(tensor.data()))
            }
            Self::Onnx(constants) => constants.numbers(name),
            Self::State(tensors) => Ok(tensors.get(name).ok_or("is not there")?.1.clone()),
            Self::Burnpack(tensors) => {
                let tensor = tensors.get(name).ok_or("is not there")?;
                let format = match tensor.dtype {
                    burn_pack::DType::F32 => NumberFormat::F32,
                    burn_pack::DType::BF16 => NumberFormat::Bf16,
                    burn_pack::DType::F16 => NumberFormat::F16,
                    found => return Err(other(format!("{found:?}"))),
                };
                let bytes = tensor
                    .to_bytes()
                    .map_err(|error| format!("can't be read: {}", shorten(&error.to_string()).escape_debug()))?;
                Ok(format.decode(&bytes))
            }
            Self::Pytorch(tensors) => {
                let tensor = tensors.get(name).ok_or("is not there")?;
                let read = || {
                    let told = |error: std::io::Error| shorten(&error.to_string()).escape_debug().to_string();
                    tensor.read().map_err(|error| format!("can't be read: {}", told(error)))
                };
                // As this machine writes numbers.
                let halves = |bytes: Vec<u8>| -> Vec<u16> {
                    bytes.as_chunks::<2>().0.iter().map(|half| u16::from_ne_bytes(*half)).collect()
                };
                match tensor.dtype() {
                    DType::F32 => {
                        Ok(read()?.as_chunks::<4>().0.iter().map(|bytes| f32::from_ne_bytes(*bytes)).collect())
                    }
                    DType::BF16 => {
                        Ok(halves(read()?).into_iter().map(|bits| half::bf16::from_bits(bits).to_f32()).collect())
                    }
                    DType::F16 => {
                        Ok(halves(read()?).into_iter().map(|bits| half::f16::from_bits(bits).to_f32()).collect())
                    }
                    found => Err(other(format!("{found:?}"))),
                }
            }
        }
    }
}
