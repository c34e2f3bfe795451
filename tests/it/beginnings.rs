//! Runs that begin with values from a file.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, TensorView, serialize};
use serde_json::Value;
use starling_tests::{Outcome, Peer, PeerOptions, newest, starling};
use tempfile::TempDir;

const FLAGS: &str = "--model mlp:16 --learning-rate 0.01";

/// Trains alone, and exports the model to `file`.
fn exported(file: &Path) -> Outcome {
    Peer::run(&PeerOptions::networked(&format!("--steps 60 {FLAGS}")).with("--export", file)).finish()
}

/// Members get the values from each other, also after the founder is gone, and one that was killed comes back.
#[test]
fn members_without_the_file_begin_with_its_values() {
    let folder = TempDir::new().expect("a temp dir");
    let file = folder.path().join("model.safetensors");
    let before = exported(&file).summary()["held_out_loss"].as_f64().expect("a loss");
    let flags = format!("--steps 1000000 --min-peers 2 --max-stall 2s {FLAGS}");
    let founder = Peer::run(&PeerOptions::networked(&format!("{flags} --evaluate-every 1")).with("--init", &file));
    let ticket = founder.ticket();
    let first = Peer::join(&ticket, &PeerOptions::networked(""));
    let evaluated = first.wait_for("its evaluation", |event| event["event"] == "evaluated" && event["step"] == 1);
    let loss = evaluated["loss"].as_f64().expect("a loss");
    assert!((loss / before - 1.0).abs() < 0.5, "it goes on from {before}, and comes to {loss} with a step");
    first.wait_for_view(2);
    let dir = first.dir();
    first.signal("KILL");
    drop(first.finish());
    let again = Peer::join_in(dir, &ticket, &PeerOptions::networked(""));
    again.wait_for("the state", |event| event["event"] == "synced");
    let ticket = again.ticket();
    let third = Peer::join(&ticket, &PeerOptions::networked(""));
    third.wait_for_votes(3);
    founder.signal("KILL");
    drop(founder.finish());
    // Nobody is left that had the file.
    let last = Peer::join(&ticket, &PeerOptions::networked(""));
    last.wait_for("the state", |event| event["event"] == "synced");
    let members = [again, third, last];
    let step = members.iter().map(Peer::reached).max().expect("three");
    members.iter().for_each(|member| _ = member.wait_for_step(step + 200));
    let diverged = |member: &Peer| member.told().iter().any(|event| event["event"] == "diverged");
    assert!(!members.iter().any(diverged), "digests are compared each 64 steps");
    members.iter().for_each(|member| member.signal("INT"));
}

/// What a few steps from the values there come to.
fn stepped(from: &Path, flags: &str) -> Value {
    let flags = PeerOptions::networked(&format!("--steps 5 --seed 7 {flags}"));
    Peer::run(&flags.with("--init", from)).finish().summary()["values"].clone()
}

/// A safetensors file of f32 in this layout.
fn write_tensors(path: &Path, layout: &str, tensors: &[(String, Vec<usize>, Vec<u8>)]) {
    let views = tensors
        .iter()
        .map(|(name, shape, bytes)| (name, TensorView::new(Dtype::F32, shape.clone(), bytes).expect("a tensor")));
    let layout = HashMap::from([("layout".to_owned(), layout.to_owned())]);
    std::fs::write(path, serialize(views, Some(layout)).expect("a file")).expect("written");
}

/// Its model is what a run begins with, whichever way it is named; not its optimizer, and not its step.
#[test]
fn a_checkpoint_and_a_data_directory_begin_a_run_as_their_export_does() {
    let folder = TempDir::new().expect("a temp dir");
    let file = folder.path().join("model.safetensors");
    let trained = Peer::run(&PeerOptions::networked(&format!("--steps 60 --ema 0.9 {FLAGS}")).with("--export", &file));
    let (dir, state) = (trained.dir(), trained.data_dir());
    trained.finish().summary();
    let checkpoint = PathBuf::from(newest(&dir)["path"].as_str().expect("a path"));
    let expected = stepped(&file, FLAGS);
    assert!(expected.is_string());
    for from in [&checkpoint, &state] {
        assert_eq!(stepped(from, FLAGS), expected, "{}", from.display());
    }
    let other = Peer::run(&PeerOptions::networked("--model mlp:8").with("--init", &state)).finish();
    assert!(other.error().contains("`hidden.0.weight` is [64, 16]"), "{}", other.error());
}

