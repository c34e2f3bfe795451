//! A joiner of a run by blocks trains before all of its data is there.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use serde_json::Value;
use starling_tests::{Outcome, Peer, PeerOptions, audit, starling};
use tempfile::TempDir;

/// How long a file of tokens is.
const SHARD: u64 = 64 << 20;
const RUN: &str = "--model gpt:1x8 --context 128 --batch-size 16 --held-out 0.001 --min-peers 2 --share-data";
/// Blocks of which a file has thirty, or five hundred, one at a time; by these seeds the first ones lie in the first file.
const LARGE: &str = "--shuffle blocks:8192x1 --seed 1";
const SMALL: &str = "--shuffle blocks:512x1 --seed 6";
/// More than any test waits for.
const STEPS: u64 = 1_000_000;
/// What is handed out per second, in MiB: files take long enough for a step to be taken between two of them, on any machine.
const RATE: &str = "--state-rate 12";

/// A text whose tokens take two files and a part of a third.
fn prepared() -> (TempDir, PathBuf) {
    let folder = TempDir::new().expect("a temp dir");
    let path = folder.path().join("text.txt");
    let mut text = BufWriter::new(File::create(&path).expect("created"));
    // Each byte is a token of two bytes, and no two chunks are equal.
    let bytes = SHARD + SHARD / 8;
    let mut written = 0;
    while written < bytes {
        let line = format!("line {} of a text that is long enough\n", written / 7);
        text.write_all(line.as_bytes()).expect("written");
        written += line.len() as u64;
    }
    text.flush().expect("written");
    let mut prepare = starling(folder.path());
    prepare.args(["data", "prepare", "text.txt", "--tokenizer", "bytes", "--out", "text"]);
    let output = prepare.output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let out = folder.path().join("text");
    (folder, out)
}

/// Where a thing was told first among the events of a peer.
fn first(outcome: &Outcome, what: &str, is_it: impl Fn(&Value) -> bool) -> usize {
    let found = outcome.events.iter().position(|(_, event)| is_it(event));
    found.unwrap_or_else(|| panic!("{what} was not told"))
}

fn has_all(event: &Value) -> bool {
    event["event"] == "arriving" && event["files"] == event["of"]
}

/// Checks that a data directory has the text, and nothing beside it.
fn check_copy(state: &Path, text: &Path) {
    let mut entries = fs::read_dir(state.join("data")).expect("a folder").map(|entry| entry.expect("read").path());
    let copy = entries.next().expect("a data set");
    assert_eq!(entries.next(), None, "nothing says that files are missing");
    for file in fs::read_dir(text).expect("a folder") {
        let file = file.expect("read").path();
        let own = copy.join(file.file_name().expect("a name"));
        assert!(fs::read(&own).expect("there") == fs::read(&file).expect("there"), "{}", own.display());
    }
}

/// Whether it is told that this member lacked data in steps that were taken.
fn says_starved(event: &Value, peer: &str) -> bool {
    let members = event["members"].as_array().filter(|_| event["event"] == "members");
    members.is_some_and(|members| members.iter().any(|member| member["peer"] == peer && member["starved"] == true))
}

/// Waits until a peer has all of its data.
fn wait_for_all(peer: &Peer) -> Value {
    peer.wait_for("all of the data", has_all)
}

/// The digests of states that a peer has written down, by their steps.
fn digests(audit: &Path) -> BTreeMap<u64, String> {
    let text = fs::read_to_string(audit).expect("an audit");
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    lines.filter_map(|line| Some((line["step"].as_u64()?, line["digest"].as_str()?.to_owned()))).collect()
}

#[test]
fn a_joiner_takes_steps_before_all_of_its_data_is_there() {
    let (_folder, text) = prepared();
    let audited = |flags: &str| PeerOptions::networked(flags).with("--audit", "audit.jsonl");
    let flags = format!("{RUN} {SMALL} {RATE} --checkpoint-every 0 --steps {STEPS}");
    let founder = Peer::run(&audited(&flags).with("--data", &text));
    let joiner = Peer::join(&founder.ticket(), &audited(""));
    let begun = joiner.wait_for("a part of the data", |event| event["event"] == "arriving");
    assert_eq!((&begun["files"], &begun["of"]), (&3.into(), &5.into()), "of two and three files: {begun}");
    let (state, dirs) = (joiner.data_dir(), [founder.dir(), joiner.dir()]);
    let audits = dirs.each_ref().map(|dir| dir.path().join("audit.jsonl"));
    let reached = Cell::new(0);
    joiner.wait_for("all of the data", |event| {
        event["step"].as_u64().filter(|_| event["event"] == "progress").into_iter().for_each(|step| reached.set(step));
        has_all(event)
    });
    let whole = reached.get();
    joiner.wait_for_step(whole + 130);
    let ids = [founder.id(), joiner.id()];
    // One after the other, so that the first has left before the second does.
    joiner.signal("TERM");
    let outcome = joiner.finish();
    founder.signal("TERM");
    let other = founder.finish();
    assert_eq!(outcome.summary()["outcome"], "left");
    let (all, step) =
        (first(&outcome, "that all is here", has_all), first(&outcome, "a step", |event| event["event"] == "progress"));
    assert!(step < all, "its first step was taken while files were missing");
    let both_computed = |event: &Value| {
        let members = event["members"].as_array().filter(|_| event["event"] == "members");
        members.is_some_and(|members| {
            members.len() == 2 && members.iter().all(|member| member["samples"].as_u64() > Some(0))
        })
    };
    assert!(first(&outcome, "samples of both", both_computed) < all, "and it had samples in them");
    // All are told of whom others compute for, and that it is over.
    let lacks = |event: &Value| says_starved(event, &ids[1]);
    // On a busy machine steps are so slow that each file comes before it is needed.
    let is_warned = |(_, event): &(_, Value)| {
        event["event"] == "warning" && event["message"].as_str().is_some_and(|it| it.contains("still on its way here"))
    };
    if outcome.events.iter().any(is_warned) {
        assert!(first(&outcome, "that it lacked data", lacks) < all);
        first(&other, "that the joiner lacked data", lacks);
    }
    assert!(!other.events.iter().any(|(_, event)| says_starved(event, &ids[0])), "who has all lacks nothing");
    let last = outcome.events.iter().rev().find(|(_, event)| event["event"] == "members").expect("some were told");
    assert!(!lacks(&last.1), "{}", last.1);
    check_copy(&state, &text);
    let [founders, own] = audits.each_ref().map(|audit| digests(audit));
    let common: Vec<u64> = own.keys().copied().filter(|step| founders.contains_key(step)).collect();
    assert!(common.iter().all(|step| own[step] == founders[step]), "{own:?} and {founders:?}");
    assert!(common.last() > Some(&whole), "states are compared before all is here and after it: {common:?}");
    let report = audit(audits);
    assert_eq!((&report["samples_lost"], &report["samples_repeated"]), (&0.into(), &0.into()), "{report}");
    assert_eq!(report["first_step"], 1, "{report}");
}

