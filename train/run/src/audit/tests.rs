use std::fs;

use proptest::prelude::*;
use starling_topology::ledger::GAVE_UP;
use starling_topology::{CommitResult, Ledger};
use tempfile::TempDir;

use super::*;

mod model;

const SAMPLES: u32 = 50;
const BATCH: u32 = 8;

fn peer(name: u8) -> PeerId {
    PeerId([name; 32])
}

fn header(first_step: u64) -> AuditHeader {
    AuditHeader {
        run: RunId([7; 32]),
        samples: SAMPLES,
        batch_size: BATCH,
        micro_batch: 0,
        seed: 3,
        first_step,
        adopted: false,
        view: None,
    }
}

/// What `steps` steps of a run look like, in which the second of three members is away in every fourth step.
fn records(steps: u64) -> Vec<AuditRecord> {
    let mut ledger = Ledger::new(3, SAMPLES, BATCH);
    let all = [peer(1), peer(2), peer(3)];
    ledger.assign(&all);
    let record = |step: u64| {
        let present = if step.is_multiple_of(4) { vec![peer(1), peer(3)] } else { all.to_vec() };
        let committed = ledger.commit(step, &present, &vec![5; present.len()]);
        AuditRecord {
            step,
            generation: Generation(step / 4),
            view: ViewId([1; 32]),
            epoch: committed.epoch,
            contributions: committed.contributions,
            digest: step.is_multiple_of(5).then_some(Digest([step as u8; 32])),
            dropped: Vec::new(),
            is_last: false,
        }
    };
    (1..=steps).map(record).collect()
}

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, records: &[AuditRecord]) -> PathBuf {
        let first_step = records.first().map_or(1, |record| record.step);
        let mut writer = AuditWriter::open(self.path(name), header(first_step)).expect("opened");
        records.iter().for_each(|record| writer.record(record).expect("written"));
        writer.flush().expect("written");
        writer.path().to_owned()
    }
}

/// The error for one file with 30 steps after a change.
fn offence(change: fn(&mut Vec<AuditRecord>)) -> AuditError {
    let folder = Folder::new();
    let mut records = records(30);
    change(&mut records);
    check(&[folder.write("a", &records)]).expect_err("an offence")
}

#[test]
fn a_clean_run_is_proven_from_one_file_or_several() {
    let folder = Folder::new();
    let records = records(30);
    let whole = folder.write("whole", &records);
    let report = check(std::slice::from_ref(&whole)).expect("clean");
    let samples: u64 = records
        .iter()
        .flat_map(|record| &record.contributions)
        .flat_map(|(_, ranges)| ranges)
        .map(|r| r.len() as u64)
        .sum();
    let epochs = records.last().expect("thirty").epoch;
    let expected = AuditReport {
        first_step: 1,
        steps: 30,
        epochs,
        samples,
        samples_lost: 0,
        samples_repeated: 0,
        samples_dropped: 0,
        peers: 3,
    };
    assert!(expected.epochs >= 3 && expected.samples > 150);
    assert_eq!(report, expected);
    // In pieces that overlap, in any order, one without a record, one with digests left out, one with other views.
    let mut changed = records[10..25].to_vec();
    changed.iter_mut().for_each(|record| record.digest = None);
    changed.iter_mut().for_each(|record| record.generation = Generation(99));
    let files = [
        folder.write("end", &records[20..]),
        folder.write("empty", &[]),
        folder.write("start", &records[..13]),
        folder.write("middle", &changed),
    ];
    assert_eq!(check(&files).expect("clean"), expected);
    // From the middle of the second epoch on, neither that one nor the first is counted.
    let late = check(&[folder.write("late", &records[9..])]).expect("clean");
    assert_eq!(records[9].epoch, 1);
    assert_eq!((late.first_step, late.steps, late.epochs), (10, 21, epochs - 2));
}

