//! What people see: few lines, names beside short ids, who slows the steps down, a demo in a terminal.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use starling_tests::{OwnedChild, Peer, PeerOptions, binary, starling};
use tempfile::TempDir;

/// Takes four fifths of a process's time away, again and again, until it is gone.
const STARVE: &str = "while kill -STOP $0 2>/dev/null; do sleep .08; kill -CONT $0; sleep .02; done";

fn run(dir: &TempDir, flags: &str) -> (String, String) {
    let mut command = starling(dir.path());
    command.args(["run", "--device", "cpu", "--listen", "/ip4/127.0.0.1/tcp/0", "--data-dir", "state"]);
    let output = command.args(flags.split_whitespace()).output().expect("starling starts");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    assert!(output.status.success(), "{}", text(output.stderr));
    (text(output.stdout), text(output.stderr))
}

/// Whether a line begins with a time of day.
fn is_timed(line: &str) -> bool {
    let is_digit = |at: usize| line.as_bytes().get(at).is_some_and(u8::is_ascii_digit);
    [0, 1, 3, 4, 6, 7].into_iter().all(is_digit) && line.get(2..3) == Some(":") && line.get(5..6) == Some(":")
}

#[test]
fn a_long_run_has_few_lines_and_each_its_time() {
    let dir = TempDir::new().expect("a temp dir");
    let (stdout, _) = run(&dir, "--model softmax --batch-size 8 --steps 10000 --checkpoint-every 10");
    let lines: Vec<&str> = stdout.lines().collect();
    assert!((15..=200).contains(&lines.len()), "{} lines", lines.len());
    assert!(lines.iter().all(|line| is_timed(line)), "{stdout}");
    for part in ["`starling join -`", "is stable", "generation 1: 1 member", "complete: all members", "  stable "] {
        assert!(stdout.contains(part), "{part} is missing from {stdout}");
    }
    assert!(!stdout.contains("starling3"), "a file keeps the ticket:\n{stdout}");
    assert!(!stdout.contains("waiting"), "nobody was there to wait for:\n{stdout}");
    let view = stdout.find("generation 1:").expect("it is there");
    assert!(view < stdout.find("step 1/").unwrap_or(usize::MAX), "a step before its view:\n{stdout}");
}

#[test]
fn who_wants_only_errors_gets_nothing_else() {
    let dir = TempDir::new().expect("a temp dir");
    assert_eq!(run(&dir, "--steps 50 --quiet --momentum 0.5"), (String::new(), String::new()));
    let dir = TempDir::new().expect("a temp dir");
    let (stdout, _) = run(&dir, "--steps 300 --momentum 0.5 -v");
    assert!(stdout.contains("warning: --momentum: run.momentum has no effect"), "{stdout}");
    assert!(stdout.contains(" saved, digest"), "{stdout}");
}

