//! Tables as people have them: what is understood of them is told, and what was learned from them can be used elsewhere.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use safetensors::SafeTensors;
use serde_json::Value;
use starling_tests::{Outcome, Peer, PeerOptions, data, starling};
use tempfile::TempDir;

/// The breast cancer table with its class first, as a word, and semicolons between its cells.
fn write_table(folder: &Path) -> PathBuf {
    let table = std::fs::read_to_string(data::breast_cancer()).expect("the table is there");
    let mut lines = table.lines().map(|line| {
        let (features, label) = line.rsplit_once(',').expect("columns");
        let label = match label {
            "1" => "benign",
            "0" => "malignant",
            name => name,
        };
        format!("{label},{features}").replace(',', ";") + "\n"
    });
    let header = lines.next().expect("a header").replacen("benign", "diagnosis", 1);
    let path = folder.join("table.csv");
    std::fs::write(&path, header + &lines.collect::<String>()).expect("written");
    path
}

/// A model as another program finds it.
struct Model {
    metadata: HashMap<String, String>,
    tensors: HashMap<String, (Vec<usize>, Vec<f32>)>,
}

impl Model {
    fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).expect("there");
        let (_, header) = SafeTensors::read_metadata(&bytes).expect("a header");
        let metadata = header.metadata().clone().expect("metadata");
        let file = SafeTensors::deserialize(&bytes).expect("tensors");
        let number = |bytes: &[u8; 4]| f32::from_le_bytes(*bytes);
        let tensor = |(name, view): (String, safetensors::tensor::TensorView<'_>)| {
            (name, (view.shape().to_vec(), view.data().as_chunks::<4>().0.iter().map(number).collect()))
        };
        Self { metadata, tensors: file.tensors().into_iter().map(tensor).collect() }
    }

    fn list(&self, key: &str) -> Vec<Value> {
        serde_json::from_str(&self.metadata[key]).expect("a list")
    }

    fn numbers(&self, key: &str) -> Vec<f64> {
        self.list(key).iter().map(|value| value.as_f64().expect("a number")).collect()
    }

    /// x · weight + bias.
    fn linear(&self, layer: &str, inputs: &[f32]) -> Vec<f32> {
        let (shape, weights) = &self.tensors[&format!("{layer}.weight")];
        let mut outputs = self.tensors[&format!("{layer}.bias")].1.clone();
        for (input, row) in inputs.iter().zip(weights.chunks_exact(shape[1])) {
            outputs.iter_mut().zip(row).for_each(|(output, weight)| *output += input * weight);
        }
        outputs
    }

    /// The class that a model with one hidden layer sees in a row of the table, and the one that the table says.
    fn classes(&self, row: &str) -> [String; 2] {
        let mut cells: Vec<&str> = row.split(';').collect();
        let label = cells.remove(self.metadata["label_column"].parse().expect("an index")).to_owned();
        let (means, deviations) = (self.numbers("means"), self.numbers("deviations"));
        let value = |(at, cell): (usize, &&str)| {
            let value: f64 = cell.parse().expect("a number");
            if deviations[at] == 0.0 { 0.0 } else { ((value - means[at]) / deviations[at]) as f32 }
        };
        let inputs: Vec<f32> = cells.iter().enumerate().map(value).collect();
        let hidden: Vec<f32> = self.linear("hidden.0", &inputs).into_iter().map(|value| value.max(0.0)).collect();
        let outputs = self.linear("output", &hidden);
        let best = (0..outputs.len()).max_by(|a, b| outputs[*a].total_cmp(&outputs[*b])).expect("classes");
        [self.list("class_names")[best].as_str().expect("a name").to_owned(), label]
    }
}