#[test]
fn what_all_agreed_to_leave_out_is_not_lost() {
    let folder = Folder::new();
    let (mut ledger, members) = (Ledger::new(3, SAMPLES, BATCH), [peer(1), peer(2), peer(3)]);
    ledger.assign(&members);
    let record = |step: u64| {
        // Whoever computes them.
        let speed = if step % 5 < 2 { GAVE_UP } else { 5 };
        let CommitResult { epoch, contributions, dropped, .. } = ledger.commit(step, &members, &[speed; 3]);
        AuditRecord { step, epoch, contributions, dropped, ..records(1).remove(0) }
    };
    let records: Vec<AuditRecord> = (1..=40).map(record).collect();
    let file = folder.write("whole", &records);
    let report = check(&[file]).expect("clean");
    let dropped: u64 = records.iter().flat_map(|record| &record.dropped).map(|range| range.len() as u64).sum();
    assert!(dropped > 0 && report.epochs > 0);
    assert_eq!((report.samples_dropped, report.samples_lost, report.samples_repeated), (dropped, 0, 0));
    let mut silent = records;
    silent.iter_mut().for_each(|record| record.dropped.clear());
    assert!(check(&[folder.write("silent", &silent)]).is_err(), "who does not say so has lost them");
}

#[test]
fn the_last_epoch_counts_once_it_is_complete() {
    let folder = Folder::new();
    let records = records(60);
    let next = records.iter().position(|record| record.epoch == 1).expect("a second epoch");
    for (steps, epochs) in [(next - 1, 0), (next, 1), (next + 1, 1)] {
        let report = check(&[folder.write(&format!("{steps}"), &records[..steps])]).expect("clean");
        assert_eq!(report.epochs, epochs, "{steps} steps");
    }
}

#[test]
fn every_offence_is_caught_at_its_line() {
    let repeated = offence(|records| records[6].contributions[1].1 = records[5].contributions[1].1.clone());
    let AuditError::Samples { lost, repeated, line, reason, .. } = repeated else { panic!("{repeated}") };
    // The header is line 1. What the other range would have covered is missing at the epoch's end.
    assert_eq!((lost, repeated, line), (2, 3, 8));
    assert!(reason.contains("of epoch 0 was contributed before"), "{reason}");

    let lost = offence(|records| drop(records[1].contributions.pop()));
    let AuditError::Samples { lost: 2, repeated: 0, line, reason, .. } = lost else { panic!("{lost}") };
    let first_of_epoch = records(30).iter().position(|record| record.epoch == 1).expect("a second epoch");
    assert_eq!(line, first_of_epoch as u64 + 2);
    assert!(reason.contains("epoch 0 ended, but 2 of its samples"), "{reason}");

    let missing = offence(|records| drop(records.drain(10..13)));
    let AuditError::Missing { from: 11, to: 13, line: 12, .. } = missing else { panic!("{missing}") };

    let repeated_in_last = offence(|records| {
        records[29].epoch = records[28].epoch;
        records[29].contributions = records[28].contributions[..1].to_vec();
    });
    assert!(
        matches!(repeated_in_last, AuditError::Samples { lost: 0, repeated: 1, line: 31, .. }),
        "{repeated_in_last}"
    );

    for (change, line, reason) in [
        ((|records| records[8].epoch = 5) as fn(&mut Vec<AuditRecord>), 10, "epoch 5 comes after epoch"),
        (|records| records[20].epoch = 0, 22, "epoch 0 comes after epoch"),
        (|records| records[2].contributions[0].1[0] = 49..51, 4, "[49,51] is not a range"),
        (|records| records[2].contributions[0].1[0] = 5..5, 4, "[5,5] is not a range"),
        (|records| records[2].contributions[0].1[0] = 0..9, 4, "its batch has"),
        (|records| records[4].step = 3, 6, "step 3 comes after step 4"),
    ] {
        let error = offence(change);
        let AuditError::Malformed { line: found, reason: why, path } = &error else { panic!("{error}") };
        assert_eq!((*found, path.ends_with("a")), (line, true), "{error}");
        assert!(why.contains(reason), "{error}");
    }
}

