//! Runs that end before their last step: all members find so in the same step, whoever was there.

use starling_run::{JudgedReport, PartialSnapshot, StateSnapshot};

use super::churn::{Swarm, peer};
use super::*;

/// A run that learns too fast to go on getting better for long.
fn ending(optimizer: OptimizerSpec) -> (Manifest, Dataset) {
    let model = "mlp:8".parse().expect("a model");
    let spec = RunSpec { model, optimizer, early_stop: 3, evaluate_every: 4, steps: 400, ..RunSpec::default() };
    let dataset = Dataset::load(&DataOptions::default()).expect("the embedded digits");
    (found(&spec, &dataset).expect("a run"), dataset)
}

fn open((manifest, dataset): &(Manifest, Dataset)) -> ClassifierReplica {
    ClassifierReplica::new(manifest, dataset.clone(), DeviceSpec::Cpu).expect("a trainer")
}

/// Both with and without a moving average, which is the model then.
fn optimizers() -> [OptimizerSpec; 2] {
    [OptimizerSpec::sgd(3.0), OptimizerSpec::adam_w(0.3).with("ema", 0.5)]
}

#[test]
fn all_members_end_in_the_same_step_with_the_best_model_whoever_was_there() {
    for optimizer in optimizers() {
        let run = ending(optimizer);
        let mut swarm = Swarm::of(&[100, 300, 200], 64, &|| open(&run));
        let mut best = None;
        let mut judged: Vec<JudgedReport> = Vec::new();
        loop {
            let step = swarm.members[&peer(1)].trainer.step();
            assert!(step < 300, "it goes on and on");
            let model = swarm.members[&peer(1)].trainer.training().model().into_owned();
            // What each member evaluates for itself.
            let own = (step > 0 && step.is_multiple_of(4)).then(|| {
                swarm.members.values_mut().map(|it| it.trainer.evaluate().expect("evaluated").loss).sum::<f64>()
                    / swarm.members.len() as f64
            });
            let computed = swarm.compute();
            // One dies in mid-step, when the state is judged.
            if step == 4 {
                swarm.members.remove(&peer(3));
            }
            // One joins from the chunks of a snapshot, one goes on from its checkpoint: they count on.
            if step == 9 {
                let snapshot = StateSnapshot::of(swarm.members[&peer(1)].trainer.state());
                let most = run.0.max_state_bytes();
                let mut assembly = PartialSnapshot::new(snapshot.manifest().clone(), most).expect("small enough");
                for chunk in assembly.missing() {
                    assembly.insert(snapshot.chunk(chunk).expect("the donor's").to_vec()).expect("asked for");
                }
                let joined = assembly.finish().expect("complete");
                let resumed =
                    ReplicatedState::decode(&swarm.members[&peer(2)].trainer.state().encode()).expect("its own");
                for (name, state) in
                    [(peer(1), joined), (peer(2), ReplicatedState { lineage: Lineage::NONE, ..resumed })]
                {
                    let mut trainer = open(&run);
                    trainer.load(state).expect("of the run");
                    swarm.members.get_mut(&name).expect("there").trainer = trainer;
                }
            }
            let record = swarm.reduce(&computed);
            let report = swarm.apply(&record);
            let digest = swarm.check_digests();
            // A part of what was to be evaluated is lost with a member: the next one is whole.
            assert_eq!(report.judged.is_some(), own.is_some() && step != 4, "step {step}");
            let (Some(told), Some(own)) = (report.judged, own) else { continue };
            assert_eq!(told.step, step);
            assert!((f64::from(told.loss) / own - 1.0).abs() < 1e-5, "{told:?}, where members found {own}");
            if told.best_step == step {
                best = Some(model);
            }
            judged.push(told);
            let trainer = &swarm.members[&peer(1)].trainer;
            let (values, best_step, loss) = trainer.training().best().expect("one was judged");
            assert_eq!((Some(values), best_step, loss), (best.as_deref(), told.best_step, told.best_loss));
            assert_eq!(trainer.state().model(trainer.manifest()).as_ref(), values);
            assert_eq!((trainer.state().digest(), trainer.is_over()), (digest, told.is_over));
            if told.is_over {
                break;
            }
        }
        let least = judged.iter().map(|told| told.loss).fold(f32::MAX, f32::min);
        let last = judged.last().expect("it ended");
        assert_eq!((last.without, last.best_loss), (3, least));
        assert_eq!(last.step, last.best_step + 3 * 4, "three evaluations were no better");
        let state = swarm.members[&peer(1)].trainer.state();
        assert!(state.is_last(&run.0) && state.step < 300);
        // Who is started again with it knows.
        let mut again = open(&run);
        again.load(state).expect("of the run");
        assert!(again.is_over() && !again.training().is_judged());
        assert_eq!(again.best_step(), Some(last.best_step));
        let outcome = again.evaluate_outcome_while(&|_, _| true).expect("evaluated").expect("all of it");
        assert!((outcome.loss / f64::from(least) - 1.0).abs() < 1e-5);
        assert_ne!(again.evaluate().expect("evaluated").loss, outcome.loss, "it is not the present model");
    }
}

