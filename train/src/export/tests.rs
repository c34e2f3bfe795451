//! Models that were trained here, exported, and read back.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use starling_data::stream::{LabelPolicy, Reader};
use starling_run::program::export::{DESCRIPTION, MODEL, SCRIPT};
use starling_run::training::contribution;
use starling_run::{Gradient, InitialOrigin, Learner, OptimizerSpec, Program, RunSpec};
use starling_topology::PeerId;
use starling_topology::ledger::UNMEASURED;

use super::*;
use crate::{DataOptions, DeviceSpec, ModelProgram};

const CPU: DeviceSpec = DeviceSpec::Cpu;
/// So many steps are enough to tell the classes of a table.
const STEPS: u64 = 60;

/// Trains a model for some steps.
pub(super) fn trained(model: &str, options: &DataOptions) -> Box<dyn Learner> {
    let workload = ModelProgram::new(CPU).read(options).expect("good data");
    let spec = RunSpec {
        model: model.parse().expect("a model"),
        optimizer: OptimizerSpec::sgd(if model == "linear" { 0.05 } else { 0.5 }),
        micro_batch: if model.contains("batch-norm") { 16 } else { 0 },
        steps: STEPS,
        ..RunSpec::default()
    };
    let manifest = workload.found(&spec).expect("a run");
    let mut learner = workload.open(&manifest).expect("opened");
    let me = PeerId([1; 32]);
    learner.begin(&[me]);
    let mut gradient = Gradient::new(manifest.reduced());
    for step in 1..=STEPS {
        gradient.clear();
        let weight = learner.compute(me, &gradient, &mut |_| ()).expect("computed");
        let record = contribution::alone(step, gradient.values(), weight, manifest.batch_size, me, UNMEASURED);
        learner.apply(&record).expect("applied");
    }
    learner
}

/// A table of three classes that two of its columns tell apart, with a header, its label in the middle, and a constant column.
pub(super) fn table(folder: &Path, rows: u32) -> PathBuf {
    let row = |at: u32| {
        let kind = ["a,b", "c", "d \"e\""][at as usize % 3].replace('"', "\"\"");
        format!("{}.5;{};\"{kind}\";7\n", at % 3 * 10 + at % 5, at * at % 11)
    };
    let path = folder.join("table.csv");
    let text: String = (0..rows).map(row).collect();
    std::fs::write(&path, format!("width;height;kind;same\n{text}")).expect("written");
    path
}

pub(super) fn options(path: &Path) -> DataOptions {
    let label = Some(starling_data::TableColumn::Written("kind".to_owned()));
    DataOptions { source: path.display().to_string(), label, ..DataOptions::default() }
}

/// A table with two columns of numbers between its features that follow from these, and with two marks.
pub(super) fn several(folder: &Path, label: &str) -> DataOptions {
    let row = |at: u32| {
        let (a, b) = (f64::from(at % 10), f64::from(at * at % 7));
        let marks = [a > b + 1.0, a + b > 8.0].map(u8::from);
        format!("{a},{},{b},{},{},{}\n", 3.0 * a - b, 100.0 * b + 7.0, marks[0], marks[1])
    };
    let path = folder.join("several.csv");
    std::fs::write(&path, format!("a,price,b,rent,wide,large\n{}", (0..600).map(row).collect::<String>()))
        .expect("written");
    let named = |name: &str| starling_data::TableColumn::Written(name.to_owned());
    let ignored = if label.contains("price") { ["wide", "large"] } else { ["price", "rent"] };
    DataOptions {
        source: path.display().to_string(),
        label: Some(named(label)),
        ignored: ignored.map(named).to_vec(),
        ..DataOptions::default()
    }
}

fn predicted(model: &Model, source: &str, shown: &PredictionOptions) -> Result<String, ModelError> {
    let mut reader = Reader::open(source, &model.inputs()?, LabelPolicy::Unused)?;
    let mut out = Vec::new();
    model.predict_all(&mut reader, shown, &mut out)?;
    Ok(String::from_utf8(out).expect("text"))
}

fn evaluated(model: &Model, source: &str, which: EvaluationSet) -> Result<starling_run::EvaluationReport, ModelError> {
    model.evaluate(&mut Reader::open(source, &model.inputs()?, LabelPolicy::Wanted)?, which)
}

#[test]
fn what_is_read_back_measures_what_the_run_measured_to_the_bit() {
    let directory = tempfile::tempdir().expect("a directory");
    let table = table(directory.path(), 1500);
    let numbers = directory.path().join("numbers.csv");
    let row = |at: u32| format!("{},{},{}\n", at % 10, at % 7, f64::from(3 * (at % 10)) - 1.25 * f64::from(at % 7));
    std::fs::write(&numbers, (0..900).map(row).collect::<String>()).expect("written");
    let of_numbers = DataOptions { source: numbers.display().to_string(), ..DataOptions::default() };
    for (name, options) in [
        ("softmax", DataOptions::default()),
        ("mlp:8", options(&table)),
        ("mlp:16,8", DataOptions::default()),
        ("cnn:4,8", DataOptions::default()),
        ("mlp:8+batch-norm", options(&table)),
        ("cnn:4,8+batch-norm", DataOptions::default()),
        ("cnn:4,4,8+residual", DataOptions::default()),
        ("cnn:4,4,8+batch-norm+residual", DataOptions::default()),
        ("regression:6", of_numbers.clone()),
        ("linear", of_numbers),
        ("linear", several(directory.path(), "rent,price")),
        ("regression:6+loss=huber", several(directory.path(), "price,rent")),
        ("mlp:8", several(directory.path(), "wide,large")),
        ("softmax", several(directory.path(), "large,wide")),
    ] {
        let mut learner = trained(name, &options);
        let expected = learner.evaluate().expect("evaluated");
        for to in ["model.safetensors", "out/"] {
            let path = directory.path().join(to);
            learner.export(&path).expect("exported");
            let model = Model::open(&path, CPU).expect("read back");
            let found = evaluated(&model, &options.source, EvaluationSet::HeldOut).expect("evaluated");
            assert_eq!(found, expected, "{name}");
            let all = evaluated(&model, &options.source, EvaluationSet::All).expect("evaluated");
            assert!(all.samples > 4 * found.samples && all.loss.is_finite(), "{name}: {all:?}");
            // Of JSON, the last bit may be another.
            let measures = &model.description().origin.measures;
            let is_loss =
                |(name, mean): &(String, f64)| name == "loss" && (mean - expected.loss).abs() < 1e-12 * mean.abs();
            assert_eq!(measures.first().map(is_loss), (to == "out/").then_some(true), "{name}: {measures:?}");
        }
        let model = std::fs::read(directory.path().join("model.safetensors")).expect("there");
        assert!(std::fs::read(directory.path().join("out").join(MODEL)).expect("there") == model, "one file");
        // What it says is what it is right about.
        let said = Model::open(&directory.path().join("out/"), CPU).expect("read back");
        let all = evaluated(&said, &options.source, EvaluationSet::All).expect("evaluated");
        let text = predicted(&said, &options.source, &PredictionOptions::default()).expect("predicted");
        assert_eq!(text.lines().count() as u64, all.samples + 1, "{name}");
    }
}

