//! Tasks of users: one that learns, and all that can't be trained.

mod constants;

use burn::module::{Lora, Module, Param};
use burn::nn::{BatchNorm, BatchNormConfig, Initializer, Linear, LinearConfig, LinearLayout};
use burn::tensor::{Device, Distribution, Tensor, TensorData};
use serde_json::{Value, json};
use starling_data::Dataset;
use starling_run::{Gradient, Learner, ReducedSize, TrainingState};
use starling_topology::PeerId;
use starling_topology::ledger::UNMEASURED;

use super::*;
use crate::device::DeviceSpec;
use crate::network::numbers::{in_f32, like};
use crate::task::{MeasureError, fingerprint};

const ME: PeerId = PeerId([1; 32]);
const SAMPLES: u32 = 96;

/// What is wrong with a task.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Flaw {
    None,
    OtherLeaves,
    NoLeaf,
    LossOfEach,
    HalfTheLoss,
    DrawnLoss,
    ElsewhereLeaf,
    PanicInBatch,
    NoSample,
    TooManySamples,
    ShortInitial,
    OtherShape,
    /// None: Burn keeps its weights the other way round until they are drawn.
    Columns,
    /// It holds fewer samples out.
    FewerHeldOut,
    /// Some of its samples are on their way.
    NotWhole,
    /// What those that are held out count is nothing.
    NoHeldOutWeight,
}

/// y = 3 a - 2 b + 1, by a linear layer and squared error.
struct Plane {
    flaw: Flaw,
    settings: Value,
    shift: f32,
    built: std::sync::atomic::AtomicUsize,
    /// Whether its module has a frozen leaf, and a normalization before the layer.
    has_more: bool,
    /// What it measures besides the loss, which is 1 of each sample.
    measures: &'static [&'static str],
}

#[derive(Module, Debug)]
struct Model {
    scale: Option<Param<Tensor<1>>>,
    norm: Option<BatchNorm>,
    linear: Option<Linear>,
}

impl Plane {
    fn new(flaw: Flaw) -> Self {
        let built = std::sync::atomic::AtomicUsize::new(0);
        Self { flaw, settings: json!({ "rate": 0.5 }), shift: 1.0, built, has_more: false, measures: &[] }
    }

    fn point(&self, sample: u32) -> [f32; 3] {
        let (a, b) = ((sample % 10) as f32 / 10.0, (sample % 7) as f32 / 7.0);
        [a, b, 3.0 * a - 2.0 * b + self.shift]
    }
}

impl Task for Plane {
    type Module = Model;
    type Batch = (Tensor<2>, Tensor<2>);

    fn name(&self) -> &str {
        "plane"
    }

    fn settings(&self) -> Value {
        self.settings.clone()
    }

    fn data(&self) -> SampleSummary {
        let numbers: Vec<f32> = (0..SAMPLES + 16).flat_map(|sample| self.point(sample)).collect();
        let (training, held_out) = match self.flaw {
            Flaw::NoSample => (0, 16),
            Flaw::TooManySamples => (SAMPLES, u32::MAX),
            Flaw::FewerHeldOut => (SAMPLES, 8),
            _ => (SAMPLES, 16),
        };
        SampleSummary { training, held_out, fingerprint: fingerprint(&numbers) }
    }

    fn module(&self, device: &Device) -> Model {
        let times = self.built.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let inputs = match self.flaw {
            Flaw::OtherLeaves => 2 + times,
            Flaw::OtherShape => 3,
            _ => 2,
        };
        Model {
            scale: match self.flaw {
                Flaw::ElsewhereLeaf => Some(Param::from_tensor(Tensor::<1>::ones([1], &Device::flex()))),
                _ => {
                    let scale = || Param::from_tensor(Tensor::<1>::ones([1], device)).set_require_grad(false);
                    self.has_more.then(scale)
                }
            },
            norm: self.has_more.then(|| BatchNormConfig::new(2).init(device)),
            linear: (self.flaw != Flaw::NoLeaf).then(|| {
                let columns = self.flaw == Flaw::Columns;
                let layout = if columns { LinearLayout::Col } else { LinearLayout::Row };
                LinearConfig::new(inputs, 1).with_layout(layout).init(device)
            }),
        }
    }

