//! The task of the command line's models for numbers: how large a label is, or each of several; or which of several labels a sample has.

use std::io;
use std::sync::Arc;

use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor, TensorData};
use starling_data::{DataError, Dataset};
use starling_run::data::LabelScale;
use starling_run::{ClassWeightPolicy, LossKind, ModelOptions};

use crate::network::cut::Cut;
use crate::network::dropout::Dropout;
use crate::network::{LayerSpec, Network};
use crate::task::evaluation;
use crate::task::{DrawSeed, MeasureError, SampleSummary, Task};

/// What labels are taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LabelKind {
    /// Numbers, which are scaled.
    Numbers,
    /// 1 of a sample that has the label, and 0 of others: learned by binary cross-entropy, each for itself.
    Marks,
}

/// A [`Network`] that learns the labels of a [`Dataset`] as numbers, with an output for each column of them.
#[derive(Debug)]
pub struct RegressionTask {
    name: &'static str,
    layers: LayerSpec,
    options: ModelOptions,
    dataset: Arc<Dataset>,
    /// Of each column of labels.
    scales: Vec<LabelScale>,
    policy: LabelKind,
}

/// Samples on a device.
#[derive(Debug, Clone)]
pub struct NumberBatch {
    /// `[samples, features]`.
    rows: Tensor<2>,
    /// `[samples, labels]`: these, scaled if they are to be.
    targets: Tensor<2>,
    /// `[samples, 1]`: what each counts, if they differ.
    weights: Option<Tensor<2>>,
    /// What is random about it, in training.
    draw: Option<DrawSeed>,
}

impl RegressionTask {
    /// By a network of these layers, as the model `name`.
    ///
    /// # Errors
    /// If a label is no number, or is to be 0 or 1 and is not, as a sentence.
    pub fn new(
        name: &'static str,
        layers: LayerSpec,
        options: ModelOptions,
        dataset: Arc<Dataset>,
        policy: LabelKind,
    ) -> Result<Self, String> {
        let scales = dataset.preprocessing().labels.clone();
        if scales.is_empty() {
            return Err(format!(
                "{name} needs labels that are numbers, but the data has others; take softmax or mlp, which learn classes, or name another \
                 column (`--label`)"
            ));
        }
        let mark = |number: &&f64| **number != 0.0 && **number != 1.0;
        if let Some(other) = dataset.label_numbers().iter().find(mark).filter(|_| policy == LabelKind::Marks) {
            return Err(format!(
                "of several label columns, {name} learns which ones a sample has, so that all are 0 or 1, but one is {other}; take `--model linear` or \
                 `regression`, which learn numbers, or name one column (`--label`)"
            ));
        }
        if policy == LabelKind::Marks && options.class_weights == ClassWeightPolicy::Balanced {
            return Err(
                "several label columns are no classes that could be weighed; leave --class-weights out".to_owned()
            );
        }
        Ok(Self { name, layers, options, dataset, scales, policy })
    }

    /// What the labels of a sample stand for, whose place among the different ones this is.
    fn numbers(&self, label: u32) -> &[f64] {
        let labels = self.scales.len();
        &self.dataset.label_numbers()[label as usize * labels..][..labels]
    }

    fn read(&self, samples: &[u32], device: &Device) -> Result<NumberBatch, DataError> {
        let (data, places) = self.dataset.numbered(samples);
        let (rows, labels) = data.read(&places)?;
        let target = |(number, scale): (&f64, &LabelScale)| match self.policy {
            LabelKind::Numbers => scale.scaled(*number) as f32,
            LabelKind::Marks => *number as f32,
        };
        let of_sample = |label: &u32| self.numbers(*label).iter().zip(&self.scales).map(target).collect::<Vec<_>>();
        let targets: Vec<f32> = labels.iter().flat_map(of_sample).collect();
        let tensor =
            |values: Vec<f32>, width| Tensor::from_data(TensorData::new(values, [places.len(), width]), device);
        let weights = self.dataset.weights(samples).map(|weights| tensor(weights, 1));
        Ok(NumberBatch {
            rows: tensor(rows, data.features()),
            targets: tensor(targets, self.scales.len()),
            weights,
            draw: None,
        })
    }

    fn loss_of(&self) -> LossKind {
        self.options.loss.unwrap_or(LossKind::Squared)
    }
}

impl Task for RegressionTask {
    type Module = Network;
    type Batch = NumberBatch;

    fn name(&self) -> &str {
        self.name
    }

    fn data(&self) -> SampleSummary {
        (&*self.dataset).into()
    }

    fn module(&self, device: &Device) -> Network {
        Network::new(&self.layers, self.dataset.description().shape, self.scales.len() as u32, device)
    }