#[test]
fn a_joiner_that_is_killed_while_data_comes_goes_on_from_what_is_there() {
    let (_folder, text) = prepared();
    let flags = format!("{RUN} {LARGE} {RATE} --steps 1000000 --checkpoint-every 50");
    let founder = Peer::run(&PeerOptions::networked(&flags).with("--data", &text));
    let ticket = founder.ticket();
    let joiner = Peer::join(&ticket, &PeerOptions::networked(""));
    joiner.wait_for("a step", |event| event["event"] == "progress");
    let (dir, state) = (joiner.dir(), joiner.data_dir());
    let here = || {
        let data = fs::read_dir(state.join("data")).expect("a folder").map(|entry| entry.expect("read").path());
        let folder = data.into_iter().find(|path| path.is_dir()).expect("a data set");
        let files = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("read"));
        // Blocks that were written: what is missing is a hole.
        files.map(|file| std::os::unix::fs::MetadataExt::blocks(&file.metadata().expect("read")) * 512).sum::<u64>()
    };
    let whole: u64 =
        fs::read_dir(&text).expect("a folder").map(|file| file.expect("read").metadata().expect("read").len()).sum();
    // Some chunks of the second file.
    starling_tests::eventually("a part of the next file", || (here() > SHARD + (4 << 20)).then_some(()));
    joiner.signal("KILL");
    drop(joiner);
    let before = here();
    assert!(before < whole, "{before} of {whole}");
    let joiner = Peer::join_in(dir.clone(), &ticket, &PeerOptions::networked(""));
    let said = wait_for_all(&joiner);
    joiner.signal("TERM");
    assert_eq!(joiner.finish().summary()["outcome"], "left");
    check_copy(&state, &text);
    // What was there is not fetched again, but for a chunk that was half written.
    let fetched = said["fetched_bytes"].as_u64().expect("a number");
    assert!(fetched <= whole - before + (2 << 20), "{fetched} of {whole} bytes, of which {before} were there");
    founder.signal("TERM");
    founder.finish();
}

#[test]
fn who_is_left_alone_without_its_data_takes_no_step_before_somebody_has_it() {
    let (_folder, text) = prepared();
    // Steps are taken alone, too; where nobody tells of a checkpoint, it begins with the files of the first steps.
    let run = RUN.replace("--min-peers 2", "--min-peers 1");
    let flags = format!("{run} {SMALL} {RATE} --checkpoint-every 0 --steps {STEPS}");
    let founder = Peer::run(&PeerOptions::networked(&flags).with("--data", &text));
    let founder_dir = founder.dir();
    let joiner = Peer::join(&founder.ticket(), &PeerOptions::networked(""));
    let id = joiner.id();
    joiner.wait_for("that it lacks data", |event| says_starved(event, &id));
    founder.signal("TERM");
    assert_eq!(founder.finish().summary()["outcome"], "left");
    let is_alone = |event: &Value| {
        event["event"] == "warning" && event["message"].as_str().is_some_and(|text| text.contains("no step is taken"))
    };
    joiner.wait_for("that nobody computes what comes next", is_alone);
    let stands = joiner.reached();
    // Who has all of it comes back, and both go on: no step was wasted meanwhile.
    let back = PeerOptions::networked("--share-data --state-rate 0").with("--data", &text);
    let founder = Peer::join_in(founder_dir, &joiner.ticket(), &back);
    founder.wait_for_view(2);
    wait_for_all(&joiner);
    let told = joiner.told();
    let alone = told.iter().position(is_alone).expect("it was told");
    let empty = |event: &&Value| event["event"] == "members" && event["members"][0]["samples"] == 0;
    let of_one = |event: &&Value| event["members"].as_array().is_some_and(|members| members.len() == 1);
    assert!(!told[alone..].iter().filter(of_one).any(|event| empty(&event)), "it took empty steps alone");
    joiner.wait_for_step(stands + 130);
    joiner.signal("TERM");
    assert_eq!(joiner.finish().summary()["outcome"], "left");
    founder.signal("TERM");
    founder.finish();
}
