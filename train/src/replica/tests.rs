mod churn;
mod early_stopping;
mod evaluated;
mod micro_batches;
mod placed;
mod precision;
mod starved;
mod weights;

use starling_run::training::contribution;
use starling_run::{BalancePolicy, DecayKind, OptimizerSpec, RunSpec, Schedule};
use starling_topology::ShufflePolicy;
use starling_topology::ledger::{GAVE_UP, UNMEASURED};

use super::*;
use crate::device::DeviceSpec;
use crate::{ClassifierReplica, found};
use starling_data::{DataOptions, Dataset};

fn run(model: &str, optimizer: OptimizerSpec, batch_size: u32) -> (Manifest, Dataset) {
    let spec =
        RunSpec { model: model.parse().expect("a model"), optimizer, batch_size, steps: 400, ..RunSpec::default() };
    let dataset = Dataset::load(&DataOptions::default()).expect("the embedded digits");
    (found(&spec, &dataset).expect("a run"), dataset)
}

fn trainer(model: &str, optimizer: OptimizerSpec, batch_size: u32) -> ClassifierReplica {
    let (manifest, dataset) = run(model, optimizer, batch_size);
    ClassifierReplica::new(&manifest, dataset, DeviceSpec::Cpu).expect("a trainer")
}

const ME: PeerId = PeerId([1; 32]);

/// What a view of so many members reduces.
fn buffer_len(trainer: &ClassifierReplica, members: usize) -> usize {
    trainer.training().parameters().len() + 1 + members
}

/// All of a gradient, and its weight.
fn compute(trainer: &mut ClassifierReplica, me: PeerId, into: &mut Vec<f32>) -> Result<u64, starling_run::Error> {
    let gradient = computed(trainer, me)?;
    *into = gradient.values();
    Ok(gradient.weight())
}

fn computed(trainer: &mut ClassifierReplica, me: PeerId) -> Result<Gradient, starling_run::Error> {
    let gradient = Gradient::new(trainer.manifest().reduced());
    let mut starts = Vec::new();
    let weight = trainer.compute(me, &gradient, &mut |start| starts.push(start))?;
    assert!(starts.is_sorted_by(|before, next| next < before), "from the last parameters to the first: {starts:?}");
    assert_eq!((starts.last(), gradient.ready_from(), gradient.weight()), (Some(&0), 0, weight));
    Ok(gradient)
}

/// Takes one step alone.
fn advance(trainer: &mut ClassifierReplica, buffer: &mut Vec<f32>) -> StepReport {
    let _ = trainer.begin(&[ME]);
    let gradient = computed(trainer, ME).expect("computed");
    assert_eq!(gradient.weight(), u64::from(trainer.ledger().share_len(ME)));
    let record = trainer.training().reduce_alone(&gradient, ME, UNMEASURED);
    let report = trainer.apply(&record).expect("applied");
    *buffer = record.mean;
    report
}

#[test]
fn parts_of_a_share_come_to_what_the_share_does() {
    let mut trainer = trainer("mlp:8", OptimizerSpec::adam_w(1e-2), 64);
    let _ = trainer.begin(&[ME]);
    let whole = computed(&mut trainer, ME).expect("computed");
    let mut sums = vec![0.0; whole.elements()];
    for positions in [0..10, 10..64] {
        let part = Gradient::new(trainer.manifest().reduced());
        let samples = u64::from(positions.end - positions.start);
        let weight = trainer.compute_part(ME, std::slice::from_ref(&positions), &part).expect("computed");
        assert_eq!((weight, part.weight(), part.ready_from()), (samples, samples, 0));
        sums.iter_mut().zip(part.values()).for_each(|(sum, value)| *sum += value * weight as f32);
    }
    for (sum, value) in sums.iter().zip(whole.values()) {
        assert!((sum / 64.0 - value).abs() <= 1e-5 * value.abs().max(0.1), "{} instead of {value}", sum / 64.0);
    }
    let nothing = Gradient::new(trainer.manifest().reduced());
    assert_eq!(trainer.compute_part(ME, &[], &nothing).expect("nothing to do"), 0);
    assert_eq!((nothing.weight(), nothing.ready_from()), (0, 0));
}

