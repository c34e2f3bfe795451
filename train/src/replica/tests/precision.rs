//! Devices that compute in less precise numbers than the state has.

use starling_run::Precision;

use super::churn::{Swarm, peer};
use super::*;

fn open(model: &str, precision: Precision) -> ClassifierReplica {
    let spec = RunSpec {
        model: model.parse().expect("a model"),
        optimizer: OptimizerSpec::adam_w(1e-2).with("ema", 0.5),
        micro_batch: 16,
        precision,
        ..RunSpec::default()
    };
    let dataset = Dataset::load(&DataOptions::default()).expect("the embedded digits");
    ClassifierReplica::new(&found(&spec, &dataset).expect("a run"), dataset, DeviceSpec::Cpu).expect("a trainer")
}

/// The mean loss of the last steps of some, and what the model is then evaluated to.
fn trained(trainer: &mut ClassifierReplica) -> (f32, f64) {
    let losses: Vec<f32> = (0..25).map(|_| advance(trainer, &mut Vec::new()).loss).collect();
    (losses[15..].iter().sum::<f32>() / 10.0, trainer.evaluate().expect("evaluated").loss)
}

#[test]
fn models_learn_nearly_the_same_in_less_precise_numbers() {
    for model in ["mlp:32,16+dropout=0.1+batch-norm", "cnn:4,8+batch-norm", "cnn:4,4,8+batch-norm+residual"] {
        let [whole, bf16, f16] = Precision::ALL.map(|precision| trained(&mut open(model, precision)));
        for less in [bf16, f16] {
            let off = ((less.0 - whole.0) / whole.0).abs().max(((less.1 - whole.1) / whole.1).abs() as f32);
            assert!(off > 0.0 && off < 0.1, "{model}: {less:?} instead of {whole:?}");
        }
    }
}

/// What is evaluated is the state's f32, as whoever opens the export sees it.
#[test]
fn what_is_evaluated_is_the_state() {
    let (model, dataset) = ("mlp:16+batch-norm", Dataset::load(&DataOptions::default()).expect("the digits"));
    let mut trainer = open(model, Precision::Bf16);
    (0..3).for_each(|_| drop(advance(&mut trainer, &mut Vec::new())));
    let mut whole = open(model, Precision::F32);
    let manifest = Manifest { from: Some(Digest([1; 32])), ..whole.manifest().clone() };
    whole = ClassifierReplica::new(&manifest, dataset, DeviceSpec::Cpu).expect("a trainer");
    whole.load(ReplicatedState { run: manifest.run_id(), ..trainer.state() }).expect("the same shapes");
    assert_eq!(trainer.evaluate().expect("evaluated"), whole.evaluate().expect("evaluated"));
}

#[test]
fn an_overflow_halves_the_scale_and_its_samples_come_again() {
    let mut trainer = open("mlp:8", Precision::F16);
    assert_eq!(trainer.training().loss_scale(), 65_536.0);
    advance(&mut trainer, &mut Vec::new());
    let (before, share) = (trainer.training().parameters().to_vec(), trainer.ledger().share_of(ME).to_vec());
    trainer.factors = Factors::read("2:inf,3:inf");
    for scale in [32_768.0, 16_384.0] {
        let report = advance_anyhow(&mut trainer);
        assert_eq!((report.rescaled, report.samples, report.returned), (Some(scale), 0, 64));
        assert_eq!((&report.skipped, report.dropped.len()), (&None, 0), "nobody is to blame");
        assert!(trainer.take_beyond().is_none(), "it is told as the new scale");
        assert_eq!((trainer.training().parameters(), trainer.ledger().share_of(ME)), (&*before, &*share));
    }
    // Whoever joins has the scale, too.
    let mut joined = open("mlp:8", Precision::F16);
    joined.load(trainer.state()).expect("the same run");
    let reports = [&mut trainer, &mut joined].map(|trainer| advance(trainer, &mut Vec::new()));
    assert_eq!((reports[0].samples, &reports[0]), (64, &reports[1]));
    assert_eq!((trainer.digest(), trainer.training().loss_scale()), (joined.digest(), 16_384.0));
}

/// One of three overflows: the others' shares count, and its samples come next, computed by others.
#[test]
fn members_agree_on_the_scale_whoever_overflows() {
    let mut swarm = Swarm::of(&[100, 300, 200], 64, &|| open("mlp:8", Precision::F16));
    let mut visits = vec![0; 1438];
    for step in 1..=22 {
        if step == 5 {
            swarm.members.get_mut(&peer(2)).expect("there").trainer.factors = Factors::read("5:inf");
        }
        let share = swarm.members[&peer(1)].trainer.ledger().share_len(peer(2));
        let report = swarm.step();
        swarm.check_digests();
        let own = report.contributions.iter().flat_map(|(_, ranges)| ranges.iter().cloned()).flatten();
        own.for_each(|position| visits[position as usize] += 1);
        let expected = (step == 5).then_some(32_768.0);
        assert_eq!((report.rescaled, report.returned), (expected, if step == 5 { share } else { 0 }), "step {step}");
        assert_eq!((report.samples, &report.skipped), (u64::from(64 - report.returned), &None));
        let rests = swarm.members[&peer(1)].trainer.ledger().share_len(peer(2)) == 0;
        assert_eq!(rests, step == 5, "it rests for a step");
    }
    assert!(visits.iter().all(|visits| *visits <= 1), "no sample twice in an epoch");
}

#[test]
fn what_overflows_by_itself_is_left_out_in_the_end() {
    let mut trainer = open("mlp:8", Precision::F16);
    trainer.factors = Factors::read("1+:inf");
    for step in 1..=16 {
        assert!(advance_anyhow(&mut trainer).rescaled.is_some(), "step {step}");
    }
    let reports = [(); 2].map(|()| advance_anyhow(&mut trainer));
    assert!(trainer.take_beyond().expect("told").to_string().contains("gradient of"));
    assert!(reports.iter().all(|report| report.rescaled.is_none() && report.skipped.is_some()), "{reports:?}");
    assert_eq!((reports[0].returned, &reports[1].dropped[..]), (64, &[std::ops::Range { start: 0, end: 64 }][..]));
    assert_eq!(trainer.training().loss_scale(), 1.0);
    let state = ReplicatedState { scalars: vec![1.0; 5], ..trainer.state() };
    let error = trainer.load(state).expect_err("no run comes to that").to_string();
    assert!(error.contains("scale of the loss"), "{error}");
}

/// Takes one step alone, whatever comes of it.
fn advance_anyhow(trainer: &mut ClassifierReplica) -> StepReport {
    let _ = trainer.begin(&[ME]);
    let gradient = computed(trainer, ME).expect("computed");
    let record = trainer.training().reduce_alone(&gradient, ME, UNMEASURED);
    trainer.apply(&record).expect("applied")
}
