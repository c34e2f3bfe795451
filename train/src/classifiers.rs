//! The program of the command line: its models, on the data that its users name.

use std::path::PathBuf;
use std::sync::Arc;

use starling_data::{Dataset, files};
use starling_run::{
    DataDescription, DataNotes, DataOptions, Error, Learner, Manifest, ModelSpec, Program, RunSpec, Workload,
};

use crate::classification::Classification;
use crate::device::DeviceChoice;
use crate::error;
use crate::founding::found;
use crate::replica::Replica;

/// Trains what [`ModelSpec`] names, on a device.
#[derive(Debug, Clone, Copy)]
pub struct Classifiers {
    device: DeviceChoice,
}

impl Classifiers {
    /// On this device.
    pub fn new(device: DeviceChoice) -> Self {
        Self { device }
    }
}

impl Program for Classifiers {
    fn check(&self, manifest: &Manifest) -> Result<(), Error> {
        Ok(check_model(manifest)?)
    }

    fn files(&self, source: &str) -> Result<(&'static str, Vec<PathBuf>), Error> {
        Ok(files(source).map_err(error::Error::from)?)
    }

    fn read(&self, options: &DataOptions) -> Result<Box<dyn Workload>, Error> {
        let dataset = Dataset::load(options).map_err(error::Error::from)?;
        Ok(Box::new(Classifier { dataset, device: self.device }))
    }
}

/// Those models, on one data set.
struct Classifier {
    dataset: Dataset,
    device: DeviceChoice,
}

impl Workload for Classifier {
    fn description(&self) -> DataDescription {
        self.dataset.description()
    }

    fn model(&self) -> Option<ModelSpec> {
        None
    }

    fn found(&self, spec: &RunSpec) -> Result<Manifest, Error> {
        Ok(found(spec, &self.dataset)?)
    }

    fn open(self: Box<Self>, manifest: &Manifest) -> Result<Box<dyn Learner>, Error> {
        Ok(Box::new(Trainer::new(manifest, self.dataset, self.device)?))
    }
}

/// A member's part in a run of the command line.
pub type Trainer = Replica<Classification>;

impl Trainer {
    /// A trainer at step 0 of the run that `manifest` describes.
    ///
    /// # Errors
    /// If the manifest is not usable or is of no model of the command line, `dataset` is not the run's, the model built here
    /// has another schema or other initial parameters than the run's, or the device cannot be opened.
    pub fn new(manifest: &Manifest, dataset: Dataset, device: DeviceChoice) -> Result<Self, error::Error> {
        manifest.check().map_err(starling_run::Error::from)?;
        check_model(manifest)?;
        check_data(manifest, &dataset)?;
        let notes = DataNotes {
            summary: Some(dataset.summary().clone()),
            preprocessing: Some(dataset.preprocessing().clone()),
            warnings: dataset.warnings(manifest.batch_size),
        };
        Self::open(Arc::new(Classification::new(manifest.model.clone(), dataset)), manifest, notes, device)
    }
}

/// Checks that `dataset` is the run's, split as the run's.
fn check_data(manifest: &Manifest, dataset: &Dataset) -> Result<(), error::Error> {
    let here =
        Manifest { data: dataset.description().in_form_of(&manifest.data), seed: dataset.seed(), ..manifest.clone() };
    error::Error::unless_alike(manifest, &here)
}

/// Checks that the run's model is one of these.
fn check_model(manifest: &Manifest) -> Result<(), error::Error> {
    match &manifest.model {
        ModelSpec::Softmax | ModelSpec::Mlp { .. } | ModelSpec::Cnn { .. } => Ok(()),
        ModelSpec::Raw { elements } => Err(error::Error::NoModel { elements: *elements }),
        ModelSpec::Task { name, .. } => Err(error::Error::OtherTask { name: name.clone(), ours: None }),
    }
}