/// What is called otherwise, is called by the model's names.
#[test]
fn names_of_tensors_are_mapped() {
    let folder = TempDir::new().expect("a temp dir");
    let (file, renamed) = (folder.path().join("model.safetensors"), folder.path().join("renamed.safetensors"));
    let _ = exported(&file);
    let bytes = std::fs::read(&file).expect("read");
    let read = safetensors::SafeTensors::deserialize(&bytes).expect("whole");
    let tensor = |(name, tensor): (String, TensorView<'_>)| {
        let name = name.replace("hidden.0", "net.layers.0").replace("output", "net.head");
        (name, tensor.shape().to_vec(), tensor.data().to_vec())
    };
    write_tensors(&renamed, "burn", &read.tensors().into_iter().map(tensor).collect::<Vec<_>>());
    let maps = r"--init-map ^net\.layers\.(\d+)=hidden.$1 --init-map ^net\.head=output";
    assert_eq!(stepped(&renamed, &format!("{FLAGS} {maps}")), stepped(&file, FLAGS));
    let one = Peer::run(&PeerOptions::networked(&format!("{FLAGS} --init-map .*=a")).with("--init", &renamed)).finish();
    assert!(one.error().contains("are called `a` by --init-map"), "{}", one.error());
}

/// One machine has the file, and the other gets its values; both learn what they would from the same numbers in another file.
#[test]
fn members_begin_with_what_pytorch_saved() {
    let folder = TempDir::new().expect("a temp dir");
    let flags = "--model softmax --steps 20 --seed 7 --learning-rate 0.01";
    let saved = starling_tests::root().join("tests/data/softmax.pt");
    let founder = Peer::run(&PeerOptions::networked(&format!("{flags} --min-peers 2")).with("--init", &saved));
    let joins = Peer::join(&founder.ticket(), &PeerOptions::networked(""));
    let [first, second] = [founder, joins].map(Peer::finish);
    assert_eq!(first.summary()["digest"], second.summary()["digest"]);
    // `(arange(640) % 17 - 8) / 100` and `(arange(10) - 5) / 100`, in f32.
    let bytes = |numbers: Vec<f32>| numbers.into_iter().flat_map(|number| (number * 0.01).to_le_bytes()).collect();
    let weight = (0..640).map(|at| (at % 17) as f32 - 8.0).collect();
    let bias = (0..10).map(|at| at as f32 - 5.0).collect();
    let same = folder.path().join("same.safetensors");
    let tensors = [("output.weight", vec![10, 64], bytes(weight)), ("output.bias", vec![10], bytes(bias))];
    write_tensors(&same, "torch", &tensors.map(|(name, shape, bytes)| (name.to_owned(), shape, bytes)));
    let run = |from: &Path| {
        Peer::run(&PeerOptions::networked(flags).with("--init", from)).finish().summary()["values"].clone()
    };
    assert_eq!(run(&saved), run(&same));
}

/// Scaling, which is part of the graph, becomes part of no weight.
#[test]
fn an_onnx_file_begins_a_run_with_the_bits_that_were_trained() {
    let folder = TempDir::new().expect("a temp dir");
    let file = folder.path().join("model.safetensors");
    let _ = exported(&file);
    let told = starling(folder.path()).args(["export", "model.safetensors", "--to", "model.onnx"]).output();
    assert!(told.expect("it runs").status.success());
    let [one, other] = ["model.safetensors", "model.onnx"].map(|name| {
        let flags = PeerOptions::networked(&format!("--steps 5 --seed 7 {FLAGS}"));
        Peer::run(&flags.with("--init", folder.path().join(name))).finish().summary()["values"].clone()
    });
    assert!(one.is_string() && one == other, "{one} and {other}");
    let peer = Peer::run(&PeerOptions::networked("--model mlp:8").with("--init", folder.path().join("model.onnx")));
    let error = peer.finish().error().to_owned();
    assert!(error.contains("model.onnx") && error.contains("`hidden.0.weight` is [64, 16]"), "{error}");
}

#[test]
fn a_file_of_another_model_is_refused_by_name() {
    let folder = TempDir::new().expect("a temp dir");
    let file = folder.path().join("model.safetensors");
    let _ = exported(&file);
    let refused = |flags: &str, file: &Path| {
        let peer = Peer::run(&PeerOptions::networked(flags).with("--init", file));
        peer.finish().error().to_owned()
    };
    let error = refused("--model mlp:8", &file);
    assert!(error.contains("can't begin with") && error.contains("`hidden.0.weight` is [64, 16]"), "{error}");
    let error = refused("--model cnn:4", &file);
    assert!(error.contains("it has no tensor `convolutions.0.weight`"), "{error}");
    let bytes = std::fs::read(&file).expect("read");
    std::fs::write(&file, &bytes[..bytes.len() - 1]).expect("written");
    let error = refused(FLAGS, &file);
    assert!(error.contains("cut off"), "{error}");
    let error = refused(FLAGS, Path::new("nowhere"));
    assert!(error.contains("cannot read the model"), "{error}");
}