#[test]
fn what_a_run_measured_is_a_curve_a_table_lines_and_an_event_file() {
    let dir = TempDir::new().expect("a temp dir");
    let metrics = |flags: &str| {
        let output = starling(dir.path())
            .env("LC_ALL", "C.UTF-8")
            .arg("metrics")
            .args(flags.split_whitespace())
            .output()
            .expect("starling starts");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        (output.status.success(), text(output.stdout), text(output.stderr))
    };
    let (found, _, error) = metrics("state");
    assert!(!found && error.contains("no run was measured in state"), "{error}");
    run(&dir, "--steps 200 --evaluate-every 100");
    let (_, lines, _) = metrics("state --json");
    let rows: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let last = rows.last().expect("rows");
    assert!(last["step"] == 200 && last["held_out"]["accuracy"].as_f64().is_some_and(|share| share > 0.8), "{last}");
    let losses: Vec<f64> = rows.iter().filter_map(|row| row["training"]["loss"].as_f64()).collect();
    assert!(losses.len() >= 2 && losses[0] > 3.0 * losses[losses.len() - 1], "{losses:?}");
    let (_, table, _) = metrics("state --csv");
    let mut head = table.lines().next().expect("a head").split(',');
    assert!(head.any(|name| name == "held_out_accuracy") && table.lines().count() == rows.len() + 1, "{table}");
    let (_, page, _) = metrics("state");
    assert!(page.contains("step 200: held-out accuracy 9") && page.contains("metrics-"), "{page}");
    // The node has ended, so there is nothing to wait for.
    assert_eq!(metrics("state --follow --json").1, lines);
    let (made, told, error) = metrics("state --tensorboard tb");
    let only = |folder: &Path| std::fs::read_dir(folder).expect("made").next().expect("one").expect("read").path();
    let bytes = std::fs::read(only(&only(&dir.path().join("tb")))).expect("written");
    let has = |tag: &[u8]| bytes.windows(tag.len()).any(|window| window == tag);
    assert!(made && told.contains("events.out.tfevents.starling") && has(b"held_out/accuracy"), "{told}{error}");
    if let Some(read) = read_by_tensorboard(&only(&dir.path().join("tb"))) {
        let ours = |part: &str, name: &str| -> Vec<(u64, f32)> {
            let measured =
                rows.iter().filter_map(|row| Some((row["step"].as_u64()?, row[part][name].as_f64()? as f32)));
            measured.collect()
        };
        for (part, name) in [("training", "loss"), ("held_out", "accuracy")] {
            let expected = ours(part, name);
            assert!(!expected.is_empty());
            assert_eq!(read[&format!("{part}/{name}")], expected, "{part}/{name}");
        }
    }
    // So short a run is no curve, another one is: behind a checkpoint it went up, which counts no more.
    assert!(!page.contains("training loss\n") && page.contains("no curve of the training loss: "), "{page}");
    let row = |step: u32, loss: f64| {
        let training = serde_json::json!({"epoch": 0, "loss": loss, "samples_per_s": 9.0, "waiting_share": 0.0, "members": 1, "skipped": 0});
        serde_json::json!({"time": "2026-01-01T00:00:00.000Z", "step": step, "training": training}).to_string() + "\n"
    };
    let falls = |from: u32| (from..20).map(|step| row(step, 2.0 - f64::from(step) / 10.0)).collect::<String>();
    let rises = row(15, 99.0) + "{\"time\":\"2026-01-01T00:00:01.000Z\",\"step\":9}\n";
    std::fs::create_dir(dir.path().join("old")).expect("made");
    std::fs::write(dir.path().join("old/metrics-0123.jsonl"), falls(0) + &rises + &falls(10)).expect("written");
    let (_, page, _) = metrics("old");
    let lines: Vec<&str> = page.lines().collect();
    assert!(!page.contains("no curve"), "{page}");
    assert!(lines[0] == "training loss" && lines[1].ends_with(" 2.0000") && lines[10].ends_with(" 0.1000"), "{page}");
    assert!(lines[12] == "step 19: training loss 0.1000, 9 samples/s, 1 member", "{page}");
}

/// What TensorBoard's own reader finds in a folder: of each tag the steps and values. `None` without a Python that has it, of which
/// `STARLING_TEST_PYTHON` says which it is.
fn read_by_tensorboard(folder: &Path) -> Option<BTreeMap<String, Vec<(u64, f32)>>> {
    const READS: &str = "import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
found = EventAccumulator(sys.argv[1], size_guidance={'scalars': 0}).Reload()
print(json.dumps({tag: [[it.step, it.value] for it in found.Scalars(tag)] for tag in found.Tags()['scalars']}))";
    let python = std::env::var_os("STARLING_TEST_PYTHON").unwrap_or_else(|| "python3".into());
    let tried = Command::new(&python).args(["-c", "import tensorboard"]).output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        let is_required = std::env::var_os("STARLING_TEST_PYTHON_REQUIRED").is_some();
        assert!(!is_required, "there is no Python with tensorboard");
        println!("skipped: there is no python3 with tensorboard, and STARLING_TEST_PYTHON names none");
        return None;
    }
    let output = Command::new(&python).args(["-c", READS]).arg(folder).output().expect("it runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    Some(serde_json::from_slice(&output.stdout).expect("JSON"))
}

