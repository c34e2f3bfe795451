//! What a run trains, as the runtime sees it: a program reads the data that a machine has, says what a run over it is, and
//! opens the learner of a member.

pub mod export;
pub mod learner;
pub mod rename;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::data::{ArrivalTracker, DataDescription, DataOptions, Kind, PreprocessingSpec};
use crate::error::Error;
use crate::manifest::Manifest;
use crate::manifest::spec::{ModelSpec, RunSpec};
use crate::program::learner::Learner;
use crate::program::rename::RenameSpec;
use crate::state::ReplicatedState;

/// What computes, and what it can compute.
pub trait Program: Send + Sync {
    /// Checks that this program can take part in the run, before any data is fetched for it.
    ///
    /// # Errors
    /// If the run is another program's.
    fn check(&self, manifest: &Manifest) -> Result<(), Error>;

    /// The kind of data that is called so; `None` if this program reads no such data.
    fn kind(&self, name: &str) -> Option<Kind>;

    /// The files that `source` stands for, in their kind's order. None of data without files, or whose files are made for others.
    ///
    /// # Errors
    /// If a file can't be read, or they are not those of one data set.
    fn files(&self, source: &str) -> Result<(Kind, Vec<PathBuf>), Error>;

    /// The files that members share of the data that `options` name, in their kind's order: [`Self::files`], or what is made of that
    /// data for others, in `folder`. As it is, the former.
    ///
    /// # Errors
    /// As [`Self::files`], and if a file can't be written.
    fn shared_files(&self, options: &DataOptions, folder: &Path) -> Result<(Kind, Vec<PathBuf>), Error> {
        let _ = folder;
        self.files(&options.source)
    }

    /// Whether a model that is called so learns a text, so that its data is read as one. As it is, none does.
    fn learns_text(&self, model: &ModelSpec) -> bool {
        let _ = model;
        false
    }

    /// Reads the data that `options` name, if the program does not bring its own.
    ///
    /// # Errors
    /// If it can't be read, or is not what it should be.
    fn read(&self, options: &DataOptions) -> Result<Box<dyn Workload>, Error>;
}

/// Where the values lie that a run begins with.
#[derive(Debug, Clone, Copy)]
pub struct InitialOrigin<'a> {
    /// A file with tensors, or where the state was found.
    pub path: &'a Path,
    /// A state of another run, with the manifest of that: of its values, those of its model are meant.
    pub state: Option<(&'a Manifest, &'a ReplicatedState)>,
    /// What the model calls the tensors there.
    pub names: &'a [RenameSpec],
}

impl<'a> InitialOrigin<'a> {
    /// This file, whose tensors are called as the model's.
    pub fn file(path: &'a Path) -> Self {
        Self { path, state: None, names: &[] }
    }
}

/// A program with its data: what a run can be made of.
pub trait Workload: Send {
    /// What members compare of the data.
    fn description(&self) -> DataDescription;

    /// How many samples there are to train on.
    fn training(&self) -> u64;

    /// How many steps a run over it takes of which nobody says how long it is. As it is, those of `spec`.
    fn usual_steps(&self, spec: &RunSpec) -> u64 {
        spec.steps
    }

    /// What is done to its values, and what its numbers stand for; `None` of data that a program brings.
    fn preprocessing(&self) -> Option<&PreprocessingSpec> {
        None
    }

    /// The files that it reads samples from, if they can come while it is trained on. As it is, they can't.
    fn arrivals(&self) -> Option<Arc<dyn ArrivalTracker>> {
        None
    }

    /// What a run over the data is, but for its initial parameters: the program's own model, or what it has by the name in `spec`.
    /// That the data is split as `spec` says is not looked at.
    ///
    /// # Errors
    /// If there is no such model, or it can't work on the data.
    fn describe(&self, spec: &RunSpec) -> Result<Manifest, Error>;

    /// The manifest of a new run.
    ///
    /// # Errors
    /// If a value is out of range, or the model can't work on the data.
    fn found(&self, spec: &RunSpec) -> Result<Manifest, Error>;

    /// The values of the parameters of `spec`'s model in a file or a state, `[parameters]`, for a run to begin with. As it is, none are read.
    ///
    /// # Errors
    /// If it can't be read, or holds the values of another model.
    fn read_initial(&self, spec: &RunSpec, origin: &InitialOrigin<'_>) -> Result<Vec<f32>, Error> {
        let _ = spec;
        Err(Error::NoInitialFile { path: origin.path.to_owned() })
    }

    /// The values that a run of `spec`'s model begins with, `[parameters]`, where other machines may draw others and have to get them from members; `None`
    /// if all draw the same, which is as it is.
    ///
    /// # Errors
    /// If they can't be drawn.
    fn own_initial(&self, spec: &RunSpec) -> Result<Option<Vec<f32>>, Error> {
        let _ = spec;
        Ok(None)
    }

    /// The learner of a member at step 0 of the run that `manifest` describes, whose initial parameters are drawn.
    ///
    /// # Errors
    /// As [`Self::open_with`].
    fn open(self: Box<Self>, manifest: &Manifest) -> Result<Box<dyn Learner>, Error> {
        self.open_with(manifest, None)
    }

    /// The same; the initial parameters are those that were `given`, `[parameters]`, or else drawn.
    ///
    /// # Errors
    /// If the manifest is not usable, the data is not the run's, the model has another schema or other initial parameters than
    /// the run's, or the device can't be opened.
    fn open_with(self: Box<Self>, manifest: &Manifest, given: Option<Vec<f32>>) -> Result<Box<dyn Learner>, Error>;
}
