//! What a run has learned, used: by the file, the folder, the checkpoint and the data directory that it leaves, also while it trains.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use starling_tests::{Peer, PeerOptions, data, eventually, starling};
use tempfile::TempDir;

/// What a verb says in `dir`.
fn said(dir: &Path, line: &str) -> Output {
    starling(dir).args(line.split_whitespace()).output().expect("it runs")
}

/// The same of one that must end well.
fn text(dir: &Path, line: &str) -> String {
    let output = said(dir, line);
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn json(dir: &Path, line: &str) -> Value {
    serde_json::from_str(&text(dir, line)).expect("JSON")
}

/// The one line of an error, of a verb that must fail.
fn error(dir: &Path, line: &str) -> String {
    let output = said(dir, line);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), text.lines().count()), (Some(1), 1), "{line}: {text}");
    assert!(text.starts_with("error: "), "{text}");
    text
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("a folder");
    let mut names: Vec<_> = entries.map(|entry| entry.expect("read").file_name().display().to_string()).collect();
    names.sort();
    names
}

/// A run on the breast cancer table that is over, its directory, and what it said at its end.
fn trained(flags: &str) -> (TempDir, Value, TempDir) {
    let folder = TempDir::new().expect("a temp dir");
    std::fs::copy(data::breast_cancer(), folder.path().join("table.csv")).expect("copied");
    let options = PeerOptions::flags(&format!("--steps 60 --seed 5 {flags}"));
    let peer = Peer::run(&options.with("--data", folder.path().join("table.csv")));
    let dir = peer.dir();
    let summary = peer.finish().summary().clone();
    let state = TempDir::new().expect("a temp dir");
    std::fs::rename(dir.path().join("state"), state.path().join("state")).expect("moved");
    for name in names(dir.path()) {
        std::fs::rename(dir.path().join(&name), folder.path().join(&name)).expect("moved");
    }
    (folder, summary, state)
}

