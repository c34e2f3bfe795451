use super::*;
use crate::data::DataOptions;
use crate::spec::{OptimizerSpec, RunSpec};

fn run(model: &str, optimizer: OptimizerSpec, batch_size: u32) -> (Manifest, Dataset) {
    let spec =
        RunSpec { model: model.parse().expect("a model"), optimizer, batch_size, steps: 400, ..RunSpec::default() };
    let dataset = Dataset::load(&DataOptions::default()).expect("the embedded digits");
    (Manifest::found(&spec, &dataset).expect("a run"), dataset)
}

fn trainer(model: &str, optimizer: OptimizerSpec, batch_size: u32) -> Trainer {
    let (manifest, dataset) = run(model, optimizer, batch_size);
    Trainer::new(&manifest, dataset, DeviceChoice::Cpu).expect("a trainer")
}

/// Takes one step alone.
fn advance(trainer: &mut Trainer, buffer: &mut Vec<f32>) -> StepReport {
    let weight = trainer.compute(WorldSize::new(1), Rank(0), buffer).expect("computed");
    assert_eq!(weight, trainer.weights(WorldSize::new(1)));
    trainer.apply(buffer).expect("applied")
}

#[test]
fn a_trainer_can_move_to_its_own_thread() {
    fn check<T: Send>() {}
    check::<Trainer>();
}

#[test]
fn an_mlp_learns_to_read_digits() {
    let mut trainer = trainer("mlp:64", OptimizerSpec::adam_w(3e-3), 64);
    let before = trainer.evaluate().expect("evaluated");
    assert_eq!(before.samples, 359);
    assert!(before.accuracy < 0.3, "untrained, it should guess: {before:?}");
    let mut buffer = Vec::new();
    let mut losses = Vec::new();
    for step in 1..=400 {
        let report = advance(&mut trainer, &mut buffer);
        assert_eq!((report.step, report.epoch), (step, (step - 1) / 23));
        assert_eq!(report.samples, if step % 23 == 0 { 1438 % 64 } else { 64 });
        losses.push(report.loss);
    }
    let after = trainer.evaluate().expect("evaluated");
    assert!(after.accuracy >= 0.95, "{after:?}");
    assert!(after.loss < 0.25, "{after:?}");
    assert!(losses[..10].iter().sum::<f32>() > 10.0 * losses[390..].iter().sum::<f32>(), "{losses:?}");
}

#[test]
fn a_cnn_and_softmax_learn_too() {
    for (model, steps, accuracy) in [("cnn:8,16", 150, 0.8), ("softmax", 150, 0.9)] {
        let mut trainer = trainer(model, OptimizerSpec::adam_w(1e-2), 64);
        let mut buffer = Vec::new();
        for _ in 0..steps {
            advance(&mut trainer, &mut buffer);
        }
        let after = trainer.evaluate().expect("evaluated");
        assert!(after.accuracy >= accuracy, "{model}: {after:?}");
    }
}

#[test]
fn gradients_are_those_of_the_loss() {
    // Central differences of the loss, as `compute` reports it, against the gradient.
    for model in ["softmax", "mlp:6,5", "cnn:2,3"] {
        let mut trainer = trainer(model, OptimizerSpec::sgd(0.1), 32);
        let world = WorldSize::new(1);
        let mut gradient = Vec::new();
        trainer.compute(world, Rank(0), &mut gradient).expect("computed");
        let start = trainer.state();
        let mut buffer = Vec::new();
        let mut loss_at = |parameters: Vec<f32>| {
            trainer.load(ReplicatedState { parameters, ..start.clone() }).expect("loaded");
            trainer.compute(world, Rank(0), &mut buffer).expect("computed");
            f64::from(buffer[buffer.len() - 1])
        };
        // Along the gradient itself, the slope is its squared length.
        let length: f64 = gradient[..start.parameters.len()].iter().map(|g| f64::from(*g).powi(2)).sum();
        let distance = 1e-2 / length.sqrt();
        let moved = |sign: f64| -> Vec<f32> {
            let pairs = start.parameters.iter().zip(&gradient);
            pairs.map(|(p, g)| (f64::from(*p) + sign * distance * f64::from(*g)) as f32).collect()
        };
        let slope = (loss_at(moved(1.0)) - loss_at(moved(-1.0))) / (2.0 * distance);
        assert!((slope / length - 1.0).abs() < 2e-2, "{model}: slope {slope}, squared length {length}");
    }
}

/// The weighted mean of all ranks' buffers, summed in rank order.
fn reduce(buffers: &[(u64, Vec<f32>)]) -> Vec<f32> {
    let total: u64 = buffers.iter().map(|(weight, _)| weight).sum();
    let mut mean = vec![0.0; buffers[0].1.len()];
    for (weight, buffer) in buffers {
        let share = *weight as f32 / total as f32;
        for (mean, value) in mean.iter_mut().zip(buffer) {
            *mean += share * value;
        }
    }
    mean
}