#[test]
fn a_trainer_can_move_to_its_own_thread() {
    fn check<T: Send>() {}
    check::<ClassifierReplica>();
}

#[test]
fn a_draft_changes_nothing_before_its_step_is_committed() {
    let mut trainer = trainer("mlp:8", OptimizerSpec::adam_w(1e-2), 64);
    let mut buffer = Vec::new();
    advance(&mut trainer, &mut buffer);
    let (before, parameters) = (trainer.digest(), trainer.training().parameters().len());
    trainer.stage(&[ME], parameters, &buffer[parameters..]);
    let from = |trainer: &ClassifierReplica| trainer.training().staged_from();
    trainer.stage(&[ME], parameters - 9, &buffer[parameters - 9..parameters - 1]);
    assert_eq!(from(&trainer), Some(parameters), "a part is missing between the two");
    trainer.stage(&[ME], parameters - 9, &[f32::NAN; 9]);
    assert_eq!(from(&trainer), Some(parameters), "not a number");
    trainer.stage(&[ME], 5, &buffer[5..parameters]);
    assert_eq!(from(&trainer), Some(5));
    assert_eq!((trainer.digest(), trainer.stage_bytes()), (before, Some(12 * parameters as u64)));
    trainer.stage(&[ME], parameters, &buffer[parameters - 1..]);
    assert_eq!(from(&trainer), None, "of another view");
}

/// A step of plain descent is as long as the clipped gradient times the rate of the schedule.
#[test]
fn a_clipped_update_waits_for_the_whole_gradient_and_follows_the_schedule() {
    let schedule =
        Schedule { warm_up: 10, decay: DecayKind::Step { gamma: 0.5, each: 2 }.into(), ..Schedule::default() };
    let spec = RunSpec {
        model: "mlp:8".parse().expect("a model"),
        optimizer: OptimizerSpec::sgd(0.5),
        schedule,
        clip: Some(0.25),
        ..RunSpec::default()
    };
    let dataset = Dataset::load(&DataOptions::default()).expect("the embedded digits");
    let manifest = found(&spec, &dataset).expect("a run");
    let mut trainer = ClassifierReplica::new(&manifest, dataset, DeviceSpec::Cpu).expect("a trainer");
    assert_eq!(trainer.stage_bytes(), None);
    trainer.begin(&[ME]);
    for step in 1..=16_u64 {
        let before = trainer.state().parameters;
        let gradient = computed(&mut trainer, ME).expect("computed");
        let record = trainer.training().reduce_alone(&gradient, ME, UNMEASURED);
        let (gradients, rest) = record.mean.split_at(trainer.training().parameters().len());
        trainer.stage(&[ME], gradients.len(), rest);
        trainer.stage(&[ME], 0, gradients);
        assert!(
            trainer.training().staged_from().is_none(),
            "its length is not known before the whole gradient is there"
        );
        trainer.apply_staged(&record).expect("applied");
        let after = trainer.state().parameters;
        let norm = |numbers: &mut dyn Iterator<Item = f32>| numbers.map(|g| f64::from(g).powi(2)).sum::<f64>().sqrt();
        let moved = norm(&mut before.iter().zip(after.iter()).map(|(a, b)| a - b));
        let length = norm(&mut gradients.iter().copied());
        let factor = match step {
            1..=10 => step as f64 / 10.0,
            _ => 0.5_f64.powi((step as i32 - 11) / 2),
        };
        let expected = 0.5 * factor * length.min(0.25);
        assert!((moved / expected - 1.0).abs() < 1e-4, "step {step}: {moved} instead of {expected}");
    }
}

/// A record of a step in which all gradients are `gradient`, reduced by one member that is alone.
fn record(trainer: &ClassifierReplica, gradient: f32) -> ResultRecord {
    let mut mean = vec![gradient; trainer.training().parameters().len()];
    mean.extend([2.0, UNMEASURED as f32 / trainer.manifest().batch_size as f32]);
    let (lineage, after) = (trainer.lineage(), trainer.lineage());
    ResultRecord { step: trainer.step() + 1, lineage, after, members: vec![ME], mean }
}

