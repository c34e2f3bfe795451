//! Micro-batches: whoever computes one, and whatever else a process computes meanwhile, it comes to the same bits.

use std::collections::BTreeMap;

use burn::nn::{Dropout, DropoutConfig, Linear, LinearConfig};
use burn::tensor::TensorData;
use starling_run::Program;

use super::churn::{Swarm, distance, peer};
use super::*;
use crate::TaskProgram;

/// Trainers of one run on the digits.
struct Run {
    manifest: Manifest,
    dataset: Dataset,
}

impl Run {
    fn new(model: &str, batch_size: u32, micro_batch: u32) -> Self {
        let (model, optimizer) = (model.parse().expect("a model"), OptimizerSpec::sgd(0.05));
        let spec = RunSpec { model, optimizer, batch_size, micro_batch, steps: 400, ..RunSpec::default() };
        let dataset = Dataset::load(&DataOptions::default()).expect("the embedded digits");
        Self { manifest: found(&spec, &dataset).expect("a run"), dataset }
    }

    fn trainer(&self) -> ClassifierReplica {
        ClassifierReplica::new(&self.manifest, self.dataset.clone(), DeviceSpec::Cpu).expect("a trainer")
    }
}

/// All that is random at once, and one model of each kind.
const RANDOM: [&str; 2] = ["cnn:4,6+dropout=0.2+augment=crop,flip", "mlp:24,16+dropout=0.3"];
/// With values that run along, besides.
const RUNNING: [&str; 3] = [
    "cnn:4,6+batch-norm+dropout=0.2+augment=crop,flip",
    "cnn:4,4,6+batch-norm+residual+dropout=0.2",
    "mlp:24,16+batch-norm",
];

fn all() -> impl Iterator<Item = &'static str> {
    RANDOM.into_iter().chain(RUNNING)
}

#[test]
fn three_members_take_the_same_random_steps_as_one() {
    for model in all() {
        let run = Run::new(model, 60, 6);
        let mut alone = run.trainer();
        // Through two ends of an epoch, whose last micro-batch is short.
        let mut swarm = Swarm::of(&[100, 200, 700], 60, &|| run.trainer());
        for step in 1..=50 {
            let (ours, theirs) = (advance(&mut alone, &mut Vec::new()), swarm.step());
            swarm.check_digests();
            assert_eq!((theirs.samples, theirs.epoch), (ours.samples, ours.epoch));
            let member = &swarm.members[&peer(1)].trainer;
            let relative = distance(&alone.state().parameters, &member.state().parameters);
            assert!(step > 1 || relative <= 1e-6, "{model}: relative difference {relative} after the first step");
            assert!(relative <= 1e-5, "{model}: relative difference {relative} after step {step}");
            assert!((theirs.loss / ours.loss - 1.0).abs() < 1e-4, "{} and {}", theirs.loss, ours.loss);
        }
        assert!(alone.ledger().epoch() >= 2);
    }
}

#[test]
fn whoever_computes_a_micro_batch_comes_to_the_same_bits_also_after_a_loss() {
    for model in all() {
        let run = Run::new(model, 48, 8);
        let mut swarm = Swarm::of(&[100, 300, 200], 48, &|| run.trainer());
        // It computes what each of the others does.
        let mut witness = run.trainer();
        let mut visits: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for step in 1..=40 {
            witness.load(swarm.members[&peer(1)].trainer.state()).expect("the same run");
            let computed = swarm.compute();
            for (name, (gradient, weight)) in &computed {
                let mut ours = Vec::new();
                assert_eq!(compute(&mut witness, *name, &mut ours).expect("computed"), *weight);
                assert!(ours.iter().zip(gradient).all(|(a, b)| a.to_bits() == b.to_bits()), "{model}, step {step}");
            }
            // One is lost in mid-step: others compute its micro-batches in the next one.
            if step == 15 {
                swarm.members.remove(&peer(2));
            }
            let record = swarm.reduce(&computed);
            let report = swarm.apply(&record);
            swarm.check_digests();
            assert_eq!(report.returned > 0, step == 15);
            let visits = visits.entry(report.epoch).or_insert_with(|| vec![0; 1438]);
            let ranges = report.contributions.iter().flat_map(|(_, ranges)| ranges.iter().cloned());
            ranges.flatten().for_each(|position| visits[position as usize] += 1);
        }
        assert!(visits[&0].iter().all(|visits| *visits == 1), "each sample once in the first epoch");
    }
}

