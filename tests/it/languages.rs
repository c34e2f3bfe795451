//! A language model, from a text that two members learn to one that it goes on with.

use std::io::Write;
use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::Value;
use starling_tests::{Peer, PeerOptions, starling};
use tempfile::TempDir;

/// A verb in `dir`, to which `input` is piped.
fn said(dir: &Path, arguments: &[&str], input: &str) -> Output {
    let mut command = starling(dir);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it runs");
    // Whoever fails before it reads has closed its end.
    let _ = child.stdin.take().expect("piped").write_all(input.as_bytes());
    child.wait_with_output().expect("it ends")
}

fn text(dir: &Path, arguments: &[&str]) -> String {
    let output = said(dir, arguments, "");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn json(dir: &Path, arguments: &[&str]) -> Value {
    serde_json::from_str(&text(dir, arguments)).expect("JSON")
}

/// What stderr says of a verb that must fail, with this code.
fn error(dir: &Path, arguments: &[&str], code: i32) -> String {
    let output = said(dir, arguments, "");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), text.lines().count()), (Some(code), 1), "{arguments:?}: {text}");
    text
}

/// Sentences of few words, so that little training shows.
fn write_text(path: &Path) {
    let words = ["the cat ", "sat on ", "the mat. ", "and then ", "the rat "];
    let text: String =
        (0..2_000_usize).map(|at| words[at * at % 5 + usize::from(at % 7 == 3) * (4 - at * at % 5)]).collect();
    std::fs::write(path, text).expect("written");
}

