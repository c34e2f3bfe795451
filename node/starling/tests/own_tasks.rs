//! Members of one process, with a task of their own: one that fails leaves in order, and the others go on.

use std::error::Error;
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use starling::burn::module::{Module, Param};
use starling::burn::tensor::{Device, Tensor, TensorData};
use starling::{
    DeviceSpec, FoundOptions, JoinOptions, Observer, Outcome, Report, Run, RunSpec, SampleSummary, Settings, Task,
    burn, checkpoints, export, fingerprint, trained,
};
use starling_run::{
    ContributionError, DataDescription, DataOptions, DataRecord, EvaluationReport, Gradient, Kind, Learner, Manifest,
    PreprocessingSpec, Program, ReplicatedState, ResultRecord, StateReplica, StepReport, Workload,
};
use starling_topology::{Ledger, Lineage, PeerId};
use starling_train::TaskProgram;
use tokio_util::sync::CancellationToken;

/// A constant that is to be the mean of some numbers.
#[derive(Module, Debug)]
struct Constant {
    value: Param<Tensor<1>>,
}

struct Numbers {
    /// How many batches it makes before it panics.
    batches: AtomicU32,
    /// The sample that is no number.
    hole: Option<u32>,
    /// Whether it has no data at all.
    is_gone: bool,
}

impl Numbers {
    fn new(batches: u32) -> Self {
        Self { batches: AtomicU32::new(batches), hole: None, is_gone: false }
    }
}

impl Task for Numbers {
    type Module = Constant;
    type Batch = Tensor<1>;

    fn name(&self) -> &str {
        "numbers"
    }

    fn data(&self) -> SampleSummary {
        assert!(!self.is_gone, "there is no file of numbers");
        SampleSummary { training: 64, held_out: 0, fingerprint: fingerprint(&[64.0]) }
    }

    fn module(&self, device: &Device) -> Constant {
        Constant { value: Param::from_tensor(Tensor::zeros([1], device)) }
    }

