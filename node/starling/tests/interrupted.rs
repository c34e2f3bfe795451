//! Members that are to end while they evaluate held-out samples, which takes long.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use starling::burn::module::{Module, Param};
use starling::burn::tensor::{Device, Tensor, TensorData};
use starling::{
    DeviceSpec, FoundOptions, MeasureError, Outcome, Run, RunSpec, SampleSummary, Settings, Task, burn, fingerprint,
};

/// All of them would take 40 s; what a member that leaves evaluates at its end takes 5 s at most.
const HELD_OUT: u32 = 2_000;
const OF_ONE: Duration = Duration::from_millis(20);

#[derive(Module, Debug)]
struct Constant {
    value: Param<Tensor<1>>,
}

/// Numbers whose mean is learned, each of which takes long to evaluate.
struct Slow {
    measured: Arc<AtomicU32>,
    begun: SyncSender<()>,
}

impl Task for Slow {
    type Module = Constant;
    type Batch = Tensor<1>;

    fn name(&self) -> &str {
        "slow"
    }

    fn data(&self) -> SampleSummary {
        SampleSummary { training: 64, held_out: HELD_OUT, fingerprint: fingerprint(&[64.0]) }
    }

    fn module(&self, device: &Device) -> Constant {
        Constant { value: Param::from_tensor(Tensor::zeros([1], device)) }
    }

    fn batch(&self, samples: &[u32], device: &Device) -> Tensor<1> {
        let values: Vec<f32> = samples.iter().map(|sample| *sample as f32 / 64.0).collect();
        Tensor::from_data(TensorData::new(values, [samples.len()]), device)
    }

    fn loss(&self, constant: &Constant, numbers: Tensor<1>) -> Tensor<1> {
        (numbers - constant.value.val()).square().mean()
    }

    fn measure(&self, _: &Constant, _: &[u32], _: &Device) -> Result<Vec<(&'static str, f64)>, MeasureError> {
        // As long as a large model takes for one.
        std::thread::park_timeout(OF_ONE);
        // The first one warms the device up.
        if self.measured.fetch_add(1, Ordering::Relaxed) == 2 {
            let _ = self.begun.try_send(());
        }
        Ok(vec![("loss", 1.0)])
    }

    fn measured_at_once(&self) -> u32 {
        1
    }
}

#[test]
fn who_is_to_end_evaluates_no_more_of_its_part() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let (measured, (begun, begins)) = (Arc::new(AtomicU32::new(0)), sync_channel(1));
    let task = Slow { measured: measured.clone(), begun };
    let settings = Settings { listen: vec!["/ip4/127.0.0.1/tcp/0".parse()?], ..Settings::new(dir.path().to_owned()) };
    let spec = RunSpec { steps: 1 << 40, batch_size: 8, evaluate_every: 1, max_stall_ms: 2_000, ..RunSpec::default() };
    let member = Run::new(task).on(DeviceSpec::Cpu).found(settings, FoundOptions::new(spec))?;
    begins.recv()?;
    member.leave();
    assert_eq!(member.wait()?.outcome, Outcome::Left);
    let measured = measured.load(Ordering::Relaxed);
    assert!(measured < HELD_OUT, "it measured {measured} samples");
    Ok(())
}

#[test]
fn who_is_to_end_after_the_last_step_evaluates_no_more_and_exports() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let (measured, (begun, begins)) = (Arc::new(AtomicU32::new(0)), sync_channel(1));
    let task = Slow { measured: measured.clone(), begun };
    let file = dir.path().join("constant.safetensors");
    let settings = Settings {
        listen: vec!["/ip4/127.0.0.1/tcp/0".parse()?],
        export: Some(file.clone()),
        ..Settings::new(dir.path().join("state"))
    };
    let spec = RunSpec { steps: 1, batch_size: 8, evaluate_every: 0, ..RunSpec::default() };
    let member = Run::new(task).on(DeviceSpec::Cpu).found(settings, FoundOptions::new(spec))?;
    begins.recv()?;
    member.leave();
    let summary = member.wait()?;
    assert_eq!((summary.outcome, summary.held_out_loss), (Outcome::Complete, None));
    let measured = measured.load(Ordering::Relaxed);
    assert!(measured < HELD_OUT, "it measured {measured} samples");
    assert!(file.exists(), "the model is there all the same");
    Ok(())
}
