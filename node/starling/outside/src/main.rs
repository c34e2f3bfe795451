//! The command line's `mlp:64` on the built-in digits, written as a task: a member of runs that `starling run --model mlp:64` founds.
//!
//! `mlp DIR TICKET` joins one; `mlp DIR STEPS` founds one, which `starling join` joins.

use starling::burn::module::Module;
use starling::burn::nn::loss::CrossEntropyLossConfig;
use starling::burn::nn::{Linear, LinearConfig};
use starling::burn::tensor::activation::relu;
use starling::burn::tensor::{Device, Int, Tensor, TensorData};
use starling::data::{DataOptions, Dataset};
use starling::parts::JsonObserver;
use starling::{
    DeviceSpec, FoundOptions, JoinOptions, MeasureError, ModelSpec, Run, RunSpec, SampleSummary, Settings, Task, burn,
};

/// How wide the hidden layer is.
const WIDTH: u32 = 64;

/// Its leaves are called and shaped as those of the command line, in the same order.
#[derive(Module, Debug)]
struct Mlp {
    hidden: Vec<Linear>,
    output: Linear,
}

impl Mlp {
    fn forward(&self, rows: Tensor<2>) -> Tensor<2> {
        self.output.forward(self.hidden.iter().fold(rows, |features, layer| relu(layer.forward(features))))
    }
}

struct Digits(Dataset);

impl Task for Digits {
    type Module = Mlp;
    type Batch = (Tensor<2>, Tensor<1, Int>);

    fn name(&self) -> &str {
        "mlp"
    }

    fn data(&self) -> SampleSummary {
        (&self.0).into()
    }

    fn stands_for(&self) -> Option<(ModelSpec, &Dataset)> {
        Some((ModelSpec::sized("mlp", &[WIDTH]), &self.0))
    }

    fn module(&self, device: &Device) -> Mlp {
        let (inputs, classes) = (self.0.training().features(), self.0.class_names().len());
        let hidden = vec![LinearConfig::new(inputs, WIDTH as usize).init(device)];
        Mlp { hidden, output: LinearConfig::new(WIDTH as usize, classes).init(device) }
    }

    fn batch(&self, samples: &[u32], device: &Device) -> Self::Batch {
        let (data, places) = self.0.numbered(samples);
        let (rows, labels) = data.read(&places).expect("it is in memory");
        let labels: Vec<i64> = labels.into_iter().map(i64::from).collect();
        let rows = TensorData::new(rows, [places.len(), data.features()]);
        (Tensor::from_data(rows, device), Tensor::from_data(TensorData::new(labels, [places.len()]), device))
    }

    fn loss(&self, mlp: &Mlp, (rows, labels): Self::Batch) -> Tensor<1> {
        CrossEntropyLossConfig::new().init(&labels.device()).forward(mlp.forward(rows), labels)
    }

    /// How many digits have their label's logit as the largest, and as one of the five largest.
    fn measure(&self, mlp: &Mlp, samples: &[u32], device: &Device) -> Result<Vec<(&'static str, f64)>, MeasureError> {
        let (rows, labels) = self.batch(samples, device);
        let logits = mlp.forward(rows.clone());
        let own = logits.clone().gather(1, labels.clone().unsqueeze_dim::<2>(1));
        let larger: Vec<i64> = logits.greater(own).int().sum_dim(1).try_into_data()?.iter::<i64>().collect();
        let within = |places: i64| larger.iter().filter(|larger| **larger < places).count() as f64;
        let loss: f64 = self.loss(mlp, (rows, labels)).try_into_data()?.iter::<f64>().sum();
        Ok(vec![("loss", loss * samples.len() as f64), ("accuracy", within(1)), ("top_5_accuracy", within(5))])
    }

    /// What the command line's tells of digits, where members evaluate together.
    fn measures(&self) -> Vec<&'static str> {
        vec!["accuracy", "top_5_accuracy"]
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let [_, dir, what] = &std::env::args().collect::<Vec<_>>()[..] else {
        return Err("say DIR TICKET or DIR STEPS".into());
    };
    let task = Digits(Dataset::load(&DataOptions::default())?);
    let run = Run::new(task).on(DeviceSpec::Cpu).watched_by(JsonObserver).leaving_on_signals();
    let settings = Settings::new(dir.into());
    let member = match what.parse() {
        Ok(steps) => run.found(settings, FoundOptions::new(RunSpec { steps, ..RunSpec::default() }))?,
        Err(_) => run.join(settings, JoinOptions::new(what.parse()?))?,
    };
    member.wait().map_err(|error| error.to_string())?;
    Ok(())
}