/// Leaves share the numbers of the state, and let go of them before they are updated: no second state comes about.
#[test]
fn a_state_is_updated_where_it_is() {
    for (model, micro_batch) in all().map(|model| (model, 6)).chain([("mlp:700,700", 0), ("cnn:2,3", 0)]) {
        let mut trainer = Run::new(model, 60, micro_batch).trainer();
        let place = |trainer: &ClassifierReplica| trainer.training().parameters().as_ptr();
        let before = place(&trainer);
        for _ in 0..3 {
            advance(&mut trainer, &mut Vec::new());
            trainer.evaluate().expect("evaluated");
            assert_eq!(place(&trainer), before, "{model}");
        }
    }
}

/// With nothing random, a micro-batch as large as the batch is no other computation, and smaller ones are another order of sums.
#[test]
fn a_batch_of_one_micro_batch_has_the_bits_of_a_batch_without() {
    let first = |micro_batch| {
        let mut trainer = Run::new("mlp:700,700", 64, micro_batch).trainer();
        trainer.begin(&[ME]);
        computed(&mut trainer, ME).expect("computed").values()
    };
    let whole = first(0);
    assert_eq!(first(64), whole);
    let (halves, bits) = (first(32), |numbers: &[f32]| numbers.iter().map(|it| it.to_bits()).collect::<Vec<_>>());
    assert!(bits(&halves) != bits(&whole) && distance(&whole, &halves) < 1e-5);
    assert!(distance(&whole, &first(1)) < 1e-5);
}

#[test]
fn what_is_random_differs_between_steps_and_is_not_there_in_evaluation() {
    for model in RANDOM {
        let mut trainer = Run::new(model, 64, 16).trainer();
        trainer.begin(&[ME]);
        let plain = {
            let name = model.split('+').next().expect("a name");
            let mut trainer = Run::new(name, 64, 16).trainer();
            trainer.begin(&[ME]);
            (computed(&mut trainer, ME).expect("computed").values(), trainer.evaluate().expect("evaluated"))
        };
        let gradient = computed(&mut trainer, ME).expect("computed").values();
        assert!(distance(&plain.0, &gradient) > 1e-2, "{model}");
        assert_eq!(computed(&mut trainer, ME).expect("computed again").values(), gradient);
        assert_eq!(trainer.evaluate().expect("evaluated"), plain.1, "{model}");
    }
}

/// A step of one micro-batch, by hand: a tenth of the way to the mean and the variance of what the first layer puts out.
#[test]
fn running_values_follow_what_is_normalized_and_evaluation_takes_them() {
    let mut trainer = Run::new("mlp:4+batch-norm", 64, 64).trainer();
    trainer.begin(&[ME]);
    let (before, parameters) = (trainer.evaluate().expect("evaluated"), trainer.training().parameters().to_vec());
    let running =
        |trainer: &ClassifierReplica| trainer.training().parameters()[trainer.training().trained()..].to_vec();
    assert_eq!(running(&trainer), [[0.0; 4], [1.0; 4]].concat());
    let samples = trainer.ledger().indices(trainer.ledger().share_of(ME));
    computed(&mut trainer, ME).expect("computed");
    assert_eq!(
        (running(&trainer), trainer.evaluate().expect("evaluated")),
        ([[0.0; 4], [1.0; 4]].concat(), before.clone())
    );
    advance(&mut trainer, &mut Vec::new());
    let (dataset, places) = (Dataset::load(&DataOptions::default()).expect("the embedded digits"), samples);
    let (rows, _) = dataset.training().read(&places).expect("in memory");
    for unit in 0..4 {
        let output = |row: &[f32]| -> f64 {
            let terms =
                row.iter().enumerate().map(|(at, value)| f64::from(*value) * f64::from(parameters[at * 4 + unit]));
            terms.sum::<f64>() + f64::from(parameters[64 * 4 + unit])
        };
        let outputs: Vec<f64> = rows.chunks(64).map(output).collect();
        let mean = outputs.iter().sum::<f64>() / 64.0;
        let variance = outputs.iter().map(|output| (output - mean).powi(2)).sum::<f64>() / 64.0;
        let (found, unbiased) = (running(&trainer), variance * 64.0 / 63.0);
        assert!((f64::from(found[unit]) - 0.1 * mean).abs() < 1e-5, "{} for a mean of {mean}", found[unit]);
        let matches = |expected: f64| (f64::from(found[4 + unit]) - (0.9 + 0.1 * expected)).abs() < 1e-5;
        assert!(matches(variance) || matches(unbiased), "{} for a variance of {variance}", found[4 + unit]);
    }
    // The evaluated model is one with other values.
    assert_ne!(trainer.evaluate().expect("evaluated").loss.to_bits(), before.loss.to_bits());
    let (state, mut again) = (trainer.state(), Run::new("mlp:4+batch-norm", 64, 64).trainer());
    again.load(state).expect("the same run");
    assert_eq!(again.evaluate().expect("evaluated"), trainer.evaluate().expect("evaluated"));
    assert_eq!(advance(&mut again, &mut Vec::new()), advance(&mut trainer, &mut Vec::new()));
    assert_eq!(again.digest(), trainer.digest());
}