/// Squared, a gradient of 1e30 is beyond all finite numbers: parameters would stay finite, AdamW's moments would not.
#[test]
fn an_update_after_which_the_state_is_not_finite_is_dropped_by_all() {
    for (optimizer, gradient, reason) in [
        (OptimizerSpec::adam_w(1e-2), 1e30, "next optimizer moments"),
        (OptimizerSpec::sgd(10.0), 3e38, "next parameters"),
        (OptimizerSpec::momentum(10.0), f32::INFINITY, "mean gradient"),
    ] {
        let (mut drafting, mut plain) = (trainer("mlp:8", optimizer, 64), trainer("mlp:8", optimizer, 64));
        for trainer in [&mut drafting, &mut plain] {
            advance(trainer, &mut Vec::new());
        }
        let before = plain.state();
        let (good, bad) = (record(&plain, 1e-3), record(&plain, gradient));
        let parameters = plain.training().parameters().len();
        drafting.stage(&[ME], parameters, &bad.mean[parameters..]);
        drafting.stage(&[ME], 3, &bad.mean[3..parameters]);
        let reports = [drafting.apply_staged(&bad), plain.apply(&bad)].map(|report| report.expect("skipped"));
        assert_eq!(reports[0], reports[1]);
        let skipped = reports[0].skipped.as_deref().expect("skipped");
        assert!(skipped.contains(reason) && skipped.contains("hidden.0."), "{skipped}");
        assert_eq!((reports[0].samples, reports[0].contributions.len()), (64, 1), "the samples are done");
        for trainer in [&mut drafting, &mut plain] {
            let after = trainer.state();
            assert_eq!((after.step, &after.parameters), (2, &before.parameters));
            assert_eq!((&after.moments, &after.scalars), (&before.moments, &before.scalars));
            assert_eq!((trainer.ledger().step(), trainer.ledger().skips().total), (3, 1));
            ReplicatedState::decode(&after.encode()).expect("it can be saved, and read back");
            let next = ResultRecord { step: 3, ..good.clone() };
            let report = trainer.apply(&next).expect("applied");
            assert_eq!((report.skipped, trainer.ledger().skips().in_row), (None, 0));
        }
        assert_eq!(drafting.digest(), plain.digest());
    }
}

/// Whoever computes them comes to more than a number can be: first they are tried again, then they are left out.
#[test]
fn a_batch_that_explodes_costs_two_steps_and_no_member() {
    let mut trainer = trainer("mlp:8", OptimizerSpec::adam_w(1e-2), 64);
    advance(&mut trainer, &mut Vec::new());
    let before = trainer.state();
    let batch = trainer.ledger().share_of(ME).to_vec();
    let mut reports = Vec::new();
    for _ in 0..2 {
        trainer.factors = Factors::read("1+:inf");
        let gradient = computed(&mut trainer, ME).expect("computed");
        let beyond = trainer.take_beyond().expect("told");
        assert!(beyond.is_whole && beyond.samples == 64 && gradient.has_given_up(), "{beyond}");
        let record = trainer.training().reduce_alone(&gradient, ME, UNMEASURED);
        reports.push(trainer.apply(&record).expect("skipped"));
    }
    for report in &reports {
        assert!(report.skipped.is_some());
        assert_eq!((report.samples, &report.given_up), (0, &vec![(ME, 64)]));
    }
    assert_eq!((reports[0].returned, &reports[0].dropped), (64, &vec![]));
    assert_eq!((reports[1].returned, &reports[1].dropped), (0, &batch));
    assert_eq!(trainer.state().parameters, before.parameters);
    trainer.factors = Factors::default();
    assert_eq!(advance(&mut trainer, &mut Vec::new()).samples, 64);
    assert_eq!((trainer.ledger().skips().total, trainer.ledger().skips().in_row), (2, 0));
}

