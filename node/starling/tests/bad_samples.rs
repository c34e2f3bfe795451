//! Programs whose data is not what they have said of it: whoever has it ends with an error that names it, nobody hangs, and the others go on.

use std::error::Error;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;

use starling::burn::module::Module;
use starling::burn::nn::{Linear, LinearConfig};
use starling::burn::tensor::{Device, Tensor, TensorData};
use starling::{
    DeviceSpec, DrawSeed, FoundOptions, JoinOptions, MeasureError, Observer, OptimizerSpec, Outcome, Report, Run,
    RunSpec, SampleSummary, Settings, Task, burn, fingerprint,
};

/// What is wrong with the samples, from some time on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    /// There are fewer once the run is described.
    Fewer,
    /// The file of them has become shorter.
    ShortFile,
    /// The same where other threads read it.
    ShortFileBeside,
    /// A sample has more numbers than the others.
    LongSample,
    /// All have.
    WideSamples,
    /// What reads them panics.
    Panic,
    /// The same in another thread.
    PanicBeside,
    /// What is held out can't be read.
    ShortHeldOut,
    /// What measures it panics.
    PanicInMeasure,
}

struct Rows {
    flaw: Flaw,
    /// How many batches, or descriptions, are as they should be.
    left: AtomicU32,
}

impl Rows {
    fn new(flaw: Flaw, left: u32) -> Self {
        Self { flaw, left: AtomicU32::new(left) }
    }

    /// Whether the flaw shows by now.
    fn is_flawed(&self) -> bool {
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err()
    }
}

#[derive(Module, Debug)]
struct Line {
    layer: Linear,
}

impl Task for Rows {
    type Module = Line;
    type Batch = Tensor<2>;

    fn name(&self) -> &str {
        "rows"
    }

    fn data(&self) -> SampleSummary {
        let training = if self.flaw == Flaw::Fewer && self.is_flawed() { 40 } else { 64 };
        SampleSummary { training, held_out: 16, fingerprint: fingerprint(&[64.0]) }
    }

    fn module(&self, device: &Device) -> Line {
        Line { layer: LinearConfig::new(2, 1).init(device) }
    }

    fn batch(&self, samples: &[u32], device: &Device) -> Tensor<2> {
        let row = |sample: &u32| [*sample as f32 / 64.0, (sample % 5) as f32 / 5.0];
        let values: Vec<f32> = samples.iter().flat_map(row).collect();
        Tensor::from_data(TensorData::new(values, [samples.len(), 2]), device)
    }

    fn read_batch(&self, samples: &[u32], draw: &DrawSeed, device: &Device) -> io::Result<Tensor<2>> {
        let batch = self.training_batch(samples, draw, device);
        if matches!(self.flaw, Flaw::None | Flaw::Fewer | Flaw::ShortHeldOut | Flaw::PanicInMeasure)
            || !self.is_flawed()
        {
            return Ok(batch);
        }
        let count = samples.len();
        match self.flaw {
            Flaw::ShortFile | Flaw::ShortFileBeside => {
                Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("rows.bin ends before row {}", samples[0])))
            }
            Flaw::LongSample => Ok(Tensor::from_data(TensorData::new(vec![0.5; 2 * count + 1], [count, 2]), device)),
            Flaw::WideSamples => Ok(Tensor::ones([count, 3], device)),
            _ => panic!("row {} has no end", samples[0]),
        }
    }

    fn loads_beside(&self) -> Option<u64> {
        matches!(self.flaw, Flaw::ShortFileBeside | Flaw::PanicBeside).then_some(8)
    }

    fn loss(&self, line: &Line, rows: Tensor<2>) -> Tensor<1> {
        (line.layer.forward(rows.clone()) - rows.sum_dim(1)).square().mean()
    }

    fn measure(&self, line: &Line, samples: &[u32], device: &Device) -> Result<Vec<(&'static str, f64)>, MeasureError> {
        let is_flawed = matches!(self.flaw, Flaw::ShortHeldOut | Flaw::PanicInMeasure) && self.is_flawed();
        if is_flawed && self.flaw == Flaw::ShortHeldOut {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "held_out.bin ends before row 3").into());
        }
        assert!(!is_flawed, "row {} is not there", samples[0]);
        let loss: f32 = self.loss(line, self.batch(samples, device)).into_scalar();
        Ok(vec![("loss", f64::from(loss) * samples.len() as f64)])
    }
}

/// Passes on what is told.
struct Told(mpsc::SyncSender<Report>);

impl Observer for Told {
    fn report(&self, report: &Report) {
        let _ = self.0.try_send(report.clone());
    }
}

fn settings(dir: &Path) -> Result<Settings, Box<dyn Error>> {
    Ok(Settings { listen: vec!["/ip4/127.0.0.1/tcp/0".parse()?], ..Settings::new(dir.to_owned()) })
}

fn spec() -> RunSpec {
    RunSpec {
        steps: 1 << 40,
        batch_size: 8,
        micro_batch: 2,
        evaluate_every: 5,
        optimizer: OptimizerSpec::sgd(0.01),
        ..RunSpec::default()
    }
}