#[test]
fn predictions_are_written_as_tables_and_as_lines_of_json() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = table(directory.path(), 300);
    let exported = directory.path().join("model.safetensors");
    trained("mlp:8", &options(&path)).export(&exported).expect("exported");
    let model = Model::open(&exported, CPU).expect("read back");
    // Other columns' order, and without the label.
    let new = directory.path().join("new.csv");
    std::fs::write(&new, "same;height;width\n7;3;0.5\n7;3;10.5\n7;3;20.5\n").expect("written");
    let new = new.display().to_string();
    let plain = predicted(&model, &new, &PredictionOptions::default()).expect("predicted");
    assert_eq!(plain, "prediction\n\"a,b\"\nc\n\"d \"\"e\"\"\"\n");
    let shown = PredictionOptions { probabilities: true, top: 2, ..PredictionOptions::default() };
    let text = predicted(&model, &new, &shown).expect("predicted");
    let mut lines = text.lines();
    let header = "prediction,\"p(a,b)\",p(c),\"p(d \"\"e\"\")\",class 1,probability 1,class 2,probability 2";
    assert_eq!(lines.next(), Some(header));
    assert!(lines.nth(1).is_some_and(|line| line.starts_with("c,0.") && line.contains(",c,0.")), "{text}");
    let text = predicted(&model, &new, &PredictionOptions { format: Format::JsonLines, ..shown }).expect("predicted");
    for (line, class) in text.lines().zip(["a,b", "c", "d \"e\""]) {
        let value: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let probabilities = value["probabilities"].as_object().expect("an object");
        let sum: f64 = probabilities.values().map(|it| it.as_f64().expect("a number")).sum();
        assert!((sum - 1.0).abs() < 1e-6 && probabilities.len() == 3, "{line}");
        assert_eq!((&value["prediction"], &value["top"][0]["class"]), (&class.into(), &class.into()));
        assert_eq!(value["top"][0]["probability"], probabilities[class]);
        assert_eq!(value["top"].as_array().map(Vec::len), Some(2));
    }
    let bad = "width;height;same\n1e300;3;7\n0.5;1e308;7\n";
    std::fs::write(directory.path().join("far.csv"), bad).expect("written");
    let far = directory.path().join("far.csv").display().to_string();
    let error = predicted(&model, &far, &PredictionOptions::default()).expect_err("not finite").to_string();
    assert!(error.contains("far.csv`, row 2") && error.contains("not finite"), "{error}");
}

/// A disk that is full from so many bytes on.
struct FullDisk(usize);

impl std::io::Write for FullDisk {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// What reads and what writes are two threads: neither waits for one that is gone, and the first thing that goes wrong is told.
#[test]
fn the_first_thing_that_goes_wrong_ends_a_prediction() {
    let directory = tempfile::tempdir().expect("a directory");
    let exported = directory.path().join("model.safetensors");
    trained("mlp:8", &options(&table(directory.path(), 300))).export(&exported).expect("exported");
    let model = Model::open(&exported, CPU).expect("read back");
    let said = |text: String, room: usize| {
        let path = directory.path().join("new.csv");
        std::fs::write(&path, text).expect("written");
        let inputs = model.inputs().expect("inputs");
        let mut reader = Reader::open(&path.display().to_string(), &inputs, LabelPolicy::Unused).expect("a table");
        model.predict_all(&mut reader, &PredictionOptions::default(), &mut FullDisk(room))
    };
    let good = "width;height;same\n".to_owned() + &"0.5;3;7\n".repeat(20_000);
    assert_eq!(said(good.clone(), usize::MAX).expect("predicted").samples, 20_000);
    assert!(matches!(said(good.clone(), 50), Err(ModelError::Output(_))));
    // Rows that can't be read come behind those that can't be written, or for which nothing comes out.
    let bad = good.clone() + "1;2\n";
    assert!(matches!(said(bad.clone(), 50), Err(ModelError::Output(_))));
    assert!(matches!(said(bad, usize::MAX), Err(ModelError::Data(_))));
    let far = good.replacen("0.5;3", "1e300;3", 600).replacen("1e300;3", "0.5;3", 599) + "1;2\n";
    assert!(matches!(said(far, usize::MAX), Err(ModelError::NotFinite { row: 601, .. })));
}

#[test]
fn a_regression_has_no_classes_and_needs_labels_that_are_numbers() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("numbers.csv");
    std::fs::write(&path, (0..60).map(|at| format!("{at},{}\n", 2 * at)).collect::<String>()).expect("written");
    let source = path.display().to_string();
    let exported = directory.path().join("model.safetensors");
    let options = DataOptions { source: source.clone(), ..DataOptions::default() };
    trained("linear", &options).export(&exported).expect("exported");
    let model = Model::open(&exported, CPU).expect("read back");
    let text = predicted(&model, &source, &PredictionOptions::default()).expect("predicted");
    assert!(text.lines().skip(1).all(|line| line.parse::<f32>().is_ok()), "{text}");
    for shown in [
        PredictionOptions { top: 1, ..PredictionOptions::default() },
        PredictionOptions { probabilities: true, ..PredictionOptions::default() },
    ] {
        let error = predicted(&model, &source, &shown).expect_err("no classes").to_string();
        assert!(error.contains("`linear` predicts numbers") && error.contains("leave out --"), "{error}");
    }
    std::fs::write(&path, "1,2\n3,x\n").expect("written");
    let error = evaluated(&model, &source, EvaluationSet::All).expect_err("no number").to_string();
    assert!(error.contains("numbers.csv`, row 2: `x` is no number"), "{error}");
}

