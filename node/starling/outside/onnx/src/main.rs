//! Trains what another program left as an ONNX file: its module is generated from `digits.onnx`, the loss is written here.
//!
//! `digits-of-onnx DIR STEPS` founds a run, which begins with the file's weights, and prints a ticket; `digits-of-onnx DIR TICKET` joins it.

use starling::burn::module::{Module, ModuleVisitor, Param};
use starling::burn::tensor::activation::log_softmax;
use starling::burn::tensor::{Device, Int, Tensor, TensorData};
use starling::data::{DataOptions, Dataset};
use starling::parts::JsonObserver;
use starling::{
    DeviceSpec, FoundOptions, JoinOptions, OptimizerSpec, Run, RunSpec, SampleSummary, Schema, Settings, Task,
};

/// What is made of the file: `Model`, with a layer for each of its operations that has weights, and more than is needed here.
#[allow(dead_code)]
mod generated {
    use starling::burn;

    include!(concat!(env!("OUT_DIR"), "/module/digits.rs"));
}

use generated::Model;

/// How much of each label is spread over all classes.
const SMOOTHING: f32 = 0.1;

struct Digits(Dataset);

impl Task for Digits {
    type Module = Model;
    type Batch = (Tensor<2>, Tensor<1, Int>);

    fn name(&self) -> &str {
        "digits-of-onnx"
    }

    fn data(&self) -> SampleSummary {
        (&self.0).into()
    }

    fn module(&self, device: &Device) -> Model {
        Model::new(device)
    }

    /// The file's weights, in the order in which Burn visits a module's leaves, which is that of the schema.
    fn initial(&self, schema: &Schema, _seed: u64) -> Vec<f32> {
        let mut weights = Weights::default();
        Model::from_embedded(&Device::flex()).visit(&mut weights);
        assert_eq!(weights.0.len(), schema.parameters(), "each number has its place");
        weights.0
    }

    fn batch(&self, samples: &[u32], device: &Device) -> Self::Batch {
        let (data, places) = self.0.numbered(samples);
        let (rows, labels) = data.read(&places).expect("it is in memory");
        let labels: Vec<i64> = labels.into_iter().map(i64::from).collect();
        let rows = TensorData::new(rows, [places.len(), data.features()]);
        (Tensor::from_data(rows, device), Tensor::from_data(TensorData::new(labels, [places.len()]), device))
    }

    /// Cross-entropy with smoothed labels, `[1]`.
    fn loss(&self, model: &Model, (rows, labels): Self::Batch) -> Tensor<1> {
        let logarithms = log_softmax(model.forward(rows), 1);
        let of_labels = logarithms.clone().gather(1, labels.unsqueeze_dim(1)).mean();
        let of_all = logarithms.mean();
        -(of_labels * (1.0 - SMOOTHING) + of_all * SMOOTHING)
    }
}

/// The numbers of all float leaves, one leaf after another.
#[derive(Default)]
struct Weights(Vec<f32>);

impl ModuleVisitor for Weights {
    fn visit_float<const D: usize>(&mut self, leaf: &Param<Tensor<D>>) {
        self.0.extend(leaf.val().into_data().iter::<f32>());
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let [_, dir, what] = &std::env::args().collect::<Vec<_>>()[..] else {
        return Err("say DIR STEPS or DIR TICKET".into());
    };
    let task = Digits(Dataset::load(&DataOptions::default())?);
    let run = Run::new(task).on(DeviceSpec::Cpu).watched_by(JsonObserver).leaving_on_signals();
    let settings = Settings { export: Some(format!("{dir}.safetensors").into()), ..Settings::from_env(dir.into())? };
    let member = match what.parse() {
        Ok(steps) => {
            let spec = RunSpec { steps, optimizer: OptimizerSpec::adam_w(3e-3), ..RunSpec::default() };
            run.found(settings, FoundOptions { min_peers: 2, ..FoundOptions::new(spec) })?
        }
        Err(_) => run.join(settings, JoinOptions::new(what.parse()?))?,
    };
    member.wait().map_err(|error| error.to_string())?;
    Ok(())
}