/// A moving average of what is trained is exported with the newest of what runs along, and the best model with that of its step.
#[test]
fn averages_and_best_models_have_the_running_values_of_their_step() {
    let spec = RunSpec {
        model: "mlp:8+batch-norm".parse().expect("a model"),
        optimizer: OptimizerSpec::sgd(0.5).with("ema", 0.9),
        early_stop: 90,
        evaluate_every: 3,
        micro_batch: 16,
        steps: 60,
        ..RunSpec::default()
    };
    let dataset = Dataset::load(&DataOptions::default()).expect("the embedded digits");
    let manifest = found(&spec, &dataset).expect("a run");
    assert_eq!((manifest.running(), manifest.reduced().figures, manifest.frozen()), (16, 20, 0));
    let mut trainer = ClassifierReplica::new(&manifest, dataset, DeviceSpec::Cpu).expect("a trainer");
    let mut told = Vec::new();
    for _ in 0..20 {
        let state = trainer.state();
        let (trained, model) = (manifest.trained(), trainer.training().model().into_owned());
        assert_eq!(model[trained..], state.parameters[trained..], "of the newest parameters");
        assert!(state.step == 0 || model[..trained] != state.parameters[..trained], "an average is another model");
        let report = advance(&mut trainer, &mut Vec::new());
        if let Some(judged) = report.judged {
            told.push((judged.loss, model));
        }
    }
    let best = told.iter().min_by(|a, b| a.0.total_cmp(&b.0)).expect("some were evaluated");
    let (values, _, loss) = trainer.training().best().expect("one is kept");
    assert_eq!((values, loss), (&*best.1, best.0));
    assert_eq!(&*trainer.state().model(&manifest), &*best.1);
}

