//! The task of the command line's models: which class a sample is of.

use std::borrow::Cow;
use std::sync::Arc;

use burn::nn::loss::CrossEntropyLossConfig;
use burn::tensor::{Device, ExecutionError, Tensor};
use starling_run::{DataNotes, Manifest, ModelSpec};
use starling_topology::Digest;

use crate::batch::Batch;
use crate::cut::Cut;
use crate::device::DeviceChoice;
use crate::error::Error;
use crate::evaluation;
use crate::network::Network;
use crate::replica::Replica;
use crate::task::Task;
use starling_data::{Dataset, Samples};

/// A [`Network`] that learns the labels of a [`Dataset`] by cross-entropy.
#[derive(Debug)]
pub struct Classification {
    model: ModelSpec,
    dataset: Dataset,
}

impl Classification {
    /// The model of a run over `dataset`.
    pub fn new(model: ModelSpec, dataset: Dataset) -> Self {
        Self { model, dataset }
    }

    /// The samples that these numbers are of, all of which are to train on or all held out, and their places among those.
    fn find<'a>(&'a self, samples: &'a [u32]) -> (&'a Samples, Cow<'a, [u32]>) {
        let training = self.training();
        match samples.first() {
            Some(first) if *first >= training => {
                (self.dataset.held_out(), samples.iter().map(|sample| sample - training).collect())
            }
            _ => (self.dataset.training(), samples.into()),
        }
    }
}

impl Task for Classification {
    type Module = Network;
    type Batch = Batch;

    fn name(&self) -> &str {
        "classification"
    }

    fn training(&self) -> u32 {
        u32::try_from(self.dataset.training().len()).expect("invariant: samples fit their description")
    }

    fn held_out(&self) -> u32 {
        u32::try_from(self.dataset.held_out().len()).expect("invariant: samples fit their description")
    }

    fn fingerprint(&self) -> Digest {
        self.dataset.description().fingerprint
    }

    fn module(&self, device: &Device) -> Network {
        let description = self.dataset.description();
        Network::new(&self.model, description.shape, description.classes, device)
    }

    fn batch(&self, samples: &[u32], device: &Device) -> Batch {
        let (samples, places) = self.find(samples);
        Batch::new(samples, &places, device)
    }

    fn loss(&self, network: &Network, batch: Batch) -> Tensor<1> {
        self.loss_in_blocks(network, batch, &mut Cut::nowhere())
    }

    fn borders(&self, network: &Network) -> Vec<usize> {
        network.borders()
    }

    fn loss_in_blocks(&self, network: &Network, Batch { rows, labels }: Batch, cut: &mut Cut<'_>) -> Tensor<1> {
        let loss = CrossEntropyLossConfig::new().init(&rows.device());
        loss.forward(network.forward_through(rows, |features| cut.here(features)), labels)
    }

    fn measure(
        &self,
        network: &Network,
        samples: &[u32],
        device: &Device,
    ) -> Result<Vec<(&'static str, f64)>, ExecutionError> {
        let (samples, places) = self.find(samples);
        evaluation::measure(network, samples, &places, device)
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
    pub fn new(manifest: &Manifest, dataset: Dataset, device: DeviceChoice) -> Result<Self, Error> {
        manifest.check().map_err(starling_run::Error::from)?;
        crate::classifiers::check_model(manifest)?;
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
fn check_data(manifest: &Manifest, dataset: &Dataset) -> Result<(), Error> {
    let here =
        Manifest { data: dataset.description().in_form_of(&manifest.data), seed: dataset.seed(), ..manifest.clone() };
    Error::unless_alike(manifest, &here)
}