#[test]
fn data_that_is_not_the_models_is_refused_by_row_and_column() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = table(directory.path(), 300);
    let exported = directory.path().join("out/");
    trained("softmax", &options(&path)).export(&exported).expect("exported");
    let model = Model::open(&exported, CPU).expect("read back");
    let other = directory.path().join("other.csv");
    let source = other.display().to_string();
    for (text, part) in [
        ("width;same\n1;7\n", "`height` is missing"),
        ("width;height;same;depth;x\n1;2;7;1;1\n", "`depth`, `x` are not the model's"),
        ("width;height;same;width\n1;2;7;1\n", "`width` is there twice"),
        (
            "1;2;a;7\n",
            "its first row is `1,2,a,7`, but the model takes columns by their names: write `width`, `height`, `same`",
        ),
        ("width;height;same\n1;x;7\n", "row 2, column 1 (`height`): `x` is not a number"),
        ("width;height;same\n1;2\n", "row 2: it has 2 columns"),
        ("width;height;same\n1;inf;7\n", "`inf` is not a finite number"),
        ("", "it is empty"),
        ("PAR1....", "Parquet file"),
    ] {
        std::fs::write(&other, text).expect("written");
        let error = predicted(&model, &source, &PredictionOptions::default()).expect_err(text).to_string();
        assert!(error.contains("other.csv`") && error.contains(part), "{part}: {error}");
    }
    for (text, which, part) in [
        (
            "width;height;same\n1;2;7\n",
            EvaluationSet::All,
            "has no labels to compare predictions with: it would need a column `kind`",
        ),
        (
            "width;height;kind;same\n1;2;c;7\n1;2;z;7\n",
            EvaluationSet::All,
            "row 3: `z` is no class that the model knows: it has `a,b`, `c`",
        ),
        ("width;height;kind;same\n1;2;c;7\n", EvaluationSet::HeldOut, "it has 1 samples, but sample"),
    ] {
        std::fs::write(&other, text).expect("written");
        let error = evaluated(&model, &source, which).expect_err(text).to_string();
        assert!(error.contains(part), "{part}: {error}");
    }
    // As long as the last row that was held out, but not the run's table.
    let text = std::fs::read_to_string(&path).expect("there");
    std::fs::write(&other, text + "1;2;c;7\n").expect("written");
    let error = evaluated(&model, &source, EvaluationSet::HeldOut).expect_err("longer").to_string();
    assert!(error.contains("it has 301 samples, but the run's data had 300"), "{error}");
    let missing =
        Reader::open("missing.csv", &model.inputs().expect("inputs"), LabelPolicy::Unused).expect_err("missing");
    assert!(missing.to_string().contains("cannot read `missing.csv`"), "{missing}");
}

/// Those of a table in which words say it are no others than the ones that were trained on, and those that were drawn no words.
#[test]
fn held_out_rows_are_those_that_a_column_says_in_the_way_that_the_runs_did() {
    type Side = fn(u32) -> &'static str;

    let directory = tempfile::tempdir().expect("a directory");
    let written = |name: &str, rows: u32, side: Side| {
        let path = directory.path().join(name);
        let row =
            |at: u32| format!("{}.5,{},{},{}\n", at % 3 * 10, at * at % 11, ["x", "y", "z"][at as usize % 3], side(at));
        let rows: String = (0..rows).map(row).collect();
        std::fs::write(&path, "width,height,kind,side\n".to_owned() + &rows).expect("written");
        path.display().to_string()
    };
    let words: Side = |at| if at % 4 == 3 { "Test" } else { "train" };
    let groups: Side = |at| ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"][at as usize % 12];
    let named = |name: &str| Some(starling_data::TableColumn::Written(name.to_owned()));
    for (own, other, part) in [
        (words, groups, "row 2 does not say by a word in the column of --split-by whether it is held out"),
        (groups, words, "row 2 says by a word in the column of --split-by whether it is held out"),
    ] {
        let source = written("table.csv", 240, own);
        let (label, split_by) = (named("kind"), named("side"));
        let options = DataOptions { source: source.clone(), label, split_by, ..DataOptions::default() };
        let mut learner = trained("softmax", &options);
        let expected = learner.evaluate().expect("evaluated");
        for to in ["model.safetensors", "out/"] {
            let path = directory.path().join(to);
            learner.export(&path).expect("exported");
            let model = Model::open(&path, CPU).expect("read back");
            let of =
                |source: &str| evaluated(&model, source, EvaluationSet::HeldOut).map_err(|error| error.to_string());
            assert_eq!(of(&source).as_ref(), Ok(&expected), "{to}");
            // Any table that has the column, however long it is.
            let fewer = of(&written("fewer.csv", 120, own)).expect("half of it");
            assert_eq!(2 * fewer.samples, expected.samples, "{to}");
            let told = of(&written("other.csv", 240, other)).expect_err("in another way");
            assert!(told.contains(part), "{to}: {told}");
            let told = of(&written("empty.csv", 240, |_| "")).expect_err("in no way");
            assert!(told.contains("its cell in the column of --split-by is empty or no text"), "{to}: {told}");
        }
        let model = Model::open(&directory.path().join("out/"), CPU).expect("read back");
        let trained_on = written("trained.csv", 40, |_| "train");
        let told = evaluated(&model, &trained_on, EvaluationSet::HeldOut).expect_err("none is").to_string();
        let part = if part.contains("not say") { "none of its 40 rows is held out" } else { part };
        assert!(told.contains("does not have the samples that the run held out") && told.contains(part), "{told}");
    }
}