    fn batch(&self, samples: &[u32], device: &Device) -> Self::Batch {
        assert!(self.flaw != Flaw::PanicInBatch, "sample {} is not there", samples[0]);
        let points: Vec<[f32; 3]> = samples.iter().map(|sample| self.point(*sample)).collect();
        let column = |range: std::ops::Range<usize>| {
            let values: Vec<f32> = points.iter().flat_map(|point| point[range.clone()].to_vec()).collect();
            Tensor::from_data(TensorData::new(values, [points.len(), range.len()]), device)
        };
        (column(0..2), column(2..3))
    }

    fn loss(&self, module: &Model, (inputs, targets): Self::Batch) -> Tensor<1> {
        let linear = module.linear.as_ref().expect("a layer");
        let inputs = module.norm.iter().fold(inputs, |inputs, norm| norm.forward(inputs));
        let inputs = module.scale.iter().fold(inputs, |inputs, scale| inputs * scale.val().reshape([1, 1]));
        let squares = (linear.forward(inputs) - targets).powf_scalar(2.0);
        match self.flaw {
            Flaw::LossOfEach => squares.squeeze_dim(1),
            Flaw::HalfTheLoss => squares.mean() * 0.5,
            Flaw::DrawnLoss => (squares.random_like(Distribution::Default) * squares).mean(),
            _ => squares.mean(),
        }
    }

    fn is_whole(&self) -> bool {
        self.flaw != Flaw::NotWhole
    }

    fn weight(&self, samples: &[u32]) -> Option<f64> {
        let held_out = samples.iter().any(|sample| *sample >= SAMPLES);
        (self.flaw == Flaw::NoHeldOutWeight).then_some(if held_out { 0.0 } else { samples.len() as f64 })
    }

    fn measure(
        &self,
        module: &Model,
        samples: &[u32],
        device: &Device,
    ) -> Result<Vec<(&'static str, f64)>, MeasureError> {
        let loss: f32 = self.loss(module, self.batch(samples, device)).try_into_data()?.iter::<f32>().sum();
        let count = samples.len() as f64;
        Ok([("loss", f64::from(loss) * count)]
            .into_iter()
            .chain(self.measures.iter().map(|name| (*name, count)))
            .collect())
    }

    fn measures(&self) -> Vec<&'static str> {
        self.measures.to_vec()
    }

    fn initial(&self, schema: &Schema, seed: u64) -> Vec<f32> {
        let mut initial = initial::draw(schema, seed);
        initial.truncate(if self.flaw == Flaw::ShortInitial { 1 } else { initial.len() });
        initial
    }
}

fn program(task: Plane) -> TaskProgram<Plane> {
    TaskProgram::new(task, DeviceSpec::Cpu)
}

fn spec() -> RunSpec {
    RunSpec { steps: 300, batch_size: 32, optimizer: starling_run::OptimizerSpec::adam_w(0.1), ..RunSpec::default() }
}

fn found(task: Plane) -> Result<(Manifest, Box<dyn Learner>), Error> {
    let workload = program(task).read(&DataOptions::default())?;
    let manifest = workload.found(&spec())?;
    let learner = workload.open(&manifest)?;
    Ok((manifest, learner))
}

/// One step alone.
fn advance(learner: &mut dyn Learner, reduced: impl Into<ReducedSize>) -> f32 {
    learner.begin(&[ME]);
    let gradient = Gradient::new(reduced);
    let weight = learner.compute(ME, &gradient, &mut |_| ()).expect("computed");
    let step = learner.ledger().step();
    let batch_size = learner.manifest().batch_size;
    let record =
        starling_run::training::contribution::alone(step, gradient.values(), weight, batch_size, ME, UNMEASURED);
    learner.apply(&record).expect("applied").loss
}

