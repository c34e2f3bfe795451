//! A machine that has no data gets it from members that share theirs.

use std::path::{Path, PathBuf};

use serde_json::Value;
use starling_tests::{Peer, PeerOptions, data, starling};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
/// A run that is over soon, but not before two are there.
const SHORT: &str = "--min-peers 2 --steps 40 --model mlp:8";
/// A run that lasts longer than any test, of a model that costs next to nothing.
const LONG: &str = "--steps 1000000 --model softmax --checkpoint-every 0";

/// Bytes that are here, of how many, in each report of a download.
fn downloads(events: &[Value]) -> Vec<(u64, u64)> {
    let reports = events.iter().filter(|event| event["event"] == "downloading");
    reports.map(|event| (event["bytes"].as_u64().expect("a number"), event["of"].as_u64().expect("a number"))).collect()
}

/// Waits until `peer` has downloaded so many bytes of its data.
fn wait_for_bytes(peer: &Peer, least: u64) -> u64 {
    let event = peer.wait_for("a part of the data", |event| {
        event["event"] == "downloading" && event["bytes"].as_u64() >= Some(least)
    });
    event["bytes"].as_u64().expect("a number")
}

/// Waits for the end of all, who must have finished with one digest. What the last one said.
fn finish(peers: Vec<Peer>) -> Vec<Value> {
    let mut outcomes: Vec<_> = peers.into_iter().map(Peer::finish).collect();
    for outcome in &outcomes {
        assert_eq!(outcome.summary()["outcome"], "complete");
        assert_eq!(outcome.summary()["digest"], outcomes[0].summary()["digest"]);
    }
    outcomes.pop().expect("one at least").events.into_iter().map(|(_, event)| event).collect()
}

/// The folder that the one data set in a data directory was downloaded to.
fn downloaded(data_dir: &Path) -> PathBuf {
    let mut entries = std::fs::read_dir(data_dir.join("data")).expect("a folder");
    let folder = entries.next().expect("a data set").expect("read").path();
    assert!(entries.next().is_none(), "nothing is left beside {}", folder.display());
    folder
}

fn large_table(mib: usize) -> (TempDir, PathBuf) {
    let folder = TempDir::new().expect("a temp dir");
    let path = folder.path().join("large.csv");
    data::write_large_table(&path, mib);
    (folder, path)
}

#[test]
fn a_table_travels_with_the_ticket_and_stays() {
    let path = data::breast_cancer();
    let founder =
        Peer::run(&PeerOptions::networked("--min-peers 3 --steps 40 --model mlp:8 --share-data").with("--data", &path));
    let ticket = founder.ticket();
    let second = Peer::join(&ticket, &PeerOptions::networked("--share-data").with("--data", &path));
    second.wait_for("its start", |event| event["event"] == "started");
    let third = Peer::join(&ticket, &PeerOptions::networked(""));
    let (dir, state) = (third.dir(), third.data_dir());
    let bytes = std::fs::read(&path).expect("the table");
    let said = finish(vec![founder, second, third]);
    assert_eq!(downloads(&said).last(), Some(&(bytes.len() as u64, bytes.len() as u64)));
    assert_eq!(std::fs::read(downloaded(&state).join("table.csv")).expect("here"), bytes);

    // In another run on the same data, where nobody shares, it has all that it needs.
    let founder = Peer::run(&PeerOptions::networked(&format!("{SHORT} --seed 7")).with("--data", &path));
    let again = Peer::join_in(dir, &founder.ticket(), &PeerOptions::networked(""));
    assert_eq!(downloads(&finish(vec![founder, again])), []);
}

#[test]
fn images_travel_compressed_as_they_are() {
    let folder = TempDir::new().expect("a temp dir");
    data::write_idx(folder.path());
    let founder = Peer::run(&PeerOptions::networked(&format!("{SHORT} --share-data")).with("--data", folder.path()));
    let joiner = Peer::join(&founder.ticket(), &PeerOptions::networked(""));
    let (_dir, state) = (joiner.dir(), joiner.data_dir());
    let said = finish(vec![founder, joiner]);
    assert!(!downloads(&said).is_empty());
    let here = downloaded(&state);
    for (name, theirs) in [
        ("train-images-idx3-ubyte", "train-images-idx3-ubyte.gz"),
        ("train-labels-idx1-ubyte", "train-labels-idx1-ubyte"),
    ] {
        let read = |path: PathBuf| std::fs::read(path).expect("a file");
        assert_eq!(read(here.join(name)), read(folder.path().join(theirs)));
    }
}