#[test]
fn two_members_learn_a_text_and_their_model_goes_on_with_it() {
    let folder = TempDir::new().expect("a temp dir");
    let dir = folder.path();
    write_text(&dir.join("text.txt"));
    let flags = "--model gpt:1x32 --context 32 --steps 60 --min-peers 2 --batch-size 16 --micro-batch 8 --dropout 0.05 \
                 --learning-rate 0.01 --schedule cosine --warm-up 5 --clip 1.0 --held-out 0.1 --share-data";
    let options = PeerOptions::networked(flags).with("--data", dir.join("text.txt"));
    let founder = Peer::run(&options.with("--export", dir.join("out/")));
    // The text travels with the ticket, and the context with the run.
    let joiner = Peer::join(&founder.ticket(), &PeerOptions::networked(""));
    let told = founder.wait_for("what the text is", |event| event["event"] == "data");
    assert_eq!((&told["kind"], &told["features"]), (&Value::from("text"), &Value::from(32)), "{told}");
    let (state, outcomes) = (joiner.dir(), [founder, joiner].map(Peer::finish));
    let [first, second] = outcomes.each_ref().map(|outcome| outcome.summary());
    assert_eq!((&first["outcome"], &first["digest"]), (&Value::from("complete"), &second["digest"]));
    let downloaded =
        std::fs::read_dir(state.path().join("state/data")).expect("a folder").next().expect("one").expect("read");
    let [copy, own] =
        [downloaded.path().join("text.txt"), dir.join("text.txt")].map(|path| std::fs::read(path).expect("there"));
    assert!(copy == own, "the joiner has the text itself");

    let measured = json(dir, &["eval", "out/", "--data", "text.txt", "--held-out", "--json"]);
    assert_eq!(measured["loss"], first["held_out_loss"], "to the bit");
    let bits = measured["measures"]["bits_per_byte"].as_f64().expect("a number");
    assert!(bits > 0.0 && bits < 4.0, "{bits} bits of a byte are learned: {measured}");
    let perplexity = measured["measures"]["perplexity"].as_f64().expect("a number");
    assert!((perplexity.log2() - bits).abs() < 1e-6, "{measured}");

    let shown = json(dir, &["model", "show", "out/", "--json"]);
    assert_eq!((&shown["task"], &shown["context"]), (&Value::from("text"), &Value::from(32)));
    let description = std::fs::read_to_string(dir.join("out/model.json")).expect("there");
    let description: Value = serde_json::from_str(&description).expect("JSON");
    assert_eq!((&description["text"]["tokenizer"], &description["text"]["heads"]), (&"bytes".into(), &1.into()));
    assert!(!dir.join("out/predict.py").exists());

    let generate = |model: &str, more: &[&str]| {
        // The likely ones, all of which are letters.
        let plain = ["generate", model, "--prompt", "and then the", "--tokens", "80", "--top-k", "8"];
        text(dir, &[&plain[..], more].concat())
    };
    let one = generate("out/", &["--seed", "7"]);
    assert_eq!(one.len(), 81, "80 bytes and the end of the line: {one}");
    assert_eq!(generate("out/", &["--seed", "7", "--no-cache"]), one);
    assert_ne!(generate("out/", &["--seed", "8"]), one);
    let greedy = generate("out/", &["--temperature", "0"]);
    assert_eq!(generate("out/", &["--temperature", "0", "--seed", "9", "--top-p", "0.5"]), greedy);
    let data_dir = state.path().join("state").display().to_string();
    assert_eq!(generate(&data_dir, &["--temperature", "0"]), greedy, "a member's own checkpoint says the same");
    let end = &greedy[10..13];
    let stopped = generate("out/", &["--temperature", "0", "--stop", end]);
    assert_eq!(stopped, format!("{}\n", greedy.split(end).next().unwrap_or_default()));

    let long = "the cat sat on the mat. ".repeat(4);
    let piped = said(dir, &["generate", "out/", "--tokens", "5", "--json"], &long);
    assert!(String::from_utf8_lossy(&piped.stderr).contains("has 96 bytes, of which the model sees the last 32"));
    let piped: Value = serde_json::from_slice(&piped.stdout).expect("JSON");
    assert_eq!((&piped["tokens"], &piped["ended"], &piped["prompt"]), (&5.into(), &"tokens".into(), &long.into()));

    let refused = error(dir, &["predict", "out/", "--data", "text.txt"], 1);
    assert!(refused.contains("`starling generate` goes on with a text"), "{refused}");
    for (flag, part) in
        [("--temperature=-1", "0 to 100"), ("--top-p=0", "above 0"), ("--top-k=-3", "-3"), ("--tokens=0", "0")]
    {
        let refused = error(dir, &["generate", "out/", "--prompt", "a", flag], 2);
        assert!(refused.contains(part), "{refused}");
    }
}

#[test]
fn what_does_not_fit_a_language_model_is_one_error() {
    let folder = TempDir::new().expect("a temp dir");
    let dir = folder.path();
    write_text(&dir.join("text.txt"));
    std::fs::write(dir.join("short.txt"), "too short").expect("written");
    std::fs::write(dir.join("long.txt"), "on and on ".repeat(2_000)).expect("written");
    std::fs::write(dir.join("table.csv"), "a,b\n1,x\n2,y\n3,x\n").expect("written");
    for (arguments, part) in [
        ("run --model gpt:1x16", "gpt learns a text, but the data is none (its kind is `digits`)"),
        ("run --model gpt:1x16 --data table.csv", "(its kind is `csv`)"),
        ("run --model gpt:1x16 --data short.txt", "two windows of 128 and the byte behind need 257"),
        ("run --model gpt:1x64x8 --data long.txt --context 4096", "take --micro-batch 2 or less"),
        ("run --model gpt:1x16 --data text.txt --label y", "--label says how a table is read"),
        ("run --model gpt:1x15 --data text.txt", "it has 1 heads, but they have to share its width of 15"),
        ("run --model gpt:1x16 --data text.txt --dropout 0.1", "dropout needs micro-batches"),
        ("run --model mlp --data text.txt", "take `--model gpt`"),
    ] {
        let arguments: Vec<&str> = arguments.split_whitespace().collect();
        let output = said(dir, &arguments, "");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && told.contains(part), "{arguments:?}: {told}");
    }
}