#[test]
fn an_mlp_learns_to_read_digits() {
    let mut trainer = trainer("mlp:64", OptimizerSpec::adam_w(3e-3), 64);
    let before = trainer.evaluate().expect("evaluated");
    assert_eq!(before.samples, 359);
    assert!(before.measure("accuracy").expect("measured") < 0.3, "untrained, it should guess: {before:?}");
    let mut buffer = Vec::new();
    let mut losses = Vec::new();
    for step in 1..=400 {
        let report = advance(&mut trainer, &mut buffer);
        assert_eq!((report.step, report.epoch), (step, (step - 1) / 23));
        assert_eq!(report.samples, if step % 23 == 0 { 1438 % 64 } else { 64 });
        assert_eq!((report.contributions.len(), report.contributions[0].0, report.returned), (1, ME, 0));
        losses.push(report.loss);
    }
    let after = trainer.evaluate().expect("evaluated");
    assert!(after.measure("accuracy").expect("measured") >= 0.95, "{after:?}");
    assert!(after.loss < 0.25, "{after:?}");
    assert_eq!(trainer.evaluate_while(&|_, _| false).expect("no fault"), None, "it was broken off");
    let told = std::cell::RefCell::new(Vec::new());
    let goes_on = |samples: u64, of: u64| {
        told.borrow_mut().push((samples, of));
        true
    };
    trainer.evaluate_while(&goes_on).expect("evaluated");
    let told = told.into_inner();
    assert!(told.first() == Some(&(0, 359)) && told.is_sorted(), "{told:?}");
    assert!(losses[..10].iter().sum::<f32>() > 10.0 * losses[390..].iter().sum::<f32>(), "{losses:?}");
}

#[test]
fn a_cnn_and_softmax_learn_too() {
    for (model, steps, accuracy) in [("cnn:8,16", 150, 0.8), ("cnn:8,16+residual", 250, 0.8), ("softmax", 150, 0.9)] {
        let mut trainer = trainer(model, OptimizerSpec::adam_w(1e-2), 64);
        let mut buffer = Vec::new();
        for _ in 0..steps {
            advance(&mut trainer, &mut buffer);
        }
        let after = trainer.evaluate().expect("evaluated");
        assert!(after.measure("accuracy").expect("measured") >= accuracy, "{model}: {after:?}");
    }
}

