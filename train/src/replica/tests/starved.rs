//! Members whose data is on its way: what a step comes to that they say so in, and what they need for the next.

use starling_run::data::TOKENS;
use starling_run::{ResultRecord, TrainingState};
use starling_topology::ledger::{MAX_SPEED, STARVED, SYNCING};
use starling_topology::{Ledger, Lineage};

use super::*;

const BATCH: u32 = 64;

fn members() -> Vec<PeerId> {
    (1..4).map(|name| PeerId([name; 32])).collect()
}

/// The state of a run that can be entered with a part of its data, or not.
fn state(can_arrive: bool) -> TrainingState {
    let trainer = trainer("mlp:32", OptimizerSpec::adam_w(1e-2), BATCH);
    let mut manifest = trainer.manifest().clone();
    if can_arrive {
        TOKENS.clone_into(&mut manifest.data.kind);
        manifest.shuffle = ShufflePolicy::BLOCKS;
    }
    assert_eq!(manifest.can_arrive(), can_arrive);
    let (training, samples) = (trainer.training(), trainer.ledger().samples());
    let parameters = training.parameters().to_vec();
    let mut state = TrainingState::new(&manifest, training.schema().clone(), parameters, samples).expect("a state");
    assert!(state.begin(&members()));
    state
}

/// A step that comes to this number everywhere, and in which members say this.
fn take(state: &mut TrainingState, number: f32, words: [u32; 3]) -> StepReport {
    let mut mean = vec![number; state.manifest().reduced().elements()];
    mean.extend(words.map(|word| word as f32 / BATCH as f32));
    let (step, members) = (state.step() + 1, members());
    let record = ResultRecord { step, lineage: Lineage::NONE, after: Lineage::NONE, members, mean };
    state.apply_staged(&record).expect("applied")
}

#[test]
fn that_all_are_starved_is_believed_only_if_they_brought_nothing() {
    let mut state = state(true);
    let before = state.parameters().to_vec();
    let report = take(&mut state, 0.0, [STARVED; 3]);
    assert_eq!((report.samples, report.returned, report.skipped, report.speeds), (0, BATCH, None, vec![STARVED; 3]));
    assert_eq!(state.ledger().starved(), 1);
    // Somebody has brought something: somebody says of others what they have not said.
    let report = take(&mut state, 0.5, [STARVED; 3]);
    let reason = report.skipped.expect("nobody contributed");
    assert!(reason.contains("lacked data, and have not"), "{reason}");
    assert_eq!((state.ledger().starved(), state.ledger().skips().in_row), (1, 0), "it does not count");
    assert!(members().iter().all(|member| state.ledger().share_len(*member) > 0), "nor does anybody rest for it");
    // Who has no state yet and who lacks data have no samples between them either.
    let report = take(&mut state, 0.0, [SYNCING, STARVED, STARVED]);
    assert_eq!((report.samples, report.skipped), (0, None));
    assert_eq!((state.ledger().starved(), state.parameters()), (2, &before[..]));
    let report = take(&mut state, 0.01, [UNMEASURED, STARVED, STARVED]);
    assert!(report.samples > 0 && report.skipped.is_none(), "{report:?}");
    assert_eq!(state.ledger().starved(), 0);
    assert_ne!(state.parameters(), &before[..]);
}

#[test]
fn steps_in_which_all_are_starved_lose_no_sample_and_are_counted() {
    let mut state = state(true);
    for step in 1..=70 {
        let report = take(&mut state, 0.0, [STARVED; 3]);
        assert_eq!((report.step, report.returned, state.ledger().starved()), (step, BATCH, step as u32));
    }
    let (epoch, cursor) = (state.ledger().epoch(), state.ledger().cursor());
    assert_eq!((epoch, cursor), (0, BATCH), "the same samples, again and again");
    let report = take(&mut state, 0.01, [100; 3]);
    assert_eq!((report.samples, state.ledger().starved()), (BATCH.into(), 0));
}

#[test]
fn where_all_have_all_data_nobody_is_starved() {
    let mut state = state(false);
    let report = take(&mut state, 0.0, [100, STARVED, MAX_SPEED]);
    assert_eq!(report.speeds, [100, GAVE_UP, MAX_SPEED], "what no member may say is the most that one may");
    assert_eq!((report.given_up.len(), state.ledger().starved()), (1, 0));
}

/// Two that each have what the other lacks would else hand samples to and fro.
#[test]
fn who_has_no_share_is_ready_if_it_has_what_others_may_give_back() {
    let [ours, theirs] = [1, 2].map(|name| PeerId([name; 32]));
    let mut ledger = Ledger::new(1, 1000, 10);
    ledger.assign(&[ours, theirs]);
    ledger.commit(1, &[ours, theirs], &[STARVED, 1]);
    assert_eq!((ledger.share_len(ours), ledger.share_len(theirs)), (0, 10));
    let needed = next_samples(&ledger, ours);
    let pending = ledger.indices(ledger.share_of(theirs));
    assert!(pending.iter().all(|sample| needed.contains(sample)), "{needed:?}");
    assert!(ledger.ahead(10).iter().all(|sample| needed.contains(sample)), "and what comes behind it: {needed:?}");
    assert_eq!(next_samples(&ledger, theirs), pending);
}
