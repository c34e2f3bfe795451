//! Members evaluate held-out samples together, though nothing goes by it: all know the same figures, and nothing else changes.

use std::cell::Cell;
use std::sync::Arc;

use starling_run::UnevaluatedReport;

use super::churn::{Swarm, peer};
use super::*;
use crate::network::models;

/// A run of these members, who evaluate after so many steps.
fn evaluating(every: u64) -> (Manifest, Dataset) {
    let spec = RunSpec {
        model: "mlp:8".parse().expect("a model"),
        optimizer: OptimizerSpec::sgd(0.5),
        evaluate_every: every,
        ..RunSpec::default()
    };
    let dataset = Dataset::load(&DataOptions::default()).expect("the embedded digits");
    (found(&spec, &dataset).expect("a run"), dataset)
}

fn open((manifest, dataset): &(Manifest, Dataset)) -> ClassifierReplica {
    ClassifierReplica::new(manifest, dataset.clone(), DeviceSpec::Cpu).expect("a trainer")
}

/// Their names in order, and how far off the figures are.
fn far_off(told: &HeldOutReport, own: &EvaluationReport) -> f64 {
    let mut names: Vec<&str> = own.measures.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    let mut told_of: Vec<&str> = told.measures.iter().map(|(name, _)| name.as_str()).collect();
    told_of.sort_unstable();
    assert_eq!(told_of, names);
    let off = |ours: f64, theirs: f64| (ours - theirs).abs() / theirs.abs().max(1e-3);
    let measures = told.measures.iter().map(|(name, mean)| off(*mean, own.measure(name).expect("measured")));
    measures.fold(off(told.loss, own.loss), f64::max)
}

#[test]
fn all_members_tell_what_each_would_find_over_all_samples() {
    let run = evaluating(3);
    assert_eq!((run.0.scalars(), run.0.moments(), run.0.reduced().figures), (0, 0, 1 + 3));
    let mut swarm = Swarm::of(&[100, 300, 200], 64, &|| open(&run));
    for step in 0..20_u64 {
        let is_due = step > 0 && step.is_multiple_of(3);
        let own =
            is_due.then(|| swarm.members.get_mut(&peer(2)).expect("there").trainer.evaluate().expect("evaluated"));
        let computed = swarm.compute();
        if step == 9 {
            swarm.members.remove(&peer(3));
        }
        let record = swarm.reduce(&computed);
        // All members report alike.
        let report = swarm.apply(&record);
        swarm.check_digests();
        assert_eq!(report.judged, None, "nothing goes by it");
        // A part of what was to be evaluated is lost with a member: the next one is whole.
        assert_eq!(report.evaluated.is_some(), is_due && step != 9, "step {step}");
        // Which is told, and whose it was.
        let missed = (step == 9).then(|| UnevaluatedReport { step, missing: vec![peer(3)] });
        assert_eq!(report.unevaluated, missed, "step {step}");
        if let (Some(told), Some(own)) = (report.evaluated, own) {
            assert_eq!(told.step, step);
            assert!(far_off(&told, &own) < 1e-5, "{told:?}, where a member finds {own:?}");
        }
    }
}

/// To evaluate changes no bit of the model.
#[test]
fn a_run_that_evaluates_trains_as_one_that_does_not() {
    let values = |every| {
        let mut trainer = open(&evaluating(every));
        (0..10).for_each(|_| drop(advance(&mut trainer, &mut Vec::new())));
        trainer.training().state().values()
    };
    assert_eq!(values(2), values(0));
}

/// What comes to no number is told as none, and harms no other figure.
#[test]
fn a_measure_that_is_no_number_is_told_as_none() {
    let mut trainer = open(&evaluating(2));
    (0..2).for_each(|_| drop(advance(&mut trainer, &mut Vec::new())));
    let held_out = trainer.data.held_out;
    let all = f64::from(held_out);
    trainer.judged = Some((2, 0..held_out, vec![all, f64::NAN, all / 2.0]));
    let told = advance(&mut trainer, &mut Vec::new()).evaluated.expect("evaluated");
    assert!((told.loss - 1.0).abs() < 1e-6 && told.measures[0].1.is_nan(), "{told:?}");
    assert!((told.measures[1].1 - 0.5).abs() < 1e-6, "{told:?}");
}

