//! Tensors of a file that this program or another one wrote, by name.

use std::collections::BTreeMap;
use std::path::Path;

use pytorch_reader::{DType, PytorchReader};

use super::super::ModelError;
use super::super::read::{self, Tensors};
use super::NumberFormat;

/// What `torch.save` begins its files with: they are ZIP archives.
const ARCHIVE: &[u8] = b"PK\x03\x04";

/// A safetensors file in memory, or a file of PyTorch's, which is read tensor by tensor.
pub(super) enum Source<'a> {
    Safetensors(Tensors<'a>),
    /// Its names without what they all begin with.
    Pytorch(BTreeMap<String, pytorch_reader::Tensor>),
}

/// Whether the file at `path` is one of PyTorch's; `false` if it can't be read.
pub(super) fn is_pytorch(path: &Path) -> bool {
    let mut start = [0; ARCHIVE.len()];
    let read = std::fs::File::open(path).and_then(|mut file| std::io::Read::read_exact(&mut file, &mut start));
    read.is_ok() && start == ARCHIVE
}

impl<'a> Source<'a> {
    /// The tensors in the bytes of a safetensors file.
    ///
    /// # Errors
    /// If they are none.
    pub(super) fn safetensors(bytes: &'a [u8], path: &Path) -> Result<Self, ModelError> {
        Ok(Self::Safetensors(read::tensors(bytes, path)?))
    }

    /// Those in a file that `torch.save` wrote: of a state, or of something that has one in it, as `{"state_dict": ..}`, which is found by one
    /// of the `names`. No code in its pickle is run, and what the tensors hold is read as it is asked for.
    ///
    /// # Errors
    /// If it can't be read, or is none.
    pub(super) fn pytorch(path: &Path, names: &[String]) -> Result<Source<'static>, ModelError> {
        let reader = PytorchReader::new(path).map_err(|error| ModelError::OtherWeights {
            path: path.to_owned(),
            reason: format!("it is no file of PyTorch's that could be read: {}", error.to_string().escape_debug()),
        })?;
        let tensors: BTreeMap<String, _> = reader.into_tensors().into_iter().collect();
        let prefix = |found: &String| {
            let before = names.iter().find_map(|name| found.strip_suffix(name.as_str()))?;
            (before.is_empty() || before.ends_with('.')).then(|| before.to_owned())
        };
        let Some(prefix) = tensors.keys().find_map(prefix) else { return Ok(Source::Pytorch(tensors)) };
        let under = tensors.into_iter().filter_map(|(name, it)| Some((name.strip_prefix(&prefix)?.to_owned(), it)));
        Ok(Source::Pytorch(under.collect()))
    }

    /// What the tensors are called.
    pub(super) fn names(&self) -> Vec<&String> {
        match self {
            Self::Safetensors(file) => file.tensors.iter().map(|(name, _)| name).collect(),
            Self::Pytorch(tensors) => tensors.keys().collect(),
        }
    }

    /// The shape of the tensor of this name; `None` if there is none.
    pub(super) fn shape(&self, name: &str) -> Option<Vec<usize>> {
        match self {
            Self::Safetensors(file) => {
                file.tensors.iter().find(|(found, _)| found == name).map(|(_, tensor)| tensor.shape().to_vec())
            }
            Self::Pytorch(tensors) => tensors.get(name).map(|tensor| tensor.shape().to_vec()),
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
            Self::Pytorch(tensors) => {
                let tensor = tensors.get(name).ok_or("is not there")?;
                let read = || tensor.read().map_err(|error| format!("can't be read: {error}"));
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