    fn batch(&self, samples: &[u32], device: &Device) -> Tensor<1> {
        let left = self.batches.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        assert!(left.is_ok(), "the disk with the numbers is gone");
        let number = |sample: &u32| if self.hole == Some(*sample) { f32::NAN } else { *sample as f32 / 64.0 };
        let values: Vec<f32> = samples.iter().map(number).collect();
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

/// How a learner breaks what a gradient must be.
#[derive(Debug, Clone, Copy)]
enum Flaw {
    /// It brings one number too few.
    Short,
    /// It brings one number too many.
    Long,
    /// It is of more samples than its share has.
    Heavy,
}

/// A program whose learner fails after some steps.
struct Flawed(TaskProgram<Numbers>, Flaw);
struct FlawedWorkload(Box<dyn Workload>, Flaw);
#[derive(Debug)]
struct FlawedLearner(Box<dyn Learner>, Flaw);

type Result<T> = std::result::Result<T, starling_run::Error>;

impl Program for Flawed {
    fn check(&self, manifest: &Manifest) -> Result<()> {
        self.0.check(manifest)
    }

    fn kind(&self, name: &str) -> Option<Kind> {
        self.0.kind(name)
    }

    fn files(&self, source: &str) -> Result<(Kind, Vec<PathBuf>)> {
        self.0.files(source)
    }

    fn read(&self, options: &DataOptions) -> Result<Box<dyn Workload>> {
        Ok(Box::new(FlawedWorkload(self.0.read(options)?, self.1)))
    }
}

impl Workload for FlawedWorkload {
    fn description(&self) -> DataDescription {
        self.0.description()
    }

    fn training(&self) -> u64 {
        self.0.training()
    }

    fn describe(&self, spec: &RunSpec) -> Result<Manifest> {
        self.0.describe(spec)
    }

    fn found(&self, spec: &RunSpec) -> Result<Manifest> {
        self.0.found(spec)
    }

    fn open_with(self: Box<Self>, manifest: &Manifest, _: Option<Vec<f32>>) -> Result<Box<dyn Learner>> {
        Ok(Box::new(FlawedLearner(self.0.open(manifest)?, self.1)))
    }
}

impl StateReplica for FlawedLearner {
    fn step(&self) -> u64 {
        self.0.step()
    }

    fn lineage(&self) -> Lineage {
        self.0.lineage()
    }

    fn begin(&mut self, members: &[PeerId]) -> bool {
        self.0.begin(members)
    }

    fn state(&self) -> ReplicatedState {
        self.0.state()
    }

    fn load(&mut self, state: ReplicatedState) -> Result<()> {
        self.0.load(state)
    }
}

impl Learner for FlawedLearner {
    fn manifest(&self) -> &Manifest {
        self.0.manifest()
    }

    fn ledger(&self) -> &Ledger {
        self.0.ledger()
    }

    fn device(&self) -> &str {
        self.0.device()
    }

    fn notes(&self) -> &DataRecord {
        self.0.notes()
    }

    fn take_names(&mut self, preprocessing: PreprocessingSpec) {
        self.0.take_names(preprocessing);
    }

    fn has_blocks(&self) -> bool {
        self.0.has_blocks()
    }

    fn compute(&mut self, me: PeerId, gradient: &Gradient, progressed: &mut dyn FnMut(usize)) -> Result<u64> {
        let share = u64::from(self.0.ledger().share_len(me));
        // The state has come, and the reduction has begun with what a member brings.
        if share == 0 || self.0.step() < 20 {
            return self.0.compute(me, gradient, progressed);
        }
        let numbers = [0.0; 3];
        let (weight, count) = match self.1 {
            Flaw::Short => (share, 1),
            Flaw::Long => (share, 3),
            Flaw::Heavy => (share + 1, 2),
        };
        gradient.prepend(weight, [&numbers[..count]].into_iter());
        progressed(2 - count);
        Ok(weight)
    }

    fn compute_part(&mut self, me: PeerId, positions: &[Range<u32>], gradient: &Gradient) -> Result<u64> {
        self.0.compute_part(me, positions, gradient)
    }

    fn take_beyond(&mut self) -> Option<ContributionError> {
        self.0.take_beyond()
    }

    fn load_ahead(&mut self, members: &[PeerId], me: PeerId) {
        self.0.load_ahead(members, me);
    }

    fn stage_bytes(&self) -> Option<u64> {
        None
    }

    fn stage(&mut self, _: &[PeerId], _: usize, _: &[f32]) {}

    fn forget_staged(&mut self) {}

    fn apply_staged(&mut self, record: &ResultRecord) -> Result<StepReport> {
        self.0.apply_staged(record)
    }

    fn warm_up(&mut self, share: u32) -> Result<()> {
        self.0.warm_up(share)
    }

    fn evaluate_while(&mut self, goes_on: &dyn Fn(u64, u64) -> bool) -> Result<Option<EvaluationReport>> {
        self.0.evaluate_while(goes_on)
    }

    fn export(&self, path: &Path) -> Result<()> {
        self.0.export(path)
    }
}

/// Nobody looks.
struct Silent;

impl Observer for Silent {
    fn report(&self, _: &Report) {}
}

fn settings(dir: &Path) -> std::result::Result<Settings, Box<dyn Error>> {
    Ok(Settings { listen: vec!["/ip4/127.0.0.1/tcp/0".parse()?], ..Settings::new(dir.to_owned()) })
}

#[test]
fn whose_learner_brings_another_length_leaves_in_order_and_the_others_go_on() -> std::result::Result<(), Box<dyn Error>>
{
    let dir = tempfile::tempdir()?;
    let (told, reports) = mpsc::sync_channel(1 << 12);
    let spec = RunSpec { steps: 1 << 40, batch_size: 8, ..RunSpec::default() };
    let founder = Run::new(Numbers::new(u32::MAX)).on(DeviceSpec::Cpu).watched_by(Told(told));
    let founder = founder.found(settings(&dir.path().join("first"))?, FoundOptions::new(spec))?;
    let ticket = founder.ticket().expect("it listens");
    for (flaw, reason) in [
        (Flaw::Short, "of whose 1 numbers the first 1 are missing"),
        (Flaw::Long, "a gradient is as long as its model"),
        (Flaw::Heavy, "the learner brought a gradient of"),
    ] {
        let program = Arc::new(Flawed(TaskProgram::new(Numbers::new(u32::MAX), DeviceSpec::Cpu), flaw));
        let joins = starling_node::join(
            settings(&dir.path().join(format!("{flaw:?}")))?,
            JoinOptions::new(ticket.clone()),
            program,
            Arc::new(Silent),
            CancellationToken::new(),
        );
        let (runtime, logs) = starling_node::runtime(dir.path())?;
        let error = logs.in_scope(|| runtime.block_on(joins)).expect_err("it can't take part").to_string();
        assert!(error.contains(reason), "{flaw:?}: {error}");
        let alone = |report: &Report| matches!(report, Report::View { reason, members, .. } if reason.ends_with(" left") && members.len() == 1);
        assert!(reports.iter().any(|report| alone(&report)), "{flaw:?}: it leaves in order");
        let next = |report: &Report| matches!(report, Report::Progress { .. });
        assert!(reports.iter().any(|report| next(&report)), "{flaw:?}: the other goes on");
    }
    founder.leave();
    assert_eq!(founder.wait()?.outcome, Outcome::Left);
    Ok(())
}

#[test]
fn a_panic_before_the_first_step_is_told_in_its_own_words() -> std::result::Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let numbers = Numbers { is_gone: true, ..Numbers::new(u32::MAX) };
    let founder = Run::new(numbers).on(DeviceSpec::Cpu);
    let founder = founder.found(settings(dir.path())?, FoundOptions::new(RunSpec::default()))?;
    assert!(founder.ticket().is_none());
    let error = founder.wait().expect_err("it has no data").to_string();
    assert!(error.contains("panicked") && error.contains("there is no file of numbers"), "{error}");
    assert!(!error.contains("a bug in starling"), "{error}");
    Ok(())
}

#[test]
fn samples_whose_loss_is_no_number_are_left_out_and_named() -> std::result::Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let (told, reports) = mpsc::sync_channel(1 << 12);
    let spec = RunSpec { steps: 1 << 40, batch_size: 8, ..RunSpec::default() };
    let numbers = Numbers { hole: Some(5), ..Numbers::new(u32::MAX) };
    let founder = Run::new(numbers).on(DeviceSpec::Cpu).watched_by(Told(told));
    let founder = founder.found(settings(&dir.path().join("first"))?, FoundOptions::new(spec))?;
    let named = |report: &Report| matches!(report, Report::Dropped { samples, .. } if samples.contains(&5));
    assert!(reports.iter().any(|report| named(&report)), "the sample is named");
    founder.leave();
    assert_eq!(founder.wait()?.outcome, Outcome::Left);
    let (constant, _) = trained(Numbers::new(1), DeviceSpec::Cpu, &dir.path().join("first"), None)?;
    let value = constant.value.val().try_into_data()?.as_slice::<f32>().expect("numbers")[0];
    assert!(value.is_finite(), "{value}");
    Ok(())
}

