//! Faults by chance: how schedules are drawn, how members' words are judged, and one short round of real processes.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use starling_tests::chaos::{Circumstances, Disk, Fuzz, Judge, Move, Schedule, Way};

fn view(generation: u64, id: &str, step: u64) -> Value {
    json!({ "event": "view", "generation": generation, "view": id, "step": step, "members": ["a", "b"], "forked": false })
}

fn saved(step: u64, digest: &str) -> Value {
    json!({ "event": "saved", "step": step, "digest": digest })
}

fn stable(step: u64, digest: &str) -> Value {
    json!({ "event": "stable", "step": step, "digest": digest, "signers": 2 })
}

fn progress(generation: u64, step: u64) -> Value {
    json!({ "event": "progress", "generation": generation, "step": step })
}

/// Two members, with a stable checkpoint of step 40 in their first view.
fn two() -> Judge {
    let mut judge = Judge::default();
    restart(&mut judge);
    for place in [0, 1] {
        judge.hear(place, &view(2, "first", 0));
        judge.hear(place, &saved(40, "forty"));
        judge.hear(place, &stable(40, "forty"));
    }
    judge
}

/// Both end and start again.
fn restart(judge: &mut Judge) {
    for (place, peer) in ["a", "b"].into_iter().enumerate() {
        judge.start(place);
        judge.hear(place, &json!({ "event": "started", "peer": peer }));
    }
}

fn assert_good(judge: &Judge) {
    for found in [&judge.lost, &judge.diverged, &judge.unjudged] {
        assert_eq!(found, &[] as &[String]);
    }
}

#[test]
fn a_schedule_is_its_seeds_and_fits_what_it_does() {
    let mut kinds = BTreeSet::new();
    for round in 0..500 {
        let schedule = Schedule::draw(7, round);
        assert_eq!(schedule, Schedule::draw(7, round));
        assert_ne!(schedule.moves, Schedule::draw(8, round).moves);
        assert!((2..=6).contains(&schedule.members) && (3..=12).contains(&schedule.moves.len()), "{schedule}");
        let mut up = vec![true; schedule.members];
        for (_, step) in &schedule.moves {
            match step {
                Move::Kill(places) => places.iter().for_each(|place| assert!(std::mem::take(&mut up[*place]))),
                Move::Leave(place) => assert!(std::mem::take(&mut up[*place])),
                Move::Stop(place, _)
                | Move::Copy(place)
                | Move::Fill(place, _)
                | Move::ReadOnly(place, _)
                | Move::Freeze(place, _) => {
                    assert!(up[*place], "{schedule}");
                }
                Move::Start { place, .. } => assert!(!std::mem::replace(&mut up[*place], true), "{schedule}"),
                Move::Join(count) => up.resize(up.len() + count, true),
            }
            let text = step.to_string();
            let kind: String = text.chars().filter(|letter| !letter.is_ascii_digit()).collect();
            kinds.insert(kind);
        }
        assert!(up.len() <= 9, "{schedule}");
    }
    let has = |words: &[&str]| kinds.iter().any(|kind| words.iter().all(|word| kind.contains(word)));
    for words in
        [&["kill"], &["stop"], &["Ctrl-C"], &["wiped"], &["restored"], &["flipped"], &["--resume"], &["ticket"]]
    {
        assert!(has(words), "{words:?}");
    }
    assert!(has(&["full"]) && has(&["read-only"]) && has(&["frozen"]) && has(&["new join"]) && has(&["copy"]));
}

#[test]
fn a_run_that_goes_on_from_its_stable_step_is_good() {
    let mut judge = two();
    assert!(judge.settled(&[0, 1], 0).is_err(), "nobody has told of a step");
    restart(&mut judge);
    for place in [0, 1] {
        judge.hear(place, &view(3, "second", 40));
        judge.hear(place, &progress(3, 90));
        judge.hear(place, &saved(80, "eighty"));
    }
    assert!(judge.settled(&[0, 1], 0).is_err(), "nothing is stable in this view");
    judge.hear(0, &stable(80, "eighty"));
    assert_eq!(judge.settled(&[0, 1], 40), Ok(80));
    assert!(judge.settled(&[0, 1], 80).is_err(), "nothing is later");
    assert!(judge.settled(&[0], 40).is_err(), "another is a member too");
    assert_good(&judge);
    // Whoever stood still tells late of what was before.
    let mut judge = two();
    judge.hear(0, &view(3, "second", 40));
    judge.hear(0, &stable(60, "sixty"));
    judge.hear(1, &view(3, "second", 40));
    assert_good(&judge);
}

