//! Members of one process, with a task of their own: one that fails leaves in order, and the others go on.

use std::error::Error;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;

use starling::burn::module::{Module, Param};
use starling::burn::tensor::{Device, Tensor, TensorData};
use starling::parts::Digest;
use starling::{
    DeviceChoice, Founding, Joining, Observer, Outcome, Report, Run, RunSpec, Settings, Task, burn, checkpoints,
    export, fingerprint, trained,
};

/// A constant that is to be the mean of some numbers.
#[derive(Module, Debug)]
struct Constant {
    value: Param<Tensor<1>>,
}

struct Numbers {
    /// How many batches it makes before it panics.
    batches: AtomicU32,
}

impl Numbers {
    fn new(batches: u32) -> Self {
        Self { batches: AtomicU32::new(batches) }
    }
}

impl Task for Numbers {
    type Module = Constant;
    type Batch = Tensor<1>;

    fn name(&self) -> &str {
        "numbers"
    }

    fn training(&self) -> u32 {
        64
    }

    fn fingerprint(&self) -> Digest {
        fingerprint(&[64.0])
    }

    fn module(&self, device: &Device) -> Constant {
        Constant { value: Param::from_tensor(Tensor::zeros([1], device)) }
    }

    fn batch(&self, samples: &[u32], device: &Device) -> Tensor<1> {
        let left = self.batches.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        assert!(left.is_ok(), "the disk with the numbers is gone");
        let values: Vec<f32> = samples.iter().map(|sample| *sample as f32 / 64.0).collect();
        Tensor::from_data(TensorData::new(values, [samples.len()]), device)
    }

    fn loss(&self, constant: &Constant, numbers: Tensor<1>) -> Tensor<1> {
        (numbers - constant.value.val()).square().mean()
    }
}

/// Passes on what is told.
struct Told(mpsc::SyncSender<Report>);

impl Observer for Told {
    fn report(&self, report: &Report) {
        let _ = self.0.try_send(report.clone());
    }
}

#[test]
fn who_panics_leaves_in_order_and_the_others_go_on() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let settings = |name: &str| -> Result<Settings, Box<dyn Error>> {
        Ok(Settings { listen: vec!["/ip4/127.0.0.1/tcp/0".parse()?], ..Settings::new(dir.path().join(name)) })
    };
    let run = |batches| Run::new(Numbers::new(batches)).on(DeviceChoice::Cpu);
    let (told, reports) = mpsc::sync_channel(1 << 12);
    let spec = RunSpec { steps: 1 << 40, batch_size: 8, ..RunSpec::default() };
    let founder = run(u32::MAX).watched_by(Told(told)).found(settings("first")?, Founding::new(spec))?;
    let ticket = founder.ticket().expect("it listens");
    let joiner = run(200).join(settings("second")?, Joining::new(ticket))?;
    let error = joiner.wait().expect_err("it panics").to_string();
    assert!(error.contains("the task `numbers` panicked in `batch`: the disk with the numbers is gone"), "{error}");
    // No connection was found closed.
    let left = reports.iter().find(|report| matches!(report, Report::View { reason, .. } if reason.ends_with(" left")));
    let Some(Report::View { step, members, .. }) = left else { panic!("the founder heard nothing of it") };
    assert_eq!(members.len(), 1);
    let further = |report: &Report| matches!(report, Report::Progress { step: now, .. } if *now > step + 10);
    assert!(reports.iter().any(|report| further(&report)), "it goes on");
    founder.leave();
    let summary = founder.wait()?;
    assert_eq!((summary.outcome, summary.world_size), (Outcome::Left, 1));

    let held = checkpoints(&dir.path().join("first"))?;
    assert_eq!(held.last().map(|checkpoint| checkpoint.digest.to_string()), Some(summary.digest));
    let (constant, _) = trained(Numbers::new(1), DeviceChoice::Cpu, &dir.path().join("first"), None)?;
    let value = constant.value.val().try_into_data()?.as_slice::<f32>().expect("numbers")[0];
    assert!(value > 0.0 && value < 1.0, "{value}");
    let file = dir.path().join("constant.safetensors");
    export(&dir.path().join("first"), None, &file)?;
    assert!(std::fs::metadata(&file)?.len() > 4);
    Ok(())
}
