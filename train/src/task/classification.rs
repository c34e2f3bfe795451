//! The task of the command line's models: which class a sample is of.

use std::io;
use std::sync::Arc;

use burn::nn::loss::CrossEntropyLossConfig;
use burn::tensor::activation::log_softmax;
use burn::tensor::{Device, Int, Tensor, TensorData};
use starling_data::Dataset;
use starling_run::{ClassWeightPolicy, ModelOptions};

use crate::network::cut::Cut;
use crate::network::dropout::Dropout;
use crate::network::{LayerSpec, Network};
use crate::task::augment::augment;
use crate::task::evaluation;
use crate::task::{DrawSeed, MeasureError, SampleSummary, Task};

/// Samples on a device.
#[derive(Debug, Clone)]
pub struct Batch {
    /// `[samples, features]`.
    pub rows: Tensor<2>,
    /// `[samples]`: of each, the index of its class.
    pub labels: Tensor<1, Int>,
    /// `[samples]`: what each counts, if they differ.
    pub weights: Option<Tensor<1>>,
    /// What is random about it, in training.
    pub draw: Option<DrawSeed>,
}

impl Batch {
    /// Copies samples with these features and labels to `device`.
    pub(crate) fn new(rows: Vec<f32>, labels: &[u32], device: &Device) -> Self {
        let samples = labels.len();
        let width = rows.len() / samples.max(1);
        let rows = TensorData::new(rows, [samples, width]);
        let labels = TensorData::new(labels.iter().copied().map(i64::from).collect::<Vec<_>>(), [samples]);
        let (rows, labels) = (Tensor::from_data(rows, device), Tensor::from_data(labels, device));
        Self { rows, labels, weights: None, draw: None }
    }

    /// The same of samples that count so much.
    fn weighted(self, weights: Option<Vec<f32>>) -> Self {
        let device = self.rows.device();
        let tensor = |weights: Vec<f32>| {
            let count = weights.len();
            Tensor::from_data(TensorData::new(weights, [count]), &device)
        };
        Self { weights: weights.map(tensor), ..self }
    }
}

/// A [`Network`] that learns the labels of a [`Dataset`] by cross-entropy.
#[derive(Debug)]
pub struct ClassificationTask {
    layers: LayerSpec,
    options: ModelOptions,
    dataset: Arc<Dataset>,
    /// How much a sample of each class counts in training, if they differ.
    weights: Option<Vec<f32>>,
}

impl ClassificationTask {
    /// By a network of these layers.
    pub fn new(layers: LayerSpec, dataset: Arc<Dataset>) -> Self {
        Self { layers, options: ModelOptions::default(), dataset, weights: None }
    }

    /// The same, trained with these options.
    #[must_use]
    pub fn with_options(self, options: ModelOptions) -> Self {
        let weights = match options.class_weights {
            ClassWeightPolicy::Equal => None,
            // Whose labels are too many to be classes has none to balance.
            ClassWeightPolicy::Balanced if self.dataset.class_names().is_empty() => None,
            ClassWeightPolicy::Balanced => {
                Some(balanced(&self.dataset.training().class_counts(self.dataset.class_names().len())))
            }
        };
        Self { options, weights, ..self }
    }
}

impl Task for ClassificationTask {
    type Module = Network;
    type Batch = Batch;

    fn name(&self) -> &str {
        "classification"
    }

    fn data(&self) -> SampleSummary {
        (&*self.dataset).into()
    }

    fn module(&self, device: &Device) -> Network {
        let description = self.dataset.description();
        Network::new(&self.layers, description.shape, description.classes, device)
    }

    /// # Panics
    /// If the data can't be read: [`Self::read_batch`] says it.
    fn batch(&self, samples: &[u32], device: &Device) -> Batch {
        let (data, places) = self.dataset.numbered(samples);
        let (rows, labels) = data.read(&places).unwrap_or_else(|error| panic!("{error}"));
        Batch::new(rows, &labels, device).weighted(self.dataset.weights(samples))
    }

    /// With images changed as the options say: each as its number and the epoch have it.
    fn read_batch(&self, samples: &[u32], draw: &DrawSeed, device: &Device) -> io::Result<Batch> {
        let (data, places) = self.dataset.numbered(samples);
        let (mut rows, labels) = data.read(&places).map_err(io::Error::other)?;
        if !self.options.augment.is_empty() {
            let shape = self.dataset.description().shape.map(|dimension| dimension as usize);
            for (image, sample) in rows.chunks_exact_mut(data.features()).zip(samples) {
                augment(&self.options.augment, shape, image, &mut draw.of_sample("augment", *sample));
            }
        }
        let batch = Batch::new(rows, &labels, device).weighted(self.dataset.weights(samples));
        Ok(Batch { draw: Some(*draw), ..batch })
    }

    fn loads_beside(&self) -> Option<u64> {
        let samples = self.dataset.training();
        let changed = (!self.options.augment.is_empty()).then_some(4 * samples.features() as u64);
        samples.bytes_read().or(changed)
    }

    fn weight(&self, samples: &[u32]) -> Option<f64> {
        self.dataset.weights(samples).map(|weights| weights.into_iter().map(f64::from).sum())
    }

    fn loss(&self, network: &Network, batch: Batch) -> Tensor<1> {
        self.loss_in_blocks(network, batch, &mut Cut::nowhere())
    }