#[test]
fn a_byte_that_was_flipped_is_told_and_never_a_panic() {
    let directory = tempfile::tempdir().expect("a directory");
    let exported = directory.path().join("out/");
    trained("mlp:2", &options(&table(directory.path(), 60))).export(&exported).expect("exported");
    let (file, alone) = (exported.join(MODEL), directory.path().join("alone.safetensors"));
    let bytes = std::fs::read(&file).expect("read");
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        std::fs::write(&file, &damaged).expect("written");
        let error = Model::open(&exported, CPU).expect_err("damaged").to_string();
        assert!(error.contains("is damaged: its blake3 is"), "byte {at}: {error}");
        // A file alone has no hash: whatever it is then, it is no panic.
        std::fs::write(&alone, &damaged).expect("written");
        let opened = Model::open(&alone, CPU);
        assert!(at >= 8 || opened.is_err(), "byte {at} of the header's length");
        if let Ok(model) = opened {
            let _ = model.predict(&[1.0; 3]);
        }
    }
    // In its folder it is checked, byte for byte, unless it is another run's by what it says.
    let of_run = bytes.windows(6).position(|window| window == b"\"run\":").expect("it says its run");
    for at in of_run..of_run + 70 {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        std::fs::write(&file, &damaged).expect("written");
        assert!(Model::open(&file, CPU).is_err(), "byte {at}");
    }
    let mut damaged = bytes.clone();
    *damaged.last_mut().expect("not empty") ^= 1;
    std::fs::write(&file, &damaged).expect("written");
    assert!(matches!(Model::open(&file, CPU), Err(ModelError::Damaged { .. })));
    let text = std::fs::read_to_string(exported.join(DESCRIPTION)).expect("there");
    let run = Description::open(&alone_of(&bytes, directory.path())).expect("an export").origin.run;
    redescribe(&exported, &text, &run, &blake3::hash(b"another run").to_string());
    assert!(Model::open(&file, CPU).is_ok() && Model::open(&exported, CPU).is_err());
    std::fs::write(exported.join(DESCRIPTION), "[]").expect("written");
    assert!(Model::open(&file, CPU).is_ok() && Model::open(&exported, CPU).is_err());
    for length in [0, 7, 8, 100, bytes.len() - 1] {
        std::fs::write(&file, &bytes[..length]).expect("written");
        let error = Model::open(&file, CPU).expect_err("cut off").to_string();
        assert!(error.contains("it is no safetensors file, or was cut off"), "{length}: {error}");
    }
    std::fs::remove_file(&file).expect("removed");
    let error = Model::open(&exported, CPU).expect_err("missing").to_string();
    assert!(error.contains("cannot read the model") && error.contains("model.safetensors"), "{error}");
    // What a header claims is not built.
    let claim = |length: u64| [&length.to_le_bytes()[..], b"{}"].concat();
    for length in [u64::MAX, 1 << 40, 99_999_999] {
        std::fs::write(&file, claim(length)).expect("written");
        Model::open(&file, CPU).expect_err("no header");
    }
}

