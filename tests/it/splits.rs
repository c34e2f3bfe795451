//! What is said of tables is refused where there is none.

use std::path::Path;
use std::process::Output;

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