#[test]
fn members_are_told_each_others_names() {
    let founder = Peer::run(&PeerOptions::flags("--min-peers 2 --steps 400").with("--name", "lab 1"));
    let joiner = Peer::join(&founder.ticket(), &PeerOptions::default().with("--name", "lab-2"));
    for (peer, of, name) in [(&founder, &founder, "lab 1"), (&founder, &joiner, "lab-2"), (&joiner, &founder, "lab 1")]
    {
        let of = of.id();
        let named = peer.wait_for("a name", |event| event["event"] == "named" && event["peer"] == of.as_str());
        assert_eq!(named["name"], name);
        assert!(named["time"].as_str().is_some_and(|time| time.ends_with('Z')), "{named}");
    }
    let dir = founder.dir();
    founder.finish().summary();
    joiner.finish().summary();
    let mut status = starling(dir.path());
    let output = status.args(["status", "--data-dir", "state"]).output().expect("it runs");
    assert!(String::from_utf8_lossy(&output.stdout).contains("(lab 1)"), "{output:?}");
    let long = "x".repeat(33);
    for name in ["\u{1b}[31mred", "", &long] {
        let mut command = starling(dir.path());
        let output = command.args(["run", "--data-dir", "other", "--name", name]).output().expect("it runs");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains("--name: network.name") && !error.contains('\u{1b}'), "{error:?}");
    }
}

#[test]
fn every_member_learns_who_computes_slowly() {
    let steps = "--steps 100000000 --model mlp:256 --batch-size 256 --checkpoint-every 0";
    let founder = Peer::run(&PeerOptions::flags(&format!("--min-peers 3 {steps}")));
    let others = [(); 2].map(|()| Peer::join(&founder.ticket(), &PeerOptions::flags("--checkpoint-every 0")));
    founder.wait_for_votes(3);
    let [fast, slow] = &others;
    let id = slow.id();
    let mut starve = Command::new("sh");
    starve.args(["-c", STARVE, &slow.pid().to_string()]).stdin(Stdio::null());
    let _starve: OwnedChild = starve.spawn().expect("a shell").into();
    let names = |event: &Value| event["event"] == "limit" && event["limit"]["peer"] == id.as_str();
    for peer in [&founder, fast, slow] {
        let limit = peer.wait_for("who is slow", names);
        assert!(limit["limit"]["speed"].as_f64().is_some_and(|speed| speed < 0.5), "{limit}");
    }
    let mut status = starling(founder.dir().path());
    let output = status.args(["status", "--json", "--data-dir", "state"]).output().expect("it runs");
    let status: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(status["rows"].as_array().map(Vec::len), Some(3), "{status}");
}

#[test]
fn a_demo_in_a_terminal_tells_what_happens_on_lines_of_their_own() {
    let dir = TempDir::new().expect("a temp dir");
    let demo = format!("stty cols 80 rows 24; {} demo --steps 1500", binary().display());
    let mut command = Command::new("script");
    command.args(["-qec", &demo, "/dev/null"]).current_dir(dir.path()).stdin(Stdio::null());
    for name in ["NO_COLOR", "CLICOLOR", "LC_ALL", "LC_CTYPE", "LANG"] {
        command.env_remove(name);
    }
    let output = command.env("TERM", "xterm-256color").output().expect("script is there");
    let screen = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{screen}");
    let lines: Vec<String> = screen.split("\r\n").map(without_codes).collect();
    for told in ["killed peer ", "a new ring without it after", "starts, to join them", "is a full member after"] {
        let line =
            lines.iter().find(|line| line.contains(told)).unwrap_or_else(|| panic!("{told} is missing: {screen}"));
        assert!(is_timed(line), "{line:?}");
    }
    assert!(screen.contains("\u{1b}[32m"), "a terminal has colours");
    let table = lines.iter().skip_while(|line| !line.contains("samples/s") || !line.contains("digest"));
    assert!(table.clone().count() > 4 && table.take(6).all(|line| line.chars().count() <= 80), "{screen}");
}

/// What remains of a line on a screen without colours, moves of the cursor, and what was drawn over.
fn without_codes(line: &str) -> String {
    let mut text = String::new();
    let mut chars = line.chars();
    while let Some(char) = chars.next() {
        match char {
            // A sequence ends with its letter.
            '\u{1b}' => _ = chars.by_ref().find(char::is_ascii_alphabetic),
            '\r' => text.clear(),
            char => text.push(char),
        }
    }
    text
}