/// With what a member ends whose samples are so.
const ENDS: [(Flaw, &str); 8] = [
    (Flaw::ShortFile, "can't be read: rows.bin ends before row"),
    (Flaw::ShortFileBeside, "can't be read: rows.bin ends before row"),
    (Flaw::LongSample, "the task `rows` panicked in `batch`: "),
    (Flaw::WideSamples, "the task `rows` panicked in `loss`: "),
    (Flaw::Panic, "the task `rows` panicked in `batch`: row"),
    (Flaw::PanicBeside, "the task `rows` panicked in `batch`: row"),
    (Flaw::ShortHeldOut, "can't be read: held_out.bin ends before row 3"),
    (Flaw::PanicInMeasure, "the task `rows` panicked in `measure`: row"),
];

#[test]
fn a_member_whose_samples_are_not_what_they_were_leaves_by_name_and_the_others_go_on() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let (told, reports) = mpsc::sync_channel(1 << 14);
    let founder = Run::new(Rows::new(Flaw::None, 0)).on(DeviceSpec::Cpu).watched_by(Told(told));
    let founder = founder.found(settings(&dir.path().join("first"))?, FoundOptions::new(spec()))?;
    let ticket = founder.ticket().expect("it listens");
    for (flaw, reason) in ENDS {
        let joiner = Run::new(Rows::new(flaw, 50)).on(DeviceSpec::Cpu);
        let joiner = joiner.join(settings(&dir.path().join(format!("{flaw:?}")))?, JoinOptions::new(ticket.clone()))?;
        let error = joiner.wait().expect_err("it can't go on").to_string();
        assert!(error.contains(reason), "{flaw:?}: {error}");
        // No connection was found closed.
        let alone = |report: &Report| matches!(report, Report::View { reason, members, .. } if reason.ends_with(" left") && members.len() == 1);
        assert!(reports.iter().any(|report| alone(&report)), "{flaw:?}: it leaves in order");
        let next = |report: &Report| matches!(report, Report::Evaluated { .. });
        assert!(reports.iter().any(|report| next(&report)), "{flaw:?}: the other goes on");
    }
    founder.leave();
    assert_eq!(founder.wait()?.outcome, Outcome::Left);
    Ok(())
}

#[test]
fn a_founder_whose_samples_are_not_what_they_were_leaves_the_run_to_the_others() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    for (flaw, reason) in ENDS {
        let at = |name: &str| settings(&dir.path().join(format!("{name}_{flaw:?}")));
        let options = FoundOptions { min_peers: 1, ..FoundOptions::new(spec()) };
        let founder = Run::new(Rows::new(flaw, 3_000)).on(DeviceSpec::Cpu).found(at("first")?, options)?;
        let (told, reports) = mpsc::sync_channel(1 << 14);
        let joiner = Run::new(Rows::new(Flaw::None, 0)).on(DeviceSpec::Cpu).watched_by(Told(told));
        let joiner = joiner.join(at("second")?, JoinOptions::new(founder.ticket().expect("it listens")))?;
        let error = founder.wait().expect_err("it can't go on").to_string();
        assert!(error.contains(reason), "{flaw:?}: {error}");
        let alone = |report: &Report| matches!(report, Report::View { members, .. } if members.len() == 1);
        assert!(reports.iter().any(|report| alone(&report)), "{flaw:?}: the other has the run");
        let next = |report: &Report| matches!(report, Report::Evaluated { .. });
        assert!(reports.iter().any(|report| next(&report)), "{flaw:?}: it goes on");
        joiner.leave();
        assert_eq!(joiner.wait()?.outcome, Outcome::Left);
    }
    Ok(())
}

/// What was described is what is opened, or nothing.
#[test]
fn samples_that_become_fewer_before_the_first_step_are_refused_by_how_many_they_are() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let founder = Run::new(Rows::new(Flaw::None, 0)).on(DeviceSpec::Cpu);
    let founder = founder.found(settings(&dir.path().join("first"))?, FoundOptions::new(spec()))?;
    let ticket = founder.ticket().expect("it listens");
    // Wherever it is that they become fewer: at last there are enough descriptions, and it takes part.
    for (refused, described) in (1..32).enumerate() {
        let at = |name: &str| settings(&dir.path().join(format!("{name}_{described}")));
        let run = || Run::new(Rows::new(Flaw::Fewer, described)).on(DeviceSpec::Cpu);
        let (told, reports) = mpsc::sync_channel(1 << 12);
        let joiner = run().watched_by(Told(told)).join(at("joiner")?, JoinOptions::new(ticket.clone()))?;
        let takes_part =
            reports.iter().any(|report| matches!(report, Report::Synced { .. } | Report::Evaluated { .. }));
        joiner.leave();
        let ended = joiner.wait();
        let Err(error) = ended else {
            assert!(takes_part);
            founder.leave();
            founder.wait()?;
            assert!(refused > 1, "it is asked more than once");
            return Ok(());
        };
        let error = error.to_string();
        assert!(error.contains("40") && error.contains("64") && error.contains("samples"), "{described}: {error}");
    }
    Err("it never took part".into())
}
