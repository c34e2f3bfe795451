//! How fast data is read: a table of numbers as CSV, from the file to samples; and a text that was prepared, whose windows are read in the
//! order of an epoch. The files are in the system's cache: what is measured is this code.
//!
//! `cargo bench -p starling-train --features tokenizers --bench readers`, with `-- --json` for one JSON line per reader, and `-- --data FILE`
//! for a table of one's own, Parquet with `--features parquet`. Without the feature `tokenizers`, the text is left out.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Instant;

use starling_topology::SplitMix64Generator;
use starling_train::tokens::{self, PrepareOptions, TokenizerPolicy};
use starling_train::{DataOptions, Dataset};

/// The fastest of so many.
const ROUNDS: usize = 5;
const MIB: f64 = (1 << 20) as f64;
const CONTEXT: u32 = 128;
/// Windows that are read together, as a batch is.
const BATCH: usize = 64;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let json = arguments.iter().any(|argument| argument == "--json");
    let own = arguments.iter().position(|argument| argument == "--data").and_then(|at| arguments.get(at + 1));
    let directory = tempfile::tempdir().expect("a temporary directory");
    let report = |reader: &str, rate: f64, unit: &str| match json {
        true => println!("{{\"reader\":\"{reader}\",\"rate\":{rate:.1},\"unit\":\"{unit}\"}}"),
        false => println!("{reader:24} {rate:>12.1} {unit}"),
    };
    let table = directory.path().join("table.csv");
    std::fs::write(&table, csv()).expect("written");
    let tables = own.map(|path| ("table of one's own", Path::new(path))).into_iter();
    for (reader, path) in [("csv", table.as_path())].into_iter().chain(tables) {
        let bytes = std::fs::metadata(path).expect("there").len() as f64;
        let options = DataOptions { source: path.display().to_string(), ..DataOptions::default() };
        let seconds = fastest(|| drop(Dataset::load(&options).expect("a table")));
        report(reader, bytes / MIB / seconds, "MiB/s");
        let options = DataOptions { held_bytes: 0, ..options };
        if let Ok(placed) = Dataset::load(&options) {
            let seconds = fastest(|| drop(Dataset::load(&options).expect("a table")));
            report(&format!("{reader}, left in its file"), bytes / MIB / seconds, "MiB/s");
            let samples = placed.training();
            let order = SplitMix64Generator::new(7).permutation(u32::try_from(samples.len()).expect("few"));
            let seconds = fastest(|| order.chunks(BATCH).for_each(|batch| drop(samples.read(batch).expect("read"))));
            report(&format!("{reader}, in batches"), order.len() as f64 / 1e3 / seconds, "k rows/s");
        }
    }
    if cfg!(feature = "tokenizers") {
        let (check, windows) = text(directory.path());
        report("tokens, checked", check / 1e6, "M tokens/s");
        report("tokens, in batches", windows / 1e6, "M tokens/s");
    }
}

/// How many tokens a second are checked, and read window by window.
fn text(directory: &Path) -> (f64, f64) {
    let (file, out) = (directory.join("text.txt"), directory.join("text"));
    std::fs::write(&file, "to be or not to be, that is the question\n".repeat(1 << 20)).expect("written");
    let options = PrepareOptions { documents: vec![file], tokenizer: TokenizerPolicy::Bytes, end: None, out };
    let summary = tokens::prepare(&options, &mut |_| {}).expect("prepared");
    let check = fastest(|| assert_eq!(tokens::check(&options.out, &mut |_, _| {}).expect("as it should be"), summary));
    let source = options.out.display().to_string();
    let options = DataOptions { source, text: true, context: Some(CONTEXT), ..DataOptions::default() };
    let dataset = Dataset::load(&options).expect("a text");
    let samples = dataset.training();
    let order = SplitMix64Generator::new(7).permutation(u32::try_from(samples.len()).expect("few"));
    let windows = fastest(|| {
        for batch in order.chunks(BATCH) {
            assert_eq!(samples.windows(batch).expect("read").len(), batch.len() * (CONTEXT as usize + 1));
        }
    });
    (summary.tokens as f64 / check, order.len() as f64 * f64::from(CONTEXT) / windows)
}

/// Of several rounds, in seconds.
fn fastest(mut work: impl FnMut()) -> f64 {
    let round = |_| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    };
    (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min)
}

/// Ten columns of numbers and one of classes.
fn csv() -> String {
    let mut generator = SplitMix64Generator::new(3);
    let mut text = (0..10).map(|column| format!("column {column},")).collect::<String>() + "class\n";
    for _ in 0..200_000 {
        for _ in 0..10 {
            write!(text, "{:.4},", f64::from(generator.below(1 << 20)) / 1e3).expect("in memory");
        }
        text.push_str(["one\n", "two\n"][generator.below(2) as usize]);
    }
    text
}