#[test]
fn a_step_that_was_stable_is_lost_if_an_unforked_view_begins_before_it() {
    let mut judge = two();
    judge.hear(0, &view(3, "second", 39));
    assert_eq!(judge.lost.len(), 1);
    // By generation alone, another attempt of the run would look older than what it lost.
    let mut judge = two();
    judge.hear(0, &view(9, "ninth", 40));
    judge.hear(0, &stable(60, "sixty"));
    restart(&mut judge);
    judge.hear(1, &view(3, "second", 40));
    assert_eq!(judge.lost.len(), 1);
    // The same step with another state.
    let mut judge = two();
    judge.hear(0, &stable(40, "another"));
    assert_eq!(judge.lost.len(), 1);
}

#[test]
fn what_a_damaged_disk_lost_is_judged_only_where_another_had_it() {
    let mut judge = two();
    judge.damage(0);
    restart(&mut judge);
    judge.hear(0, &view(3, "second", 20));
    assert_eq!(judge.lost.len(), 1, "{judge:?}");
    let mut judge = two();
    judge.damage(0);
    judge.damage(1);
    restart(&mut judge);
    judge.hear(0, &view(3, "second", 20));
    judge.hear(1, &view(3, "second", 20));
    assert_eq!((judge.lost.len(), judge.unjudged.len()), (0, 1), "{judge:?}");
}

#[test]
fn what_one_says_alone_that_forgot_what_it_had_said_counts_for_nothing() {
    let mut judge = two();
    judge.set_back(0);
    judge.hear(0, &json!({ "event": "view", "generation": 3, "view": "alone", "step": 40, "members": ["a"] }));
    judge.hear(0, &stable(80, "eighty"));
    assert_eq!(judge.highest(), Some(40));
    judge.hear(0, &view(4, "third", 40));
    judge.hear(0, &stable(60, "sixty"));
    assert_eq!(judge.highest(), Some(60), "it is among others");
    assert_good(&judge);
}

#[test]
fn a_majority_of_intact_disks_is_kept() {
    let mut judge = two();
    assert!(!judge.can_lose(0), "one of two is no majority");
    judge.hear(1, &json!({ "event": "view", "generation": 3, "view": "alone", "step": 40, "members": ["b"] }));
    assert!(judge.can_lose(0) && !judge.can_lose(1));
    judge.damage(1);
    assert!(!judge.can_lose(0), "nobody is left that is intact");
}

#[test]
fn members_of_one_view_with_two_states_diverge() {
    let mut judge = two();
    judge.hear(0, &saved(60, "sixty"));
    judge.hear(1, &saved(60, "another"));
    assert_eq!(judge.diverged.len(), 1);
    // The same step of another view may be another state: what was not stable was taken back.
    let mut judge = two();
    judge.hear(0, &saved(60, "sixty"));
    restart(&mut judge);
    judge.hear(1, &view(3, "second", 40));
    judge.hear(1, &saved(60, "another"));
    assert_good(&judge);
    judge.hear(0, &view(3, "other", 40));
    assert_eq!(judge.diverged.len(), 1, "two views of one generation");
}

#[test]
fn an_end_is_expected_only_where_something_explains_it() {
    let plain = Circumstances::default();
    assert!(plain.explain("error: can't reach ...abc: refused; is it running?"));
    assert!(!Circumstances { was_member: true, ..plain }.explain("error: can't reach ...abc: refused; is it running?"));
    let left = "error: left after step 7 without a decision of the others";
    assert!(!plain.explain(left) && Circumstances { leaves: true, ..plain }.explain(left));
    let unstored = "error: this member can't store its vote in record: No space left on device";
    assert!(!plain.explain(unstored) && Circumstances { bad_disk: true, ..plain }.explain(unstored));
    assert!(!Circumstances { damaged: true, ..plain }.explain(""), "it must say why");
}

#[test]
fn a_round_of_kills_and_restarts_is_good() {
    let schedule = Schedule {
        seed: 1,
        round: 0,
        members: 2,
        model: "mlp:8".to_owned(),
        checkpoint_every: 50,
        max_stall: Duration::from_secs(2),
        state_rate: None,
        waits_for_all: true,
        moves: [
            (300, Move::Copy(1)),
            (100, Move::Kill(vec![0, 1])),
            (0, Move::Start { place: 1, disk: Disk::Kept, way: Way::Same }),
            (100, Move::Start { place: 0, disk: Disk::Kept, way: Way::Resume }),
            (300, Move::Stop(1, Duration::from_millis(200))),
        ]
        .map(|(pause, step)| (Duration::from_millis(pause), step))
        .into(),
        leaves_at_once: false,
    };
    let fuzz = Fuzz { seed: 1, length: Duration::ZERO, round: Some(0), mounts: false };
    let findings = fuzz.judge(&schedule).expect("it can be carried out");
    for (kind, found) in findings.offences() {
        assert_eq!(found, &[] as &[String], "{kind}");
    }
    assert!(findings.step > 0);
}