#[test]
fn four_members_take_the_same_steps_as_one() {
    let mut alone = trainer("mlp:32", OptimizerSpec::momentum(0.05), 62);
    let mut members: Vec<_> = (0..4).map(|_| trainer("mlp:32", OptimizerSpec::momentum(0.05), 62)).collect();
    let world = WorldSize::new(4);
    let mut buffer = Vec::new();
    for _ in 0..50 {
        let ours = advance(&mut alone, &mut buffer);
        let contributions: Vec<_> = members
            .iter_mut()
            .zip(world.ranks())
            .map(|(member, rank)| {
                let mut buffer = Vec::new();
                let weight = member.compute(world, rank, &mut buffer).expect("computed");
                (weight, buffer)
            })
            .collect();
        assert_eq!(contributions.iter().map(|(weight, _)| weight).sum::<u64>(), members[0].weights(world));
        let mean = reduce(&contributions);
        let reports: Vec<_> = members.iter_mut().map(|member| member.apply(&mean).expect("applied")).collect();
        assert!(reports.iter().all(|report| *report == reports[0]));
        assert_eq!(reports[0].samples, ours.samples);
        assert!((reports[0].loss / ours.loss - 1.0).abs() < 1e-4, "{} and {}", reports[0].loss, ours.loss);
    }
    let digests: Vec<_> = members.iter().map(Trainer::digest).collect();
    assert!(digests.iter().all(|digest| *digest == digests[0]), "members must hold the same bits");
    let (ours, theirs) = (alone.state().parameters, members[0].state().parameters);
    let square = |numbers: &mut dyn Iterator<Item = f64>| numbers.map(|number| number * number).sum::<f64>().sqrt();
    let difference = square(&mut ours.iter().zip(&theirs).map(|(a, b)| f64::from(a - b)));
    let relative = difference / square(&mut ours.iter().map(|number| f64::from(*number)));
    assert!(relative <= 1e-5, "relative difference {relative}");
}

#[test]
fn a_member_without_samples_contributes_nothing() {
    let mut trainer = trainer("mlp:4", OptimizerSpec::sgd(0.1), 2);
    let mut buffer = vec![7.0; 3];
    let world = WorldSize::new(3);
    assert_eq!(trainer.compute(world, Rank(2), &mut buffer).expect("nothing to do"), 0);
    assert_eq!(buffer, vec![0.0; trainer.buffer_len()]);
    assert_eq!(trainer.weights(world), 2);
}

#[test]
fn a_resumed_run_has_the_same_bits_as_an_unbroken_one() {
    for optimizer in [OptimizerSpec::sgd(0.1), OptimizerSpec::momentum(0.05), OptimizerSpec::adam_w(1e-2)] {
        let mut unbroken = trainer("mlp:16", optimizer, 64);
        let mut buffer = Vec::new();
        for _ in 0..30 {
            advance(&mut unbroken, &mut buffer);
        }
        let bytes = unbroken.state().encode();
        let mut resumed = trainer("mlp:16", optimizer, 64);
        resumed.load(ReplicatedState::decode(&bytes).expect("canonical bytes")).expect("loaded");
        assert_eq!((resumed.step(), resumed.digest()), (30, unbroken.digest()));
        for _ in 0..10 {
            let (ours, theirs) = (advance(&mut unbroken, &mut buffer), advance(&mut resumed, &mut buffer));
            assert_eq!(ours, theirs);
        }
        assert_eq!(resumed.digest(), unbroken.digest());
        assert_eq!(resumed.digest(), resumed.state().digest());
    }
}

#[test]
fn computing_does_not_change_the_state() {
    let mut trainer = trainer("mlp:8", OptimizerSpec::adam_w(1e-2), 16);
    let (mut first, mut second) = (Vec::new(), Vec::new());
    let digest = trainer.digest();
    trainer.compute(WorldSize::new(1), Rank(0), &mut first).expect("computed");
    trainer.compute(WorldSize::new(1), Rank(0), &mut second).expect("computed");
    assert_eq!((first, trainer.digest(), trainer.step()), (second, digest, 0));
}

#[test]
fn numbers_that_are_not_finite_are_refused_by_step_and_parameter() {
    let mut trainer = trainer("mlp:4", OptimizerSpec::sgd(0.1), 16);
    let digest = trainer.digest();
    let mut mean = vec![0.0; trainer.buffer_len()];
    mean[64 * 4 + 1] = f32::NAN;
    let message = trainer.apply(&mean).expect_err("not finite").to_string();
    assert!(message.contains("step 1: the mean gradient of `hidden.0.bias` is NaN"), "{message}");
    let last = mean.len() - 1;
    mean.fill(0.0);
    mean[last] = f32::INFINITY;
    let message = trainer.apply(&mean).expect_err("not finite").to_string();
    assert!(message.contains("the mean gradient of `loss` is inf"), "{message}");
    let message = trainer.apply(&mean[1..]).expect_err("too short").to_string();
    assert!(message.contains(&format!("has {last} numbers, expected {}", last + 1)), "{message}");
    assert_eq!((trainer.digest(), trainer.step()), (digest, 0));

    // An update beyond the finite numbers, and the gradients of a model that is there already.
    mean.fill(0.0);
    mean[0] = f32::MAX;
    let mut diverging = self::trainer("mlp:4", OptimizerSpec::sgd(100.0), 16);
    let message = diverging.apply(&mean).expect_err("beyond f32").to_string();
    assert!(message.contains("step 1: the parameter of `hidden.0.weight` is -inf"), "{message}");
    let mut state = trainer.state();
    state.parameters.fill(1e30);
    trainer.load(state).expect("finite");
    let message = trainer.compute(WorldSize::new(1), Rank(0), &mut mean).expect_err("overflow").to_string();
    assert!(message.contains("step 1: the gradient of `"), "{message}");
}

