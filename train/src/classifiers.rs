//! The program of the command line: its models, on the data that its users name.

use std::path::PathBuf;

use starling_run::{DataDescription, DataOptions, Error, Learner, Manifest, ModelSpec, Program, RunSpec, Workload};

use crate::classification::Trainer;
use crate::device::DeviceChoice;
use crate::error;
use crate::founding::found;
use starling_data::{Dataset, files};

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

/// Checks that the run's model is one of these.
pub(crate) fn check_model(manifest: &Manifest) -> Result<(), error::Error> {
    match &manifest.model {
        ModelSpec::Softmax | ModelSpec::Mlp { .. } | ModelSpec::Cnn { .. } => Ok(()),
        ModelSpec::Raw { elements } => Err(error::Error::NoModel { elements: *elements }),
        ModelSpec::Task { name, .. } => Err(error::Error::OtherTask { name: name.clone(), ours: None }),
    }
}
