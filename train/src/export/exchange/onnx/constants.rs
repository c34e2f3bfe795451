//! The weights in an ONNX file, which another program or this one wrote: its constants, by the names of a model's parameters.
//!
//! A name is that of a constant, or of what comes out of an `Identity` of one: exporters write constants of equal values once. Which way a
//! matrix lies is said by the operation that it is multiplied in, and what a bias is by the one that adds it. What a graph does before and
//! behind its layers is none of the weights' concern, and nothing of it becomes part of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use starling_run::manifest::schema::Entry;

use super::super::layout::transposed;
use super::super::{Layout, source};
use super::constant::Constant;
use super::parts::{Fault, Parts, Place};
use super::vectors::Vectors;
use super::{PRODUCER, SCALES};

/// The constants of a graph that are a model's parameters, in the model's own layout.
#[derive(Debug)]
pub(in crate::export::exchange) struct Constants<'a> {
    /// For external data, which lies beside the file.
    folder: PathBuf,
    all: BTreeMap<String, Constant<'a>>,
    places: BTreeMap<String, Place>,
    /// Why parameters of one side are not those of ours, by their paths.
    misused: BTreeMap<String, String>,
    /// The constant of each parameter, by the parameter's path.
    found: BTreeMap<String, String>,
    /// What is none of the parameters' and could be a weight.
    others: Vec<String>,
}

impl<'a> Constants<'a> {
    /// Those in the bytes of the file at `path` for these parameters. The bytes are a file's as a whole: beside them, little more is
    /// needed than names.
    ///
    /// # Errors
    /// What is wrong with the file, as a sentence.
    pub(in crate::export::exchange) fn read(bytes: &'a [u8], path: &Path, entries: &[Entry]) -> Result<Self, String> {
        let parts = Parts::read(bytes).map_err(|error| match error {
            Fault::NoMessage => "it is no ONNX file, or was cut off or changed".to_owned(),
            Fault::Other(reason) => reason,
        })?;
        let places = parts.places();
        let named = |layout: Layout| entries.iter().filter_map(|entry| layout.tensor(entry)).collect::<Vec<_>>();
        // A normalization's parts are called otherwise in PyTorch; all else is called alike.
        let namings = [named(Layout::Burn), named(Layout::Torch)];
        let names: BTreeSet<&str> =
            parts.constants.keys().map(String::as_str).chain(parts.links.keys().copied()).collect();
        let mut chosen = (&namings[0], String::new());
        for naming in &namings {
            if let Some(before) = source::part(naming, &names)? {
                chosen = (naming, before);
                break;
            }
        }
        let (naming, before) = chosen;
        let called: BTreeMap<String, &Entry> =
            naming.iter().map(|name| format!("{before}{name}")).zip(entries).collect();
        let constant = |name: &String| parts.origin(name).map(|(constant, _)| constant.to_owned());
        let found = called.iter().filter_map(|(name, entry)| Some((entry.path.clone(), constant(name)?)));
        let found: BTreeMap<String, String> = found.collect();
        let taken: BTreeSet<&String> = found.values().collect();
        // How samples are scaled, our own exports say in their graph.
        let is_scale = |name: &String| parts.producer == PRODUCER && SCALES.contains(&name.as_str());
        let is_other = |(name, constant): &(&String, &Constant<'_>)| {
            !taken.contains(name) && constant.may_be_weight() && !is_scale(name)
        };
        let others = parts.constants.iter().filter(is_other).map(|(name, _)| name.clone()).collect();
        let misused = Vectors::new(&parts, called).misused();
        let folder = path.parent().unwrap_or_else(|| Path::new("")).to_owned();
        Ok(Self { folder, all: parts.constants, places, misused, found, others })
    }

    /// What could be a weight: first what is none of the model's, then what is, as the model calls it.
    pub(in crate::export::exchange) fn names(&self) -> Vec<&String> {
        self.others.iter().chain(self.found.keys()).collect()
    }

    fn of(&self, path: &str) -> Option<(&Constant<'a>, Option<&Place>)> {
        let name = self.found.get(path)?;
        Some((self.all.get(name)?, self.places.get(name)))
    }

    /// The shape of the parameter of this path, in the model's layout; `None` if it is not there.
    pub(in crate::export::exchange) fn shape(&self, path: &str) -> Option<Vec<usize>> {
        let (constant, place) = self.of(path)?;
        let mut shape = constant.shape.clone();
        if is_turned(&constant.shape, place) {
            shape.reverse();
        }
        Some(shape)
    }

    /// The numbers of the parameter of this path, in the model's layout, once its shape is known to be the model's.
    ///
    /// # Errors
    /// Why there are none, as the rest of a sentence about it.
    pub(in crate::export::exchange) fn numbers(&self, path: &str) -> Result<Vec<f32>, String> {
        let (constant, place) = self.of(path).ok_or("is not there")?;
        if let Some(reason) = self.misused.get(path) {
            return Err(reason.clone());
        }
        if constant.shape.len() == 2 {
            match place {
                Some(Place::Other(reason)) => return Err(reason.clone()),
                // Taken as it is, a square one of PyTorch's would be transposed, and nobody would notice.
                None => {
                    let reason = "is no matrix that a `Gemm`, a `MatMul` or a `Gather` of its graph takes as it is, so that nothing says which way it \
                                  lies; save its tensors with `torch.save`";
                    return Err(reason.to_owned());
                }
                Some(Place::Table | Place::Right { .. } | Place::Kernel) => {}
            }
        }
        if constant.shape.len() > 2 && place != Some(&Place::Kernel) {
            return Err(
                "is no kernel that a `Conv` of its graph takes as it is; save its tensors with `torch.save`".to_owned()
            );
        }
        let numbers = constant.numbers(&self.folder)?;
        Ok(if is_turned(&constant.shape, place) { transposed(&numbers, constant.shape[0]) } else { numbers })
    }
}

fn is_turned(shape: &[usize], place: Option<&Place>) -> bool {
    shape.len() == 2 && matches!(place, Some(Place::Right { is_turned: true }))
}
