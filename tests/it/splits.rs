//! Runs whose tables say what rows count and which are held out: what such a run leaves knows its held-out rows, and what is said of tables is
//! refused where there is none.

use std::path::Path;
use std::process::Output;

use serde_json::Value;
use starling_tests::{Peer, PeerOptions, starling};
use tempfile::TempDir;

const HEADER: &str = "a,b,kind,user,counts,side\n";
const ROWS: u32 = 300;

fn row(at: u32) -> String {
    let (a, b) = (at * 37 % 101, at * 17 % 89);
    let side = if at % 6 == 2 { "test" } else { "train" };
    format!("{a}.5,{b},{},u{},{}.5,{side}\n", ["small", "large"][usize::from(a > b)], at * 7 % 30, at % 4)
}

fn said(dir: &Path, line: &str) -> Output {
    starling(dir).args(line.split_whitespace()).output().expect("it runs")
}

fn json(dir: &Path, line: &str) -> Value {
    let output = said(dir, line);
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn error(dir: &Path, line: &str) -> String {
    let output = said(dir, line);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let errors: Vec<&str> = text.lines().filter(|line| line.starts_with("error: ")).collect();
    assert!(!output.status.success() && errors.len() == 1 && !text.contains("panicked"), "{line}: {text}");
    errors[0].to_owned()
}

/// A folder with the table, and with it in two files.
fn folder() -> TempDir {
    let folder = TempDir::new().expect("a temp dir");
    let write = |name: &str, rows: std::ops::Range<u32>| {
        let rows: String = rows.map(row).collect();
        std::fs::write(folder.path().join(name), HEADER.to_owned() + &rows).expect("written");
    };
    write("table.csv", 0..ROWS);
    write("first.csv", 0..240);
    write("last.csv", 240..ROWS);
    folder
}

/// A run on one of its tables that is over: its end, how many samples it held out, and its data directory.
fn trained(folder: &Path, table: &str, flags: &str) -> (Value, u64, TempDir) {
    let options = PeerOptions::flags(&format!("--label kind --model mlp:8 --steps 60 --seed 5 {flags}"));
    let peer = Peer::run(&options.with("--data", folder.join(table)).with("--export", folder.join("out/")));
    let dir = peer.dir();
    let outcome = peer.finish();
    let data = outcome.events.iter().map(|(_, event)| event).find(|event| event["event"] == "data");
    let held_out = data.expect("what was understood")["held_out"].as_u64().expect("a count");
    let state = TempDir::new().expect("a temp dir");
    std::fs::rename(dir.path().join("state"), state.path().join("state")).expect("moved");
    (outcome.summary().clone(), held_out, state)
}

#[test]
fn what_a_run_leaves_knows_its_held_out_rows_by_whatever_said_them() {
    for (flags, is_weighted) in [
        ("--weights counts --ignore user,side", true),
        ("--split-by user --ignore counts,side", false),
        ("--split-by side --ignore counts,user", false),
        ("--split-by user --weights counts --ignore side", true),
        ("--held-out-file last.csv --ignore counts,side,user", false),
    ] {
        let folder = folder();
        let dir = folder.path();
        let has_file = flags.contains("--held-out-file");
        let flags = flags.replace("last.csv", &dir.join("last.csv").display().to_string());
        let (summary, held_out, state) = trained(dir, if has_file { "first.csv" } else { "table.csv" }, &flags);
        let state = state.path().join("state").display().to_string();
        assert!((10..200).contains(&held_out), "{flags}: {held_out}");
        for model in ["out/", &state, "out/model.safetensors"] {
            let told = json(dir, &format!("eval {model} --data table.csv --held-out --json"));
            assert_eq!((&told["samples"], &told["held_out"]), (&held_out.into(), &true.into()), "{flags}, {model}");
            let predicted = json(dir, &format!("predict {model} --data table.csv --out p.csv --json"));
            let measured = &predicted["measured"];
            let (samples, is_held_out) = (&measured["samples"], &measured["held_out"]);
            assert_eq!((samples, is_held_out), (&held_out.into(), &true.into()), "{flags}, {model}");
            assert_eq!(measured["measures"]["accuracy"], told["measures"]["accuracy"], "{flags}, {model}");
            if !is_weighted {
                let of_run = (&summary["held_out_loss"], &summary["measures"]["accuracy"]);
                assert_eq!((&told["loss"], &told["measures"]["accuracy"]), of_run, "{flags}, {model}: to the bit");
            }
        }
        // The same rows in another order of columns.
        let table = std::fs::read_to_string(dir.join("table.csv")).expect("there");
        let turned = |line: &str| line.split(',').rev().collect::<Vec<_>>().join(",") + "\n";
        std::fs::write(dir.join("turned.csv"), table.lines().map(turned).collect::<String>()).expect("written");
        let measured = json(dir, "predict out/ --data turned.csv --out p.csv --json")["measured"].clone();
        assert_eq!(measured["held_out"], true, "{flags}");
        // Another weight, another side and another value make other data.
        for (from, to) in [(",0.5,train", ",1.5,train"), (",train", ",test"), ("\n0.5,", "\n1.5,")] {
            let is_of_run = match from {
                ",0.5,train" => !is_weighted,
                ",train" => !flags.contains("--split-by side"),
                _ => false,
            };
            std::fs::write(dir.join("other.csv"), table.replacen(from, to, 1)).expect("written");
            let measured = json(dir, "predict out/ --data other.csv --out p.csv --json")["measured"].clone();
            assert_eq!(measured["held_out"], is_of_run, "{flags}: {from}");
        }
        if has_file {
            // Each file alone is none of all of it: one says where the rows are, and the other has them.
            let alone = json(dir, "eval out/ --data last.csv --json");
            assert_eq!((&alone["loss"], &alone["samples"]), (&summary["held_out_loss"], &held_out.into()));
            for file in ["first.csv", "last.csv"] {
                let told = error(dir, &format!("eval out/ --data {file} --held-out"));
                assert!(told.contains(file) && told.contains("name that one, without --held-out"), "{told}");
            }
        }
        if flags.contains("--split-by") {
            let column = if flags.contains("--split-by user") { "user" } else { "side" };
            let at = HEADER.trim_end().split(',').position(|name| name == column).expect("a column");
            let kept = |line: &str| {
                let cells = line.split(',').enumerate().filter(|(place, _)| *place != at).map(|(_, cell)| cell);
                cells.collect::<Vec<_>>().join(",") + "\n"
            };
            std::fs::write(dir.join("less.csv"), table.lines().map(kept).collect::<String>()).expect("written");
            let told = error(dir, "eval out/ --data less.csv --held-out");
            assert!(told.contains("less.csv") && told.contains(&format!("(`{column}`)")), "{told}");
            let measured = json(dir, "predict out/ --data less.csv --out p.csv --json")["measured"].clone();
            assert_eq!((&measured["held_out"], &measured["samples"]), (&false.into(), &ROWS.into()));
        }
    }
}

#[test]
fn what_is_said_of_tables_is_refused_where_the_data_is_none() {
    let folder = folder();
    let dir = folder.path();
    std::fs::write(dir.join("text.txt"), "In the beginning ".repeat(40)).expect("written");
    std::fs::write(dir.join("weights.toml"), "[data]\nweights = \"counts\"\n").expect("written");
    std::fs::write(dir.join("empty.csv"), HEADER).expect("written");
    for (line, parts, others) in [
        ("run --weights counts", &["`digits`", "built-in images", "--weights says", "leave it out"][..], "--split-by"),
        ("run --held-out-file last.csv", &["--held-out-file says", "--data"], "--weights"),
        (
            "run --data digits --split-by user --no-header",
            &["--no-header and --split-by say", "leave them out"],
            "--label",
        ),
        ("run --config weights.toml", &["--weights says", "configuration file"], "--label"),
        ("data check digits --label 3", &["--label says"], "--weights"),
        ("data show digits --ignore 3 --weights 4", &["--ignore and --weights say"], "--label"),
        (
            "data check text.txt --model gpt:1x16 --split-by x --delimiter tab",
            &["text.txt", "--delimiter and --split-by say"],
            "--label",
        ),
        (
            "run --model gpt:1x16 --data text.txt --held-out-file last.csv",
            &["text.txt", "--held-out-file says"],
            "--label",
        ),
        (
            "data check first.csv --label kind --held-out-file empty.csv",
            &["empty.csv", "no rows", "leave that out"],
            "--weights",
        ),
    ] {
        let run =
            if line.starts_with("run") { " --device cpu --listen /ip4/127.0.0.1/tcp/0 --data-dir state" } else { "" };
        let told = error(dir, &format!("{line}{run}"));
        assert!(parts.iter().all(|part| told.contains(part)) && !told.contains(others), "{line}: {told}");
    }
    // A joiner, which has the run's data.
    let founder = Peer::run(&PeerOptions::flags("--min-peers 2"));
    for flags in ["--weights counts", "--held-out-file last.csv"] {
        let told = Peer::join(&founder.ticket(), &PeerOptions::flags(flags)).finish().error().to_owned();
        let flag = flags.split(' ').next().unwrap_or_default();
        assert!(
            told.contains("the run's data is no table (digits)") && told.contains(&format!("{flag} says")),
            "{told}"
        );
    }
}

#[test]
fn data_is_not_said_to_be_fine_where_a_run_refuses_it() {
    let folder = TempDir::new().expect("a temp dir");
    let dir = folder.path();
    let row = |at: u32| format!("{}.5,{},{},{},{}\n", at * 37 % 101, at * 17 % 89, at % 2, at % 3 / 2, at * 7 % 50);
    let rows: String = (0..60).map(row).collect();
    std::fs::write(dir.join("mails.csv"), format!("price,rent,urgent,spam,length\n{rows}")).expect("written");
    let is_used = said(dir, "data check mails.csv --label urgent --model mlp:8");
    assert!(is_used.status.success(), "{}", String::from_utf8_lossy(&is_used.stderr));
    for flags in [
        "--label urgent,spam --model cnn:8",
        "--label urgent --model cnn:8",
        "--label price,rent",
        "--label price --model mlp:8",
        "--label urgent --model mlp:8 --batch-size 7 --micro-batch 2",
        "--label urgent --model mlp:8 --loss huber",
    ] {
        let checked = error(dir, &format!("data check mails.csv {flags}"));
        let machine = "--device cpu --listen /ip4/127.0.0.1/tcp/0 --data-dir state";
        assert_eq!(checked, error(dir, &format!("run --data mails.csv {flags} {machine}")), "{flags}");
    }
}