#[test]
fn what_is_frozen_stays_as_it_is_and_is_not_contributed() {
    let run = |freeze: &[&str]| {
        let spec = RunSpec {
            model: "cnn:4,6+batch-norm".parse().expect("a model"),
            optimizer: OptimizerSpec::adam_w(0.05).with("weight_decay", 0.5),
            freeze: freeze.iter().map(|path| (*path).to_owned()).collect(),
            batch_size: 60,
            micro_batch: 6,
            ..RunSpec::default()
        };
        let dataset = Dataset::load(&DataOptions::default()).expect("the embedded digits");
        found(&spec, &dataset).map(|manifest| Run { manifest, dataset })
    };
    let whole = run(&[]).expect("a run").manifest;
    let frozen = run(&["convolutions.0", "convolution_norms.0"]).expect("a run");
    let stem = 4 * 9 + 4 + 4 * 2;
    assert_eq!((frozen.manifest.frozen(), frozen.manifest.running()), (stem, 20));
    assert_eq!(frozen.manifest.parameters(), whole.parameters());
    assert_eq!(frozen.manifest.trained(), whole.trained() - stem);
    let mut swarm = Swarm::of(&[100, 300], 60, &|| frozen.trainer());
    let before = swarm.members[&peer(1)].trainer.state();
    for _ in 0..20 {
        swarm.step();
        swarm.check_digests();
    }
    let after = swarm.members[&peer(1)].trainer.state();
    assert_eq!((&before.frozen, before.frozen.len()), (&after.frozen, stem));
    assert!(after.moments.iter().all(|moment| moment.len() == frozen.manifest.changing()), "none of what is frozen");
    // What the frozen normalization keeps running is as it was: it normalizes as in evaluation.
    let (running, trained) = (frozen.manifest.running(), frozen.manifest.trained());
    let kept = [[0.0_f32; 4], [1.0; 4]].concat();
    let paths: Vec<&str> = frozen.manifest.leaves.iter().map(|leaf| leaf.path.as_str()).collect();
    let first = paths.iter().position(|path| *path == "convolution_norms.0.running_mean").expect("it is there");
    assert_eq!((paths[first + 1], running), ("convolution_norms.0.running_var", 20));
    assert_eq!(after.parameters[trained..trained + 8], kept);
    assert!(
        after.parameters[trained + 8..]
            .iter()
            .zip(&before.parameters[trained + 8..])
            .all(|(after, before)| after != before)
    );
    let moved = before.parameters.iter().zip(&*after.parameters).filter(|(before, after)| before != after).count();
    assert!(moved + 8 > before.parameters.len() * 9 / 10, "{moved} of {}", before.parameters.len());
    let other = ReplicatedState { frozen: vec![0.5; stem].into(), ..after.clone() };
    let mut trainer = frozen.trainer();
    assert!(trainer.load(other).expect_err("not the run's").to_string().contains("other frozen parameters"));
    trainer.load(after).expect("the run's");
    // The first layer behaves as in evaluation: what it normalizes by does not depend on the batch.
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("model.safetensors");
    trainer.export(&path).expect("exported");
    let model = crate::export::Model::open(&path, DeviceSpec::Cpu).expect("a model");
    assert_eq!(model.description().parameters.len(), whole.leaves.len());
    for (paths, reason) in [
        (
            &["convolution"][..],
            "the model trains no parameter `convolution`, and none in it; it has convolutions.0.weight",
        ),
        (&["convolution_norms.0.running_mean"], "the model trains no parameter `convolution_norms.0.running_mean`"),
        (&["convolutions", "convolution_norms", "output"], "nothing of the model would be trained"),
    ] {
        let error = run(paths).err().expect("refused").to_string();
        assert!(error.contains("`freeze` is not usable") && error.contains(reason), "{error}");
    }
}

/// What is computed again comes to what it was: random masks are kept, running values follow one pass.
#[test]
fn checkpointing_changes_no_bit() {
    // The last one is cut, too.
    for model in all().chain(["mlp:700,700"]) {
        let run = Run::new(model, 48, 8);
        let compute = ComputeSpec { checkpointing: true, ..DeviceSpec::Cpu.into() };
        let checkpointing = ClassifierReplica::new(&run.manifest, run.dataset.clone(), compute);
        let (mut plain, mut checkpointing) = (run.trainer(), checkpointing.expect("a trainer"));
        checkpointing.warm_up(8).expect("computed");
        for _ in 0..5 {
            assert_eq!(advance(&mut checkpointing, &mut Vec::new()), advance(&mut plain, &mut Vec::new()), "{model}");
        }
        assert_eq!(checkpointing.digest(), plain.digest(), "{model}");
    }
}

#[test]
fn values_that_run_along_need_micro_batches() {
    let dataset = Dataset::load(&DataOptions::default()).expect("the embedded digits");
    let spec = RunSpec { model: "mlp:8+batch-norm".parse().expect("a model"), ..RunSpec::default() };
    let error = found(&spec, &dataset).expect_err("refused").to_string();
    assert!(
        error.contains("it is 0, but the model keeps running values") && error.contains("--micro-batch 16"),
        "{error}"
    );
    let error = found(&RunSpec { micro_batch: 1, ..spec.clone() }, &dataset).expect_err("refused").to_string();
    assert!(error.contains("it is 1, but batch normalizations need several rows"), "{error}");
    let images = "cnn:4+batch-norm".parse().expect("a model");
    assert!(found(&RunSpec { micro_batch: 1, model: images, ..spec }, &dataset).is_ok(), "an image has many places");
}

