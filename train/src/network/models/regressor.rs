//! Linear regression, and networks that learn numbers: a [`Network`](crate::Network) with an output for each column of labels.

use std::sync::Arc;

use burn::tensor::Device;
use starling_data::Dataset;
use starling_run::ModelOptions;

use super::{AnyTask, Model, check_widths, no_blocks, no_embeddings};
use crate::network::forward::{AnyModule, OutputKind};
use crate::network::{LayerSpec, Network};
use crate::task::regression::{LabelKind, RegressionTask};

/// A regression by the layers before its output.
#[derive(Debug)]
pub(super) struct Regressor {
    name: &'static str,
    usual: &'static [u32],
}

impl Regressor {
    /// A weighted sum of the features.
    pub(super) const LINEAR: Self = Self { name: "linear", usual: &[] };
    /// Hidden linear layers before that, by their widths.
    pub(super) const LAYERED: Self = Self { name: "regression", usual: &[64] };

    fn has_layers(&self) -> bool {
        !self.usual.is_empty()
    }
}

fn layers(sizes: &[u32], options: &ModelOptions) -> LayerSpec {
    LayerSpec { hidden: sizes.to_vec(), batch_norm: options.batch_norm, ..LayerSpec::default() }
}

impl Model for Regressor {
    fn name(&self) -> &'static str {
        self.name
    }

    fn usual(&self) -> &'static [u32] {
        self.usual
    }

    fn check(&self, sizes: &[u32]) -> Result<(), String> {
        match (self.has_layers(), sizes) {
            (false, []) => Ok(()),
            (false, _) => Err(format!("{} has no sizes; regression:64 has hidden layers", self.name)),
            (true, _) => check_widths(sizes),
        }
    }

    fn check_options(&self, options: &ModelOptions) -> Result<(), String> {
        if !options.augment.is_empty() {
            return Err(format!("{} takes no images as such; leave --augment out, or take cnn", self.name));
        }
        if options.residual {
            return Err(no_blocks(self.name));
        }
        if options.tied_output {
            return Err(no_embeddings(self.name));
        }
        if options.dropout > 0.0 && !self.has_layers() {
            return Err(format!(
                "{} has no layers to drop numbers between; leave --dropout out, or take regression",
                self.name
            ));
        }
        if options.batch_norm && !self.has_layers() {
            return Err(format!(
                "{} has no layers to normalize; leave --batch-norm out, or take regression",
                self.name
            ));
        }
        Ok(())
    }

    fn task(&self, sizes: &[u32], options: &ModelOptions, dataset: &Arc<Dataset>) -> Result<Box<dyn AnyTask>, String> {
        Ok(Box::new(RegressionTask::new(
            self.name,
            layers(sizes, options),
            options.clone(),
            dataset.clone(),
            LabelKind::Numbers,
        )?))
    }

    fn learns(&self) -> OutputKind {
        OutputKind::Numbers
    }

    fn computes(
        &self,
        sizes: &[u32],
        options: &ModelOptions,
        shape: [u32; 3],
        outputs: u32,
    ) -> Result<Box<dyn AnyModule>, String> {
        Ok(Box::new(Network::new(&layers(sizes, options), shape, outputs, &Device::flex())))
    }
}

#[cfg(test)]
mod tests {
    use starling_data::DataOptions;
    use starling_run::training::contribution;
    use starling_run::{Gradient, OptimizerSpec, Program, RunSpec};
    use starling_topology::PeerId;
    use starling_topology::ledger::UNMEASURED;

    use crate::{DeviceSpec, ModelProgram};

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
        let workload = ModelProgram::new(DeviceSpec::Cpu).read(&options(&dir, &rows)).expect("good data");
        let model = "linear".parse().expect("a model");
        let optimizer = OptimizerSpec::sgd(0.1);
        let spec = RunSpec { model, optimizer, steps: 300, ..RunSpec::default() };
        let manifest = workload.found(&spec).expect("a run");
        assert_eq!(manifest.parameters, 3);
        let mut learner = workload.open(&manifest).expect("opened");
        let me = PeerId([1; 32]);
        learner.begin(&[me]);
        let before = learner.evaluate().expect("evaluated");
        assert!(before.measure("absolute_error").is_some_and(|error| error > 3.0), "{before:?}");
        let mut gradient = Gradient::new(3);
        for step in 1..=300 {
            gradient.clear();
            let weight = learner.compute(me, &gradient, &mut |_| ()).expect("computed");
            let batch = manifest.batch_size;
            let record = contribution::alone(step, gradient.values(), weight, batch, me, UNMEASURED);
            learner.apply(&record).expect("applied");
        }
        let after = learner.evaluate().expect("evaluated");
        assert_eq!(after.samples, 28);
        assert!(after.loss < 1e-6 && after.measure("absolute_error").is_some_and(|error| error < 1e-2), "{after:?}");
        assert!(after.measure("r2").is_some_and(|share| share > 0.9999), "{after:?}");
    }

    #[test]
    fn labels_that_are_no_numbers_are_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let workload =
            ModelProgram::new(DeviceSpec::Cpu).read(&options(&dir, "1,2,x\n2,1,y\n3,5,x\n")).expect("good data");
        let spec = RunSpec { model: "linear".parse().expect("a model"), ..RunSpec::default() };
        let error = workload.found(&spec).expect_err("refused").to_string();
        assert!(error.contains("`model` is not usable: linear needs labels that are numbers"), "{error}");
        let sized = RunSpec { model: "linear:3".parse().expect("a text"), ..spec };
        assert!(workload.found(&sized).expect_err("refused").to_string().contains("linear has no sizes"));
    }
}