#[test]
fn what_this_program_lacks_is_named_and_not_built() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("model.safetensors");
    let written = |metadata: &[(&str, &str)], shape: &[usize]| {
        let metadata = metadata.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let bytes = vec![0; 4 * shape.iter().product::<usize>()];
        let tensor = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, shape.to_vec(), &bytes);
        let tensor = [("output.weight", tensor.expect("a tensor"))];
        std::fs::write(&file, safetensors::serialize(tensor, Some(metadata)).expect("written")).expect("written");
        Model::open(&file, CPU).expect_err("refused").to_string()
    };
    let run = "ab".repeat(32);
    let of = |model: &'static str, more: &[(&'static str, &'static str)]| {
        let mut metadata = vec![("format", FORMAT), ("run", run.as_str()), ("step", "3"), ("layout", "burn")];
        metadata.push(("model", model));
        let rest = [("shape", "1,1,2"), ("classes", "2")]
            .into_iter()
            .filter(|(key, _)| more.iter().all(|(own, _)| own != key));
        metadata.extend(rest.chain(more.iter().copied()));
        written(&metadata, &[2, 2])
    };
    let tokens = |more: &[(&'static str, &'static str)]| {
        let plain = [("shape", "1,1,4"), ("scaling", "tokenize"), ("data", "tokens"), ("tokenizer_json", "{}")];
        let classes = more.iter().all(|(key, _)| *key != "classes").then_some(("classes", "300"));
        plain.into_iter().chain(classes).chain(more.iter().copied()).collect::<Vec<_>>()
    };
    // Two features, what rows count, and the label.
    let columns = r#"[{"name":"a","coding":"number"},{"name":"b","coding":"number"},{"name":"w","coding":"ignored"}]"#;
    let table = |more: &[(&'static str, &'static str)]| {
        let plain = [("scaling", "divide"), ("divisor", "1"), ("data", "csv"), ("class_names", r#"["x","y"]"#)];
        let of_columns = [("label_column", "3"), ("columns", columns)];
        of("softmax", &plain.into_iter().chain(of_columns).chain(more.iter().copied()).collect::<Vec<_>>())
    };
    let split = [("split_column", "2"), ("split_seed", "1")];
    for (error, part) in [
        (table(&[("weights_column", "2")]), "its tensor `output.bias` is missing"),
        (table(&[("weights_column", "0")]), "its `weights_column` is none of its columns that are `ignored`"),
        (table(&[("weights_column", "x")]), "its `weights_column` is none"),
        (table(&split), "its metadata lack `split_permille`"),
        (table(&split[..1]), "its tensor `output.bias` is missing"),
        (table(&[split[0], split[1], ("split_permille", "999")]), "its tensor `output.bias` is missing"),
        (table(&[split[0], split[1], ("split_permille", "1000")]), "its `split_permille` is no share"),
        (table(&[split[0], split[1], ("split_permille", "9"), ("held_out_last", "3")]), "`held_out_last` says another"),
        (table(&[("split_column", "3"), split[1], ("split_permille", "9")]), "its `split_column` is none of"),
        (of("line", &[("settings", "null")]), "the task `line`, which is a program's own: this program lacks it"),
        (of("vit:2", &[]), "holds `vit:2`, a model that this program lacks: it has softmax, mlp:64"),
        (of("mlp:65536,65536,65536", &[("shape", "1,1,16777216")]), "its tensor `hidden.0.weight` is missing"),
        (of("softmax", &[("shape", "1,1,3")]), "its tensor `output.weight` is [2, 2], but its model has [3, 2]"),
        (of("softmax", &[]), "its tensor `output.bias` is missing"),
        (of("cnn:4", &[]), "cnn needs images"),
        (of("mlp:0", &[]), "a hidden layer has size 0"),
        (of("softmax", &[("shape", "65536,65536,65536")]), "its `shape` has not 1 to"),
        (of("softmax", &[("classes", "1")]), "it has 1 classes"),
        (of("softmax", &[("step", "x")]), "its `step` is not a number"),
        (of("gpt:1x8", &tokens(&[("end_token", "300")])), "its `end_token` is none of its 300 tokens"),
        (
            of("gpt:1x8", &tokens(&[("end_token", "256"), ("tokenizer", "bytes")])),
            "its `tokenizer` is not `tokenizer.json`",
        ),
        (of("gpt:1x8", &tokens(&[("end_token", "-1")])), "its `end_token` is not a number that is possible"),
        (of("gpt:1x8", &tokens(&[("end_token", "256"), ("classes", "2000000")])), "but 2 to 1048576 are possible"),
        (of("softmax", &[("scaling", "wild")]), "its `scaling` is none of"),
        (of("softmax", &[("scaling", "divide"), ("divisor", "0")]), "its `divisor` divides nothing"),
        (of("softmax", &[("scaling", "standardize"), ("means", "[1,nan]")]), "its `means` are not a number for each"),
        (written(&[("format", "other")], &[1]), "its format is not `starling-model-2`"),
        (written(&[], &[1]), "name no format"),
    ] {
        assert!(error.contains(part) && error.contains("model.safetensors"), "{part}: {error}");
    }
}

#[test]
fn a_folder_says_what_it_holds_and_is_the_same_each_time() {
    let directory = tempfile::tempdir().expect("a directory");
    let exported = directory.path().join("out/");
    let learner = trained("mlp:8", &options(&table(directory.path(), 300)));
    let read = || {
        learner.export(&exported).expect("exported");
        ["model.safetensors", "model.json", "README.md", "predict.py"]
            .map(|name| std::fs::read(exported.join(name)).expect(name))
    };
    let first = read();
    assert_eq!(std::fs::read_dir(&exported).expect("read").count(), 4);
    assert!(read() == first, "one checkpoint, one folder");
    let told: serde_json::Value = serde_json::from_slice(&first[1]).expect("JSON");
    let state = learner.state();
    for (key, value) in [
        ("task", "classification".to_owned()),
        ("model", "mlp:8".to_owned()),
        ("run", state.run.to_string()),
        ("digest", state.digest().to_string()),
        ("values", state.values().to_string()),
    ] {
        assert_eq!(told[key], value, "{key}");
    }
    assert_eq!((&told["step"], &told["parameters"]), (&STEPS.into(), &59.into()));
    assert_eq!(told["inputs"]["names"], serde_json::json!(["width", "height", "same"]));
    assert_eq!(told["classes"], serde_json::json!(["a,b", "c", "d \"e\""]));
    assert_eq!((&told["preprocessing"]["scaling"], &told["data"]["samples"]), (&"standardize".into(), &300.into()));
    assert_eq!(told["files"][MODEL], blake3::hash(&first[0]).to_string());
    let card = String::from_utf8_lossy(&first[2]);
    assert!(card.contains("# mlp:8") && card.contains("starling predict . --data table.csv"), "{card}");
    let description = Description::open(&exported).expect("read back");
    let dataset = Arc::new(crate::Dataset::load(&options(&directory.path().join("table.csv"))).expect("good data"));
    let on = description.trained_on.as_ref().expect("known");
    assert_eq!((&on.preprocessing, &*on.label), (dataset.preprocessing(), &[2][..]));
    assert_eq!(description.origin.digest, Some(state.digest().to_string()));
    // What tells nothing that is not told is said to be damaged.
    std::fs::write(exported.join(DESCRIPTION), "{").expect("written");
    assert!(matches!(Description::open(&exported), Err(ModelError::Damaged { .. })));
    assert!(exported.join(SCRIPT).is_file());
}

/// A file of its own with these bytes.
fn alone_of(bytes: &[u8], folder: &Path) -> PathBuf {
    let path = folder.join("whole.safetensors");
    std::fs::write(&path, bytes).expect("written");
    path
}

/// Puts a changed description, with its own hash, into an exported folder.
fn redescribe(exported: &Path, text: &str, from: &str, to: &str) {
    assert!(text.contains(from), "{from}: {text}");
    let told: serde_json::Value = serde_json::from_str(text).expect("JSON");
    let old = told["files"][DESCRIPTION].as_str().expect("its hash").to_owned();
    let changed = text.replacen(from, to, 1);
    let new = folder::hash_of(&changed, &old).expect("it holds it");
    std::fs::write(exported.join(DESCRIPTION), changed.replacen(&old, &new, 1)).expect("written");
}

#[test]
fn a_description_that_was_changed_is_told_and_so_is_one_of_another_model() {
    let directory = tempfile::tempdir().expect("a directory");
    let exported = directory.path().join("out/");
    trained("mlp:2", &options(&table(directory.path(), 60))).export(&exported).expect("exported");
    let place = exported.join(DESCRIPTION);
    let (file, whole) = (exported.join(MODEL), std::fs::read(&place).expect("there"));
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << (at % 8);
        std::fs::write(&place, &damaged).expect("written");
        let error = Description::open(&exported).expect_err("damaged").to_string();
        assert!(error.contains("model.json` is damaged: "), "byte {at}: {error}");
    }
    let text = String::from_utf8(whole).expect("text");
    for (from, to, what) in [
        ("\"step\": 60", "\"step\": 61", "step"),
        ("\"model\": \"mlp:2\"", "\"model\": \"mlp:3\"", "model"),
        ("\"layout\": \"burn\"", "\"layout\": \"torch\"", "layout"),
        ("\"c\"", "\"e\"", "classes"),
        ("\"hidden.0.bias\"", "\"hidden.0.bios\"", "tensors"),
    ] {
        redescribe(&exported, &text, from, to);
        for path in [&exported, &file] {
            let error = Description::open(path).expect_err("another model").to_string();
            assert!(error.contains(&format!("its `{what}` is not what `model.safetensors` says")), "{error}");
        }
    }
}

#[test]
fn a_run_begins_with_a_folder_and_with_nothing_that_its_description_denies() {
    let directory = tempfile::tempdir().expect("a directory");
    let exported = directory.path().join("out/");
    let learner = trained("mlp:2", &options(&table(directory.path(), 60)));
    learner.export(&exported).expect("exported");
    let spec = RunSpec { model: "mlp:2".parse().expect("a model"), ..RunSpec::default() };
    let workload = ModelProgram::new(CPU).read(&options(&directory.path().join("table.csv"))).expect("good data");
    let begin =
        |path: &Path| workload.read_initial(&spec, &InitialOrigin::file(path)).map_err(|error| error.to_string());
    let file = exported.join(MODEL);
    let values = begin(&file).expect("an export");
    assert_eq!(values[..], learner.state().parameters[..]);
    assert_eq!(begin(&exported), Ok(values.clone()));
    let mut damaged = std::fs::read(&file).expect("there");
    *damaged.last_mut().expect("not empty") ^= 1;
    std::fs::write(&file, &damaged).expect("written");
    for path in [&exported, &file] {
        assert!(begin(path).is_err_and(|error| error.contains("is damaged: its blake3 is")), "{}", path.display());
    }
    // Alone, it has no hash.
    let alone = directory.path().join("alone.safetensors");
    std::fs::write(&alone, &damaged).expect("written");
    assert!(begin(&alone).is_ok_and(|found| found != values));
}