#[test]
fn a_micro_batch_that_explodes_takes_its_share_along() {
    let mut trainer = Run::new("mlp:8", 64, 16).trainer();
    advance(&mut trainer, &mut Vec::new());
    trainer.factors = Factors::read("1+:inf");
    let gradient = computed(&mut trainer, ME).expect("computed");
    let beyond = trainer.take_beyond().expect("told");
    assert!(beyond.is_whole && beyond.samples == 16 && gradient.has_given_up(), "{beyond}");
    trainer.factors = Factors::default();
    assert!(!computed(&mut trainer, ME).expect("computed").has_given_up());
}

#[test]
fn dropout_needs_micro_batches() {
    let dataset = Dataset::load(&DataOptions::default()).expect("the embedded digits");
    let spec = RunSpec { model: "mlp:8+dropout=0.5".parse().expect("a model"), ..RunSpec::default() };
    let error = found(&spec, &dataset).expect_err("refused").to_string();
    assert!(
        error.contains("`micro_batch` is not usable: it is 0, but dropout needs") && error.contains("--micro-batch 16")
    );
    // From a stranger, too.
    let good = found(&RunSpec { micro_batch: 16, ..spec }, &dataset).expect("a run");
    let bad = Manifest { micro_batch: 0, ..good };
    let refused = [
        crate::ModelProgram::new(DeviceSpec::Cpu).check(&bad).expect_err("refused").to_string(),
        ClassifierReplica::new(&bad, dataset, DeviceSpec::Cpu).expect_err("refused").to_string(),
    ];
    assert!(refused.iter().all(|error| error.contains("dropout needs micro-batches")), "{refused:?}");
}

/// A user's task, with Burn's own dropout before the first layer.
struct Dropped;

#[derive(Module, Debug)]
struct Layers {
    dropout: Dropout,
    output: Linear,
}

impl Task for Dropped {
    type Module = Layers;
    type Batch = Tensor<2>;

    fn name(&self) -> &str {
        "dropped"
    }

    fn data(&self) -> SampleSummary {
        SampleSummary { training: 96, held_out: 8, fingerprint: crate::fingerprint(&[]) }
    }

    fn module(&self, device: &Device) -> Layers {
        Layers { dropout: DropoutConfig::new(0.5).init(), output: LinearConfig::new(8, 1).init(device) }
    }

    fn batch(&self, samples: &[u32], device: &Device) -> Tensor<2> {
        let values: Vec<f32> =
            samples.iter().flat_map(|sample| (0..8).map(move |at| (sample % 7 + at) as f32)).collect();
        Tensor::from_data(TensorData::new(values, [samples.len(), 8]), device)
    }

    fn loss(&self, module: &Layers, batch: Tensor<2>) -> Tensor<1> {
        module.output.forward(module.dropout.forward(batch)).square().mean()
    }
}

#[test]
fn burns_own_dropout_is_the_same_in_whatever_thread_beside_whatever_others() {
    let spec = RunSpec { batch_size: 32, micro_batch: 4, ..RunSpec::default() };
    let open = |spec: &RunSpec| {
        let workload = TaskProgram::new(Dropped, DeviceSpec::Cpu).read(&DataOptions::default()).expect("read");
        let manifest = workload.found(spec).expect("a run");
        workload.open(&manifest).expect("opened")
    };
    let gradient = |learner: &mut dyn Learner| {
        learner.begin(&[ME]);
        let gradient = Gradient::new(9);
        learner.compute(ME, &gradient, &mut |_| ()).expect("computed");
        gradient.values()
    };
    let expected = gradient(open(&spec).as_mut());
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut learner = open(&spec);
                (0..30).for_each(|_| assert_eq!(gradient(learner.as_mut()), expected));
            });
            // Whoever opens a run draws the values of its module.
            scope.spawn(|| (0..30).for_each(|_| drop(open(&spec))));
            // Without micro-batches nothing is promised, and nothing is disturbed.
            scope.spawn(|| {
                let mut learner = open(&RunSpec { micro_batch: 0, ..spec.clone() });
                let first = gradient(learner.as_mut());
                assert!((0..30).any(|_| gradient(learner.as_mut()) != first), "it does drop");
            });
        }
    });
    let mut learner = open(&spec);
    let before = learner.evaluate().expect("evaluated");
    assert_eq!(learner.evaluate().expect("evaluated"), before, "nothing is dropped");
}