#[test]
fn a_model_is_used_by_all_that_a_run_leaves_and_says_the_same() {
    let (folder, summary, state) = trained("--model mlp:8 --export model.safetensors");
    let dir = folder.path();
    let data_dir = state.path().join("state");
    text(dir, &format!("checkpoint export --data-dir {} --to out/", data_dir.display()));
    assert_eq!(names(&dir.join("out")), ["README.md", "model.json", "model.safetensors", "predict.py"]);
    let of = |name: &str| std::fs::read(dir.join(name)).expect("there");
    assert!(of("out/model.safetensors") == of("model.safetensors"), "a folder holds the same file");
    let checkpoints = json(dir, &format!("checkpoint ls --json --data-dir {}", data_dir.display()));
    let checkpoint = checkpoints["checkpoints"].as_array().and_then(|list| list.last()).expect("a checkpoint");
    let path = checkpoint["path"].as_str().expect("a path");
    let models = ["model.safetensors", "out", path, &data_dir.display().to_string()];
    let mut texts = Vec::new();
    for model in models {
        let held_out = json(dir, &format!("eval {model} --data table.csv --held-out --json"));
        assert_eq!(held_out["measures"]["accuracy"], summary["measures"]["accuracy"], "{model}");
        assert_eq!((&held_out["loss"], &held_out["samples"]), (&summary["held_out_loss"], &114.into()), "{model}");
        let all = json(dir, &format!("eval {model} --data table.csv --json"));
        assert_eq!((&all["samples"], &all["run"], &all["step"]), (&569.into(), &summary["run"], &60.into()));
        texts.push(text(dir, &format!("predict {model} --data table.csv --proba")));
        let shown = json(dir, &format!("model show {model} --json"));
        assert_eq!((&shown["model"], &shown["run"]), (&"mlp:8".into(), &summary["run"]), "{model}");
        if model != "model.safetensors" {
            assert_eq!((&shown["digest"], &shown["values"]), (&summary["digest"], &summary["values"]), "{model}");
        }
    }
    assert!(texts.iter().all(|text| *text == texts[0] && text.lines().count() == 570), "one model");
    let told = json(dir, "eval out --data table.csv --held-out --json");
    let right = text(dir, "eval out --data table.csv --held-out");
    check_confusion(&told, &right);
    assert!(
        right.contains("mlp:8 after step 60 on 114 held-out samples: loss ") && right.contains(", accuracy "),
        "{right}"
    );
    let shown = text(dir, "model show out");
    for part in ["mlp:8 (classification)", "30 columns, by their names: ", "label column 30", "hidden.0.weight [30, 8]"]
    {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}

/// That what is said of the classes follows from the counts, and that accuracy does.
fn check_confusion(told: &Value, shown: &str) {
    let count = |actual: usize, predicted: usize| told["confusion"][actual][predicted].as_f64().expect("a count");
    let classes = told["classes"].as_array().expect("a list");
    assert_eq!(classes.iter().map(|class| &class["class"]).collect::<Vec<_>>(), ["0", "1"]);
    let near = |found: &Value, expected: f64| found.as_f64().is_some_and(|found| (found - expected).abs() < 1e-12);
    let mut sum = 0.0;
    for (at, class) in classes.iter().enumerate() {
        let (hits, taken, missed) = (count(at, at), count(1 - at, at), count(at, 1 - at));
        assert_eq!(class["samples"].as_f64(), Some(hits + missed));
        let f1 = hits / (hits + (taken + missed) / 2.0);
        assert!(near(&class["precision"], hits / (hits + taken)) && near(&class["f1"], f1), "{class}");
        assert!(near(&class["recall"], hits / (hits + missed)), "{class}");
        sum += f1;
    }
    assert!(near(&told["measures"]["macro_f1"], sum / 2.0), "{told}");
    assert!(near(&told["measures"]["accuracy"], (count(0, 0) + count(1, 1)) / 114.0), "{told}");
    let wrong = told["mistakes"].as_array().expect("a list").iter().map(|it| it["samples"].as_f64().unwrap_or(0.0));
    assert_eq!(wrong.sum::<f64>(), count(0, 1) + count(1, 0));
    let row = format!("{:>2}", count(1, 1));
    assert!(shown.contains(", macro_f1 ") && shown.contains("precision") && shown.contains("said to be"), "{shown}");
    assert!(shown.lines().last().is_some_and(|line| line.starts_with('1') && line.ends_with(&row)), "{shown}");
}

#[test]
fn a_run_exports_a_folder_with_what_it_measured() {
    let (folder, summary, _state) = trained("--model softmax --export out/");
    let shown = json(folder.path(), "model show out --json");
    assert_eq!(shown["digest"], summary["digest"]);
    let measures = [("loss", &summary["held_out_loss"]), ("accuracy", &summary["measures"]["accuracy"])];
    for (name, expected) in measures {
        let [found, expected] = [&shown["measures"][name], expected].map(|mean| mean.as_f64().expect("a number"));
        assert!((found - expected).abs() < 1e-12, "{name}: {found} instead of {expected}");
    }
    let card = std::fs::read_to_string(folder.path().join("out/README.md")).expect("there");
    assert!(card.contains("**accuracy**") && card.contains(summary["run"].as_str().expect("an id")), "{card}");
}

#[test]
fn predictions_stream_and_what_is_not_finished_is_not_there() {
    let (folder, _, _state) = trained("--model mlp:8 --export model.safetensors");
    let dir = folder.path();
    let table = std::fs::read_to_string(dir.join("table.csv")).expect("there");
    let (header, rows) = table.split_once('\n').expect("a header");
    let start = |flags: &[&str]| {
        let mut command = starling(dir);
        command.args(["predict", "model.safetensors", "--data", "-"]).args(flags);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
    };
    // Half of the rows come before all are there.
    let mut child = start(&[]);
    let mut stdin = child.stdin.take().expect("piped");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let feed = std::thread::spawn({
        let text = format!("{header}\n{}", rows.repeat(4));
        move || {
            stdin.write_all(text.as_bytes()).expect("taken");
            stdin
        }
    });
    assert_eq!(lines.next().expect("a line").expect("text"), "prediction");
    let first: Vec<String> = lines.by_ref().take(1024).map(|line| line.expect("text")).collect();
    drop(feed.join().expect("fed"));
    let rest: Vec<String> = lines.map(|line| line.expect("text")).collect();
    assert_eq!((first.len() + rest.len(), child.wait().expect("ended").code()), (4 * 569, Some(0)));

    // Interrupted in the middle.
    let before = names(dir);
    let mut child = start(&["--out", "predictions.csv"]);
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(format!("{header}\n{}", rows.repeat(4)).as_bytes()).expect("taken");
    eventually("file under way", || names(dir).iter().any(|name| name.ends_with(".part")).then_some(()));
    let kill = Command::new("kill").args(["-s", "INT", &child.id().to_string()]).status();
    assert!(kill.expect("kill runs").success());
    assert_eq!(child.wait().expect("ended").code(), Some(130));
    drop(stdin);
    assert_eq!(names(dir), before);
    // A bad row behind good ones.
    std::fs::write(dir.join("bad.csv"), format!("{header}\n{}1,2\n", rows.repeat(2))).expect("written");
    let told = error(dir, "predict model.safetensors --data bad.csv --out predictions.csv");
    assert!(told.contains("`bad.csv`, row 1140: it has 2 columns, but the first row has 31"), "{told}");
    std::fs::remove_file(dir.join("bad.csv")).expect("there");
    assert_eq!(names(dir), before);
    // What was there before stays until all is predicted.
    let told = text(dir, "predict model.safetensors --data table.csv --out predictions.csv");
    let all = json(dir, "eval model.safetensors --data table.csv --json");
    let accuracy = all["measures"]["accuracy"].as_f64().expect("a number");
    let measured = format!("accuracy {:.1} % on the 569 samples with labels", 100.0 * accuracy);
    assert_eq!(told, format!("wrote 569 predictions to predictions.csv\n{measured}\n"));
    let whole = std::fs::read_to_string(dir.join("predictions.csv")).expect("there");
    assert_eq!(whole.lines().count(), 570);
    let said = json(dir, "predict model.safetensors --data table.csv --out predictions.jsonl --top-k 1 --json");
    assert_eq!((&said["samples"], &said["file"]), (&569.into(), &"predictions.jsonl".into()));
    let lines = std::fs::read_to_string(dir.join("predictions.jsonl")).expect("there");
    for (line, plain) in lines.lines().zip(whole.lines().skip(1)) {
        let value: Value = serde_json::from_str(line).expect("JSON");
        assert_eq!((&value["prediction"], &value["top"][0]["class"]), (&plain.into(), &plain.into()));
    }
    for out in ["missing/p.csv", "."] {
        let told = error(dir, &format!("predict model.safetensors --data table.csv --out {out}"));
        assert!(told.contains(&format!("can't write {out}: ")), "{told}");
    }
}

#[test]
fn predictions_of_labelled_rows_say_how_good_they_are() {
    let (folder, summary, state) = trained("--model mlp:8 --export out/");
    let dir = folder.path();
    let state = state.path().join("state").display().to_string();
    let of_run = &summary["measures"]["accuracy"];
    for model in ["out", &state] {
        let said = json(dir, &format!("predict {model} --data table.csv --out p.csv --json"));
        let measured = &said["measured"];
        assert_eq!((&measured["held_out"], &measured["samples"]), (&true.into(), &114.into()), "{model}: {said}");
        assert_eq!(&measured["measures"]["accuracy"], of_run, "{model}: what the run printed");
        let told = text(dir, &format!("predict {model} --data table.csv --out p.csv"));
        let accuracy = format!("accuracy {:.1} %", 100.0 * of_run.as_f64().expect("a number"));
        assert!(told.contains(&format!("\n{accuracy} on the 114 samples that the run held out\n")), "{told}");
    }
    // As many rows, of which one has another value; rows without a label, or with one that there is not; no label at all.
    let table = std::fs::read_to_string(dir.join("table.csv")).expect("there");
    let (header, rows) = table.split_once('\n').expect("a header");
    let lines: Vec<&str> = rows.lines().collect();
    let cell = |row: &str, label: &str| format!("{},{label}", row.rsplit_once(',').expect("cells").0);
    let [unknown, empty] = [cell(lines[0], "7"), cell(lines[1], "")];
    let changed = format!("{header}\n9{rows}");
    let some = format!("{header}\n{unknown}\n{empty}\n{}\n", lines[2..5].join("\n"));
    let none = table.lines().map(|row| format!("{}\n", row.rsplit_once(',').expect("cells").0)).collect();
    for (text, samples, measured) in [(changed, 569, Some(569)), (some, 5, Some(3)), (none, 569, None)] {
        std::fs::write(dir.join("other.csv"), text).expect("written");
        let said = json(dir, "predict out --data other.csv --out p.csv --json");
        assert_eq!(said["samples"], samples);
        match measured {
            Some(measured) => {
                assert_eq!(
                    (&said["measured"]["held_out"], &said["measured"]["samples"]),
                    (&false.into(), &measured.into())
                );
            }
            None => assert!(said["measured"].is_null(), "{said}"),
        }
    }
}

/// What is under way of an export is gone once the process was told to end, and what a killed one left with the next.
#[test]
fn an_export_that_is_interrupted_leaves_nothing() {
    let (folder, _, state) = trained("--model mlp:2048,1024 --export out/");
    let dir = folder.path();
    let before = names(dir);
    let data_dir = state.path().join("state").display().to_string();
    let under_way = || names(dir).into_iter().filter(|name| name.starts_with('.')).collect::<Vec<_>>();
    for line in [
        "export out --out b.onnx".to_owned(),
        "export out --out f/ --layout torch".to_owned(),
        format!("checkpoint export --data-dir {data_dir} --to c/"),
    ] {
        for signal in ["INT", "TERM", "KILL"] {
            let child = starling(dir).args(line.split_whitespace()).stdout(Stdio::null()).spawn().expect("it starts");
            let child = std::cell::RefCell::new(child);
            let is_over = eventually("part, or an end", || {
                let is_over = child.borrow_mut().try_wait().expect("waited").is_some();
                (is_over || !under_way().is_empty()).then_some(is_over)
            });
            if !is_over {
                let kill = Command::new("kill").args(["-s", signal, &child.borrow().id().to_string()]).status();
                assert!(kill.is_ok());
            }
            let code = child.borrow_mut().wait().expect("ended").code();
            assert!(
                matches!((signal, code), (_, Some(0)) | ("INT" | "TERM", Some(130)) | ("KILL", None)),
                "{line}: {code:?}"
            );
            assert!(signal == "KILL" || under_way().is_empty(), "{line}, {signal}: {:?}", under_way());
        }
        text(dir, &line);
        assert_eq!(under_way(), [""; 0], "{line}: what a killed one left");
    }
    assert_eq!(names(dir).len(), before.len() + 3);
}

#[test]
fn what_can_not_be_used_is_one_error_that_says_what_to_do() {
    let (folder, _, state) = trained("--model mlp:8 --export out/");
    let dir = folder.path();
    let table = std::fs::read_to_string(dir.join("table.csv")).expect("there");
    let write = |name: &str, text: String| std::fs::write(dir.join(name), text).expect("written");
    write("columns.csv", table.replacen("radius_mean", "radius", 1));
    write(
        "unknown.csv",
        table
            .lines()
            .take(3)
            .map(|line| format!("{line}\n"))
            .collect::<String>()
            .replace(",0\n", ",7\n")
            .replace(",1\n", ",7\n"),
    );
    write("cell.csv", table.replacen("\n", "\nx", 1));
    write("short.csv", table.lines().take(100).map(|line| format!("{line}\n")).collect());
    write("notes.txt", "hello".to_owned());
    std::fs::create_dir(dir.join("empty")).expect("made");
    for (line, parts) in [
        ("predict missing.safetensors --data table.csv", ["missing.safetensors", "nothing is there"]),
        ("predict notes.txt --data table.csv", ["notes.txt", "it is no safetensors file"]),
        ("predict empty --data table.csv", ["empty", "neither an exported model nor checkpoints"]),
        ("predict out --step 3 --data table.csv", ["out", "no run and no step can be chosen"]),
        ("predict out --data missing.csv", ["missing.csv", "No such file"]),
        ("predict out --data columns.csv", ["columns.csv", "`radius` is not the model's"]),
        ("predict out --data cell.csv", ["cell.csv`, row 2, column 0", "is not a number"]),
        ("eval out --data unknown.csv", ["unknown.csv`, row 2: `7` is no class that the model knows", "`0`, `1`"]),
        ("eval out --data short.csv --held-out", ["short.csv", "held out"]),
        ("predict out --data digits", ["digits", "it has 65 columns, but the model takes 30 features"]),
        ("checkpoint export --data-dir STATE --to .", ["no part of an export", "name a new folder"]),
        (
            "eval STATE --run ffffffffff --data table.csv",
            ["0 runs whose id begins with `ffffffffff`", "starling checkpoint ls"],
        ),
        ("predict out --data table.csv --out table.csv", ["can't write table.csv", "made of"]),
        ("predict out --data table.csv --out out/model.safetensors", ["can't write out/model.safetensors", "made of"]),
        ("predict out --data table.csv --out /dev/null", ["/dev/null", "it is no file"]),
        (
            "checkpoint export --data-dir STATE --to STATE/identity.key",
            ["identity.key", "a file of the data directory"],
        ),
        ("model show STATE --step 7", ["no checkpoint of step 7", "it has steps"]),
    ] {
        let told = error(dir, &line.replace("STATE", &state.path().join("state").display().to_string()));
        assert!(parts.iter().all(|part| told.contains(part)), "{parts:?}: {told}");
    }
    let file = dir.join("out/model.safetensors");
    let whole = std::fs::read(&file).expect("there");
    for at in [3, 40, whole.len() - 5] {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        std::fs::write(&file, &damaged).expect("written");
        let told = error(dir, "predict out --data table.csv");
        assert!(told.contains("out/model.safetensors` is damaged: its blake3 is"), "byte {at}: {told}");
    }
}

#[test]
fn images_are_predicted_by_a_member_that_trains() {
    let folder = TempDir::new().expect("a temp dir");
    data::write_idx(folder.path());
    let options = PeerOptions::flags("--model cnn:4,8 --steps 1000000 --checkpoint-every 5 --checkpoint-keep 1");
    let peer = Peer::run(&options.with("--data", folder.path()));
    peer.wait_for("a checkpoint", |event| event["event"] == "saved");
    let data_dir = peer.data_dir().display().to_string();
    let source = folder.path().display().to_string();
    let step = || {
        let said = json(folder.path(), &format!("eval {data_dir} --data {source} --held-out --json"));
        assert_eq!(said["samples"], 359, "{said}");
        said["step"].as_u64().expect("a step")
    };
    let first = step();
    eventually("later checkpoint while others look", || (step() > first).then_some(()));
    let images = folder.path().join("train-images-idx3-ubyte.gz").display().to_string();
    let text = text(folder.path(), &format!("predict {data_dir} --data {images} --top-k 2"));
    assert_eq!(text.lines().next(), Some("prediction,class 1,probability 1,class 2,probability 2"));
    assert_eq!(text.lines().count(), 1798);
    peer.signal("TERM");
    assert_eq!(peer.finish().summary()["outcome"], "left");
}

#[test]
fn a_model_is_written_for_other_programs_from_all_that_a_run_leaves() {
    let (folder, summary, state) = trained("--model mlp:8 --export out/");
    let dir = folder.path();
    let state = state.path().join("state").display().to_string();
    let checkpoints = json(dir, &format!("checkpoint ls --json --data-dir {state}"));
    let checkpoint = checkpoints["checkpoints"].as_array().and_then(|list| list.last()).expect("a checkpoint");
    let checkpoint = checkpoint["path"].as_str().expect("a path").to_owned();
    let of = |name: &str| std::fs::read(dir.join(name)).expect("there");
    for (to, flags) in
        [("torch.safetensors", "--layout torch"), ("short.safetensors", "--dtype bf16"), ("model.onnx", "")]
    {
        let mut first = None;
        for source in ["out", "out/model.safetensors", &checkpoint, &state] {
            let told = json(dir, &format!("export {source} --out {to} {flags} --json"));
            assert_eq!((&told["run"], &told["step"], &told["file"]), (&summary["run"], &60.into(), &to.into()));
            assert!(*first.get_or_insert_with(|| of(to)) == of(to), "{to} of {source}");
        }
    }
    assert_eq!(json(dir, "model show short.safetensors --json")["dtype"], "bf16");
    assert!(text(dir, "model show short.safetensors").contains("bf16, rounded"));
    let told = text(dir, "export out --out torch/ --layout torch");
    assert_eq!(told, "wrote the model after step 60 to torch/ (torch, f32)\n");
    assert_eq!(names(&dir.join("torch")), ["README.md", "model.json", "model.safetensors"]);
    // A file alone does not know all that a folder says, and what it becomes is read all the same.
    std::fs::copy(dir.join("out/model.safetensors"), dir.join("alone.safetensors")).expect("copied");
    text(dir, "export alone.safetensors --out again/");
    assert!(of("again/model.safetensors") == of("out/model.safetensors"));
    assert_eq!(text(dir, "predict again --data table.csv"), text(dir, "predict out --data table.csv"));
    // Runs that begin with either go the same way to the last bit.
    let begun = |file: &str| {
        let options = PeerOptions::flags("--steps 5 --seed 9 --model mlp:8").with("--init", dir.join(file));
        let peer = Peer::run(&options.with("--data", dir.join("table.csv")));
        peer.finish().summary()["values"].clone()
    };
    let [plain, torch] = ["out/model.safetensors", "torch/model.safetensors"].map(begun);
    assert!(plain.is_string() && plain == torch, "{plain} and {torch}");

    let before = names(dir);
    std::fs::create_dir(dir.join("mine")).expect("made");
    std::fs::write(dir.join("mine/notes.txt"), "mine").expect("written");
    for (line, parts) in [
        ("export out --out llama --layout hf", ["`mlp:8` can't be written for Hugging Face's", "take --layout torch"]),
        ("export torch --out x", ["its layout is `torch`", "starling run --init"]),
        ("predict torch --data table.csv", ["its layout is `torch`", "starling run --init"]),
        ("export short.safetensors --out x --dtype f16", ["they are bf16 already", "--dtype bf16 or f32"]),
        ("export out --out mine/", ["`notes.txt`, which is no part of an export", "name a new folder"]),
        (
            "export out --out out --layout torch",
            ["cannot write the model to `out`", "the model is made of what is there"],
        ),
        ("export out --out out/new.onnx", ["cannot write the model to `out/new.onnx`", "name another place"]),
        ("export alone.safetensors --out alone.safetensors", ["`alone.safetensors`", "name another place"]),
        ("export out/model.safetensors --out out/ --dtype f16", ["`out/`", "name another place"]),
        ("export STATE --out STATE/identity.key", ["identity.key", "name another place"]),
        ("export out --out missing/model.onnx", ["missing/model.onnx", "its directory must be there"]),
        ("export out --out /dev/null", ["/dev/null", "it is no file"]),
        ("export missing --out x", ["missing", "nothing is there"]),
        ("checkpoint export --data-dir STATE --to x.onnx", ["`x.onnx`", "name it .safetensors, and `starling export"]),
        ("export out --step 60 --out x", ["out", "no run and no step can be chosen"]),
    ] {
        let told = error(dir, &line.replace("STATE", &state));
        assert!(parts.iter().all(|part| told.contains(part)), "{parts:?}: {told}");
    }
    for (line, part) in [
        ("export out --out x.onnx --dtype f16", "leave --dtype out"),
        ("export out --out x.onnx --layout burn", "leave --layout out"),
        ("export out --out x --layout rows", "possible values: burn, torch, hf"),
        ("export out --out x --dtype f64", "possible values: f32, bf16, f16"),
    ] {
        let output = said(dir, line);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && told.contains(part), "{line}: {told}");
    }
    std::fs::remove_dir_all(dir.join("mine")).expect("there");
    assert_eq!(names(dir), before, "what is refused leaves nothing");
    assert_eq!(names(&dir.join("out")), ["README.md", "model.json", "model.safetensors", "predict.py"]);
}