/// Nor is a loss that is none shown as the largest that may be, whose part of the samples it is.
#[test]
fn a_loss_that_is_no_number_is_told_as_none() {
    let mut trainer = open(&evaluating(2));
    let held_out = trainer.data.held_out;
    for (at, loss) in [(2, f64::NAN), (4, f64::INFINITY), (6, 1e22), (8, 0.25)] {
        while trainer.step() < at {
            drop(advance(&mut trainer, &mut Vec::new()));
        }
        let sums = [loss, 0.5, 0.5].map(|mean| mean * f64::from(held_out));
        trainer.judged = Some((at, 0..held_out, sums.to_vec()));
        let told = advance(&mut trainer, &mut Vec::new()).evaluated.expect("evaluated");
        let is_told = if loss.is_finite() { (told.loss / loss - 1.0).abs() < 1e-6 } else { told.loss.is_nan() };
        assert!(is_told && (told.measures[0].1 - 0.5).abs() < 1e-6, "{told:?}");
    }
}

/// As of a program that stands for the same model and names none.
#[test]
fn a_run_that_names_fewer_measures_is_joined() {
    let (mut manifest, dataset) = evaluating(1);
    manifest = manifest.with_measures(dataset.held_out().len() as u32, &[]);
    let mut trainer = open(&(manifest, dataset));
    assert_eq!(trainer.manifest().held_out_figures(), 1);
    assert_eq!(advance(&mut trainer, &mut Vec::new()).evaluated, None);
    let own = trainer.evaluate().expect("evaluated").loss;
    let told = advance(&mut trainer, &mut Vec::new()).evaluated.expect("evaluated");
    assert!((told.loss / own - 1.0).abs() < 1e-5 && told.measures.is_empty(), "{told:?}, where it finds {own}");
}

#[test]
fn every_model_measures_what_it_says() {
    let digits = Arc::new(Dataset::load(&DataOptions::default()).expect("the embedded digits"));
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("text.txt");
    std::fs::write(&path, "to be or not to be ".repeat(90)).expect("written");
    let options =
        DataOptions { source: path.display().to_string(), text: true, context: Some(8), ..DataOptions::default() };
    let words = Arc::new(Dataset::load(&options).expect("a text"));
    for (model, dataset) in [
        ("softmax", &digits),
        ("cnn:2", &digits),
        ("linear", &digits),
        ("regression:4", &digits),
        ("gpt:1x16x1", &words),
    ] {
        let model = model.parse().expect("a model");
        let optimizer = OptimizerSpec::sgd(0.01);
        let spec = RunSpec { model, optimizer, evaluate_every: 1, batch_size: 16, ..RunSpec::default() };
        let (mut manifest, task) = models::describe(&spec, dataset).expect("a run");
        manifest.initial =
            starling_run::state::initial::digest(&task.initial(&task.schema(&[]).expect("one"), 42).expect("drawn"));
        let mut learner = task.open(&manifest, None, DataRecord::default(), DeviceSpec::Cpu.into()).expect("a learner");
        let mut own = None;
        for step in 0..2 {
            learner.begin(&[ME]);
            let gradient = Gradient::new(manifest.reduced());
            learner.compute(ME, &gradient, &mut |_| {}).expect("computed");
            let record = contribution::alone(step, gradient.values(), gradient.weight(), 16, ME, UNMEASURED);
            let report = learner.apply(&ResultRecord { step: step + 1, ..record }).expect("applied");
            if let (Some(told), Some(own)) = (report.evaluated, own) {
                assert!(far_off(&told, &own) < 1e-5, "{}: {told:?}, where a member finds {own:?}", manifest.model);
                assert!(step == 1 && !told.measures.is_empty());
            }
            own = Some(learner.evaluate().expect("evaluated"));
        }
    }
}

/// Whoever is to end has no more of its part to evaluate, and none of it counts: were it to go on, it would begin anew.
#[test]
fn a_part_that_is_interrupted_is_asked_for_before_each_batch_and_is_nothing() {
    let mut trainer = open(&evaluating(2));
    (0..2).for_each(|_| drop(advance(&mut trainer, &mut Vec::new())));
    let asked = Cell::new(0);
    let stopped = || {
        asked.set(asked.get() + 1);
        false
    };
    let figures = trainer.judge_while(ME, &stopped).expect("computed");
    assert_eq!((figures, asked.get()), (vec![0.0; 3], 1));
    assert_eq!(trainer.judged, None);
    let whole = trainer.judge_while(ME, &|| true).expect("computed");
    assert!(whole.iter().all(|figure| *figure != 0.0) && trainer.judged.is_some(), "{whole:?}");
}
