//! What is written is what is read, and by whom.

use starling_links::Transport;

use super::*;
use crate::observe::report::{Observer, Summary};

fn summary(outcome: Outcome) -> Summary {
    Summary {
        peer: "peer".to_owned(),
        run: "run".to_owned(),
        outcome,
        steps: 600,
        world_size: 3,
        forked: false,
        loss: Some(0.5),
        held_out_loss: Some(0.6),
        measures: [("accuracy".to_owned(), 0.9)].into(),
        digest: "00".repeat(32),
        values: String::new(),
        samples_per_s: 100.0,
        waiting_share: 0.1,
        data_wait_share: 0.0,
        bytes_sent: 1,
        bytes_received: 2,
        stepping_s: 3.0,
    }
}

fn reports() -> Vec<Report> {
    vec![
        Report::Started {
            peer: "peer".to_owned(),
            run: "run".to_owned(),
            model: "mlp:64".to_owned(),
            parameters: 1,
            samples: 2,
            device: "cpu".to_owned(),
            steps: 600,
            batch_size: 64,
            step: 0,
            private: true,
            quorum: Quorum::TwoThirds,
        },
        Report::Listening { addresses: vec!["/ip4/192.0.2.1/tcp/1".to_owned()], ticket: "starling3abc".to_owned() },
        Report::View {
            generation: 2,
            view: "00".to_owned(),
            rank: 1,
            members: vec!["other".to_owned(), "peer".to_owned()],
            newcomers: Vec::new(),
            step: 0,
            reason: "peer peer joined".to_owned(),
            promised: 1,
            of: 1,
            took_ms: 3,
            forked: false,
        },
        Report::Linked(LinkSummary {
            plan: "ring".to_owned(),
            reason: "as the run asks".to_owned(),
            from: [("other".to_owned(), Transport::Universal)].into(),
            to: [("other".to_owned(), Transport::Direct)].into(),
        }),
        Report::Progress {
            step: 7,
            generation: 2,
            steps: 600,
            epoch: 1,
            loss: 2.5,
            samples_per_s: 10.0,
            waiting_share: 0.5,
            data_wait_share: 0.25,
            members: 2,
            eta_s: 60.0,
            skipped: 0,
        },
        Report::Evaluated { step: 7, loss: 2.5, measures: [("accuracy".to_owned(), 0.25)].into() },
    ]
}

#[test]
fn a_status_survives_the_file_and_is_private() {
    let dir = tempfile::tempdir().expect("a temp dir");
    assert_eq!(Status::read(dir.path()).expect("no file is no error"), None);
    let file = StatusFile::new(dir.path());
    for report in reports() {
        file.report(&report);
    }
    file.close();
    let status = Status::read(dir.path()).expect("read").expect("there");
    assert_eq!((status.step, status.steps, status.generation, status.rank), (7, 600, 2, 1));
    assert_eq!((status.loss, status.measures["accuracy"], status.phase), (Some(2.5), 0.25, Phase::Stepping));
    assert_eq!((status.ticket.as_str(), status.peer.as_str(), status.members.len()), ("starling3abc", "peer", 2));
    assert_eq!(
        status.links.as_ref().map(ToString::to_string).as_deref(),
        Some("ring over 2 links, 1 direct and 1 universal")
    );
    assert_eq!((status.change.as_str(), status.quorum), ("peer peer joined", Quorum::TwoThirds));
    assert_eq!(status.process.pid, std::process::id());
    assert!(status.updated_unix_ms > 0);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(dir.path().join(FILE)).expect("metadata").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    status.write(dir.path()).expect("written");
    assert_eq!(Status::read(dir.path()).expect("read"), Some(status));
}

#[test]
fn the_end_is_written() {
    for (outcome, phase) in [(Outcome::Complete, Phase::Finished), (Outcome::Left, Phase::Left)] {
        let mut status = Status::default();
        assert!(status.update(&Report::Finished(summary(outcome))));
        assert_eq!((status.phase, status.step, status.is_running()), (phase, 600, Some(false)));
    }
    let dir = tempfile::tempdir().expect("a temp dir");
    let file = StatusFile::new(dir.path());
    file.fail("peer x is lost");
    drop(file);
    let status = Status::read(dir.path()).expect("read").expect("there");
    assert_eq!((status.phase, status.error.as_deref()), (Phase::Failed, Some("peer x is lost")));
}