#[test]
fn members_that_disagree_are_named() {
    let folder = Folder::new();
    let records = records(12);
    let good = folder.write("good", &records);
    for (name, what, change) in [
        ("digest", "the digest", (|record| record.digest = Some(Digest([0; 32]))) as fn(&mut AuditRecord)),
        ("epoch", "the epoch", |record| record.epoch += 1),
        ("peer", "the contributions", |record| record.contributions[0].0 = peer(9)),
    ] {
        let mut other = records.clone();
        change(&mut other[9]);
        let other = folder.write(name, &other);
        let error = check(&[&good, &other]).expect_err("a disagreement");
        let message = error.to_string();
        let (first, second) = (format!("{}:11", good.display()), format!("{}:11", other.display()));
        assert!(message.contains(&first) && message.contains(&second), "{message}");
        assert!(message.contains(&format!("{what} of step 10")), "{message}");
    }
}

type Change = fn(&mut AuditHeader);

#[test]
fn files_of_different_runs_are_refused() {
    let folder = Folder::new();
    let good = folder.write("good", &records(3));
    let changes: [(Change, &str); 5] = [
        (|header| header.run = RunId([8; 32]), "its run is 0808"),
        (|header| header.samples = 51, "its samples is 51, theirs is 50"),
        (|header| header.batch_size = 9, "its batch_size is 9, theirs is 8"),
        (|header| header.micro_batch = 4, "its micro_batch is 4, theirs is 0"),
        (|header| header.seed = 4, "its seed is 4, theirs is 3"),
    ];
    for (at, (change, reason)) in changes.into_iter().enumerate() {
        let mut header = header(1);
        change(&mut header);
        let path = folder.path(&format!("other{at}"));
        AuditWriter::open(&path, header).and_then(|mut writer| writer.restart(1, None)).expect("written");
        let message = check(&[&good, &path]).expect_err("another run").to_string();
        assert!(message.contains(reason) && message.contains(&format!("other{at}:1")), "{message}");
    }
}

#[test]
fn a_contribution_that_cuts_a_micro_batch_is_an_offence() {
    let folder = Folder::new();
    let micro_batch = 4;
    let write = |name: &str, records: &[AuditRecord]| {
        let path = folder.path(name);
        let mut writer = AuditWriter::open(&path, AuditHeader { micro_batch, ..header(1) }).expect("opened");
        records.iter().for_each(|record| writer.record(record).expect("written"));
        writer.flush().expect("written");
        path
    };
    let mut ledger = Ledger::new(3, SAMPLES, BATCH).with_micro_batch(micro_batch);
    ledger.assign(&[peer(1), peer(2)]);
    let mut records = records(14);
    for record in &mut records {
        let committed = ledger.commit(record.step, &[peer(1), peer(2)], &[5, 9]);
        (record.epoch, record.contributions) = (committed.epoch, committed.contributions);
    }
    // 50 samples: the last two are a short one.
    assert_eq!(check(&[write("whole", &records)]).expect("proven").epochs, 2);
    let [(_, first), (_, second)] = &mut records[3].contributions[..] else { panic!("both have a share") };
    (first[0].end, second[0].start) = (first[0].end - 1, second[0].start - 1);
    let message = check(&[write("cut", &records)]).expect_err("an offence").to_string();
    assert!(message.contains("cut:5") && message.contains("cuts a micro-batch of 4 samples"), "{message}");
}

#[test]
fn a_member_that_starts_again_takes_back_what_it_said() {
    let folder = Folder::new();
    let good = records(20);
    // On a branch that lost, steps 9 to 12 had other contributors.
    let mut branch = good[..12].to_vec();
    branch[8..].iter_mut().for_each(|record| record.contributions.truncate(1));
    let path = folder.write("a", &branch);
    assert!(check(&[&path, &folder.write("b", &good)]).is_err());
    let mut writer = AuditWriter::open(&path, header(9)).expect("opened again");
    good[14..].iter().for_each(|record| writer.record(record).expect("written"));
    writer.flush().expect("written");
    let clean = check(&[folder.path("b")]).expect("clean");
    assert_eq!(check(&[&path, &folder.path("b")]).expect("clean"), clean);
    // Within one process, too.
    writer.restart(15, None).expect("written");
    good[14..].iter().for_each(|record| writer.record(record).expect("written"));
    drop(writer);
    assert_eq!(check(&[&path, &folder.path("b")]).expect("clean"), clean);
    // Alone, it lacks what it has not seen.
    assert!(matches!(check(&[&path]), Err(AuditError::Missing { from: 9, to: 14, .. })));
}

