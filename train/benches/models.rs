//! How fast trained models are used: predictions for a table that is larger than what they keep of it, from file to file, and a text that goes
//! on, with and without the cache of what was seen. The table is in the system's cache: what is measured is this code.
//!
//! `cargo bench -p starling-train --bench models`, with `-- --json` for one JSON line per figure, and `-- --mib 1024` for a table of another size.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use starling_run::{Program, RunSpec};
use starling_topology::SplitMix64Generator;
use starling_train::export::{PredictionOptions, SamplingOptions};
use starling_train::stream::{LabelPolicy, Reader};
use starling_train::{DataOptions, DeviceSpec, Model, ModelProgram};

const MIB: f64 = (1 << 20) as f64;
const COLUMNS: usize = 30;
/// Rows that the table repeats.
const ROWS: usize = 10_000;
const CONTEXT: u32 = 512;
const TOKENS: usize = 256;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let json = arguments.iter().any(|argument| argument == "--json");
    let mib = arguments.iter().position(|argument| argument == "--mib").and_then(|at| arguments.get(at + 1));
    let mib = mib.map_or(256, |mib| mib.parse().expect("a number of MiB"));
    let directory = tempfile::tempdir().expect("a temporary directory");
    let report = |figure: &str, value: f64, unit: &str| match json {
        true => println!("{{\"figure\":\"{figure}\",\"value\":{value:.1},\"unit\":\"{unit}\"}}"),
        false => println!("{figure:34} {value:>10.1} {unit}"),
    };
    let (rate, peak) = predict(directory.path(), mib);
    report("predict, mlp:64 of 30 columns", rate, "MiB/s of CSV");
    if let Some(peak) = peak {
        report("  the most memory of the process", peak, "MiB");
    }
    let [with, without] = generate(directory.path());
    report("generate, gpt:4x128 of 512 tokens", with, "tokens/s");
    report("  without its cache", without, "tokens/s");
    report("  that is", with / without, "times");
}

/// A model as it is before its first step, exported: what it costs to use is not a question of what it has learned.
fn model(directory: &Path, name: &str, data: DataOptions) -> Model {
    let workload = ModelProgram::new(DeviceSpec::Cpu).read(&data).expect("good data");
    let spec = RunSpec { model: name.parse().expect("a model"), ..RunSpec::default() };
    let manifest = workload.found(&spec).expect("a run");
    let path = directory.join("model.safetensors");
    workload.open(&manifest).expect("opened").export(&path).expect("exported");
    Model::open(&path, DeviceSpec::Cpu).expect("a model")
}

/// MiB of a table of `mib` MiB that are predicted a second, and the most memory that the process has taken, in MiB, if the system tells.
fn predict(directory: &Path, mib: usize) -> (f64, Option<f64>) {
    let mut rows = String::new();
    let mut generator = SplitMix64Generator::new(3);
    for _ in 0..ROWS {
        for _ in 0..COLUMNS {
            write!(rows, "{:.6},", f64::from(generator.below(1 << 20)) / 1e4).expect("in memory");
        }
        rows.push_str(["one\n", "two\n", "three\n"][generator.below(3) as usize]);
    }
    let header = (0..COLUMNS).map(|column| format!("column {column},")).collect::<String>() + "class\n";
    let write = |name: &str, times: usize| -> PathBuf {
        let path = directory.join(name);
        let mut file = BufWriter::new(File::create(&path).expect("created"));
        file.write_all(header.as_bytes()).expect("written");
        (0..times).for_each(|_| file.write_all(rows.as_bytes()).expect("written"));
        file.flush().expect("written");
        path
    };
    let small = write("small.csv", 1).display().to_string();
    let model = model(directory, "mlp:64", DataOptions { source: small, ..DataOptions::default() });
    let table = write("table.csv", (mib << 20).div_ceil(rows.len()));
    let bytes = std::fs::metadata(&table).expect("there").len() as f64;
    let start = Instant::now();
    let inputs = model.inputs().expect("inputs");
    let mut reader = Reader::open(&table.display().to_string(), &inputs, LabelPolicy::Unused).expect("a table");
    let mut out = BufWriter::new(File::create(directory.join("predictions.csv")).expect("created"));
    model.predict_all(&mut reader, &PredictionOptions::default(), &mut out).expect("predicted");
    out.flush().expect("written");
    let rate = bytes / MIB / start.elapsed().as_secs_f64();
    std::fs::remove_file(&table).expect("there");
    (rate, peak())
}

/// The most memory that this process has taken, in MiB.
fn peak() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kib = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.strip_suffix("kB"))?;
    Some(kib.trim().parse::<f64>().ok()? / 1024.0)
}

/// Tokens a second with and without the cache: the same ones.
fn generate(directory: &Path) -> [f64; 2] {
    let text = directory.join("text.txt");
    std::fs::write(&text, "to be or not to be, that is the question\n".repeat(1 << 10)).expect("written");
    let source = text.display().to_string();
    let data = DataOptions { source, text: true, context: Some(CONTEXT), ..DataOptions::default() };
    let model = model(directory, "gpt:4x128", data);
    let generation = || model.generate(b"to be", SamplingOptions::default()).expect("a language model");
    let timed = |mut generation: starling_train::export::TextGenerator<'_>| {
        let start = Instant::now();
        let tokens: Vec<u32> = (0..TOKENS).map(|_| generation.draw().expect("drawn")).collect();
        (TOKENS as f64 / start.elapsed().as_secs_f64(), tokens)
    };
    let ((with, ours), (without, theirs)) = (timed(generation()), timed(generation().without_cache()));
    assert_eq!(ours, theirs, "one seed, one text");
    [with, without]
}