    /// # Panics
    /// If the data can't be read: [`Self::read_batch`] says it.
    fn batch(&self, samples: &[u32], device: &Device) -> NumberBatch {
        self.read(samples, device).unwrap_or_else(|error| panic!("{error}"))
    }

    fn read_batch(&self, samples: &[u32], draw: &DrawSeed, device: &Device) -> io::Result<NumberBatch> {
        Ok(NumberBatch { draw: Some(*draw), ..self.read(samples, device).map_err(io::Error::other)? })
    }

    fn loads_beside(&self) -> Option<u64> {
        // And the labels of a sample, of which one is counted there.
        let labels = 4 * (self.scales.len() as u64).saturating_sub(1);
        self.dataset.training().bytes_read().map(|bytes| bytes + labels)
    }

    fn weight(&self, samples: &[u32]) -> Option<f64> {
        self.dataset.weights(samples).map(|weights| weights.into_iter().map(f64::from).sum())
    }

    fn loss(&self, network: &Network, batch: NumberBatch) -> Tensor<1> {
        self.loss_in_blocks(network, batch, &mut Cut::nowhere())
    }

    fn borders(&self, network: &Network) -> Vec<usize> {
        network.borders()
    }

    fn loss_in_blocks(&self, network: &Network, batch: NumberBatch, cut: &mut Cut<'_>) -> Tensor<1> {
        let NumberBatch { rows, targets, weights, draw } = batch;
        let drop = Dropout::between_layers(self.options.dropout, draw.as_ref());
        let outputs = network.forward_through(rows, drop, |features| cut.here(features));
        if self.policy == LabelKind::Marks {
            return mean(cross_entropies(outputs, targets), weights);
        }
        let off = targets - outputs;
        let losses = match self.loss_of() {
            LossKind::Squared => off.square(),
            LossKind::Absolute => off.abs(),
            LossKind::Huber => {
                let distance = off.abs();
                let near = distance.clone().clamp(0.0, 1.0);
                near.clone() * (distance - near * 0.5)
            }
            LossKind::Quantile(share) => off.clone() * (share - 1.0) + relu(off),
        };
        mean(losses, weights)
    }

    fn measure(
        &self,
        network: &Network,
        samples: &[u32],
        device: &Device,
    ) -> Result<Vec<(&'static str, f64)>, MeasureError> {
        let (data, places) = self.dataset.numbered(samples);
        let (rows, labels) = data.read(&places).map_err(io::Error::other)?;
        let rows = TensorData::new(rows, [places.len(), data.features()]);
        let outputs = network.forward(Tensor::from_data(rows, device)).try_into_data()?;
        let outputs = outputs.as_slice::<f32>().expect("invariant: every device computes in f32");
        let labels: Vec<f64> = labels.iter().flat_map(|label| self.numbers(*label)).copied().collect();
        let counts = evaluation::counts(self.dataset.weights(samples), samples.len());
        Ok(match self.policy {
            LabelKind::Numbers => evaluation::estimated(outputs, &labels, &self.scales, self.loss_of(), &counts),
            LabelKind::Marks => evaluation::marked(outputs, &labels, self.scales.len(), &counts),
        })
    }

    fn measures(&self) -> Vec<&'static str> {
        match self.policy {
            LabelKind::Numbers => evaluation::of_numbers(self.scales.len()),
            LabelKind::Marks => evaluation::OF_MARKS.to_vec(),
        }
    }
}

/// The mean of `[samples, labels]`, by what the samples count: `[samples, 1]`.
fn mean(losses: Tensor<2>, weights: Option<Tensor<2>>) -> Tensor<1> {
    match weights {
        None => losses.mean(),
        Some(weights) => (losses.mean_dim(1) * weights.clone()).sum() / weights.sum(),
    }
}