#[test]
fn what_a_member_said_before_it_took_a_state_over_counts_where_nobody_knows_better() {
    let folder = Folder::new();
    let good = records(20);
    // Two went on by themselves from step 9, and took over what the third had come to.
    let mut branch = good[..12].to_vec();
    branch[8..].iter_mut().for_each(|record| {
        record.contributions.truncate(1);
        (record.generation, record.view) = (record.generation.next(), ViewId([2; 32]));
    });
    let losers = ["a", "b"].map(|name| {
        let path = folder.write(name, &branch);
        let mut writer = AuditWriter::open(&path, header(13)).expect("opened again");
        writer.adopt(17, None).expect("written");
        good[16..].iter().for_each(|record| writer.record(record).expect("written"));
        drop(writer);
        path
    });
    let [a, b] = &losers;
    let winner = folder.write("c", &good);
    let clean = check(&[&winner]).expect("clean");
    assert_eq!(check(&[a, &winner, b]).expect("clean"), clean);
    assert!(matches!(check(&[a, b]), Err(AuditError::Missing { to: 16, .. })), "they don't have it all");
    // Where they alone were there, they are believed.
    let later = folder.write("d", &good[8..]);
    assert_eq!(check(&[a, &later]).expect("clean"), clean);
    // Whoever is sure is held against the others who are.
    let mut wrong = good.clone();
    wrong[9].contributions.truncate(1);
    assert!(matches!(check(&[&winner, &folder.write("e", &wrong)]), Err(AuditError::Disagreement { step: 10, .. })));
}

/// Other contributors than those of `records`, in the view with this generation and name.
fn elsewhere(records: &[AuditRecord], generation: u64, name: u8) -> Vec<AuditRecord> {
    let changed = records.iter().cloned().map(|mut record| {
        record.contributions.truncate(1);
        (record.generation, record.view, record.digest) = (Generation(generation), ViewId([name; 32]), None);
        record
    });
    changed.collect()
}

#[test]
fn what_a_member_said_that_was_killed_with_all_others_is_void_if_those_who_came_back_took_it_anew() {
    let folder = Folder::new();
    let good = records(20);
    // All were killed after step 12 of the view of generation 3; two of three came back from step 8 as generation 4.
    let lost = [&good[..8], &elsewhere(&good[8..12], 3, 9)].concat();
    let dead = folder.write("dead", &lost);
    let back = ["b", "c"].map(|name| {
        let path = folder.write(name, &lost);
        let mut writer = AuditWriter::open(&path, header(9)).expect("opened again");
        let mut anew = good[8..].to_vec();
        anew.iter_mut().for_each(|record| record.generation = Generation(4));
        anew.iter().for_each(|record| writer.record(record).expect("written"));
        drop(writer);
        path
    });
    let clean = check(&back).expect("clean");
    assert_eq!(clean.steps, 20);
    assert_eq!(check(&[&back[0], &dead, &back[1]]).expect("clean"), clean);
    // What it said of a step that nobody took anew is held against the others.
    let mut wrong = lost.clone();
    wrong[6].contributions.truncate(1);
    let wrong = folder.write("wrong", &wrong);
    assert!(matches!(check(&[&wrong, &back[0], &back[1]]), Err(AuditError::Disagreement { step: 7, .. })));
    // And so is what it said of a step that others took in another view, into which it went on from it.
    let mut carried = [&good[..8], &elsewhere(&good[8..9], 3, 9), &good[9..]].concat();
    carried[9..].iter_mut().for_each(|record| record.generation = Generation(4));
    let carried = folder.write("carried", &carried);
    assert!(matches!(check(&[&carried, &back[0], &back[1]]), Err(AuditError::Disagreement { step: 9, .. })));
}

