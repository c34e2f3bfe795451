//! A module and a loss of one's own, trained by as many machines as come.
//!
//! `own_model DIR STEPS` founds a run, or comes back to it, and prints a ticket; `own_model DIR TICKET` joins it. Each keeps its checkpoints in DIR.

use starling::burn::module::Module;
use starling::burn::nn::{BatchNorm, BatchNormConfig, Dropout, DropoutConfig, Linear, LinearConfig};
use starling::burn::tensor::{Device, Tensor, TensorData, activation::tanh};
use starling::parts::JsonObserver;
use starling::{
    DeviceSpec, FoundOptions, JoinOptions, OptimizerSpec, ResumePolicy, Run, RunSpec, SampleSummary, Settings, Task,
    burn, fingerprint,
};

/// A curve through points.
#[derive(Module, Debug)]
struct Curve {
    hidden: Linear,
    norm: BatchNorm,
    dropout: Dropout,
    output: Linear,
}

/// Points on a sine: 4096 to learn from, 512 more to measure by.
struct Sine;

fn point(sample: u32) -> [f32; 2] {
    let x = (sample * 2654435761_u32 % 6283) as f32 / 1000.0;
    [x, x.sin()]
}

impl Task for Sine {
    type Module = Curve;
    type Batch = [Tensor<2>; 2];

    fn name(&self) -> &str {
        "sine"
    }

    fn data(&self) -> SampleSummary {
        let points = (0..4608).flat_map(point).collect::<Vec<_>>();
        SampleSummary { training: 4096, held_out: 512, fingerprint: fingerprint(&points) }
    }

    fn module(&self, device: &Device) -> Curve {
        Curve {
            hidden: LinearConfig::new(1, 32).init(device),
            norm: BatchNormConfig::new(32).init(device),
            dropout: DropoutConfig::new(0.05).init(),
            output: LinearConfig::new(32, 1).init(device),
        }
    }

    fn batch(&self, samples: &[u32], device: &Device) -> Self::Batch {
        [0, 1].map(|axis| {
            let values: Vec<f32> = samples.iter().map(|sample| point(*sample)[axis]).collect();
            Tensor::from_data(TensorData::new(values, [samples.len(), 1]), device)
        })
    }

    fn loss(&self, curve: &Curve, [x, y]: Self::Batch) -> Tensor<1> {
        let hidden = tanh(curve.norm.forward(curve.hidden.forward(x)));
        (curve.output.forward(curve.dropout.forward(hidden)) - y).square().mean()
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, dir, what] = &arguments[..] else { return Err("say DIR STEPS or DIR TICKET".into()) };
    let settings = Settings { export: Some(format!("{dir}.safetensors").into()), ..Settings::from_env(dir.into())? };
    let run = Run::new(Sine).on(DeviceSpec::Cpu).watched_by(JsonObserver).leaving_on_signals();
    let member = if let Ok(steps) = what.parse() {
        let optimizer = OptimizerSpec::adam_w(1e-2);
        let spec = RunSpec { steps, batch_size: 256, micro_batch: 64, optimizer, ..RunSpec::default() };
        run.found(settings, FoundOptions { resume: ResumePolicy::Newest, ..FoundOptions::new(spec) })?
    } else {
        run.join(settings, JoinOptions::new(what.parse()?))?
    };
    member.wait().map_err(|error| error.to_string())?;
    Ok(())
}