/// What nobody has computed says nothing about the state before it.
#[test]
fn a_step_without_samples_judges_nothing() {
    let run = ending(OptimizerSpec::sgd(0.1));
    let mut trainer = open(&run);
    let mut buffer = Vec::new();
    (0..4).for_each(|_| drop(advance(&mut trainer, &mut buffer)));
    assert!(trainer.training().is_judged());
    let slot = GAVE_UP as f32 / 64.0;
    let mut mean = vec![0.0; run.0.reduced().elements()];
    mean.push(slot);
    let (lineage, members) = (Lineage::NONE, vec![ME]);
    let record = ResultRecord { step: 5, lineage, after: lineage, members, mean };
    let report = trainer.apply(&record).expect("applied");
    assert_eq!((report.judged, report.samples), (None, 0));
    assert_eq!(trainer.training().best(), None);
}

/// A held-out loss that is no number must not end the exchange, nor count as good.
#[test]
fn a_loss_that_no_contribution_may_have_counts_as_the_worst() {
    let run = ending(OptimizerSpec::sgd(0.1));
    let mut trainer = open(&run);
    let mut buffer = Vec::new();
    (0..4).for_each(|_| drop(advance(&mut trainer, &mut buffer)));
    for loss in [f64::NAN, f64::INFINITY, 1e40] {
        trainer.judged = Some((4, 0..359, vec![loss, 1.0, loss]));
        let told = computed(&mut trainer, ME).expect("computed").values();
        assert_eq!(told[told.len() - 3], run.0.bound);
    }
}

#[test]
fn states_that_say_what_no_run_comes_to_are_refused() {
    let run = ending(OptimizerSpec::sgd(0.1));
    let mut trainer = open(&run);
    let mut buffer = Vec::new();
    (0..5).for_each(|_| drop(advance(&mut trainer, &mut buffer)));
    let (good, digest) = (trainer.state(), trainer.digest());
    let refused = |trainer: &mut ClassifierReplica, change: fn(&mut ReplicatedState)| {
        let mut state = good.clone();
        change(&mut state);
        let error = trainer.load(state).expect_err("refused").to_string();
        assert_eq!(trainer.digest(), digest, "nothing has changed");
        error
    };
    // A best model of a later step than the state's, and one that was waited for longer than the run waits.
    assert!(refused(&mut trainer, |state| state.scalars[0] *= 2.0).contains("no run comes to"));
    assert!(refused(&mut trainer, |state| state.scalars[2] = 0.5).contains("no run comes to"));
    assert!(refused(&mut trainer, |state| drop(state.moments.pop())).contains("moments of [610]"));
}

/// With plain descent, a parameter goes as far as its gradient times the rate.
#[test]
fn a_rate_that_goes_by_the_loss_falls_after_the_evaluations_that_it_waits_for() {
    let schedule = Schedule { decay: "plateau:0.5,2".parse().expect("a schedule"), ..Schedule::default() };
    let model = "mlp:8".parse().expect("a model");
    let spec = RunSpec { model, optimizer: OptimizerSpec::sgd(4.0), evaluate_every: 3, schedule, ..RunSpec::default() };
    let dataset = Dataset::load(&DataOptions::default()).expect("the embedded digits");
    let run = (found(&spec, &dataset).expect("a run"), dataset);
    let (mut trainer, mut falls, mut buffer) = (open(&run), 0, Vec::new());
    for step in 1..=60 {
        let before = trainer.training().parameters().to_vec();
        let report = advance(&mut trainer, &mut buffer);
        let (way, gradient) = (trainer.training().parameters()[0] - before[0], buffer[0]);
        let rate = 4.0 * 0.5_f32.powi(falls as i32);
        assert!((way + rate * gradient).abs() < 1e-5, "step {step}: {way} along {gradient} at a rate of {rate}");
        assert_eq!(report.judged.is_some(), step > 1 && step % 3 == 1, "step {step}");
        // It falls with the step after that.
        falls = report.judged.map_or(falls, |judged| judged.falls);
        if step == 30 {
            let state = trainer.state();
            trainer = open(&run);
            trainer.load(state).expect("its own");
        }
    }
    assert!(falls > 1, "it fell {falls} times");
    assert_eq!(
        (trainer.training().best(), trainer.is_over()),
        (None, false),
        "no model is kept, and no end comes early"
    );
}

#[test]
fn nothing_held_out_ends_no_run() {
    let dataset = Dataset::load(&DataOptions { held_out: 0.0, ..DataOptions::default() }).expect("all to train on");
    let spec = RunSpec { early_stop: 3, held_out: 0.0, ..RunSpec::default() };
    let error = found(&spec, &dataset).expect_err("nothing to go by").to_string();
    assert!(error.contains("`evaluation` is not usable") && error.contains("none are held out"), "{error}");
}