#[test]
fn it_says_what_the_steps_wait_for() {
    let mut status = Status::default();
    for report in reports() {
        status.update(&report);
    }
    let progress = reports().swap_remove(4);
    for (report, phase) in [
        (Report::Paused { present: 1, needed: 2, missed: None }, Phase::Paused),
        (progress.clone(), Phase::Stepping),
        (Report::Evicted { by: "other".to_owned() }, Phase::Waiting),
        (Report::Syncing { step: 7, bytes: 1, of: 2 }, Phase::Syncing),
        (Report::Synced { step: 9 }, Phase::Waiting),
        (progress, Phase::Stepping),
    ] {
        assert!(status.update(&report), "{report:?}");
        assert_eq!(status.phase, phase);
    }
    assert!(!status.update(&reports().swap_remove(4)), "nothing new");
}

#[test]
fn it_says_how_far_that_is_which_it_is_at() {
    let mut status = Status::default();
    let reports_and_progress = [
        (Report::Downloading { bytes: 22, of: 121 }, Some(PhaseProgress::bytes(22, 121))),
        (reports().swap_remove(0), None),
        (Report::Waiting { present: 1, needed: 3 }, Some(PhaseProgress::members(1, 3))),
        (Report::Waiting { present: 2, needed: 3 }, Some(PhaseProgress::members(2, 3))),
        (reports().swap_remove(2), None),
        (Report::Syncing { step: 7, bytes: 1, of: 2 }, Some(PhaseProgress::bytes(1, 2))),
        (Report::Synced { step: 9 }, None),
        (Report::Paused { present: 1, needed: 2, missed: None }, Some(PhaseProgress::members(1, 2))),
        (reports().swap_remove(4), None),
        (Report::Evaluating { step: 600, samples: 64, of: 200 }, Some(PhaseProgress::samples(64, 200))),
        (Report::Finished(summary(Outcome::Complete)), None),
    ];
    for (report, expected) in reports_and_progress {
        status.update(&report);
        assert_eq!(status.phase_progress, expected, "{report:?}");
    }
    let waiting = Status { phase_progress: Some(PhaseProgress::members(1, 3)), ..Status::default() };
    let value = serde_json::to_value(&waiting).expect("plain data");
    assert_eq!(value["phase_progress"], serde_json::json!({ "unit": "members", "done": 1, "of": 3 }));
}

#[test]
fn the_last_evaluation_is_a_phase_of_its_own() {
    let mut status = Status { phase: Phase::Stepping, eta_s: Some(0.0), ..Status::default() };
    assert!(status.update(&Report::Evaluating { step: 3, samples: 0, of: 200 }), "it is news");
    assert_eq!((status.phase, status.eta_s), (Phase::Evaluating, None));
    assert!(!status.phase.is_last());
}

#[test]
fn a_keeper_says_what_it_holds() {
    let mut status = Status::default();
    let (peer, run, digest) = ("12D3KooWabc".to_owned(), "cd".repeat(32), "ab".repeat(32));
    assert!(status.update(&Report::Keeping { peer, run, steps: 600, stable_step: Some(20), private: true }));
    assert_eq!((status.phase, status.step, status.steps, status.stable_step), (Phase::Keeping, 20, 600, Some(20)));
    status.update(&Report::Fetching { step: 40, bytes: 1, of: 2 });
    assert_eq!((status.phase, status.step), (Phase::Keeping, 20));
    status.update(&Report::Saved { step: 40, digest: digest.clone() });
    status.update(&Report::Stable { step: 40, digest, signers: 2 });
    assert_eq!((status.phase, status.step, status.stable_step), (Phase::Keeping, 40, Some(40)));
    assert!(!status.phase.is_last());
}

#[test]
fn a_damaged_file_is_named() {
    let dir = tempfile::tempdir().expect("a temp dir");
    std::fs::write(dir.path().join(FILE), "{").expect("written");
    let error = Status::read(dir.path()).expect_err("damaged").to_string();
    assert!(error.contains(FILE), "{error}");
}