#[test]
fn a_model_reaches_its_accuracy_by_what_its_file_says() {
    let folder = TempDir::new().expect("a temp dir");
    let (table, exported) = (write_table(folder.path()), folder.path().join("model.safetensors"));
    let options = PeerOptions::flags("--label diagnosis --model mlp:8 --steps 60 --seed 5");
    let peer = Peer::run(&options.with("--data", &table).with("--export", &exported));
    let dir = peer.dir();
    let outcome = peer.finish();
    let accuracy = outcome.summary()["measures"]["accuracy"].as_f64().expect("a share");

    let model = Model::read(&exported);
    for (key, value) in [
        ("scaling", "standardize"),
        ("label_name", "diagnosis"),
        ("label_column", "0"),
        ("header", "true"),
        ("delimiter", "semicolon"),
        ("class_names", r#"["benign","malignant"]"#),
    ] {
        assert_eq!(model.metadata[key], value, "{key}");
    }
    assert_eq!(model.list("feature_names").len(), 30);
    let text = std::fs::read_to_string(&table).expect("there");
    let rows: Vec<&str> = text.lines().skip(1).collect();
    let held_out = model.numbers("held_out_rows");
    assert_eq!(held_out.len(), 114);
    let right = held_out.iter().filter(|row| {
        let [seen, is] = model.classes(rows[**row as usize]);
        seen == is
    });
    let (right, printed) = (right.count() as f64, accuracy * held_out.len() as f64);
    assert!((right - printed).abs() < 1.5, "{right} right, but {printed} were told");
    assert!(right > 100.0, "{right} of 114 are too few to show anything");

    // A checkpoint says the same.
    let again = folder.path().join("again.safetensors");
    let mut command = starling(dir.path());
    command.args(["checkpoint", "export", "--json", "--data-dir", "state", "--to"]).arg(&again);
    let output = command.output().expect("it runs");
    let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&said["step"], &said["preprocessing"]), (&60.into(), &true.into()), "{said}");
    let [once, twice] = [&exported, &again].map(|path| std::fs::read(path).expect("there"));
    assert!(once == twice, "two exports of one state differ");
}

/// Members without a copy get the table, and which of its columns are labels.
#[test]
fn members_learn_several_labels_and_say_how_good_they_are_at_each() {
    let folder = TempDir::new().expect("a temp dir");
    let dir = folder.path();
    let row = |at: u32| {
        let (a, b) = (at % 10, at * at % 7);
        format!("{a},{b},{},{},{},{}\n", 3 * a + b, 100 * b, u32::from(a > b), u32::from(a + b > 7))
    };
    let rows: String = (0..400).map(row).collect();
    std::fs::write(dir.join("table.csv"), format!("a,b,price,rent,wide,large\n{rows}")).expect("written");
    for (flags, labels, parts) in [
        ("--model linear --label rent,price --ignore wide,large", ["rent", "price"], ["r2 ", "absolute_error"]),
        ("--model mlp:16 --label wide,large --ignore price,rent", ["wide", "large"], ["exact_match", "macro_f1"]),
    ] {
        let flags = format!("{flags} --learning-rate 0.05 --steps 120 --min-peers 2 --share-data");
        let options = PeerOptions::networked(&flags).with("--data", dir.join("table.csv"));
        let founder = Peer::run(&options.with("--export", dir.join("out/")));
        let joiner = Peer::join(&founder.ticket(), &PeerOptions::networked(""));
        let outcomes = [founder, joiner].map(Peer::finish);
        let [first, second] = outcomes.each_ref().map(|outcome| outcome.summary());
        assert_eq!((&first["outcome"], &first["digest"]), (&Value::from("complete"), &second["digest"]), "{flags}");
        let said = |line: &str| {
            let output = starling(dir).args(line.split_whitespace()).output().expect("it runs");
            assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).expect("text")
        };
        let held_out: Value =
            serde_json::from_str(&said("eval out/ --data table.csv --held-out --json")).expect("JSON");
        assert_eq!(held_out["loss"], first["held_out_loss"], "to the bit");
        let good = ["r2", "accuracy"].map(|name| held_out["measures"][name].as_f64());
        assert!(good.into_iter().flatten().all(|share| share > 0.9), "{flags}: {held_out}");
        let told = held_out["labels"].as_array().expect("a list").iter().map(|label| &label["label"]);
        assert_eq!(told.collect::<Vec<_>>(), labels, "{flags}");
        let text = said("eval out/ --data table.csv");
        assert!(parts.iter().all(|part| text.contains(part)), "{flags}: {text}");
        assert!(said("predict out/ --data table.csv").starts_with(&(labels.join(",") + "\n")), "{flags}");
        assert!(said("model show out/").contains(&format!("2: {}", labels.join(", "))), "{flags}");
    }
}

/// Founds a run of one step on a table, and hands out what was told.
fn told(text: &str, flags: &str) -> Outcome {
    let folder = TempDir::new().expect("a temp dir");
    let path = folder.path().join("table.csv");
    std::fs::write(&path, text).expect("written");
    let options = PeerOptions::flags(&format!("--steps 1 --model softmax {flags}")).with("--data", &path);
    Peer::run(&options).finish()
}