    fn borders(&self, network: &Network) -> Vec<usize> {
        network.borders()
    }

    fn loss_in_blocks(&self, network: &Network, batch: Batch, cut: &mut Cut<'_>) -> Tensor<1> {
        let Batch { rows, labels, weights, draw } = batch;
        let drop = Dropout::between_layers(self.options.dropout, draw.as_ref());
        let outputs = network.forward_through(rows, drop, |features| cut.here(features));
        match (&self.weights, weights) {
            (None, None) => CrossEntropyLossConfig::new().init(&outputs.device()).forward(outputs, labels),
            (of_classes, of_rows) => weighted(outputs, labels, of_classes.as_deref(), of_rows),
        }
    }

    fn measure(
        &self,
        network: &Network,
        samples: &[u32],
        device: &Device,
    ) -> Result<Vec<(&'static str, f64)>, MeasureError> {
        let weights = self.dataset.weights(samples);
        let (samples, places) = self.dataset.numbered(samples);
        evaluation::measure(network, samples, &places, weights, device)
    }

    fn measures(&self) -> Vec<&'static str> {
        evaluation::of_classes(self.dataset.description().classes as usize)
    }
}

/// How much a sample of each of some classes counts, which have so many, so that each class counts as much as any other: *N* / (*K* *n*), which is 1 in the
/// mean over all samples. A class that none of them has counts as it would otherwise.
fn balanced(counts: &[u64]) -> Vec<f32> {
    let (samples, there) =
        (counts.iter().sum::<u64>() as f64, counts.iter().filter(|count| **count > 0).count() as f64);
    let weight = |count: &u64| if *count == 0 { 1.0 } else { samples / (there * *count as f64) };
    counts.iter().map(|count| weight(count) as f32).collect()
}

/// The mean cross-entropy of `[samples, classes]`, each sample times the weight of its class. It is divided by the number of samples, or what these count,
/// not by the sum of the weights of their classes: so the parts of a batch add up to the whole, whoever computes them.
fn weighted(
    outputs: Tensor<2>,
    labels: Tensor<1, Int>,
    of_classes: Option<&[f32]>,
    of_rows: Option<Tensor<1>>,
) -> Tensor<1> {
    let (samples, device) = (labels.dims()[0], outputs.device());
    let mut said = log_softmax(outputs, 1).gather(1, labels.clone().reshape([samples, 1])).reshape([samples]);
    if let Some(weights) = of_classes {
        let weights = TensorData::new(weights.to_vec(), [weights.len()]);
        said = said * Tensor::<1>::from_data(weights, &device).select(0, labels);
    }
    match of_rows {
        None => said.mean().neg(),
        Some(weights) => (said * weights.clone()).sum().neg() / weights.sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DeviceSpec;

    #[test]
    fn each_class_counts_as_much_as_any_other() {
        let labels = [0, 0, 0, 1, 3, 3];
        let weights = balanced(&[3, 1, 0, 2]);
        assert_eq!(weights, [2.0 / 3.0, 2.0, 1.0, 1.0]);
        let of = |class: u32| labels.iter().filter(|label| **label == class).count() as f32 * weights[class as usize];
        assert_eq!([of(0), of(1), of(3)], [2.0; 3]);
    }

    #[test]
    fn parts_of_a_batch_add_up_to_its_weighted_loss() {
        let device = DeviceSpec::Cpu.open().expect("the CPU").device;
        let loss = |outputs: &[f32], labels: &[i64], weights: &[f32]| -> f64 {
            let outputs = TensorData::new(outputs.to_vec(), [labels.len(), 2]);
            let labels = TensorData::new(labels.to_vec(), [labels.len()]);
            let (outputs, labels) = (Tensor::from_data(outputs, &device), Tensor::from_data(labels, &device));
            let loss = weighted(outputs, labels, Some(weights), None).try_into_data().expect("computed");
            f64::from(loss.as_slice::<f32>().expect("f32")[0])
        };
        let (outputs, labels, weights) = ([0.0, 0.0, 2.0, 0.0, -1.0, 1.0], [0, 1, 1], [3.0, 0.5]);
        // By hand: log of the sum of exponentials, less the output of the class.
        let entropy = |a: f64, b: f64| (1.0 + (b - a).exp()).ln();
        let expected = (3.0 * entropy(0.0, 0.0) + 0.5 * entropy(0.0, 2.0) + 0.5 * entropy(1.0, -1.0)) / 3.0;
        let whole = loss(&outputs, &labels, &weights);
        assert!((whole - expected).abs() < 1e-6, "{whole} {expected}");
        let parts = 2.0 * loss(&outputs[..4], &labels[..2], &weights) + loss(&outputs[4..], &labels[2..], &weights);
        assert!((whole - parts / 3.0).abs() < 1e-6, "{whole} {parts}");
        // With equal weights it is the usual loss.
        let usual = CrossEntropyLossConfig::new().init(&device).forward(
            Tensor::from_data(TensorData::new(outputs.to_vec(), [3, 2]), &device),
            Tensor::from_data(TensorData::new(labels.to_vec(), [3]), &device),
        );
        let usual = f64::from(usual.try_into_data().expect("computed").as_slice::<f32>().expect("f32")[0]);
        assert!((usual - loss(&outputs, &labels, &[1.0, 1.0])).abs() < 1e-6, "{usual}");
    }
}