#[cfg(target_os = "linux")]
#[test]
fn the_living_are_told_from_the_dead() {
    let this = Process::this();
    assert!(this.started.is_some());
    assert_eq!(this.is_alive(), Some(true));
    // Another process had this number once.
    assert_eq!(Process { started: Some(1), ..this }.is_alive(), Some(false));
    // Numbers above the kernel's limit are never given out.
    assert_eq!(Process { pid: u32::MAX, started: None }.is_alive(), Some(false));
}

#[test]
fn each_member_has_a_row_with_what_is_known_of_it() {
    let mut status = Status::default();
    for report in reports() {
        status.update(&report);
    }
    assert_eq!(status.rows().len(), 2);
    assert_eq!(status.rows()[0].samples_per_s, None, "no step was counted yet");
    let pace = |peer: &str, samples, samples_per_s| MemberPaceReport {
        peer: peer.to_owned(),
        samples,
        samples_per_s,
        computing_share: 0.25,
        syncing: samples_per_s.is_none(),
        starved: samples_per_s.is_some(),
    };
    status.update(&Report::Named { peer: "other".to_owned(), name: "lab-2".to_owned() });
    let members = vec![pace("other", 30, Some(120.0)), pace("peer", 10, None)];
    status.update(&Report::Members { seconds: 1.0, steps: 4, members });
    let agreed = |mbit| Some(MeasuredLink { rtt_ms: 20.0, mbit });
    let link = |to: &str, agreed| LinkCost { from: "peer".to_owned(), to: to.to_owned(), bytes: 1000, agreed };
    let links = vec![link("x", agreed(50.0)), link("y", agreed(4.0)), link("z", None)];
    status.update(&Report::Costs { links, codec: "f32".to_owned() });
    let [other, own] = &status.rows()[..] else { panic!("two members") };
    assert_eq!((other.name.as_deref(), other.samples_per_s, other.share), (Some("lab-2"), Some(120.0), Some(0.75)));
    assert_eq!((other.waiting_share, other.link.as_deref()), (Some(0.75), Some("direct")));
    assert_eq!((own.mbit, own.rtt_ms, own.link.as_deref()), (Some(4.0), Some(20.0), None));
    assert_eq!((own.waiting_share, own.syncing, own.starved, other.starved), (None, true, false, true));
    status.update(&Report::Limit { limit: Some(Limit::Member { peer: "other".to_owned(), speed: 0.2 }) });
    assert!(status.limit.is_some());
    status.update(&Report::Finished(summary(Outcome::Complete)));
    assert_eq!((status.limit, status.eta_s), (None, None));
}

/// JSON has no word for what is no number, and whoever asks for the status, invites or follows reads the file.
#[test]
fn figures_that_are_no_numbers_survive_the_file() {
    let dir = tempfile::tempdir().expect("a temp dir");
    let measures: BTreeMap<String, f64> = [("accuracy", 0.25), ("r2", f64::NAN), ("rmse", f64::INFINITY)]
        .map(|(name, mean)| (name.to_owned(), mean))
        .into();
    let summary = Summary {
        loss: Some(f32::NAN),
        held_out_loss: Some(f64::NAN),
        measures: measures.clone(),
        ..summary(Outcome::Left)
    };
    for report in [
        Report::Evaluated { step: 7, loss: f64::NAN, measures },
        Report::Judged {
            step: 7,
            loss: f64::NAN,
            best_step: 7,
            best_loss: f64::NAN,
            without: 0,
            falls: 0,
            is_over: false,
        },
        Report::Finished(summary),
    ] {
        let mut status = Status::default();
        status.update(&report);
        status.write(dir.path()).expect("written");
        let read = Status::read(dir.path()).expect("readable").expect("there");
        assert_eq!(format!("{:?}", read.measures.keys()), format!("{:?}", status.measures.keys()));
        assert!(read.measures.iter().all(|(name, mean)| mean.is_finite() == (name == "accuracy")), "{read:?}");
        // As other programs are told, and read back.
        let line = serde_json::to_string(&report).expect("plain data");
        let again: Report = serde_json::from_str(&line).expect("a report");
        assert_eq!(serde_json::to_string(&again).expect("plain data"), line);
        assert!(line.contains(":null") && !line.contains("NaN"), "{line}");
    }
}