#[test]
fn images_travel_as_they_were_decoded_and_their_classes_with_the_model() {
    let folder = TempDir::new().expect("a temp dir");
    let images = folder.path().join("images");
    data::write_images(&images, 6).expect("written");
    let founder =
        Peer::run(&PeerOptions::networked(&format!("{SHORT} --share-data --image-size 6x7")).with("--data", &images));
    let exported = folder.path().join("out/");
    let joiner = Peer::join(&founder.ticket(), &PeerOptions::networked("").with("--export", &exported));
    let (_dir, state) = (joiner.dir(), joiner.data_dir());
    let events = finish(vec![founder, joiner]);
    assert!(downloads(&events).last().is_some_and(|(bytes, of)| bytes == of), "{events:?}");
    let pack = downloaded(&state).join("images.pack");
    assert!(std::fs::metadata(&pack).expect("downloaded").len() > 60 * 6 * 7);
    let said = |verb: &str, data: &Path| {
        let output = starling(folder.path()).args([verb, "out/", "--data"]).arg(data).output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    let predicted = said("predict", &images);
    let lines: Vec<&str> = predicted.lines().collect();
    assert_eq!((lines[0], lines.len()), ("file,prediction", 61));
    assert!(lines[1].starts_with("digit 0/0.png,digit "), "{}", lines[1]);
    // What was downloaded is what the folder is.
    assert_eq!(said("eval", &images), said("eval", &pack));
}

#[test]
fn a_download_goes_on_without_a_donor_that_was_killed() {
    let (_folder, path) = large_table(6);
    let shares = format!("{LONG} --min-peers 2 --share-data --state-rate 1");
    let founder = Peer::run(&PeerOptions::networked(&shares).with("--data", &path));
    let ticket = founder.ticket();
    // One that was sent the data itself hands it on, and one that has it keeps it for itself.
    let second = Peer::join(&ticket, &PeerOptions::networked("--share-data --state-rate 1"));
    let third = Peer::join(&ticket, &PeerOptions::networked("").with("--data", &path));
    let members = |event: &Value| event["event"] == "view" && event["members"].as_array().map(Vec::len) == Some(3);
    second.wait_for("a view of all", members);
    third.wait_for("a view of all", members);
    let joiner = Peer::join(&ticket, &PeerOptions::networked(""));
    let before = wait_for_bytes(&joiner, 2 * MIB);
    founder.signal("KILL");
    drop(founder);
    joiner.wait_for("a step", |event| event["event"] == "progress");
    for peer in [&joiner, &second, &third] {
        peer.signal("TERM");
    }
    let outcome = joiner.finish();
    assert_eq!(outcome.summary()["outcome"], "left");
    let events: Vec<Value> = outcome.events.into_iter().map(|(_, event)| event).collect();
    let told = downloads(&events);
    assert!(told.is_sorted() && told.iter().any(|(bytes, _)| *bytes == before), "{told:?}");
    assert_eq!((told[0].0, told.last().map(|(bytes, of)| bytes == of)), (0, Some(true)), "{told:?}");
}

#[test]
fn a_joiner_that_was_killed_goes_on_where_it_stopped() {
    let (_folder, path) = large_table(4);
    let shares = format!("{SHORT} --share-data --state-rate 1");
    let founder = Peer::run(&PeerOptions::networked(&shares).with("--data", &path));
    let ticket = founder.ticket();
    let joiner = Peer::join(&ticket, &PeerOptions::networked(""));
    let before = wait_for_bytes(&joiner, 2 * MIB);
    joiner.signal("KILL");
    let dir = joiner.dir();
    drop(joiner);
    let joiner = Peer::join_in(dir, &ticket, &PeerOptions::networked(""));
    let told = downloads(&finish(vec![founder, joiner]));
    assert!(told[0].0 >= before && told.is_sorted(), "{before} and then {told:?}");
}

#[test]
fn what_was_damaged_is_downloaded_again_and_no_more() {
    let (_folder, path) = large_table(3);
    let founder = |seed: u32| {
        let flags = format!("{SHORT} --share-data --seed {seed}");
        Peer::run(&PeerOptions::networked(&flags).with("--data", &path))
    };
    let first = founder(1);
    let joiner = Peer::join(&first.ticket(), &PeerOptions::networked(""));
    let (dir, state) = (joiner.dir(), joiner.data_dir());
    finish(vec![first, joiner]);
    let file = downloaded(&state).join("table.csv");
    let mut bytes = std::fs::read(&file).expect("here");
    let at = MIB as usize + bytes[MIB as usize..].iter().position(u8::is_ascii_digit).expect("a number");
    bytes[at] = b'x';
    std::fs::write(&file, &bytes).expect("written");
    let second = founder(2);
    let joiner = Peer::join_in(dir, &second.ticket(), &PeerOptions::networked(""));
    let said = finish(vec![second, joiner]);
    let whole = bytes.len() as u64;
    assert_eq!(downloads(&said), [(whole - MIB, whole), (whole, whole)]);
    let warning = said.iter().find(|event| event["event"] == "warning").expect("a word about it");
    assert!(warning["message"].as_str().is_some_and(|text| text.contains("downloaded again")), "{warning}");
}

#[test]
fn who_does_not_share_or_shares_too_much_is_an_error_with_a_remedy() {
    let (_folder, path) = large_table(2);
    let alone = Peer::run(&PeerOptions::networked(SHORT).with("--data", &path));
    let error = Peer::join(&alone.ticket(), &PeerOptions::networked("")).finish().error().to_owned();
    for part in ["csv", "569 samples", "--data PATH", "--share-data"] {
        assert!(error.contains(part), "`{part}` is missing in: {error}");
    }
    // The run goes on as if nobody had asked.
    let sharing = Peer::run(&PeerOptions::networked(&format!("{SHORT} --share-data --seed 3")).with("--data", &path));
    let refused = Peer::join(&sharing.ticket(), &PeerOptions::networked("--data-limit 1"));
    let (_dir, state) = (refused.dir(), refused.data_dir());
    let error = refused.finish().error().to_owned();
    for part in ["at most 1 MiB", "--data-limit 3", "--data PATH"] {
        assert!(error.contains(part), "`{part}` is missing in: {error}");
    }
    assert!(!state.join("data").exists(), "not a byte was taken");
    let joiner = Peer::join(&sharing.ticket(), &PeerOptions::networked("--data-limit 3"));
    assert!(!downloads(&finish(vec![sharing, joiner])).is_empty());
    let named = Peer::join(&alone.ticket(), &PeerOptions::networked("").with("--data", &path));
    assert_eq!(downloads(&finish(vec![alone, named])), []);
}
