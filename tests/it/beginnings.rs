//! Runs that begin with values from a file.

use std::path::Path;

use starling_tests::{Outcome, Peer, PeerOptions, starling};
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
    let founder = Peer::run(&PeerOptions::networked(&flags).with("--init", &file));
    let ticket = founder.ticket();
    let first = Peer::join(&ticket, &PeerOptions::networked("--evaluate-every 1"));
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