#[test]
fn of_branches_that_nobody_came_from_whole_the_one_that_led_to_the_newest_view_counts() {
    let folder = Folder::new();
    let good = records(20);
    let view = |generation, name, parent| {
        Some(AuditView {
            generation: Generation(generation),
            view: ViewId([name; 32]),
            parent: Some(ViewId([parent; 32])),
        })
    };
    let mut main = good[8..12].to_vec();
    main.iter_mut().for_each(|record| (record.generation, record.view) = (Generation(3), ViewId([3; 32])));
    // One goes on alone from step 8, and comes to the other after step 12. Then all are killed; the other has lost its disk
    // and takes over what the first had saved.
    for (names, first_is_main) in [(["a", "b"], false), (["c", "d"], true)] {
        let (alone, stayed) = ([&good[..8], &elsewhere(&good[8..12], 3, 9)].concat(), [&good[..8], &main].concat());
        let (first, other) = if first_is_main { (stayed, alone) } else { (alone, stayed) };
        let [first, other] = [(names[0], first), (names[1], other)].map(|(name, told)| folder.write(name, &told));
        let parent = if first_is_main { 9 } else { 3 };
        let mut writer = AuditWriter::open(&first, header(9)).expect("opened again");
        writer.adopt(13, view(4, 4, parent)).expect("written");
        let mut writer = AuditWriter::open(&other, header(9)).expect("opened again");
        writer.adopt(13, view(5, 5, 4)).expect("written");
        let outcome = check(&[&first, &other]).expect("sound");
        assert_eq!(outcome.steps, 12);
        let whole = folder.write("whole", &[&good[..8], &main].concat());
        let clean = check(&[whole]).expect("clean");
        assert_eq!(outcome == clean, !first_is_main, "{outcome:?}");
    }
}

#[test]
fn the_step_that_a_member_left_after_counts_unless_others_took_it_anew() {
    let folder = Folder::new();
    let good = records(20);
    let mut left = good[..12].to_vec();
    left[11].is_last = true;
    let leaver = folder.write("a", &left);
    assert_eq!(check(&[&leaver]).expect("clean").steps, 12);
    left[11].contributions.truncate(1);
    (left[11].generation, left[11].view) = (Generation(4), ViewId([2; 32]));
    let other = folder.write("b", &left);
    let stayed = folder.write("c", &good);
    assert_eq!(check(&[&leaver, &other, &stayed]).expect("clean"), check(&[&stayed]).expect("clean"));
    // Of what it saw others go on from, it is sure.
    left[10].contributions.truncate(1);
    let wrong = folder.write("d", &left);
    assert!(matches!(check(&[&wrong, &stayed]), Err(AuditError::Disagreement { step: 11, .. })));
}

#[test]
fn a_file_has_one_header_that_is_right_from_the_first() {
    let folder = Folder::new();
    let path = folder.path("a");
    AuditWriter::check_place(&path).expect("it could be there");
    assert!(!path.exists());
    let mut writer = AuditWriter::open(&path, header(1)).expect("opened");
    writer.restart(5, None).expect("written");
    records(9)[4..].iter().for_each(|record| writer.record(record).expect("written"));
    writer.flush().expect("written");
    let text = fs::read_to_string(&path).expect("read");
    assert!(text.starts_with("{\"format\"") && text.contains("\"first_step\":5"), "{text}");
    assert_eq!(text.matches("first_step").count(), 1, "{text}");
    AuditWriter::check_place(&path).expect("it goes on");
    assert_eq!(fs::read_to_string(&path).expect("read"), text);
    let nowhere = folder.path("missing").join("a");
    let message = AuditWriter::check_place(&nowhere).expect_err("no directory").to_string();
    assert!(message.contains("missing") && message.contains("its directory is there"), "{message}");
}