/// Each task: by the export and by the data directory, by one thread and by several.
#[test]
fn what_is_predicted_has_the_same_bytes_however_many_threads_compute_it() {
    let folder = TempDir::new().expect("a temp dir");
    let dir = folder.path();
    let (table, text) = (dir.join("table.csv"), dir.join("text.txt"));
    std::fs::copy(data::breast_cancer(), &table).expect("copied");
    std::fs::write(&text, "the cat sat on the mat. and then the rat sat on the cat. ".repeat(40)).expect("written");
    let (table, text) = (table.display().to_string(), text.display().to_string());
    for (flags, source) in [
        ("--model softmax", &*table),
        // Wide enough that one product is shared out over threads.
        ("--model mlp:512,16 --batch-norm true --micro-batch 16", &table),
        ("--model cnn:4,8 --batch-norm true --micro-batch 16", "digits"),
        ("--model cnn:4,4,8 --residual true", "digits"),
        ("--model linear --learning-rate 0.01", &table),
        ("--model regression:32", &table),
        ("--model gpt:2x64 --context 32 --batch-size 8", &text),
    ] {
        let options = PeerOptions::flags(&format!("--steps 20 --export out/ {flags}")).with("--data", source);
        let peer = Peer::run(&options);
        let own = peer.dir();
        assert_eq!(peer.finish().summary()["outcome"], "complete", "{flags}");
        let verb: &[&str] = match source == text {
            true => &["generate", "--prompt", "the", "--tokens", "60"],
            false => &["predict", "--data", source],
        };
        let said = |model: &str, threads: &str| {
            let mut command = starling(own.path());
            command.args(verb).arg(model).env("RAYON_NUM_THREADS", threads);
            let output = command.output().expect("it runs");
            assert!(output.status.success(), "{flags}: {}", String::from_utf8_lossy(&output.stderr));
            output.stdout
        };
        let first = said("out", "1");
        assert!(first.len() > 60, "{flags}");
        for (model, threads) in [("out", "3"), ("state", "1"), ("state", "3")] {
            assert!(said(model, threads) == first, "{flags}: {model} with {threads} threads");
        }
    }
}