#[test]
fn what_comes_to_no_number_is_an_error_with_its_row() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("numbers.csv");
    let text: String = (0..90).map(|at| format!("{},{},{}\n", at % 10, at % 7, at % 10)).collect();
    std::fs::write(&path, format!("a,b,y\n{text}")).expect("written");
    for model in ["linear", "mlp:4"] {
        let exported = directory.path().join("model.safetensors");
        let options = DataOptions { source: path.display().to_string(), ..DataOptions::default() };
        trained(model, &options).export(&exported).expect("exported");
        let model = Model::open(&exported, CPU).expect("read back");
        let far = directory.path().join("far.csv");
        std::fs::write(&far, "a,b,y\n1,2,3\n\n4,1e300,5\n").expect("written");
        let far = far.display().to_string();
        for message in [
            evaluated(&model, &far, EvaluationSet::All).expect_err("no number").to_string(),
            predicted(&model, &far, &PredictionOptions::default()).expect_err("no number").to_string(),
        ] {
            assert!(message.contains("row 4: the model's output is not finite"), "{message}");
        }
    }
}

/// A Python with these modules: the one that `STARLING_TEST_PYTHON` names, or `python3`. Without, a test is skipped, unless
/// `STARLING_TEST_PYTHON_REQUIRED` is there.
pub(super) fn python(modules: &str) -> Option<std::ffi::OsString> {
    let python = std::env::var_os("STARLING_TEST_PYTHON").unwrap_or_else(|| "python3".into());
    let tried = std::process::Command::new(&python).args(["-c", &format!("import {modules}")]).output();
    let is_there = tried.is_ok_and(|tried| tried.status.success());
    let is_required = std::env::var_os("STARLING_TEST_PYTHON_REQUIRED").is_some();
    assert!(is_there || !is_required, "there is no Python with {modules}");
    if !is_there {
        println!("skipped: there is no python3 with {modules}, and STARLING_TEST_PYTHON names none");
    }
    is_there.then_some(python)
}

#[test]
fn the_script_of_a_folder_predicts_as_the_model_does() {
    let Some(python) = python("numpy, safetensors") else { return };
    let directory = tempfile::tempdir().expect("a directory");
    // Categories, one of two lines; gaps; a column that is left out; and lines that end as on Windows.
    let row = |at: u32| {
        let color = ["red", "\"light, or\r\ndark blue\"", "", "\"\"\"green\"\"\""][at as usize % 4];
        let size = if at % 9 == 4 { ["", "NA", "?"][at as usize % 3].to_owned() } else { format!("{}.5", at * 7 % 23) };
        format!(
            "{at},{color},{size},{},{}\r\n",
            at % 5,
            ["small", "\"large, too\""][usize::from(at % 4 == 1 || at % 5 > 2)]
        )
    };
    let text: String = (0..300).map(row).collect();
    let path = directory.path().join("table.csv");
    std::fs::write(&path, format!("id,color,size,\"of\r\nfive\",kind\r\n\r\n{text}")).expect("written");
    let named =
        |names: &[&str]| names.iter().map(|&name| starling_data::TableColumn::Written(name.to_owned())).collect();
    let of_classes =
        DataOptions { source: path.display().to_string(), ignored: named(&["id"]), ..DataOptions::default() };
    let of_numbers = DataOptions {
        label: Some(starling_data::TableColumn::Written("of\nfive".to_owned())),
        categories: named(&["kind"]),
        ..of_classes.clone()
    };
    // Digits as a table of their pixels, which models of images take, too.
    let pixels = directory.path().join("pixels.csv");
    let digits = crate::Dataset::load(&DataOptions::default()).expect("the embedded digits");
    let text: String = (0..300)
        .map(|at| {
            let row = digits.training().row(at);
            row.iter().map(|pixel| format!("{},", pixel * 16.0)).collect::<String>() + "0\n"
        })
        .collect();
    std::fs::write(&pixels, text).expect("written");
    for (model, options) in [
        ("mlp:8", &of_classes),
        ("softmax", &of_classes),
        ("mlp:8+batch-norm", &of_classes),
        ("linear", &of_numbers),
        ("regression:8", &of_numbers),
        ("regression:8+batch-norm", &of_numbers),
        ("cnn:4,8", &DataOptions::default()),
        ("cnn:4,8+batch-norm", &DataOptions::default()),
        ("cnn:4,4,8+batch-norm+residual", &DataOptions::default()),
        ("regression:8", &several(directory.path(), "rent,price")),
        ("mlp:8", &several(directory.path(), "large,wide")),
    ] {
        let several = PathBuf::from(&options.source);
        let path = match options.label.is_some() && several.ends_with("several.csv") {
            true => &several,
            false if model.starts_with("cnn") => &pixels,
            false => &path,
        };
        let to = directory.path().join(format!("{}/", model.replace(':', "-")));
        trained(model, options).export(&to).expect("exported");
        let opened = Model::open(&to, CPU).expect("read back");
        let ours = predicted(&opened, &path.display().to_string(), &PredictionOptions::default());
        let output = std::process::Command::new(&python).arg(to.join(SCRIPT)).arg(path).output().expect("it runs");
        assert!(output.status.success(), "{model}: {}", String::from_utf8_lossy(&output.stderr));
        let theirs = String::from_utf8(output.stdout).expect("text");
        // A table quotes what has a comma.
        let ours = ours.expect("predicted").replace('"', "");
        let (ours, theirs): (Vec<&str>, Vec<&str>) = (ours.lines().skip(1).collect(), theirs.lines().collect());
        let rows = if path.ends_with("several.csv") { 600 } else { 300 };
        assert_eq!((ours.len(), theirs.len()), (rows, rows), "{model}");
        let cells = ours.iter().zip(&theirs).enumerate().flat_map(|(at, (our, their))| {
            our.split(',').zip(their.split(',')).map(move |(our, their)| (at, our, their))
        });
        for (at, our, their) in cells {
            let is_near = match (our.parse::<f64>(), their.parse::<f64>()) {
                (Ok(our), Ok(their)) => (our - their).abs() < 1e-5 * our.abs().max(1.0),
                _ => our == their,
            };
            assert!(is_near, "{model}, row {at}: `{our}` here, `{their}` by the script");
        }
        let kinds: std::collections::BTreeSet<&&str> = ours.iter().collect();
        assert!(kinds.len() > 1, "{model}: one answer for all shows nothing");
    }
}

