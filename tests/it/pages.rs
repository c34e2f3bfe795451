//! Pages whose commands and programs are run: that for those who use Python, where there is one with what it needs, beside the command line, and that on models.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use starling_tests::{Peer, PeerOptions, data, starling};
use tempfile::TempDir;

const PAGE: &str = include_str!("../../docs/python.md");
const MODELS: &str = include_str!("../../docs/models.md");
/// How far probabilities may be apart.
const NEAR: f64 = 1e-5;

/// The blocks of Python under each heading of the page.
fn blocks() -> Vec<(&'static str, String)> {
    let (mut heading, mut inside, mut found) = ("", false, Vec::new());
    for line in PAGE.lines() {
        match line {
            "```python" => {
                found.push((heading, String::new()));
                inside = true;
            }
            "```" => inside = false,
            _ if inside => found.last_mut().expect("a block").1.push_str(&format!("{line}\n")),
            _ => heading = line.strip_prefix("## ").unwrap_or(heading),
        }
    }
    found
}

/// The modules that a block imports.
fn modules(block: &str) -> BTreeSet<&str> {
    let imported = block.lines().filter_map(|line| line.strip_prefix("import ").or_else(|| line.strip_prefix("from ")));
    imported
        .flat_map(|line| line.split(" import ").next().unwrap_or(line).split(", "))
        .map(|it| it.split(' ').next().unwrap_or(it))
        .collect()
}

/// What a verb says in `dir`, that must end well.
fn text(dir: &Path, line: &str) -> String {
    let output = starling(dir).args(line.split_whitespace()).output().expect("it runs");
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Runs a command of the page to its end, with what its runs leave in `dir`.
fn train(dir: &Path, flags: &str, data: &str) {
    let peer = Peer::run(&PeerOptions::flags(flags).with("--data", dir.join(data)));
    let own = peer.dir();
    assert_eq!(peer.finish().summary()["outcome"], "complete");
    for name in ["state", "out", "text"] {
        let (from, to) = (own.path().join(name), dir.join(name));
        if from.exists() && !to.exists() {
            std::fs::rename(from, to).expect("moved");
        }
    }
}

/// Class and probability of each row, as the command line says them.
fn predicted(dir: &Path) -> Vec<(String, f64)> {
    let lines = text(dir, "predict out --data table.csv --top-k 1");
    let line = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        (cells[0].to_owned(), cells[2].parse().expect("a number"))
    };
    lines.lines().skip(1).map(line).collect()
}

fn of_rows(output: &str) -> Vec<(String, f64)> {
    let line = |line: &str| {
        let (class, probability) = line.split_once(' ').expect("two words");
        (class.to_owned(), probability.parse().expect("a number"))
    };
    output.lines().map(line).collect()
}

