//! Watching a run from within a program: what happens comes as it happens, and this program acts on it.
//!
//! `observe DIR` trains a slope by itself, says how fast the loss falls and who comes and goes, and leaves in order as soon as the
//! loss is small enough. `observe DIR TICKET` joins it.

use std::sync::mpsc;

use starling::burn::module::Module;
use starling::burn::nn::{Linear, LinearConfig};
use starling::burn::tensor::{Device, Tensor, TensorData};
use starling::{
    DeviceSpec, FoundOptions, JoinOptions, Observer, OptimizerSpec, Report, Run, RunSpec, SampleSummary, Settings,
    Task, burn, fingerprint,
};

/// Hands on what it is told. Steps are not to wait for whoever watches, so what finds no room is left out.
struct Told(mpsc::SyncSender<Report>);

impl Observer for Told {
    fn report(&self, report: &Report) {
        let _ = self.0.try_send(report.clone());
    }
}

#[derive(Module, Debug)]
struct Line {
    linear: Linear,
}

/// y = 3 x, at 256 places.
struct Slope;

impl Task for Slope {
    type Module = Line;
    type Batch = [Tensor<2>; 2];

    fn name(&self) -> &str {
        "slope"
    }

    fn data(&self) -> SampleSummary {
        SampleSummary { training: 256, held_out: 0, fingerprint: fingerprint(&[3.0]) }
    }

    fn module(&self, device: &Device) -> Line {
        Line { linear: LinearConfig::new(1, 1).init(device) }
    }

    fn batch(&self, samples: &[u32], device: &Device) -> Self::Batch {
        [1.0, 3.0].map(|slope| {
            let values: Vec<f32> = samples.iter().map(|sample| slope * *sample as f32 / 256.0).collect();
            Tensor::from_data(TensorData::new(values, [samples.len(), 1]), device)
        })
    }

    fn loss(&self, line: &Line, [x, y]: Self::Batch) -> Tensor<1> {
        (line.linear.forward(x) - y).square().mean()
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (told, reports) = mpsc::sync_channel(1024);
    let run = Run::new(Slope).on(DeviceSpec::Cpu).watched_by(Told(told)).leaving_on_signals();
    let member = match &arguments[..] {
        [dir] => {
            let optimizer = OptimizerSpec::sgd(0.05);
            let spec = RunSpec { steps: 1 << 40, batch_size: 32, optimizer, ..RunSpec::default() };
            run.found(Settings::new(dir.into()), FoundOptions::new(spec))?
        }
        [dir, ticket] => run.join(Settings::new(dir.into()), JoinOptions::new(ticket.parse()?))?,
        _ => return Err("say DIR, or DIR TICKET".into()),
    };
    // It ends with the member: whoever told is gone then.
    for report in reports {
        match report {
            Report::Listening { ticket, .. } => println!("others join with {ticket}"),
            Report::View { members, step, reason, .. } => {
                println!("{} members after step {step}: {reason}", members.len())
            }
            Report::Progress { step, loss, .. } => {
                println!("step {step}, loss {loss:.2e}");
                if loss < 1e-10 {
                    member.leave();
                }
            }
            // Later releases tell more.
            _ => {}
        }
    }
    let summary = member.wait().map_err(|error| error.to_string())?;
    println!("{:?} after step {}, values {}", summary.outcome, summary.steps, summary.values);
    Ok(())
}