#[test]
fn who_panics_leaves_in_order_and_the_others_go_on() -> std::result::Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let settings = |name: &str| settings(&dir.path().join(name));
    let run = |batches| Run::new(Numbers::new(batches)).on(DeviceSpec::Cpu);
    let (told, reports) = mpsc::sync_channel(1 << 12);
    let spec = RunSpec { steps: 1 << 40, batch_size: 8, ..RunSpec::default() };
    let founder = run(u32::MAX).watched_by(Told(told)).found(settings("first")?, FoundOptions::new(spec))?;
    let ticket = founder.ticket().expect("it listens");
    let joiner = run(200).join(settings("second")?, JoinOptions::new(ticket))?;
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
    let (constant, _) = trained(Numbers::new(1), DeviceSpec::Cpu, &dir.path().join("first"), None)?;
    let value = constant.value.val().try_into_data()?.as_slice::<f32>().expect("numbers")[0];
    assert!(value > 0.0 && value < 1.0, "{value}");
    let file = dir.path().join("constant.safetensors");
    export(&dir.path().join("first"), None, &file)?;
    assert!(std::fs::metadata(&file)?.len() > 4);
    Ok(())
}

/// Collects what is logged, line by line.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic").extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Two members of one process: each line says which of them logs it, and of which run.
#[test]
fn members_of_one_process_log_in_spans_of_their_own() {
    let lines = Lines::default();
    let (writer, filter) = (lines.clone(), "starling_node=trace,starling_links=trace");
    let logs = tracing_subscriber::fmt().with_ansi(false).with_env_filter(filter).with_writer(move || writer.clone());
    logs.init();
    let dir = tempfile::tempdir().expect("a temp dir");
    let at = |name: &str| settings(&dir.path().join(name)).expect("an address");
    let founding =
        FoundOptions { min_peers: 2, ..FoundOptions::new(RunSpec { steps: 20, batch_size: 16, ..RunSpec::default() }) };
    let first = Run::new(Numbers::new(u32::MAX)).on(DeviceSpec::Cpu).found(at("logs_first"), founding).expect("starts");
    let ticket = first.ticket().expect("it listens");
    let second = Run::new(Numbers::new(u32::MAX)).on(DeviceSpec::Cpu);
    let second = second.join(at("logs_second"), JoinOptions::new(ticket)).expect("starts");
    first.wait().expect("trained");
    second.wait().expect("trained");
    let logged = String::from_utf8(lines.0.lock().expect("no panic").clone()).expect("text");
    let of = |name: &str| logged.lines().filter(|line| line.contains(&format!("/{name} "))).collect::<Vec<_>>();
    for name in ["logs_first", "logs_second"] {
        assert!(
            of(name).iter().any(|line| line.contains("member{dir=") && line.contains(" run=")),
            "{name}:\n{logged}"
        );
    }
    // Others of this process run beside it, in spans of their own.
    let without = logged.lines().filter(|line| !line.contains("member{dir=")).collect::<Vec<_>>();
    assert!(without.is_empty(), "{without:#?}");
}