#[test]
fn the_script_takes_images_in_folders_and_json_lines() {
    let Some(python) = python("numpy, safetensors, PIL") else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    // Two classes, apart by their color, as PNGs of the model's size; one of another shape.
    let script = r#"
import pathlib, sys
import numpy as np
from PIL import Image
random = np.random.default_rng(5)
def image(at, height, width):
    pixels = random.integers(0, 60, (height, width, 3), np.uint8)
    pixels[..., at] += 140
    return Image.fromarray(pixels)
for at, name in enumerate(["red", "blue"]):
    folder = pathlib.Path(sys.argv[1], "images", name)
    folder.mkdir(parents=True)
    for number in range(24):
        image(2 * at, 8, 8).save(folder / f"{number:02}.png")
image(0, 20, 30).save(pathlib.Path(sys.argv[1], "wide.png"))
"#;
    let drawn = std::process::Command::new(&python).args(["-c", script]).arg(path).status().expect("it runs");
    assert!(drawn.success());
    let rows: String = (0..60)
        .map(|at| {
            format!(
                "{{\"size\":{}.5,\"color\":\"{}\",\"kind\":\"{}\"}}\n",
                at % 7,
                ["a", "b"][at % 2],
                ["x", "y"][at % 2]
            )
        })
        .collect();
    std::fs::write(path.join("table.jsonl"), rows).expect("written");
    // As a spreadsheet saves it.
    let row = |at: usize| format!("{}.5,{},{}\r\n", at % 7, ["ä", "b"][at % 2], ["x", "y"][at % 2]);
    let wide = "\u{feff}size,color,kind\r\n".to_owned() + &(0..60).map(row).collect::<String>();
    let wide: Vec<u8> = wide.encode_utf16().flat_map(u16::to_le_bytes).collect();
    std::fs::write(path.join("wide.csv"), wide).expect("written");
    // Pixels with their names in the first row.
    let names: Vec<String> = (0..192).map(|at| format!("p{at}")).collect();
    let numbers: Vec<String> = (0..192).map(|at| (at % 256).to_string()).collect();
    std::fs::write(path.join("pixels.csv"), format!("{}\n{}\n", names.join(","), numbers.join(","))).expect("written");
    let of = |source: &str| DataOptions { source: path.join(source).display().to_string(), ..DataOptions::default() };
    for (model, trained_on, predicted_of) in [
        ("cnn:4", "images", &["images", "images/red/03.png", "wide.png", "pixels.csv"][..]),
        ("mlp:4", "images", &["images", "images/blue/07.png", "pixels.csv"]),
        ("softmax", "table.jsonl", &["table.jsonl"]),
        ("softmax", "wide.csv", &["wide.csv"]),
    ] {
        let to = path.join(format!("{}/", model.replace(':', "-")));
        trained(model, &of(trained_on)).export(&to).expect("exported");
        let card = std::fs::read_to_string(to.join("README.md")).expect("there");
        let told = if trained_on == "images" { "`python predict.py images/`" } else { "`python predict.py table.csv`" };
        assert!(card.contains(told) && !card.contains("images-idx3"), "{card}");
        let opened = Model::open(&to, CPU).expect("read back");
        for source in predicted_of {
            let source = path.join(source);
            let ours = predicted(&opened, &source.display().to_string(), &PredictionOptions::default());
            let ours = ours.expect("predicted");
            let ours: Vec<&str> = ours.lines().skip(1).map(|line| line.rsplit(',').next().unwrap_or(line)).collect();
            let output =
                std::process::Command::new(&python).arg(to.join(SCRIPT)).arg(&source).output().expect("it runs");
            assert!(output.status.success(), "{model}: {}", String::from_utf8_lossy(&output.stderr));
            let theirs = String::from_utf8(output.stdout).expect("text");
            assert_eq!(theirs.lines().collect::<Vec<_>>(), ours, "{model} of {}", source.display());
        }
    }
}