#[test]
fn each_block_of_the_page_says_what_the_command_line_says() {
    let python: OsString = std::env::var_os("STARLING_TEST_PYTHON").unwrap_or_else(|| "python3".into());
    let folder = TempDir::new().expect("a temp dir");
    let dir = folder.path();
    std::fs::copy(data::breast_cancer(), dir.join("table.csv")).expect("copied");
    std::fs::write(dir.join("text.txt"), "the cat sat on the mat. and then the rat sat on the cat. ".repeat(40))
        .expect("written");
    train(dir, "--model mlp:8 --steps 60 --seed 5 --export out/", "table.csv");
    train(
        dir,
        "--model gpt:2x64 --context 32 --steps 30 --batch-size 8 --learning-rate 0.01 --export text/",
        "text.txt",
    );
    let metrics = text(dir, "metrics state --json");
    std::fs::write(dir.join("metrics.jsonl"), &metrics).expect("written");
    for line in [
        "export out/ --out torch.safetensors --layout torch",
        "export out/ --out model.onnx",
        "export text/ --out llama --layout hf",
    ] {
        assert!(PAGE.contains(line), "the page says {line}");
        text(dir, line);
    }
    let ours = predicted(dir);
    assert_eq!(ours.len(), 569);
    let all = blocks();
    assert_eq!(all.len(), 6, "each of which is known here: {all:?}");
    for (heading, block) in all {
        let modules = modules(&block).into_iter().collect::<Vec<_>>().join(", ");
        let tried = Command::new(&python).args(["-c", &format!("import {modules}")]).output();
        if !tried.is_ok_and(|tried| tried.status.success()) {
            let is_required = std::env::var_os("STARLING_TEST_PYTHON_REQUIRED").is_some();
            assert!(!is_required, "`{heading}`: there is no Python with {modules}");
            println!("skipped: `{heading}`: there is no python3 with {modules}, and STARLING_TEST_PYTHON names none");
            continue;
        }
        let output = Command::new(&python).args(["-c", &block]).current_dir(dir).output().expect("it runs");
        assert!(output.status.success(), "{heading}: {}", String::from_utf8_lossy(&output.stderr));
        let theirs = String::from_utf8(output.stdout).expect("text");
        match heading {
            "How a run went" => {
                let rows = metrics.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
                let (training, others): (Vec<Value>, Vec<Value>) = rows.partition(|row| !row["training"].is_null());
                let loss = training.last().and_then(|row| row["training"]["loss"].as_f64()).expect("a loss");
                let evaluations = others.iter().filter(|row| !row["held_out"].is_null()).count();
                assert_eq!(theirs, format!("step 60, loss {loss:.4}, {evaluations} evaluations\n"));
            }
            "Weights" => assert_eq!(
                theirs,
                "mlp:8 after step 60\nhidden.0.bias [8]\nhidden.0.weight [30, 8]\noutput.bias [2]\noutput.weight [8, 2]\n"
            ),
            "Predictions" | "PyTorch" | "ONNX" => {
                let theirs = of_rows(&theirs);
                assert_eq!(theirs.len(), ours.len(), "{heading}");
                for (at, ((our, of_ours), (their, of_theirs))) in ours.iter().zip(&theirs).enumerate() {
                    // Of two that are equally probable, either may be said.
                    let is_near = (of_ours - of_theirs).abs() < NEAR && (our == their || (of_ours - 0.5).abs() < NEAR);
                    assert!(is_near, "{heading}, row {at}: {our} {of_ours} here, {their} {of_theirs} there");
                }
            }
            "Language models" => {
                let arguments = ["generate", "text", "--prompt", "the cat", "--tokens", "16", "--temperature", "0"];
                let output = starling(dir).args(arguments).output().expect("it runs");
                assert_eq!(theirs, String::from_utf8(output.stdout).expect("text"));
            }
            other => panic!("nothing is known of a block under `{other}`"),
        }
    }
}

/// Each command of the page on models trains, on data of the kind that it names.
#[test]
fn each_command_of_the_page_on_models_trains() {
    let folder = TempDir::new().expect("a temp dir");
    let dir = folder.path();
    std::fs::copy(data::breast_cancer(), dir.join("table.csv")).expect("copied");
    data::write_images(&dir.join("images"), 4).expect("written");
    let row = |at: u32| format!("{},{},{},{}\n", at % 10, at * at % 7, 3 * (at % 10) + 5, 2 * (at * at % 7));
    let rows: String = (0..200).map(row).collect();
    std::fs::write(dir.join("prices.csv"), format!("size,rooms,price,rent\n{rows}")).expect("written");
    let row =
        |at: u32| format!("{},{},{},{}\n", at % 10, at * at % 7, u32::from(at % 10 > 4), u32::from(at * at % 7 > 3));
    let rows: String = (0..200).map(row).collect();
    std::fs::write(dir.join("marks.csv"), format!("length,links,urgent,spam\n{rows}")).expect("written");
    std::fs::write(dir.join("text.txt"), "the cat sat on the mat. and then the rat sat on the cat. ".repeat(60))
        .expect("written");
    let commands: Vec<&str> = MODELS.lines().filter_map(|line| line.strip_prefix("starling run --data ")).collect();
    assert!(commands.len() >= 12, "these are all: {commands:?}");
    for command in commands {
        let (data, flags) = command.split_once(' ').expect("flags");
        let source = if data == "digits" { data.into() } else { dir.join(data.trim_end_matches('/')) };
        let options = PeerOptions::flags(&format!("{flags} --steps 2 --batch-size 16"));
        let outcome = Peer::run(&options.with("--data", source)).finish();
        assert_eq!(outcome.summary()["outcome"], "complete", "{command}");
    }
}