#[test]
fn a_task_learns_and_goes_on_from_its_state_with_the_same_bits() {
    let (manifest, mut learner) = found(Plane::new(Flaw::None)).expect("a run");
    assert_eq!(Manifest::decode(&manifest.encode()).as_ref(), Ok(&manifest));
    assert_eq!((manifest.model.to_string(), manifest.parameters(), manifest.data.samples), ("plane".to_owned(), 3, 96));
    let before = learner.evaluate().expect("evaluated");
    for _ in 0..200 {
        advance(learner.as_mut(), 3);
    }
    let state = learner.state();
    let (_, mut again) = found(Plane::new(Flaw::None)).expect("the same run");
    again.load(state).expect("loaded");
    for _ in 0..100 {
        assert_eq!(advance(learner.as_mut(), 3).to_bits(), advance(again.as_mut(), 3).to_bits());
    }
    assert_eq!(learner.digest(), again.digest());
    let after = learner.evaluate().expect("evaluated");
    assert!(after.loss < 1e-3 && before.loss > 0.1 && after.samples == 16, "{before:?}, {after:?}");
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("plane.safetensors");
    learner.export(&path).expect("exported");
    let bytes = std::fs::read(&path).expect("read");
    let (_, header) = safetensors::SafeTensors::read_metadata(&bytes).expect("a header");
    let metadata = header.metadata().as_ref().expect("metadata");
    assert_eq!((metadata["model"].as_str(), metadata["settings"].as_str()), ("plane", r#"{"rate":0.5}"#));
    let file = safetensors::SafeTensors::deserialize(&bytes).expect("tensors");
    let mut names = file.names();
    names.sort_unstable();
    assert_eq!(names, ["linear.bias", "linear.weight"]);
}

/// A run of these measures, and what a program of others comes to in it.
fn evaluating(measures: &'static [&'static str]) -> Manifest {
    let founder = program(Plane { measures, ..Plane::new(Flaw::None) }).read(&DataOptions::default()).expect("read");
    founder.found(&RunSpec { evaluate_every: 1, ..spec() }).expect("a run")
}

#[test]
fn who_measures_all_that_the_run_names_tells_that_and_nothing_else() {
    let manifest = evaluating(&["b"]);
    let joiner = Plane { measures: &["a", "b", "c"], ..Plane::new(Flaw::None) };
    let mut learner =
        program(joiner).read(&DataOptions::default()).and_then(|it| it.open(&manifest)).expect("it joins");
    learner.begin(&[ME]);
    for step in 0..2 {
        let gradient = Gradient::new(manifest.reduced());
        learner.compute(ME, &gradient, &mut |_| ()).expect("computed");
        let record = learner_record(learner.as_ref(), &gradient);
        let told = learner.apply(&record).expect("applied").evaluated;
        assert_eq!(told.is_some(), step == 1);
        if let Some(told) = told {
            let [(name, mean)] = &told.measures[..] else { panic!("{told:?}") };
            assert!(name == "b" && (mean - 1.0).abs() < 1e-6, "{told:?}");
        }
    }
}

fn learner_record(learner: &dyn Learner, gradient: &Gradient) -> starling_run::ResultRecord {
    let (step, batch_size) = (learner.ledger().step(), learner.manifest().batch_size);
    starling_run::training::contribution::alone(step, gradient.values(), gradient.weight(), batch_size, ME, UNMEASURED)
}

#[test]
fn who_can_not_evaluate_as_the_run_does_is_told_what_to_do() {
    let open = |task: Plane, manifest: &Manifest| {
        let workload = program(task).read(&DataOptions::default()).expect("read");
        workload.open(manifest).expect_err("refused").to_string()
    };
    let manifest = evaluating(&["a"]);
    let fewer = Plane { measures: &["a"], ..Plane::new(Flaw::FewerHeldOut) };
    for (task, difference) in [
        (Plane::new(Flaw::None), "evaluation.measures is none, the run has a"),
        (Plane { measures: &["b"], ..Plane::new(Flaw::None) }, "evaluation.measures is b, the run has a"),
        (fewer, "evaluation.held_out is 8, the run has 16"),
    ] {
        let error = open(task, &manifest);
        assert!(error.contains(difference) && error.contains("by `measures` what its `measure` sums"), "{error}");
        assert!(!error.contains("use the files"), "{error}");
    }
    let error = open(Plane::new(Flaw::NotWhole), &evaluating(&[]));
    assert!(error.contains("does not have all of its samples yet"), "{error}");
    let weightless = program(Plane::new(Flaw::NoHeldOutWeight)).read(&DataOptions::default()).expect("read");
    let manifest = weightless.found(&spec()).expect("a run");
    let error = weightless.open(&manifest).expect_err("nothing to divide by").to_string();
    assert!(error.contains("no weight above 0") && !error.contains("holds none out"), "{error}");
    let none = error::Error::NothingHeldOut { task: "x".to_owned() }.to_string();
    assert!(none.contains("take a run in which nobody") && !none.contains("  "), "{none}");
}

/// It may describe its samples anew each time.
#[test]
fn a_task_whose_samples_are_others_by_the_time_that_it_is_opened_is_refused() {
    let manifest = evaluating(&[]);
    for (task, field) in [
        (Plane { shift: 2.0, ..Plane::new(Flaw::None) }, "data.fingerprint"),
        (Plane::new(Flaw::FewerHeldOut), "evaluation.held_out"),
    ] {
        let (leaves, _) = program(Plane::new(Flaw::None)).leaves().expect("its leaves");
        let opened = Replica::open(Arc::new(task), leaves, &manifest, None, DataRecord::default(), DeviceSpec::Cpu);
        let error = opened.expect_err("refused").to_string();
        assert!(error.contains(field), "{error}");
    }
}

#[test]
fn a_layer_that_keeps_its_weights_by_columns_is_trained_as_any_other() {
    let trained = |flaw| {
        let (manifest, mut learner) = found(Plane::new(flaw)).expect("a run");
        for _ in 0..20 {
            advance(learner.as_mut(), 3);
        }
        let (module, _) = program(Plane::new(flaw)).module(&manifest, &learner.state()).expect("the run's");
        let weight = module.linear.expect("a layer").weight.val();
        (manifest.leaves, learner.digest(), weight.dims(), weight.into_data().try_to_vec::<f32>().expect("f32"))
    };
    assert_eq!(trained(Flaw::Columns), trained(Flaw::None));
}

#[test]
fn what_a_module_freezes_and_what_it_keeps_running_is_found() {
    let open = |freeze: Vec<String>| {
        let task = Plane { has_more: true, ..Plane::new(Flaw::None) };
        let workload = program(task).read(&DataOptions::default())?;
        let manifest = workload.found(&RunSpec { micro_batch: 8, freeze, ..spec() })?;
        Ok::<_, Error>((manifest.clone(), workload.open(&manifest)?))
    };
    let (manifest, mut learner) = open(Vec::new()).expect("a run");
    let kinds: Vec<(&str, LeafKind)> = manifest.leaves.iter().map(|leaf| (leaf.path.as_str(), leaf.kind)).collect();
    assert_eq!(
        kinds,
        [
            ("norm.gamma", LeafKind::Trained),
            ("norm.beta", LeafKind::Trained),
            ("linear.weight", LeafKind::Trained),
            ("linear.bias", LeafKind::Trained),
            ("norm.running_mean", LeafKind::Running),
            ("norm.running_var", LeafKind::Running),
            ("scale", LeafKind::Frozen),
        ]
    );
    let (before, state) = (learner.evaluate().expect("evaluated"), learner.state());
    for _ in 0..150 {
        advance(learner.as_mut(), manifest.reduced());
    }
    let after = learner.evaluate().expect("evaluated");
    assert!(after.loss < 0.05 && before.loss > 0.1, "{before:?}, {after:?}");
    // The module's own, which is the same each time it is built.
    assert_eq!((&*learner.state().frozen, &*state.frozen), (&vec![1.0], &vec![1.0]));
    // Whoever takes the module has what the run came to, and what it began with.
    let own = program(Plane { has_more: true, ..Plane::new(Flaw::None) });
    let (module, device) = own.module(&manifest, &learner.state()).expect("the run's");
    let sums = own.task.measure(&module, &(SAMPLES..SAMPLES + 16).collect::<Vec<_>>(), &device).expect("measured");
    assert_eq!(sums[0].1 / 16.0, after.loss);
    let (frozen, _) = open(vec!["norm".to_owned()]).expect("a run");
    assert_eq!((frozen.trained(), frozen.running(), frozen.frozen()), (3, 4, 5));
    let error = open(vec!["layer".to_owned()]).expect_err("refused").to_string();
    assert!(error.contains("the model trains no parameter `layer`"), "{error}");
}

/// What a manifest does not tell: the same leaves and data under another loss.
#[test]
fn a_probe_tells_another_loss() {
    let probe = |has_more: bool, flaw: Flaw| {
        let workload = program(Plane { has_more, ..Plane::new(flaw) }).read(&DataOptions::default()).expect("read");
        let manifest = workload.found(&RunSpec { micro_batch: 8, ..spec() }).expect("a run");
        workload.open(&manifest).expect("opened").probe()
    };
    let [ours, again] = [(); 2].map(|()| probe(true, Flaw::None));
    assert!(ours.is_some() && starling_run::check_probe(ours, again).is_ok());
    let halved = probe(true, Flaw::HalfTheLoss);
    let error = starling_run::check_probe(halved, ours).expect_err("another loss").to_string();
    assert!(error.contains("the loss over its first samples is"), "{error}");
    assert_eq!(probe(false, Flaw::PanicInBatch), None, "it fails where it is computed");
    assert_eq!(probe(false, Flaw::DrawnLoss), None, "it is another each time");
}

#[test]
fn what_can_not_be_trained_is_refused_with_the_reason() {
    for (flaw, reason) in [
        (Flaw::OtherLeaves, "built twice, it has other leaves, from `linear.weight` on"),
        (Flaw::NoLeaf, "it has no trained leaf"),
        (Flaw::ElsewhereLeaf, "its leaf `scale` is not on the device that `module` was given"),
        (Flaw::NoSample, "has 0 samples to train on and 16 held out"),
        (Flaw::TooManySamples, "has 96 samples to train on and 4294967295 held out"),
        (Flaw::ShortInitial, "it has 3 parameters, but `initial` gives 1"),
    ] {
        let error = found(Plane::new(flaw)).expect_err("refused").to_string();
        assert!(error.contains("the task `plane`") && error.contains(reason), "{flaw:?}: {error}");
    }
    for (flaw, reason) in [
        (Flaw::LossOfEach, "has the shape [4], but must be one number"),
        (Flaw::PanicInBatch, "panicked in `batch`: sample"),
    ] {
        let (_, mut learner) = found(Plane::new(flaw)).expect("nothing is computed yet");
        let error = learner.warm_up(4).expect_err("refused").to_string();
        assert!(error.contains("the task `plane`") && error.contains(reason), "{flaw:?}: {error}");
    }
}

#[test]
fn another_runs_task_is_refused_by_what_differs() {
    let (manifest, _) = found(Plane::new(Flaw::None)).expect("a run");
    let refused = |task: Plane| {
        let workload = program(task).read(&DataOptions::default()).expect("read");
        workload.open(&manifest).expect_err("refused").to_string()
    };
    let error = refused(Plane { settings: json!({ "rate": 1 }), ..Plane::new(Flaw::None) });
    assert!(error.contains(r#"model.settings is {"rate":1}, the run has {"rate":0.5}"#), "{error}");
    let error = refused(Plane::new(Flaw::OtherShape));
    assert!(
        error.contains("the model of this program is not the run's: ")
            && error.contains("leaves.linear.weight is [3,1], the run has [2,1]"),
        "{error}"
    );
    let error = refused(Plane { shift: 2.0, ..Plane::new(Flaw::None) });
    assert!(error.contains("data.fingerprint is "), "{error}");
    let own = program(Plane::new(Flaw::None));
    let of = |model: &str| Manifest { model: model.parse().expect("a model"), ..manifest.clone() };
    let error = own.check(&of("mlp:64")).expect_err("another program's").to_string();
    assert!(
        error.contains("trains the task `mlp:64`, which is a program's own, and this program has the task `plane`"),
        "{error}"
    );
    let error = crate::ModelProgram::new(DeviceSpec::Cpu).check(&manifest).expect_err("another's").to_string();
    assert!(error.contains("the task `plane`, which is a program's own, and this program has the models of the command line; join it with the program"), "{error}");
    let schema = Schema::new(Vec::new());
    let error = TrainingState::new(&manifest, schema, Vec::new(), SAMPLES).expect_err("refused").to_string();
    assert!(error.contains("has schema"), "{error}");
}

/// What the command line calls `mlp`, with leaves of one's own width.
struct Stands {
    dataset: Dataset,
    says: u32,
    width: usize,
    /// What it adds to what the data set has: samples to train on, held out; to the fingerprint.
    off: [u32; 3],
}

#[derive(Module, Debug)]
struct Layers {
    hidden: Vec<Linear>,
    output: Linear,
}

impl Stands {
    fn new(seed: u64, says: u32, width: usize) -> Self {
        let dataset = Dataset::load(&DataOptions { seed, ..DataOptions::default() }).expect("the embedded digits");
        Self { dataset, says, width, off: [0; 3] }
    }
}

impl Task for Stands {
    type Module = Layers;
    type Batch = ();

    fn name(&self) -> &str {
        "stands"
    }

    fn data(&self) -> SampleSummary {
        let mut data = SampleSummary::from(&self.dataset);
        data.training += self.off[0];
        data.held_out = self.off[1];
        data.fingerprint.0[0] = data.fingerprint.0[0].wrapping_add(self.off[2] as u8);
        data
    }

    fn stands_for(&self) -> Option<(ModelSpec, &Dataset)> {
        Some((ModelSpec::sized("mlp", &[self.says]), &self.dataset))
    }

    fn module(&self, device: &Device) -> Layers {
        let hidden = vec![LinearConfig::new(64, self.width).init(device)];
        Layers { hidden, output: LinearConfig::new(self.width, 10).init(device) }
    }

    fn batch(&self, _: &[u32], _: &Device) {}

    fn loss(&self, _: &Layers, (): ()) -> Tensor<1> {
        unreachable!("nothing is computed")
    }
}

#[test]
fn a_task_that_stands_for_a_model_of_the_command_line_has_its_runs_or_says_what_differs() {
    let spec = RunSpec::default();
    let dataset = Dataset::load(&DataOptions::default()).expect("the embedded digits");
    let manifest = crate::found(&spec, &dataset).expect("a run");
    let program = |task: Stands| TaskProgram::new(task, DeviceSpec::Cpu);
    let read = |task: Stands| program(task).read(&DataOptions::default()).expect("read");
    assert_eq!(read(Stands::new(42, 64, 64)).found(&spec).expect("a run"), manifest);
    program(Stands::new(42, 64, 64)).check(&manifest).expect("it is its model");
    let learner = read(Stands::new(42, 64, 64)).open(&manifest).expect("opened");
    assert_eq!(learner.manifest(), &manifest);
    for (task, reason) in [
        (Stands::new(42, 32, 32), "model is mlp:32, the run has mlp:64"),
        (Stands::new(42, 64, 32), "leaves.hidden.0.weight is [64,32], the run has [64,64]"),
        (Stands::new(7, 64, 64), "seed is 7, the run has 42"),
    ] {
        let error = read(task).open(&manifest).expect_err("refused").to_string();
        assert!(error.contains(reason), "{error}");
    }
    let other = Manifest { model: ModelSpec::sized("softmax", &[]), ..manifest };
    let error = program(Stands::new(42, 64, 64)).check(&other).expect_err("another model").to_string();
    assert!(error.contains("trains the command line's model `softmax`, and this program has the command line's model `mlp:64`; join it with `starling join`"), "{error}");
    let error = read(Stands::new(7, 64, 64)).found(&spec).expect_err("other samples are held out").to_string();
    assert!(error.contains("seed 7"), "{error}");
}

#[test]
fn a_task_that_has_other_samples_than_the_data_set_it_stands_on_is_refused_before_a_step() {
    let read = |off: [u32; 3]| {
        let task = Stands { off, ..Stands::new(42, 64, 64) };
        TaskProgram::new(task, DeviceSpec::Cpu).read(&DataOptions::default()).map(|_| ())
    };
    read([0, 359, 0]).expect("all that are held out");
    for (off, reason) in [
        ([1, 0, 0], "on the data set `digits`, but `training` of its `data` is 1439, where that has 1438"),
        ([0, 360, 0], "`held_out` of its `data` is 360, where that has 359 at most"),
        ([0, 0, 1], "`fingerprint` of its `data` is "),
    ] {
        let error = read(off).expect_err("refused").to_string();
        assert!(error.contains("the task `stands` stands for a model") && error.contains(reason), "{error}");
    }
}

/// Sequences of unlike lengths, none and all but none: y = 2 x by one factor, and the mean over the numbers of all sequences.
struct Sequences {
    says: fn(f64) -> Option<f64>,
}

#[derive(Module, Debug)]
struct Factor {
    factor: Param<Tensor<1>>,
}

impl Sequences {
    /// The numbers of a sequence.
    fn of(sample: u32) -> Vec<f32> {
        (0..[3, 0, 1, 7, 2, 0, 5][sample as usize % 7]).map(|at| (sample % 11) as f32 * 0.1 + at as f32 * 0.2).collect()
    }

    /// The gradient of the mean over the numbers of these, times how many they are, and how many.
    fn gradient(samples: impl Iterator<Item = u32>, factor: f64) -> (f64, f64) {
        let numbers: Vec<f64> = samples.flat_map(Self::of).map(f64::from).collect();
        (numbers.iter().map(|x| 2.0 * (factor * x - 2.0 * x) * x).sum(), numbers.len() as f64)
    }
}

impl Task for Sequences {
    type Module = Factor;
    type Batch = Tensor<1>;

    fn name(&self) -> &str {
        "sequences"
    }

    fn data(&self) -> SampleSummary {
        SampleSummary { training: SAMPLES, held_out: 0, fingerprint: fingerprint(&[1.0]) }
    }

    fn module(&self, device: &Device) -> Factor {
        Factor { factor: Param::from_tensor(Tensor::ones([1], device)) }
    }

    fn batch(&self, samples: &[u32], device: &Device) -> Self::Batch {
        let numbers: Vec<f32> = samples.iter().flat_map(|sample| Self::of(*sample)).collect();
        // Of no numbers the mean is none.
        let count = numbers.len().max(1);
        let padded = if numbers.is_empty() { vec![f32::NAN] } else { numbers };
        Tensor::from_data(TensorData::new(padded, [count]), device)
    }

    fn weight(&self, samples: &[u32]) -> Option<f64> {
        (self.says)(samples.iter().map(|sample| Self::of(*sample).len() as f64).sum())
    }

    fn loss(&self, module: &Factor, numbers: Self::Batch) -> Tensor<1> {
        (module.factor.val() * numbers.clone() - numbers * 2.0).square().mean()
    }

    fn initial(&self, _: &Schema, _: u64) -> Vec<f32> {
        vec![0.5]
    }
}

fn sequences(says: fn(f64) -> Option<f64>) -> Box<dyn Workload> {
    TaskProgram::new(Sequences { says }, DeviceSpec::Cpu).read(&DataOptions::default()).expect("samples")
}

/// Two members and one come to the mean over all numbers of a batch, whatever micro-batches it is dealt in.
#[test]
fn samples_count_as_much_as_their_task_says() {
    for (micro_batch, members) in [(0, 1), (0, 2), (1, 2), (8, 2), (8, 3)] {
        let optimizer = starling_run::OptimizerSpec::sgd(0.25);
        let spec = RunSpec { batch_size: 32, micro_batch, optimizer, ..spec() };
        let workload = sequences(Some);
        let manifest = workload.found(&spec).expect("a run");
        assert!(manifest.weighted);
        let names: Vec<PeerId> = (1..=members).map(|name| PeerId([name; 32])).collect();
        let open = || sequences(Some).open(&manifest).expect("a learner");
        let mut learners: Vec<Box<dyn Learner>> = names.iter().map(|_| open()).collect();
        learners.iter_mut().for_each(|learner| assert!(learner.begin(&names)));
        let mut factor = 0.5_f64;
        for step in 1..=7 {
            let layout = manifest.reduced();
            let mut sum = vec![0.0; layout.buffer(names.len()).elements()];
            for (name, learner) in names.iter().zip(&mut learners) {
                let gradient = Gradient::new(layout);
                let weight = learner.compute(*name, &gradient, &mut |_| ()).expect("computed");
                let slots = starling_run::training::contribution::slots(&names, *name, UNMEASURED);
                let brought = gradient.values().into_iter().map(|value| value * weight as f32).chain(slots);
                sum.iter_mut().zip(brought).for_each(|(sum, value)| *sum += value / 32.0);
            }
            let ledger = learners[0].ledger();
            let ranges: Vec<_> = names.iter().flat_map(|name| ledger.share_of(*name).to_vec()).collect();
            let (gradient, count) = Sequences::gradient(ledger.indices(&ranges).into_iter(), factor);
            factor -= 0.25 * gradient / count;
            let record = starling_run::ResultRecord {
                step,
                lineage: starling_topology::Lineage::NONE,
                after: starling_topology::Lineage::NONE,
                members: names.clone(),
                mean: sum,
            };
            for learner in &mut learners {
                let report = learner.apply(&record).expect("applied");
                assert!(report.skipped.is_none() && report.loss.is_finite(), "{report:?}");
                let found = f64::from(learner.state().parameters[0]);
                assert!((found - factor).abs() < 1e-5, "{micro_batch}, {members}, step {step}: {found}, not {factor}");
            }
        }
    }
}

#[test]
fn what_is_no_weight_is_refused_and_a_batch_that_counts_nothing_changes_nothing() {
    let found = |says: fn(f64) -> Option<f64>| {
        let workload = sequences(says);
        let manifest = workload.found(&spec()).expect("a run");
        (workload.open(&manifest).expect("a learner"), manifest)
    };
    for says in [|_| Some(-1.0), |_| Some(f64::NAN), |count| (count < 10.0).then_some(count)] as [fn(f64) -> _; 3] {
        let (mut learner, manifest) = found(says);
        learner.begin(&[ME]);
        let error = learner.compute(ME, &Gradient::new(manifest.reduced()), &mut |_| ()).expect_err("no weight");
        assert!(error.to_string().contains("each may count 0 to 1048576"), "{error}");
    }
    let (mut learner, manifest) = found(|_| Some(0.0));
    learner.begin(&[ME]);
    let gradient = Gradient::new(manifest.reduced());
    let weight = learner.compute(ME, &gradient, &mut |_| ()).expect("computed");
    let (values, before) = (gradient.values(), learner.state());
    assert!(values.iter().all(|value| *value == 0.0));
    let record = starling_run::training::contribution::alone(1, values, weight, manifest.batch_size, ME, UNMEASURED);
    let report = learner.apply(&record).expect("applied");
    assert_eq!((report.loss, report.skipped), (0.0, None));
    // Of rare events most batches may have none: no run stops for it.
    assert_eq!((learner.state().parameters, learner.ledger().skips().total), (before.parameters, 0));
    // Whoever does not weigh is in no such run.
    let plain = sequences(|_| None);
    let error = plain.open(&manifest).expect_err("another program").to_string();
    assert!(error.contains("weighted is false, the run has true"), "{error}");
}

/// y = 3 a - 2 b + 1, by a linear layer that is frozen as its initializer drew it, and what LoRA adds to that (Hu et al., 2021).
struct Adapted;

impl Task for Adapted {
    type Module = Linear;
    type Batch = (Tensor<2>, Tensor<2>);

    fn name(&self) -> &str {
        "adapted"
    }

    fn data(&self) -> SampleSummary {
        Plane::new(Flaw::None).data()
    }

    fn module(&self, device: &Device) -> Linear {
        let initializer = Initializer::Normal { mean: 5.0, std: 0.1 };
        LinearConfig::new(2, 1).with_initializer(initializer).init(device).apply_lora(Lora::new(1, 1.0))
    }

    fn batch(&self, samples: &[u32], device: &Device) -> Self::Batch {
        Plane::new(Flaw::None).batch(samples, device)
    }

    fn loss(&self, linear: &Linear, (inputs, targets): Self::Batch) -> Tensor<1> {
        in_f32(linear.forward(like(inputs, &linear.weight)) - like(targets, &linear.weight)).square().mean()
    }

    fn draws_itself(&self) -> bool {
        true
    }
}

#[test]
fn modules_draw_their_own_values_and_adapters_are_all_that_is_trained() {
    for precision in [Precision::F32, Precision::Bf16] {
        let workload = || TaskProgram::new(Adapted, DeviceSpec::Cpu).read(&DataOptions::default()).expect("samples");
        let spec = RunSpec { precision, micro_batch: 8, ..spec() };
        let manifest = workload().found(&spec).expect("a run");
        assert_eq!(workload().found(&spec).expect("a run"), manifest, "drawn again, they are the same");
        assert_ne!(workload().found(&RunSpec { seed: 7, ..spec }).expect("a run").initial, manifest.initial);
        let paths: Vec<&str> = manifest.leaves.iter().map(|leaf| &*leaf.path).collect();
        assert_eq!(paths, ["weight.lora.a", "weight.lora.b", "weight", "bias"]);
        assert_eq!((manifest.trained(), manifest.frozen()), (3, 3));
        let mut learner = workload().open(&manifest).expect("a learner");
        let before = learner.state();
        assert!(before.frozen[..2].iter().all(|weight| (4.0..6.0).contains(weight)), "{:?}", before.frozen);
        assert_eq!(before.parameters[2], 0.0, "at first an adapter changes nothing");
        let losses: Vec<f32> = (0..60).map(|_| advance(&mut *learner, manifest.reduced())).collect();
        let after = learner.state();
        assert!(losses[59] < 0.5 * losses[0], "{losses:?}");
        assert!(after.frozen == before.frozen && after.parameters != before.parameters);
    }
}