#[test]
fn each_of_several_labels_is_predicted_and_measured_for_itself() {
    let directory = tempfile::tempdir().expect("a directory");
    let opened = |model: &str, label: &str| {
        let options = several(directory.path(), label);
        let to = directory.path().join("out/");
        trained(model, &options).export(&to).expect("exported");
        (Model::open(&to, CPU).expect("read back"), options.source)
    };
    let detail = |model: &Model, source: &str| {
        let mut reader = Reader::open(source, &model.inputs().expect("inputs"), LabelPolicy::Wanted).expect("a table");
        model.evaluate_in_detail(&mut reader, EvaluationSet::All).expect("evaluated")
    };
    let (model, source) = opened("linear", "rent,price");
    assert_eq!((model.labels(), model.description().count()), (Some(vec!["rent".to_owned(), "price".to_owned()]), 6));
    let (all, of_each) = detail(&model, &source);
    let Some(DetailReport::Numbers(targets)) = of_each else { panic!("of numbers") };
    let mean = targets.iter().map(NumberSummary::r2).sum::<f64>() / 2.0;
    assert!((all.measure("r2").expect("measured") - mean).abs() < 1e-9 && mean > 0.99, "{all:?}");
    assert!(targets[0].root_mean_square() >= targets[0].absolute_error() && all.measure("rmse").is_none());
    let json = PredictionOptions { format: Format::JsonLines, ..PredictionOptions::default() };
    let new = directory.path().join("new.csv");
    std::fs::write(&new, "b,a\n1,2\n").expect("written");
    let new = new.display().to_string();
    let line: serde_json::Value =
        serde_json::from_str(&predicted(&model, &new, &json).expect("predicted")).expect("JSON");
    let near = |name: &str, expected: f64| {
        (line["prediction"][name].as_f64().expect("a number") - expected).abs() < 0.15 * expected
    };
    assert!(near("rent", 107.0) && near("price", 5.0), "{line}");
    assert!(predicted(&model, &new, &PredictionOptions::default()).expect("predicted").starts_with("rent,price\n"));
    let shown = PredictionOptions { probabilities: true, ..PredictionOptions::default() };
    assert!(predicted(&model, &new, &shown).expect_err("no classes").to_string().contains("--proba"));

    let (model, source) = opened("mlp:16", "wide,large");
    let (all, of_each) = detail(&model, &source);
    let Some(DetailReport::Labels(labels)) = of_each else { panic!("of labels") };
    let right = |label: &ClassSummary| 600 + 2 * label.hits - label.samples - label.predicted;
    let mean = labels.iter().map(right).sum::<u64>() as f64 / 1200.0;
    assert!((all.measure("accuracy").expect("measured") - mean).abs() < 1e-9 && mean > 0.9, "{all:?}");
    assert!(all.measure("exact_match").is_some_and(|share| share <= mean) && macro_f1(&labels).is_some(), "{all:?}");
    let text = predicted(&model, &new, &shown).expect("predicted");
    let (header, row) = text.trim_end().split_once('\n').expect("two lines");
    assert_eq!((header, row.split(',').count()), ("wide,large,p(wide),p(large)", 4));
    let top = PredictionOptions { top: 1, ..PredictionOptions::default() };
    assert!(predicted(&model, &new, &top).expect_err("no classes").to_string().contains("--top-k"));
    let other = directory.path().join("other.csv");
    std::fs::write(&other, "a,b,wide,large\n1,2,0,3\n").expect("written");
    let error = evaluated(&model, &other.display().to_string(), EvaluationSet::All).expect_err("no mark").to_string();
    assert!(error.contains("none of 0 and 1"), "{error}");
    let refused = |model: &str, label: &str| {
        let workload = ModelProgram::new(CPU).read(&several(directory.path(), label)).expect("good data");
        let spec = RunSpec { model: model.parse().expect("a model"), ..RunSpec::default() };
        workload.found(&spec).expect_err("refused").to_string()
    };
    assert!(refused("mlp", "price,rent").contains("all are 0 or 1, but one is"));
    assert!(refused("mlp+class-weights=balanced", "wide,large").contains("no classes that could be weighed"));
    assert!(refused("cnn:4", "wide,large").contains("cnn needs images"));
}

#[test]
fn labels_of_one_name_are_told_by_their_columns() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("twice.csv");
    let rows: String = (0..60).map(|at| format!("{at},{},{}\n", 2 * at, 3 * at)).collect();
    std::fs::write(&path, "a,price,price\n".to_owned() + &rows).expect("written");
    let label = Some(starling_data::TableColumn::Written("1,2".to_owned()));
    let options = DataOptions { source: path.display().to_string(), label, ..DataOptions::default() };
    let to = directory.path().join("out/");
    trained("linear", &options).export(&to).expect("exported");
    let model = Model::open(&to, CPU).expect("read back");
    let json = PredictionOptions { format: Format::JsonLines, ..PredictionOptions::default() };
    let lines = predicted(&model, &options.source, &json).expect("predicted");
    let line = lines.lines().next().expect("a line");
    assert!(line.contains("\"price (column 1)\":") && line.contains("\"price (column 2)\":"), "{line}");
}

/// A text of few words.
pub(super) fn words(folder: &Path) -> DataOptions {
    let path = folder.join("words.txt");
    let text: String = (0..900_u32).map(|at| ["rose ", "is a ", "and so ", "a "][(at * at % 7 % 4) as usize]).collect();
    std::fs::write(&path, text).expect("written");
    DataOptions { source: path.display().to_string(), text: true, context: Some(16), ..DataOptions::default() }
}

#[test]
fn a_language_model_measures_what_its_run_measured_and_says_the_same_with_and_without_a_cache() {
    let directory = tempfile::tempdir().expect("a directory");
    let options = words(directory.path());
    for spec in ["gpt:2x16x2", "gpt:2x32x4x2+tied-output"] {
        a_language_model_of(spec, directory.path(), &options);
    }
}

fn a_language_model_of(spec: &str, folder: &Path, options: &DataOptions) {
    let mut learner = trained(spec, options);
    let expected = learner.evaluate().expect("evaluated");
    assert!(expected.measure("bits_per_byte").is_some_and(|bits| bits < 8.0), "{expected:?}");
    let path = folder.join("out/");
    learner.export(&path).expect("exported");
    let model = Model::open(&path, CPU).expect("read back");
    assert_eq!(evaluated(&model, &options.source, EvaluationSet::HeldOut).expect("evaluated"), expected);
    // Longer than the context, so that it goes on with the later half several times.
    let said = |prompt: &str, sampling, is_cached: bool| {
        let mut generation = model.generate(prompt.as_bytes(), sampling).expect("a language model");
        if !is_cached {
            generation = generation.without_cache();
        }
        (0..60).map(|_| generation.draw().expect("drawn") as u8).collect::<Vec<u8>>()
    };
    for prompt in ["", "rose is", "a prompt that is longer than sixteen bytes"] {
        for temperature in [0.0, 1.0] {
            let sampling = SamplingOptions { temperature, ..SamplingOptions::default() };
            assert_eq!(said(prompt, sampling, true), said(prompt, sampling, false), "{prompt:?} at {temperature}");
        }
    }
    let warm = SamplingOptions { temperature: 1.0, ..SamplingOptions::default() };
    assert_ne!(said("rose", warm, true), said("rose", SamplingOptions { seed: 1, ..warm }, true));
    assert!(!path.join(SCRIPT).exists());
    let card = std::fs::read_to_string(path.join("README.md")).expect("there");
    assert!(card.contains("starling generate") && card.contains("**bits_per_byte**"), "{card}");
    let refused = predicted(&model, &options.source, &PredictionOptions::default()).expect_err("no labels").to_string();
    assert!(refused.contains("starling generate"), "{refused}");
    let digits = folder.join("digits.safetensors");
    trained("softmax", &DataOptions::default()).export(&digits).expect("exported");
    let refused = Model::open(&digits, CPU).expect("read back").generate(b"a", warm).expect_err("no text").to_string();
    assert!(refused.contains("`softmax` has learned no text"), "{refused}");
}