#[test]
fn gradients_are_those_of_the_loss() {
    // Central differences of the loss, as `compute` reports it, against the gradient.
    for model in ["softmax", "mlp:6,5", "cnn:2,3", "cnn:2,2,3+residual"] {
        let mut trainer = trainer(model, OptimizerSpec::sgd(0.1), 32);
        trainer.begin(&[ME]);
        let mut gradient = Vec::new();
        compute(&mut trainer, ME, &mut gradient).expect("computed");
        let start = trainer.state();
        let mut buffer = Vec::new();
        let mut loss_at = |parameters: Vec<f32>| {
            trainer.load(ReplicatedState { parameters: parameters.into(), ..start.clone() }).expect("loaded");
            compute(&mut trainer, ME, &mut buffer).expect("computed");
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
fn a_gradient_in_blocks_has_the_bits_of_one_in_one_piece() {
    for (model, blocks) in [("mlp:24,16,20", 4), ("mlp:9", 2), ("softmax", 1), ("cnn:2,3", 1)] {
        let mut trainer = trainer(model, OptimizerSpec::sgd(0.1), 32);
        trainer.begin(&[ME]);
        let (mut whole, mut pieces) = (Vec::new(), Vec::new());
        let parameters = trainer.training().parameters().len();
        let borders = trainer.task.borders(&trainer.module);
        trainer.borders = cut::choose(&borders, parameters, usize::MAX);
        assert!(!trainer.has_blocks());
        compute(&mut trainer, ME, &mut whole).expect("computed");
        trainer.borders = cut::choose(&borders, parameters, 1);
        assert_eq!(trainer.borders.iter().flatten().count() + 1, blocks, "{model}");
        compute(&mut trainer, ME, &mut pieces).expect("computed");
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&whole), bits(&pieces), "{model}");
    }
}

#[test]
fn computing_does_not_change_the_state() {
    let mut trainer = trainer("mlp:8", OptimizerSpec::adam_w(1e-2), 16);
    trainer.begin(&[ME]);
    let (mut first, mut second) = (Vec::new(), Vec::new());
    let digest = trainer.digest();
    compute(&mut trainer, ME, &mut first).expect("computed");
    compute(&mut trainer, ME, &mut second).expect("computed");
    assert_eq!((first, trainer.digest(), trainer.step()), (second, digest, 0));
}

#[test]
fn a_step_needs_an_assignment_and_the_record_of_that_step() {
    let mut trainer = trainer("mlp:4", OptimizerSpec::sgd(0.1), 16);
    let record = ResultRecord {
        step: 1,
        lineage: Lineage::NONE,
        after: Lineage::NONE,
        members: vec![ME],
        mean: vec![0.0; buffer_len(&trainer, 1)],
    };
    assert!(matches!(compute(&mut trainer, ME, &mut Vec::new()), Err(starling_run::Error::NotBegun)));
    trainer.begin(&[ME]);
    let digest = trainer.digest();
    for step in [0, 2] {
        let message = trainer.apply(&ResultRecord { step, ..record.clone() }).expect_err("another step").to_string();
        assert!(message.contains(&format!("of step {step}, but step 1 is the next one")), "{message}");
    }
    let stranger = PeerId([0; 32]);
    for wrong in [
        ResultRecord { mean: record.mean[1..].to_vec(), ..record.clone() },
        ResultRecord { members: vec![stranger, ME], ..record.clone() },
        ResultRecord { members: vec![], ..record.clone() },
        ResultRecord { members: vec![ME, stranger], mean: vec![0.0; buffer_len(&trainer, 2)], ..record.clone() },
    ] {
        assert!(matches!(trainer.apply(&wrong), Err(starling_run::Error::Record(_))), "{:?}", wrong.members);
    }
    assert_eq!((trainer.digest(), trainer.step()), (digest, 0));
    // Until the first step is committed, each view begins anew.
    assert!(trainer.begin(&[stranger, ME]) && !trainer.begin(&[stranger, ME]));
    assert_eq!((trainer.ledger().share_len(ME), trainer.ledger().step()), (8, 1));
    assert!(trainer.begin(&[ME]));
    trainer.apply(&record).expect("applied");
    assert!(!trainer.begin(&[stranger]));
    assert_eq!(trainer.ledger().share_len(stranger), 0, "the run has begun");
}

/// With parameters so large, forward comes to numbers that are none.
#[test]
fn a_gradient_that_is_none_is_given_up_by_step_and_parameter() {
    let mut trainer = trainer("mlp:4", OptimizerSpec::sgd(0.1), 16);
    trainer.begin(&[ME]);
    let mut state = trainer.state();
    Arc::make_mut(&mut state.parameters).fill(1e30);
    trainer.load(state).expect("finite");
    let mut values = Vec::new();
    assert_eq!(compute(&mut trainer, ME, &mut values).expect("given up"), 0);
    assert!(values.iter().all(|value| *value == 0.0));
    let message = trainer.take_beyond().expect("told").to_string();
    assert!(message.contains("step 1: the ") && message.contains("the samples are given back"), "{message}");
    assert_eq!(trainer.take_beyond(), None, "once");
}

#[test]
fn what_is_not_the_runs_is_refused_by_name() {
    let (manifest, dataset) = run("mlp:4", OptimizerSpec::adam_w(1e-3), 16);
    let refused = |manifest: &Manifest, dataset: &Dataset| {
        ClassifierReplica::new(manifest, dataset.clone(), DeviceSpec::Cpu).expect_err("not the run's").to_string()
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
    ClassifierReplica::new(&manifest, joined, DeviceSpec::Cpu).expect("loaded as the run says");
    let bad = Manifest { batch_size: 0, ..manifest };
    assert!(refused(&bad, &dataset).contains("`batch_size` is not usable"));
}

#[test]
fn a_copy_of_the_state_stays_what_it_was() {
    let mut trainer = trainer("mlp:4", OptimizerSpec::adam_w(1e-2), 16);
    trainer.begin(&[ME]);
    let mut states = vec![trainer.state()];
    let digests = |states: &[ReplicatedState]| states.iter().map(ReplicatedState::digest).collect::<Vec<_>>();
    let mut expected = digests(&states);
    for is_drafted in [false, true, true, false] {
        let gradient = Gradient::new(trainer.training().parameters().len());
        trainer.compute(ME, &gradient, &mut |_| ()).expect("computed");
        let record = trainer.training().reduce_alone(&gradient, ME, UNMEASURED);
        if is_drafted {
            let (gradients, rest) = record.mean.split_at(trainer.training().parameters().len());
            trainer.stage(&[ME], gradients.len(), rest);
            trainer.stage(&[ME], 0, gradients);
        }
        trainer.apply_staged(&record).expect("applied");
        states.push(trainer.state());
        expected.push(trainer.digest());
        assert_eq!(digests(&states), expected);
    }
}

type Change = fn(&mut ReplicatedState);

#[test]
fn states_that_do_not_fit_are_refused_and_change_nothing() {
    let mut trainer = trainer("mlp:4", OptimizerSpec::momentum(0.1), 16);
    let good = trainer.state();
    let digest = trainer.digest();
    let changes: [(Change, &str); 9] = [
        (|state| state.run.0 = [9; 32], "the state belongs to run 0909"),
        (|state| Arc::make_mut(&mut state.parameters).truncate(5), "it has 5 parameters"),
        (|state| state.moments.clear(), "moments of [] and 0 scalars"),
        (|state| state.scalars.push(1.0), "and 1 scalars, expected 310 parameters"),
        (|state| state.step = 3, "is of step 3, but its ledger waits for step 0"),
        (|state| state.ledger = Ledger::new(42, 1437, 16), "a ledger of 1437 samples with seed 42 and batches of 16"),
        (|state| state.ledger = Ledger::new(41, 1438, 16), "expected a ledger of 1438 samples with seed 42"),
        (
            |state| state.ledger = Ledger::new(42, 1438, 16).with_shuffle(ShufflePolicy::BLOCKS),
            "batches of 16, shuffled blocks:8192x16, expected a ledger",
        ),
        (
            |state| Arc::make_mut(&mut state.moments[0])[309] = f32::NAN,
            "number 309 of the state's moments is not finite",
        ),
    ];
    for (change, reason) in changes {
        let mut state = good.clone();
        change(&mut state);
        let message = trainer.load(state).expect_err("does not fit").to_string();
        assert!(message.contains(reason), "{message}");
        assert_eq!(trainer.digest(), digest);
    }
}

#[cfg(feature = "gpu")]
#[test]
fn a_gpu_computes_the_same_steps_as_the_cpu() {
    let adapters = DeviceSpec::list_adapters();
    assert!(
        !adapters.is_empty(),
        "no Vulkan adapter is installed, not even a software one; run: apt-get install mesa-vulkan-drivers libvulkan1"
    );
    let (manifest, dataset) = run("mlp:8", OptimizerSpec::adam_w(1e-2), 16);
    let mut cpu = ClassifierReplica::new(&manifest, dataset.clone(), DeviceSpec::Cpu).expect("a trainer");
    let mut gpu = ClassifierReplica::new(&manifest, dataset, DeviceSpec::Gpu(None)).expect("a trainer");
    assert_ne!(gpu.device(), cpu.device());
    cpu.begin(&[ME]);
    gpu.begin(&[ME]);
    for _ in 0..3 {
        let ours = computed(&mut cpu, ME).expect("computed");
        let theirs = computed(&mut gpu, ME).expect("computed");
        assert_eq!((ours.elements(), ours.weight()), (theirs.elements(), theirs.weight()));
        for (at, (ours, theirs)) in ours.values().iter().zip(theirs.values()).enumerate() {
            assert!((ours - theirs).abs() < 1e-4, "{}: {ours} and {theirs}", cpu.training().schema().path_at(at));
        }
        // Both apply the GPU's buffer: whatever computed it, the state has the same bits.
        let record = cpu.training().reduce_alone(&theirs, ME, UNMEASURED);
        cpu.apply(&record).expect("applied");
        gpu.apply(&record).expect("applied");
        assert_eq!(cpu.digest(), gpu.digest());
    }
    let (on_cpu, on_gpu) = (cpu.evaluate().expect("evaluated"), gpu.evaluate().expect("evaluated"));
    assert!((on_cpu.loss - on_gpu.loss).abs() < 1e-4, "{on_cpu:?} and {on_gpu:?}");
}
