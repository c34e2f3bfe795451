//! Texts that are prepared: by the binary, for members that learn them, and for models that go on with them.

use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::Value;
use starling_tests::{Peer, PeerOptions, data, starling};
use tempfile::TempDir;

fn said(dir: &Path, arguments: &str) -> Output {
    starling(dir).args(arguments.split_whitespace()).output().expect("it runs")
}

fn text(dir: &Path, arguments: &str) -> String {
    let output = said(dir, arguments);
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn json(dir: &Path, arguments: &str) -> Value {
    serde_json::from_str(&text(dir, arguments)).expect("JSON")
}

/// What stderr says of a verb that must fail.
fn error(dir: &Path, arguments: &str) -> String {
    let output = said(dir, arguments);
    assert!(!output.status.success(), "{arguments}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Sentences of few words, so that little training shows.
fn write_text(path: &Path, from: usize) {
    let words = ["the cat ", "sat on ", "the mat. ", "and then ", "le café "];
    let text: String =
        (from..from + 3_000).map(|at| words[at * at % 5 + usize::from(at % 7 == 3) * (4 - at * at % 5)]).collect();
    fs::write(path, text).expect("written");
}

#[test]
fn two_members_learn_a_prepared_text_and_their_model_goes_on_with_it() {
    let folder = TempDir::new().expect("a temp dir");
    let dir = folder.path();
    write_text(&dir.join("a.txt"), 0);
    write_text(&dir.join("b.txt"), 100);
    let made = json(dir, "data prepare a.txt b.txt --tokenizer bpe:270 --out text --json");
    assert_eq!((&made["vocabulary"], &made["documents"]), (&270.into(), &2.into()), "{made}");
    let flags = "--model gpt:1x32 --context 16 --steps 60 --min-peers 2 --batch-size 16 --learning-rate 0.01 --clip 1.0 --held-out 0.1 --share-data";
    let options = PeerOptions::networked(flags).with("--data", dir.join("text"));
    let founder = Peer::run(&options.with("--export", dir.join("out/")));
    let joiner = Peer::join(&founder.ticket(), &PeerOptions::networked(""));
    let told = founder.wait_for("what the text is", |event| event["event"] == "data");
    assert_eq!((&told["kind"], &told["features"], &told["classes"]), (&"tokens".into(), &16.into(), &270.into()));
    let (state, outcomes) = (joiner.dir(), [founder, joiner].map(Peer::finish));
    let [first, second] = outcomes.each_ref().map(|outcome| outcome.summary());
    assert_eq!((&first["outcome"], &first["digest"]), (&"complete".into(), &second["digest"]));
    let downloaded =
        fs::read_dir(state.path().join("state/data")).expect("a folder").next().expect("one").expect("read");
    for name in ["tokens.json", "tokenizer.json", "tokens-00000.bin"] {
        let [copy, own] =
            [downloaded.path(), dir.join("text")].map(|folder| fs::read(folder.join(name)).expect("there"));
        assert!(copy == own, "the joiner has {name} itself");
    }
    // Of the folder, and of the text itself where that is one document.
    let measured = json(dir, "eval out/ --data text --held-out --json");
    assert_eq!(measured["loss"], first["held_out_loss"], "to the bit");
    let measure = |name: &str| measured["measures"][name].as_f64().expect("a number");
    let (bits, bytes) = (measure("bits_per_byte"), measure("bytes_per_token"));
    assert!(bytes > 2.0 && bytes < 10.0, "{measured}");
    assert!((bits * bytes - measured["loss"].as_f64().expect("a number") / 2.0_f64.ln()).abs() < 1e-9, "{measured}");
    let of_text = json(dir, "eval out/ --data a.txt --json");
    assert!(of_text["measures"]["bits_per_byte"].as_f64().is_some_and(|bits| bits < 3.0), "{of_text}");

    let description: Value =
        serde_json::from_slice(&fs::read(dir.join("out/model.json")).expect("there")).expect("JSON");
    let told = &description["text"];
    assert_eq!(
        (&told["tokenizer"], &told["tokens"], &told["end"]),
        (&"tokenizer.json".into(), &270.into(), &256.into())
    );
    assert_eq!(description["files"]["tokenizer.json"], made["tokenizer"]);
    assert_eq!(
        fs::read(dir.join("out/tokenizer.json")).expect("there"),
        fs::read(dir.join("text/tokenizer.json")).expect("there")
    );
    let shown = json(dir, "model show out/ --json");
    assert_eq!(
        (&shown["tokenizer"], &shown["tokens"], &shown["end_token"]),
        (&"tokenizer.json".into(), &270.into(), &256.into())
    );
    assert!(text(dir, "model show out/").contains("text as tokens of 270 different ones"));

    let generate = |model: &str, more: &str| text(dir, &format!("generate {model} --prompt the --tokens 40 {more}"));
    let one = generate("out/", "--seed 7");
    assert_eq!(generate("out/", "--seed 7 --no-cache"), one);
    assert_ne!(generate("out/", "--seed 8"), one);
    let state = state.path().join("state").display().to_string();
    assert_eq!(generate(&state, "--seed 7"), one, "a member's own checkpoint says the same");
    // The model's file alone has all that it takes.
    fs::copy(dir.join("out/model.safetensors"), dir.join("alone.safetensors")).expect("copied");
    assert_eq!(generate("alone.safetensors", "--seed 7"), one);
    assert!(error(dir, "predict out/ --data a.txt").contains("`starling generate` goes on with a text"));
    // One that was changed beside it is seen.
    fs::write(dir.join("out/tokenizer.json"), "{}").expect("written");
    let refused = error(dir, "generate out/ --prompt the");
    assert!(refused.contains("tokenizer.json") && refused.contains("its blake3 is"), "{refused}");
}

#[test]
fn a_joiner_with_another_tokenizer_is_told_what_differs() {
    let folder = TempDir::new().expect("a temp dir");
    let dir = folder.path();
    write_text(&dir.join("a.txt"), 0);
    // So few words have no more than 273.
    for (size, out) in [(270, "text"), (280, "other")] {
        text(dir, &format!("data prepare a.txt --tokenizer bpe:{size} --out {out}"));
    }
    let flags = "--model gpt:1x16 --context 16 --steps 1000000 --batch-size 8";
    let founder = Peer::run(&PeerOptions::networked(flags).with("--data", dir.join("text")));
    let joiner = Peer::join(&founder.ticket(), &PeerOptions::networked("").with("--data", dir.join("other")));
    let outcome = joiner.finish();
    let refused = outcome.error();
    assert!(refused.contains("the tokenizer (`tokenizer.json`) has"), "{refused}");
    assert!(refused.contains("data.classes: ours 273, theirs 270"), "{refused}");
}

#[test]
fn data_is_checked_and_shown_without_training() {
    let folder = TempDir::new().expect("a temp dir");
    let dir = folder.path();
    write_text(&dir.join("a.txt"), 0);
    let line = text(dir, "data prepare a.txt --tokenizer bytes --out text");
    assert!(
        line.starts_with("wrote text: ") && line.contains("1 document") && line.contains("of 257 different ones"),
        "{line}"
    );
    let checked = json(dir, "data check text --context 64 --json");
    assert_eq!(
        (&checked["tokens"]["vocabulary"], &checked["data"]["features"]),
        (&257.into(), &64.into()),
        "{checked}"
    );
    assert!(text(dir, "data check text").contains("all as it should be"));
    let shown = json(dir, "data show text --context 8 --windows 2 --json");
    let windows = shown["windows"].as_array().expect("a list");
    assert_eq!((windows.len(), windows[0]["tokens"].as_array().map(Vec::len)), (2, Some(9)));
    assert_eq!(windows[1]["texts"][0], windows[0]["texts"][8], "the token behind a window begins the next one");
    assert!(text(dir, "data show text --context 8").contains("t|h|e| |c|a|t| |"));
    for (arguments, parts) in [
        ("data prepare a.txt --tokenizer bytes --out text", &["text", "it is there already"][..]),
        ("data prepare missing.txt --out new", &["missing.txt", "cannot read"]),
        ("data prepare a.txt --tokenizer bpe:9 --out new", &["257 to 1048576"]),
        ("data prepare a.txt --tokenizer a.txt --out new", &["a.txt", "it is no `tokenizer.json`"]),
        ("data check text --label y", &["--label says how a table is read"]),
        ("data check a.txt", &["take `--model gpt`"]),
        ("data show a.txt", &["a.txt"]),
        ("run --model mlp --data text", &["only a language model learns", "--model gpt"]),
        ("run --model gpt:1x16 --data text --context 4096 --batch-size 512", &["--micro-batch"]),
    ] {
        let told = error(dir, arguments);
        assert!(parts.iter().all(|part| told.contains(part)), "{arguments}: {told}");
    }
    assert!(!dir.join("new").exists());
    let table = json(dir, &format!("data check {} --json", data::breast_cancer().display()));
    assert_eq!((&table["data"]["kind"], &table["data"]["features"]), (&"csv".into(), &30.into()), "{table}");
    assert!(table["fingerprint"].as_str().is_some_and(|hex| hex.len() == 64));
    assert!(text(dir, "data check digits").contains("images of 8x8"));
    let shown = json(dir, "data show digits --samples 2 --json");
    let samples = shown["samples"].as_array().expect("a list");
    assert_eq!((samples.len(), samples[0]["features"].as_array().map(Vec::len)), (2, Some(64)), "{shown}");
    assert!(samples[0]["label"].is_string() && text(dir, "data show digits").contains('@'), "{shown}");
    let told = text(dir, &format!("data show {} --samples 1", data::breast_cancer().display()));
    assert!(told.contains("the first 1 samples") && told.contains("and 10 more"), "{told}");
    // Some of its windows are held out.
    let told = text(dir, "data show a.txt --model gpt --context 8");
    assert!(told.contains("windows of 8 tokens; the first 3,") && told.contains('|'), "{told}");
    // One byte that is another one.
    let path = dir.join("text/tokens-00000.bin");
    let mut bytes = fs::read(&path).expect("there");
    bytes[100] ^= 1;
    fs::write(&path, bytes).expect("written");
    let refused = error(dir, "data check text");
    assert!(refused.contains("tokens-00000.bin") && refused.contains("blake3"), "{refused}");
}