/// What was understood of the data, and the warnings.
fn understood(outcome: &Outcome) -> (&Value, Vec<&str>) {
    let events = || outcome.events.iter().map(|(_, event)| event);
    let data = events().find(|event| event["event"] == "data").expect("what was understood");
    let warnings = events().filter(|event| event["event"] == "warning");
    (data, warnings.map(|event| event["message"].as_str().expect("text")).collect())
}

#[test]
fn what_was_likely_not_meant_is_told_with_the_flag_that_mends_it() {
    let rows = |row: fn(u32) -> String| (0..178).map(|at| row(at) + "\n").collect::<String>();
    let class_first = rows(|row| format!("{},{row}.5,{}", row % 3 + 1, 278 + 7 * (row % 121)));
    let prices = rows(|row| format!("{}.25,{}", row * row, 10_000 + 37 * row));
    let years = format!("2019,2020,2021\n{}", rows(|row| format!("{row}.5,{row}.25,{}", row % 3)));
    for (text, mended_by, classes) in
        [(&class_first, "--label 0", [121, 3]), (&prices, "--label", [178, 0]), (&years, "--header", [4, 3])]
    {
        // Two classes are held out by chance, or none: the batch is smaller than any table.
        let outcome = told(text, "--batch-size 1");
        let (data, warnings) = understood(&outcome);
        assert_eq!((&data["classes"], &data["header"]), (&classes[0].into(), &false.into()), "{data}");
        assert!(warnings.len() == 1 && warnings[0].contains(mended_by), "{mended_by}: {warnings:?}");
        if classes[1] > 0 {
            let outcome = told(text, &format!("--batch-size 1 {mended_by}"));
            let (data, warnings) = understood(&outcome);
            assert_eq!((&data["classes"], warnings), (&classes[1].into(), Vec::new()), "{data}");
        }
    }
    let outcome = told(&class_first, "--label 0 --batch-size 1000");
    let (data, warnings) = understood(&outcome);
    assert!(warnings.len() == 1 && warnings[0].contains("--batch-size"), "{warnings:?}");
    let counts = serde_json::json!([{"name":"1","samples":60},{"name":"2","samples":59},{"name":"3","samples":59}]);
    assert_eq!((&data["samples"], &data["counts"]), (&178.into(), &counts));
}

#[test]
fn what_was_understood_is_one_line() {
    let folder = TempDir::new().expect("a temp dir");
    write_table(folder.path());
    let mut command = starling(folder.path());
    let run = ["run", "--data", "table.csv", "--label", "diagnosis", "--steps", "1", "--data-dir", "state"];
    let output = command.args(run).args(["--listen", "/ip4/127.0.0.1/tcp/0", "--device", "cpu"]).output();
    let output = output.expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let expected = "table.csv: 569 rows, 30 features, label column 0 `diagnosis` (2 classes: benign 357, malignant 212), \
                    header found, 114 held out, separated by semicolon";
    assert!(text.lines().any(|line| line.ends_with(expected)), "{text}");
}

#[test]
fn copies_with_other_delimiters_are_one_data_set() {
    let folder = TempDir::new().expect("a temp dir");
    let table = write_table(folder.path());
    let other = folder.path().join("other.csv");
    let text = std::fs::read_to_string(&table).expect("there").replace(';', "\t");
    std::fs::write(&other, text).expect("written");
    let flags = "--label diagnosis --model softmax --steps 40 --min-peers 2";
    let founder = Peer::run(&PeerOptions::flags(flags).with("--data", &table));
    let joiner = Peer::join(&founder.ticket(), &PeerOptions::flags("--delimiter tab").with("--data", &other));
    // A joiner that is refused says why; a founder would only wait for it.
    let joined = joiner.finish().summary().clone();
    assert_eq!(joined["digest"], founder.finish().summary()["digest"]);
}

