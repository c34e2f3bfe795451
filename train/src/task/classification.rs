//! The task of the command line's models: which class a sample is of.

use std::sync::Arc;

use burn::nn::loss::CrossEntropyLossConfig;
use burn::tensor::{Device, ExecutionError, Int, Tensor, TensorData};
use starling_data::{Dataset, Samples};

use crate::network::cut::Cut;
use crate::network::{Layers, Network};
use crate::task::evaluation;
use crate::task::{Task, TaskData};

/// Samples on a device.
#[derive(Debug, Clone)]
pub struct Batch {
    /// `[samples, features]`.
    pub rows: Tensor<2>,
    /// `[samples]`: of each, the index of its class.
    pub labels: Tensor<1, Int>,
}

impl Batch {
    /// Copies the samples of `indices` to `device`.
    pub(crate) fn new(samples: &Samples, indices: &[u32], device: &Device) -> Self {
        let rows = TensorData::new(samples.gather(indices), [indices.len(), samples.features()]);
        let labels: Vec<i64> = indices.iter().map(|index| i64::from(samples.labels()[*index as usize])).collect();
        let labels = TensorData::new(labels, [indices.len()]);
        Self { rows: Tensor::from_data(rows, device), labels: Tensor::from_data(labels, device) }
    }
}

/// A [`Network`] that learns the labels of a [`Dataset`] by cross-entropy.
#[derive(Debug)]
pub struct Classification {
    layers: Layers,
    dataset: Arc<Dataset>,
}

impl Classification {
    /// By a network of these layers.
    pub fn new(layers: Layers, dataset: Arc<Dataset>) -> Self {
        Self { layers, dataset }
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
        let (samples, places) = self.dataset.numbered(samples);
        evaluation::measure(network, samples, &places, device)
    }
}
