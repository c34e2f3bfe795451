//! Linear regression: labels that are numbers, as weighted sums of the features, by least squares.

use std::sync::Arc;

use burn::module::Module;
use burn::nn::LinearConfig;
use burn::tensor::{Device, ExecutionError, Tensor, TensorData};
use starling_data::Dataset;
use starling_run::ModelOptions;

use super::{Model, Trainable};
use crate::network::forward::{Computes, Forward, Learns};
use crate::task::evaluation;
use crate::task::{Task, TaskData};

/// The model `linear`, which has no sizes.
#[derive(Debug)]
pub(super) struct Linear;

impl Model for Linear {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn task(&self, _: &[u32], _: &ModelOptions, dataset: &Arc<Dataset>) -> Result<Box<dyn Trainable>, String> {
        let values =
            dataset.class_names().iter().map(|label| label.parse().ok().filter(|value: &f32| value.is_finite()));
        let values = values.collect::<Option<_>>().ok_or_else(|| {
            "linear needs labels that are numbers, but the data has others; take softmax, or name another column (`--label`)"
                .to_owned()
        })?;
        Ok(Box::new(Regression { dataset: dataset.clone(), values }))
    }

    fn learns(&self) -> Learns {
        Learns::Numbers
    }

    fn computes(&self, _: &[u32], shape: [u32; 3], _: u32) -> Result<Box<dyn Computes>, String> {
        let features = shape.iter().map(|side| *side as usize).product();
        Ok(Box::new(Sum::new(features, &Device::flex())))
    }
}

/// Labels as numbers, of the samples of a data set.
struct Regression {
    dataset: Arc<Dataset>,
    /// What each label stands for.
    values: Vec<f32>,
}

/// One output, `[samples, 1]`.
#[derive(Module, Debug)]
struct Sum {
    output: burn::nn::Linear,
}

impl Sum {
    fn new(features: usize, device: &Device) -> Self {
        Self { output: LinearConfig::new(features, 1).init(device) }
    }
}

impl Forward for Sum {
    fn outputs(&self, rows: Tensor<2>) -> Tensor<2> {
        self.output.forward(rows)
    }
}

impl Task for Regression {
    type Module = Sum;
    type Batch = [Tensor<2>; 2];

    fn name(&self) -> &str {
        "linear"
    }

    fn data(&self) -> TaskData {
        (&*self.dataset).into()
    }

    fn module(&self, device: &Device) -> Sum {
        Sum::new(self.dataset.training().features(), device)
    }

    /// Features `[samples, features]` and labels `[samples, 1]`.
    fn batch(&self, samples: &[u32], device: &Device) -> [Tensor<2>; 2] {
        let (data, places) = self.dataset.numbered(samples);
        let labels: Vec<f32> =
            places.iter().map(|place| self.values[data.labels()[*place as usize] as usize]).collect();
        let tensor =
            |values: Vec<f32>, width| Tensor::from_data(TensorData::new(values, [places.len(), width]), device);
        [tensor(data.gather(&places), data.features()), tensor(labels, 1)]
    }

    fn loss(&self, sum: &Sum, [rows, labels]: [Tensor<2>; 2]) -> Tensor<1> {
        (sum.output.forward(rows) - labels).square().mean()
    }

    /// Squared errors as `loss`, and how far off the labels are as `absolute_error`.
    fn measure(&self, sum: &Sum, samples: &[u32], device: &Device) -> Result<Vec<(&'static str, f64)>, ExecutionError> {
        let (data, places) = self.dataset.numbered(samples);
        let rows = TensorData::new(data.gather(&places), [places.len(), data.features()]);
        let rows: Tensor<2> = Tensor::from_data(rows, device);
        let outputs = sum.output.forward(rows).try_into_data()?;
        let outputs = outputs.as_slice::<f32>().expect("invariant: every device computes in f32");
        let labels = places.iter().map(|place| self.values[data.labels()[*place as usize] as usize]);
        Ok(evaluation::estimated(outputs, labels))
    }
}

#[cfg(test)]
mod tests {
    use starling_data::DataOptions;
    use starling_run::training::contribution;
    use starling_run::{Gradient, OptimizerSpec, Program, RunSpec};
    use starling_topology::PeerId;
    use starling_topology::ledger::UNMEASURED;

    use crate::{DeviceChoice, Models};

    fn options(dir: &tempfile::TempDir, rows: &str) -> DataOptions {
        let path = dir.path().join("table.csv");
        std::fs::write(&path, rows).expect("written");
        DataOptions { source: path.display().to_string(), ..DataOptions::default() }
    }

    #[test]
    fn it_finds_the_plane_that_the_labels_lie_on() {
        let dir = tempfile::tempdir().expect("a directory");
        let row = |at: i32| format!("{},{},{}", at % 10, at % 7, 3 * (at % 10) - 2 * (at % 7) + 100);
        let rows: String = (0..140).map(|at| row(at) + "\n").collect();
        let workload = Models::new(DeviceChoice::Cpu).read(&options(&dir, &rows)).expect("good data");
        let model = "linear".parse().expect("a model");
        let optimizer = OptimizerSpec::sgd(0.1);
        let spec = RunSpec { model, optimizer, steps: 300, ..RunSpec::default() };
        let manifest = workload.found(&spec).expect("a run");
        assert_eq!(manifest.parameters, 3);
        let mut learner = workload.open(&manifest).expect("opened");
        let me = PeerId([1; 32]);
        learner.begin(&[me]);
        let before = learner.evaluate(&|| ()).expect("evaluated");
        assert!(before.measure("absolute_error").is_some_and(|error| error > 90.0), "{before:?}");
        let mut gradient = Gradient::new(3);
        for step in 1..=300 {
            gradient.clear();
            let weight = learner.compute(me, &gradient, &mut |_| ()).expect("computed");
            let batch = manifest.batch_size;
            let record = contribution::alone(step, gradient.values(), weight, batch, me, UNMEASURED);
            learner.apply(&record).expect("applied");
        }
        let after = learner.evaluate(&|| ()).expect("evaluated");
        assert_eq!(after.samples, 28);
        assert!(after.loss < 1e-6 && after.measure("absolute_error").is_some_and(|error| error < 1e-3), "{after:?}");
    }

    #[test]
    fn labels_that_are_no_numbers_are_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let workload = Models::new(DeviceChoice::Cpu).read(&options(&dir, "1,2,x\n2,1,y\n3,5,x\n")).expect("good data");
        let spec = RunSpec { model: "linear".parse().expect("a model"), ..RunSpec::default() };
        let error = workload.found(&spec).expect_err("refused").to_string();
        assert!(error.contains("`model` is not usable: linear needs labels that are numbers"), "{error}");
        let sized = RunSpec { model: "linear:3".parse().expect("a text"), ..spec };
        assert!(workload.found(&sized).expect_err("refused").to_string().contains("linear has no sizes"));
    }
}