/// How unlikely the marks are, which are 0 or 1, by the logistic function of outputs as large: each for itself, in nats, without an exponential of a large number.
fn cross_entropies(outputs: Tensor<2>, marks: Tensor<2>) -> Tensor<2> {
    let rest = outputs.clone().abs().neg().exp().log1p();
    // In place of `relu`, whose gradient at 0 is 0: it is half of that on both sides of it.
    (outputs.clone() + outputs.clone().abs()) * 0.5 - outputs * marks + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The losses of a model whose output is the label's mean, and what the labels are, scaled.
    fn losses(loss: LossKind) -> (f64, Vec<f64>) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("table.csv");
        let rows: String = (0..20).map(|at| format!("0.5,{}\n", at * at)).collect();
        std::fs::write(&path, rows).expect("written");
        let source = path.display().to_string();
        let options = starling_data::DataOptions { source, held_out: 0.0, ..Default::default() };
        let dataset = Arc::new(Dataset::load(&options).expect("a table"));
        let options = ModelOptions { loss: Some(loss), ..ModelOptions::default() };
        let task = RegressionTask::new("linear", LayerSpec::default(), options, dataset, LabelKind::Numbers);
        let task = task.expect("numbers");
        let device = Device::flex();
        let network = task.module(&device);
        let parameters = vec![0.0; 2];
        let network = crate::network::flatten::write_parameters(network, &parameters, &device.clone().autodiff());
        let all: Vec<u32> = (0..20).collect();
        let batch = task.batch(&all, &device.clone().autodiff());
        let trained: f32 = task.loss(&network, batch).into_scalar();
        use burn::module::Module;
        let measured = task.measure(&network.valid(), &all, &device).expect("computed");
        assert!((measured[0].1 / 20.0 - f64::from(trained)).abs() < 1e-5, "{loss}: {trained} and {measured:?}");
        let labels: Vec<f64> = (0..20).map(|at| task.scales[0].scaled(f64::from(at * at))).collect();
        let off: f64 = labels.iter().map(|label| label.abs()).sum();
        assert_eq!(
            measured.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
            ["loss", "absolute_error", "rmse", "r2"]
        );
        assert!((measured[1].1 - off * task.scales[0].deviation).abs() < 1e-6 && measured[3].1.abs() < 1e-6);
        (f64::from(trained), labels)
    }

    /// Of two columns of labels, whether numbers or marks: the mean by what rows count, and the sums that are measured.
    #[test]
    fn rows_of_several_labels_count_as_a_column_says() {
        use burn::module::Module;
        use starling_data::{DataOptions, TableColumn};

        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("table.csv");
        let rows: String = (0..40).map(|at| format!("{at},{},{},{}\n", at % 4, at % 2, at / 7 % 2)).collect();
        std::fs::write(&path, "x,counts,left,right\n".to_owned() + &rows).expect("written");
        let [label, weights, more] = ["left", "counts", "right"].map(|name| TableColumn::Written(name.to_owned()));
        let options = DataOptions {
            source: path.display().to_string(),
            label: Some(label),
            more_labels: vec![more],
            weights: Some(weights),
            held_out: 0.0,
            ..DataOptions::default()
        };
        let dataset = Arc::new(Dataset::load(&options).expect("a table"));
        for policy in [LabelKind::Numbers, LabelKind::Marks] {
            let options = ModelOptions::default();
            let task = RegressionTask::new("linear", LayerSpec::default(), options, dataset.clone(), policy);
            let task = task.expect("numbers");
            let device = Device::flex();
            let network = task.module(&device);
            let parameters = [0.5, -0.25, 0.1, -0.2];
            let network = crate::network::flatten::write_parameters(network, &parameters, &device.clone().autodiff());
            let loss = |samples: &[u32]| {
                f64::from(task.loss(&network, task.batch(samples, &device.clone().autodiff())).into_scalar::<f32>())
            };
            let all: Vec<u32> = (0..40).collect();
            let sum: f64 = all.iter().filter(|at| *at % 4 > 0).map(|at| f64::from(at % 4) * loss(&[*at])).sum();
            let count = task.weight(&all).expect("they differ");
            assert!((count - 40.0).abs() < 1e-4, "{count}: each beside the mean of 1.5");
            assert!((loss(&all) - sum / 60.0).abs() < 1e-5, "{policy:?}: {} instead of {}", loss(&all), sum / 60.0);
            let measured = task.measure(&network.valid(), &all, &device).expect("computed");
            let sum = sum / 1.5;
            assert!((measured[0].1 - sum).abs() < 1e-3, "{policy:?}: {measured:?} instead of {sum}");
        }
    }

    #[test]
    fn each_loss_is_what_it_says() {
        let mean = |labels: &[f64], of: fn(f64) -> f64| labels.iter().map(|off| of(*off)).sum::<f64>() / 20.0;
        let close = |(found, labels): (f64, Vec<f64>), of: fn(f64) -> f64| {
            let expected = mean(&labels, of);
            assert!((found - expected).abs() < 1e-5, "{found} instead of {expected}");
        };
        close(losses(LossKind::Squared), |off| off * off);
        close(losses(LossKind::Absolute), f64::abs);
        close(losses(LossKind::Huber), |off| if off.abs() <= 1.0 { off * off / 2.0 } else { off.abs() - 0.5 });
        close(losses(LossKind::Quantile(0.9)), |off| if off > 0.0 { 0.9 * off } else { -0.1 * off });
    }
}