#[test]
fn what_is_not_the_runs_is_refused_by_name() {
    let (manifest, dataset) = run("mlp:4", OptimizerSpec::adam_w(1e-3), 16);
    let refused = |manifest: &Manifest, dataset: &Dataset| {
        Trainer::new(manifest, dataset.clone(), DeviceChoice::Cpu).expect_err("not the run's").to_string()
    };
    let other_schema = Manifest { schema: Digest([3; 32]), ..manifest.clone() };
    let message = refused(&other_schema, &dataset);
    assert!(message.contains(&manifest.schema.to_string()) && message.contains(&"03".repeat(32)), "{message}");
    let other_initial = Manifest { initial: Digest([4; 32]), ..manifest.clone() };
    let message = refused(&other_initial, &dataset);
    assert!(message.contains(&manifest.initial.to_string()) && message.contains(&"04".repeat(32)), "{message}");
    let options = DataOptions { seed: 1, held_out: 0.1, ..DataOptions::default() };
    let elsewhere = Dataset::load(&options).expect("the embedded digits");
    let message = refused(&manifest, &elsewhere);
    assert!(message.contains("data.held_out is 100, the run has 200; seed is 1, the run has 42"), "{message}");
    let joined = Dataset::load(&options.for_run(&manifest)).expect("the embedded digits");
    Trainer::new(&manifest, joined, DeviceChoice::Cpu).expect("loaded as the run says");
    let bad = Manifest { batch_size: 0, ..manifest };
    assert!(refused(&bad, &dataset).contains("`batch_size` is not usable"));
}

type Change = fn(&mut ReplicatedState);

#[test]
fn states_that_do_not_fit_are_refused_and_change_nothing() {
    let mut trainer = trainer("mlp:4", OptimizerSpec::momentum(0.1), 16);
    let good = trainer.state();
    let digest = trainer.digest();
    let changes: [(Change, &str); 5] = [
        (|state| state.run.0 = [9; 32], "the state belongs to run 0909"),
        (|state| state.parameters.truncate(5), "it has 5 parameters"),
        (|state| state.moments.clear(), "moments of [] and 0 scalars"),
        (|state| state.scalars.push(1.0), "and 1 scalars, expected 310 parameters"),
        (|state| state.moments[0][309] = f32::NAN, "the optimizer moment of `output.bias` is NaN"),
    ];
    for (change, reason) in changes {
        let mut state = good.clone();
        change(&mut state);
        let message = trainer.load(state).expect_err("does not fit").to_string();
        assert!(message.contains(reason), "{message}");
        assert_eq!(trainer.digest(), digest);
    }
}

#[test]
fn a_gpu_computes_the_same_steps_as_the_cpu() {
    let adapters = DeviceChoice::list_adapters();
    assert!(
        !adapters.is_empty(),
        "no Vulkan adapter is installed, not even a software one; run: apt-get install mesa-vulkan-drivers libvulkan1"
    );
    let (manifest, dataset) = run("mlp:8", OptimizerSpec::adam_w(1e-2), 16);
    let mut cpu = Trainer::new(&manifest, dataset.clone(), DeviceChoice::Cpu).expect("a trainer");
    let mut gpu = Trainer::new(&manifest, dataset, DeviceChoice::Gpu(None)).expect("a trainer");
    assert_ne!(gpu.device_name(), cpu.device_name());
    let world = WorldSize::new(1);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        cpu.compute(world, Rank(0), &mut ours).expect("computed");
        gpu.compute(world, Rank(0), &mut theirs).expect("computed");
        assert_eq!(ours.len(), theirs.len());
        for (at, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
            assert!((ours - theirs).abs() < 1e-4, "{}: {ours} and {theirs}", cpu.schema().path_at(at));
        }
        // Both apply the GPU's buffer: whatever computed it, the state has the same bits.
        cpu.apply(&theirs).expect("applied");
        gpu.apply(&theirs).expect("applied");
        assert_eq!(cpu.digest(), gpu.digest());
    }
    let (on_cpu, on_gpu) = (cpu.evaluate().expect("evaluated"), gpu.evaluate().expect("evaluated"));
    assert!((on_cpu.loss - on_gpu.loss).abs() < 1e-4, "{on_cpu:?} and {on_gpu:?}");
}