#[test]
fn a_line_cut_short_by_a_crash_is_none() {
    let folder = Folder::new();
    let good = records(20);
    let path = folder.write("a", &good[..10]);
    let text = fs::read(&path).expect("read");
    for cut in [1, 20, 150] {
        fs::write(&path, &text[..text.len() - cut]).expect("written");
        assert_eq!(check(&[&path]).expect("clean").steps, 9, "cut by {cut}");
        let mut writer = AuditWriter::open(&path, header(10)).expect("opened again");
        good[9..].iter().for_each(|record| writer.record(record).expect("written"));
        drop(writer);
        assert_eq!(check(&[&path]).expect("clean").steps, 20, "cut by {cut}");
    }
    // A file that was cut in its header begins anew.
    fs::write(&path, &text[..30]).expect("written");
    assert_eq!(fs::read(folder.write("a", &good[..10])).expect("read"), text);
}

#[test]
fn a_file_of_another_kind_is_left_alone() {
    let folder = Folder::new();
    for text in ["a letter without an end", "{\"format\":\"starling-signatures-1\"}", "\n"] {
        fs::write(folder.path("a"), text).expect("written");
        let message = AuditWriter::open(folder.path("a"), header(1)).expect_err("not ours").to_string();
        assert!(message.contains("a:1 is not a line of an audit file: it is something else"), "{message}");
        assert_eq!(fs::read_to_string(folder.path("a")).expect("read"), text);
    }
}

#[test]
fn records_reach_the_file_while_the_run_goes_on() {
    let folder = Folder::new();
    let mut writer = AuditWriter::open(folder.path("a"), header(1)).expect("opened");
    records(200).iter().for_each(|record| writer.record(record).expect("written"));
    assert_eq!(check(&[folder.path("a")]).expect("clean").steps, 192);
    writer.flush().expect("written");
    assert_eq!(check(&[folder.path("a")]).expect("clean").steps, 200);
}

#[test]
fn what_is_no_audit_file_is_refused_by_line() {
    let folder = Folder::new();
    let path = folder.write("a", &records(3));
    let text = fs::read_to_string(&path).expect("read");
    for (from, to, line, reason) in [
        ("starling-audit-1", "starling-audit-9", 1, "its format is \"starling-audit-9\""),
        ("\"first_step\":1", "\"first_step\":0", 1, "steps count from 1"),
        ("{\"format\"", "{\"step\"", 1, "unknown field `step`"),
        ("\"step\":2", "\"step\":-2", 3, "invalid value"),
        ("\"epoch\"", "\"epoque\"", 2, "unknown field `epoque`"),
        ("02020202", "0202020x", 2, "is not 64 hexadecimal digits"),
        ("\n{\"step\":3", "\n\n{\"step\":3", 4, "EOF"),
    ] {
        assert!(text.contains(from), "{text}");
        fs::write(&path, text.replacen(from, to, 1)).expect("written");
        let message = check(&[&path]).expect_err("refused").to_string();
        assert!(message.contains(&format!("a:{line} is not a line")) && message.contains(reason), "{message}");
    }
    fs::write(&path, " ".repeat(line::MAX_LINE_BYTES + 1)).expect("written");
    assert!(check(&[&path]).expect_err("too long").to_string().contains("longer than"));
    fs::write(&path, "").expect("written");
    assert!(matches!(check(&[&path]), Err(AuditError::Empty)));
    assert!(matches!(check(&[folder.write("b", &[])]), Err(AuditError::Empty)));
    assert!(matches!(check(&[folder.path("gone")]), Err(AuditError::Io { .. })));
    assert!(matches!(check(&[] as &[&Path]), Err(AuditError::Empty)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn changed_bytes_are_refused_or_prove_the_same(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let folder = Folder::new();
        let (path, good) = (folder.write("a", &records(12)), folder.write("good", &records(12)));
        let mut text = fs::read(&path).expect("read");
        for (at, byte) in changes {
            let at = at.index(text.len());
            text[at] = byte;
        }
        text.truncate(cut.map_or(text.len(), |cut| cut.index(text.len())));
        fs::write(&path, text).expect("written");
        if let Ok(report) = check(&[&path, &good]) {
            prop_assert_eq!(report, check(&[&good]).expect("clean"));
        }
    }
}