#[test]
fn who_has_the_values_under_other_names_exports_the_runs() {
    let folder = TempDir::new().expect("a temp dir");
    let place = |name: &str| folder.path().join(name);
    let rows = (0..60).map(|at| format!("{},{},{}\n", at % 7, at % 5, if at % 7 > 2 { "up" } else { "down" }));
    let rows = rows.collect::<String>();
    std::fs::write(place("ours.csv"), format!("wind,rain,price\n{rows}")).expect("written");
    std::fs::write(place("theirs.csv"), format!("a,b,c\n{rows}")).expect("written");
    let flags = "--model softmax --steps 30 --min-peers 2";
    let founder =
        Peer::run(&PeerOptions::flags(flags).with("--data", place("ours.csv")).with("--export", place("one/")));
    let options = PeerOptions::flags("").with("--data", place("theirs.csv")).with("--export", place("two/"));
    let joiner = Peer::join(&founder.ticket(), &options);
    let joined = joiner.finish();
    assert_eq!(joined.summary()["digest"], founder.finish().summary()["digest"]);
    let (_, warnings) = understood(&joined);
    assert!(
        warnings.iter().any(|warning| {
            warning.contains("the label has the name `c` here, the name `price` there")
                && warning.contains("an export has the run's")
        }),
        "{warnings:?}"
    );
    let read = |folder: &str| std::fs::read_to_string(place(folder).join("model.json")).expect("exported");
    assert!(read("one").contains("\"rain\"") && read("one") == read("two"), "{}", read("two"));
}

/// Who has which fruit, with what their users leave empty, and a name for each row.
fn fruit(rows: u32) -> String {
    let row = |at: u32| {
        let sweet = !at.is_multiple_of(3);
        let color = match (at % 7, sweet) {
            (0, _) => "",
            (_, true) => "red",
            (_, false) => "green",
        };
        let weight = if at.is_multiple_of(5) { "NA".to_owned() } else { format!("{}.5", 100 + at % 40) };
        format!("fruit {at},{color},{weight},{}\n", if sweet { "sweet" } else { "sour" })
    };
    "name,color,weight,taste\n".to_owned() + &(0..rows).map(row).collect::<String>()
}

#[test]
fn a_table_of_texts_and_gaps_is_learned_shared_and_predicted() {
    let folder = TempDir::new().expect("a temp dir");
    let table = folder.path().join("fruit.csv");
    std::fs::write(&table, fruit(200)).expect("written");
    let flags = "--ignore name --share-data --model mlp:8 --steps 400 --seed 5 --min-peers 2";
    let exported = folder.path().join("out");
    std::fs::create_dir(&exported).expect("made");
    let founder = Peer::run(&PeerOptions::flags(flags).with("--data", &table).with("--export", &exported));
    // Which reads its copy by position.
    let joiner = Peer::join(&founder.ticket(), &PeerOptions::flags("--data-held 0"));
    let joined = joiner.finish().summary().clone();
    let outcome = founder.finish();
    let (data, warnings) = understood(&outcome);
    let counts = ["features", "gap_columns", "ignored_columns"].map(|count| data[count].as_u64());
    assert_eq!((counts, &data["category_columns"]), ([5, 1, 1].map(Some), &serde_json::json!(["color"])));
    assert_eq!((joined["digest"].clone(), warnings), (outcome.summary()["digest"].clone(), Vec::new()));
    assert!(outcome.summary()["measures"]["accuracy"].as_f64().is_some_and(|share| share > 0.8), "{joined}");

    let said = |line: &[&str]| starling(folder.path()).args(line).output().expect("it runs");
    let evaluated = said(&["eval", "out", "--data", "fruit.csv", "--held-out", "--json"]);
    let evaluated: Value = serde_json::from_slice(&evaluated.stdout).expect("JSON");
    assert_eq!(evaluated["measures"]["accuracy"], outcome.summary()["measures"]["accuracy"]);
    // In another order, without the label and what was left out.
    std::fs::write(folder.path().join("new.csv"), "weight,color\n104.5,red\n,green\n").expect("written");
    let predicted = said(&["predict", "out", "--data", "new.csv"]);
    assert_eq!(String::from_utf8_lossy(&predicted.stdout).lines().skip(1).collect::<Vec<_>>(), ["sweet", "sour"]);
    std::fs::write(folder.path().join("new.csv"), "weight,color\n104.5,blue\n").expect("written");
    let refused = said(&["predict", "out", "--data", "new.csv"]);
    let refused = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.contains("row 2, column 1 (`color`): `blue` is none of the column's 3 categories"), "{refused}");
    let shown = said(&["model", "show", "out"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("5 features of 3 columns: `name` (left out), `color` (one of 3: , green, red)"), "{shown}");
}

