//! The task of the command line's models: which class a sample is of.

use std::sync::Arc;

use burn::nn::loss::CrossEntropyLossConfig;
use burn::tensor::{Device, ExecutionError, Int, Tensor, TensorData};
use starling_data::{Dataset, Samples};
use starling_run::ModelOptions;

use crate::network::cut::Cut;
use crate::network::dropout::Dropout;
use crate::network::{Layers, Network};
use crate::task::augment::augment;
use crate::task::evaluation;
use crate::task::{Draw, Task, TaskData};

/// Samples on a device.
#[derive(Debug, Clone)]
pub struct Batch {
    /// `[samples, features]`.
    pub rows: Tensor<2>,
    /// `[samples]`: of each, the index of its class.
    pub labels: Tensor<1, Int>,
    /// What is random about it, in training.
    pub draw: Option<Draw>,
}

impl Batch {
    /// Copies the samples of `indices` to `device`.
    pub(crate) fn new(samples: &Samples, indices: &[u32], device: &Device) -> Self {
        Self::of_rows(samples, indices, samples.gather(indices), device)
    }

    /// The samples of `indices`, with these features.
    fn of_rows(samples: &Samples, indices: &[u32], rows: Vec<f32>, device: &Device) -> Self {
        let rows = TensorData::new(rows, [indices.len(), samples.features()]);
        let labels: Vec<i64> = indices.iter().map(|index| i64::from(samples.labels()[*index as usize])).collect();
        let labels = TensorData::new(labels, [indices.len()]);
        Self { rows: Tensor::from_data(rows, device), labels: Tensor::from_data(labels, device), draw: None }
    }
}

/// A [`Network`] that learns the labels of a [`Dataset`] by cross-entropy.
#[derive(Debug)]
pub struct Classification {
    layers: Layers,
    options: ModelOptions,
    dataset: Arc<Dataset>,
}

impl Classification {
    /// By a network of these layers.
    pub fn new(layers: Layers, dataset: Arc<Dataset>) -> Self {
        Self { layers, options: ModelOptions::default(), dataset }
    }

    /// The same, trained with these options.
    #[must_use]
    pub fn with_options(self, options: ModelOptions) -> Self {
        Self { options, ..self }
    }
}

impl Task for Classification {
    type Module = Network;
    type Batch = Batch;

    fn name(&self) -> &str {
        "classification"
    }

    fn data(&self) -> TaskData {
        (&*self.dataset).into()
    }

    fn module(&self, device: &Device) -> Network {
        let description = self.dataset.description();
        Network::new(&self.layers, description.shape, description.classes, device)
    }

    fn batch(&self, samples: &[u32], device: &Device) -> Batch {
        let (samples, places) = self.dataset.numbered(samples);
        Batch::new(samples, &places, device)
    }

    /// With images changed as the options say: each as its number and the epoch have it.
    fn training_batch(&self, samples: &[u32], draw: &Draw, device: &Device) -> Batch {
        let (data, places) = self.dataset.numbered(samples);
        let mut rows = data.gather(&places);
        if !self.options.augment.is_empty() {
            let shape = self.dataset.description().shape.map(|dimension| dimension as usize);
            for (image, sample) in rows.chunks_exact_mut(data.features()).zip(samples) {
                augment(&self.options.augment, shape, image, &mut draw.of_sample("augment", *sample));
            }
        }
        Batch { draw: Some(*draw), ..Batch::of_rows(data, &places, rows, device) }
    }

    fn loss(&self, network: &Network, batch: Batch) -> Tensor<1> {
        self.loss_in_blocks(network, batch, &mut Cut::nowhere())
    }

    fn borders(&self, network: &Network) -> Vec<usize> {
        network.borders()
    }

    fn loss_in_blocks(&self, network: &Network, batch: Batch, cut: &mut Cut<'_>) -> Tensor<1> {
        let Batch { rows, labels, draw } = batch;
        let drop = Dropout::between_layers(self.options.dropout, draw.as_ref());
        let loss = CrossEntropyLossConfig::new().init(&rows.device());
        loss.forward(network.forward_through(rows, drop, |features| cut.here(features)), labels)
    }

    fn measure(
        &self,
        network: &Network,
        samples: &[u32],
        device: &Device,
    ) -> Result<Vec<(&'static str, f64)>, ExecutionError> {
        let (samples, places) = self.dataset.numbered(samples);
        evaluation::measure(network, samples, &places, device)
    }
}