#[test]
fn a_member_whose_table_changes_leaves_with_its_name_and_the_others_go_on() {
    let folder = TempDir::new().expect("a temp dir");
    let tables = ["one.csv", "other.csv"].map(|name| folder.path().join(name));
    tables.iter().for_each(|table| std::fs::write(table, fruit(2000)).expect("written"));
    let flags = "--ignore name --model softmax --steps 10000000 --checkpoint-every 0";
    let founder = Peer::run(&PeerOptions::flags(flags).with("--data", &tables[0]));
    let joiner = Peer::join(&founder.ticket(), &PeerOptions::flags("--data-held 0").with("--data", &tables[1]));
    joiner.wait_for_step(20);
    let file = std::fs::OpenOptions::new().write(true).open(&tables[1]).expect("its table");
    file.set_len(1000).expect("cut off");
    joiner.wait_for("an error", |event| event["event"] == "failed");
    let outcome = joiner.finish();
    let error = outcome.error();
    assert_eq!(outcome.status.code(), Some(1), "{error}");
    assert!(error.contains("other.csv") && error.contains("changed while it was in use"), "{error}");
    founder.wait_for_view(1);
    founder.wait_for_step(founder.reached() + 20);
}

/// Alone, it takes no step of samples that it can't read: none is skipped, and none is left out for what it is not.
#[test]
fn a_table_that_changes_under_who_is_alone_costs_no_samples() {
    let folder = TempDir::new().expect("a temp dir");
    let table = folder.path().join("fruit.csv");
    std::fs::write(&table, fruit(2000)).expect("written");
    let flags = "--ignore name --model softmax --steps 10000000 --checkpoint-every 0 --data-held 0";
    let peer = Peer::run(&PeerOptions::flags(flags).with("--data", &table));
    peer.wait_for_step(20);
    let file = std::fs::OpenOptions::new().write(true).open(&table).expect("its table");
    file.set_len(1000).expect("cut off");
    let outcome = peer.finish();
    assert!(outcome.error().contains("changed while it was in use"), "{}", outcome.error());
    let is_wrong = |event: &&Value| matches!(event["event"].as_str(), Some("skipped" | "dropped" | "gave_up"));
    let wrong: Vec<&Value> = outcome.events.iter().map(|(_, event)| event).filter(is_wrong).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn columns_that_are_names_are_refused_with_the_flag_that_leaves_them_out() {
    let folder = TempDir::new().expect("a temp dir");
    std::fs::write(folder.path().join("fruit.csv"), fruit(200)).expect("written");
    let run = ["run", "--data", "fruit.csv", "--steps", "1", "--data-dir", "state"];
    let output = starling(folder.path()).args(run).args(["--listen", "/ip4/127.0.0.1/tcp/0"]).output();
    let output = output.expect("it runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("column 0 (`name`) holds 200 different texts in 200 rows"), "{text}");
    assert!(text.contains("--ignore name"), "{text}");
}

#[test]
fn a_network_learns_numbers_and_predicts_them_in_their_units() {
    let folder = TempDir::new().expect("a temp dir");
    // A price that no line fits: a base, and a step at some size.
    let row = |at: u32| {
        let (size, rooms) = (at * 7 % 200, at % 5);
        format!("{size}.5,{rooms},{}\n", 100_000 + 1_000 * rooms + if size > 100 { 250_000 } else { 0 })
    };
    let rows: String = (0..400).map(row).collect();
    std::fs::write(folder.path().join("houses.csv"), format!("size,rooms,price\n{rows}")).expect("written");
    let exported = folder.path().join("out");
    std::fs::create_dir(&exported).expect("made");
    let flags = "--model regression:32 --loss huber --learning-rate 0.01 --steps 600 --seed 5";
    let peer = Peer::run(
        &PeerOptions::flags(flags).with("--data", folder.path().join("houses.csv")).with("--export", &exported),
    );
    let measures = peer.finish().summary()["measures"].clone();
    let [error, explained] = ["absolute_error", "r2"].map(|name| measures[name].as_f64().expect("a number"));
    assert!(error < 20_000.0 && explained > 0.9, "{measures}");
    let said = |line: &[&str]| {
        let output = starling(folder.path()).args(line).output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    let evaluated = said(&["eval", "out", "--data", "houses.csv", "--held-out", "--json"]);
    let evaluated: Value = serde_json::from_str(&evaluated).expect("JSON");
    assert_eq!(evaluated["measures"], measures);
    std::fs::write(folder.path().join("new.csv"), "rooms,size\n2,20.5\n2,180.5\n").expect("written");
    let predicted = said(&["predict", "out", "--data", "new.csv"]);
    let numbers: Vec<f64> = predicted.lines().skip(1).map(|line| line.parse().expect("a number")).collect();
    assert!((numbers[0] - 102_000.0).abs() < 50_000.0 && (numbers[1] - 352_000.0).abs() < 50_000.0, "{predicted}");
}
