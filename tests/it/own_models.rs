//! Programs that bring a module of their own: they found, join, heal, save, come back and export as the command line does; and one
//! whose module is the command line's, in its runs.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use safetensors::SafeTensors;
use serde_json::Value;
use starling_tests::{Outcome, Peer, PeerOptions, built, checkpoints, newest, newest_stable, root, starling};
use tempfile::TempDir;

const ENDLESS: &str = "100000000";

fn fresh() -> Arc<TempDir> {
    Arc::new(TempDir::new().expect("a temp dir"))
}

fn is_event(kind: &str) -> impl Fn(&Value) -> bool {
    move |event| event["event"] == kind
}

/// Ends a peer with a signal.
fn end(peer: Peer, signal: &str) -> Outcome {
    peer.signal(signal);
    peer.finish()
}

/// The digests of the states that a member has saved, by step.
fn saved(outcome: &Outcome) -> BTreeMap<u64, String> {
    let saved = outcome.events.iter().map(|(_, event)| event).filter(|event| event["event"] == "saved");
    let digest = |event: &Value| Some((event["step"].as_u64()?, event["digest"].as_str()?.to_owned()));
    saved.map(|event| digest(event).expect("a step and a digest")).collect()
}

/// The names of a model file's tensors.
fn names(path: &Path) -> Vec<String> {
    let bytes = fs::read(path).expect("a model");
    let mut names: Vec<String> =
        SafeTensors::deserialize(&bytes).expect("whole").names().into_iter().map(str::to_owned).collect();
    names.sort_unstable();
    names
}

#[test]
fn a_program_founds_joins_heals_saves_resumes_and_exports() {
    let dirs = [fresh(), fresh(), fresh(), fresh()];
    let founder = Peer::own_model_in(dirs[0].clone(), ENDLESS);
    let ticket = founder.ticket();
    let stays = Peer::own_model_in(dirs[1].clone(), &ticket);
    let dies = Peer::own_model_in(dirs[2].clone(), &ticket);
    for joined in [&stays, &dies] {
        joined.wait_for("the state", is_event("synced"));
    }
    let three = founder.wait_for_view(3);
    end(dies, "KILL");
    let after = |generation: &Value, members: usize| {
        let generation = generation.as_u64();
        founder.wait_for(&format!("a later view of {members}"), |event| {
            event["event"] == "view"
                && event["generation"].as_u64() > generation
                && event["members"].as_array().is_some_and(|list| list.len() == members)
        })
    };
    let smaller = after(&three["generation"], 2);
    let comes = Peer::own_model_in(dirs[3].clone(), &ticket);
    comes.wait_for("the state", is_event("synced"));
    after(&smaller["generation"], 3);
    let from = comes.wait_for_step(1);
    for peer in [&founder, &stays, &comes] {
        peer.wait_for_step(from + 2000);
    }
    let [third, second, first] = [comes, stays, founder].map(|peer| end(peer, "TERM"));
    let [founders, stayers, comers] = [&first, &second, &third].map(|outcome| {
        assert_eq!(outcome.summary()["outcome"], "left");
        assert!(outcome.summary()["held_out_loss"].as_f64().is_some_and(|loss| loss < 0.5), "{:?}", outcome.last);
        saved(outcome)
    });
    // All hold the same bits where all have saved.
    let common: Vec<_> = comers.iter().filter(|(step, _)| stayers.contains_key(step)).collect();
    assert!(!common.is_empty(), "{comers:?}, {stayers:?}");
    for (step, digest) in common.iter().filter(|(step, _)| founders.contains_key(step)) {
        assert!(stayers[step] == **digest && founders[step] == **digest, "step {step}");
    }
    // The same command brings a member back to where it was.
    let reached = first.summary()["steps"].as_u64().expect("a step");
    let back = Peer::own_model_in(dirs[0].clone(), ENDLESS);
    let started = back.wait_for("its start", is_event("started"));
    assert_eq!((&started["model"], started["step"].as_u64()), (&Value::from("sine"), Some(reached)));
    back.wait_for_step(reached + 1);
    end(back, "TERM").summary();
    let leaves = [
        "hidden.bias",
        "hidden.weight",
        "norm.beta",
        "norm.gamma",
        "norm.running_mean",
        "norm.running_var",
        "output.bias",
        "output.weight",
    ];
    assert_eq!(names(&dirs[0].path().join("state.safetensors")), leaves);
    // The command line needs no program to export it.
    let exported = dirs[0].path().join("by_command.safetensors");
    let mut command = starling(dirs[0].path());
    command.args(["checkpoint", "export", "--to"]).arg(&exported).arg("--data-dir").arg(dirs[0].path().join("state"));
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(names(&exported), leaves);
    // It can say what that is, and that it lacks what it takes to use it.
    for model in ["by_command.safetensors", "state"] {
        let said = |verb: &[&str]| starling(dirs[0].path()).args(verb).arg(model).output().expect("it runs");
        let shown = said(&["model", "show", "--json"]);
        let shown: Value = serde_json::from_slice(&shown.stdout).expect("JSON");
        assert_eq!(
            (&shown["task"], shown["tensors"].as_array().map(Vec::len)),
            (&"sine".into(), Some(leaves.len())),
            "{shown}"
        );
        let refused = said(&["predict", "--data", "digits"]);
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(told.contains("holds the task `sine`, which is a program's own: this program lacks it"), "{told}");
    }
}

#[test]
fn another_programs_run_is_refused_by_name() {
    let dir = fresh();
    let founder = Peer::own_model_in(dir.clone(), ENDLESS);
    let error = Peer::join(&founder.ticket(), &PeerOptions::default()).finish();
    assert!(error.error().contains(
        "trains the task `sine`, which is a program's own, and this program has the models of the command line"
    ));
    let classifiers = Peer::run(&PeerOptions::flags("--steps 100000000"));
    let other = Peer::own_model_in(fresh(), &classifiers.ticket()).finish();
    assert!(!other.status.success() && other.stderr.contains("the command line's model `mlp:64`, and this program has the task `sine`, which is a program's own; join it with `starling join`"), "{}", other.stderr);
}

/// The command line has no such program. What it keeps of the run, it needs none for.
#[test]
fn another_programs_checkpoints_are_kept_and_verified_without_it() {
    let founder = Peer::own_model_in(fresh(), ENDLESS);
    let dir = fresh();
    let keeper = Peer::keep_in(dir.clone(), &founder.ticket(), &PeerOptions::default());
    let kept = keeper.wait_for("a stable checkpoint", is_event("stable"));
    end(keeper, "TERM").summary();
    end(founder, "TERM").summary();
    let (verdicts, code) = checkpoints(&dir, "verify");
    assert_eq!(code, Some(0), "{verdicts:?}");
    let newest = newest_stable(&dir);
    assert!(newest["step"].as_u64() >= kept["step"].as_u64(), "{newest}, {kept}");
}

/// Compiles the program outside of the workspace in `dir`, against the crate `starling` and nothing else, with something in it replaced.
fn outside(dir: &Path, [what, by]: [&str; 2]) -> PathBuf {
    let (library, program, source) = (built("libstarling.rlib"), dir.join("mlp"), dir.join("mlp.rs"));
    let text = fs::read_to_string(root().join("node/starling/outside/src/main.rs")).expect("the program");
    assert_eq!(text.matches(what).count(), 1, "{what}");
    fs::write(&source, text.replace(what, by)).expect("written");
    let dependencies = library.parent().expect("a folder").join("deps");
    let mut rustc = Command::new("rustc");
    rustc.current_dir(root()).args(["--edition", "2024", "--crate-name", "mlp", "-C", "opt-level=2"]);
    rustc.arg("-L").arg(format!("dependency={}", dependencies.display()));
    rustc.arg("--extern").arg(format!("starling={}", library.display()));
    rustc.arg(&source).arg("-o").arg(&program);
    let output = rustc.output().expect("the compiler that has compiled this");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

#[test]
fn the_command_lines_model_in_another_program_trains_in_its_runs_to_the_same_values() {
    let dir = fresh();
    let program = outside(dir.path(), ["fn main()", "fn main()"]);
    // With another width, it is refused by that.
    let wider = Peer::run(&PeerOptions::flags("--model mlp:65 --min-peers 2"));
    let refused = Peer::program_in(fresh(), &program, &wider.ticket()).finish();
    assert!(refused.stderr.contains("model: ours mlp:64, theirs mlp:65"), "{}", refused.stderr);
    let founder = Peer::run(&PeerOptions::flags("--model mlp:64 --min-peers 3 --steps 200 --evaluate-every 40"));
    let joins = Peer::program_in(dir.clone(), &program, &founder.ticket());
    let commands = Peer::join(&founder.ticket(), &PeerOptions::default());
    let [first, second, third] = [founder, joins, commands].map(Peer::finish);
    for hash in ["values", "digest"] {
        let of = |outcome: &Outcome| outcome.summary()[hash].as_str().expect("a hash").to_owned();
        assert_eq!((of(&second), of(&third)), (of(&first), of(&first)), "{hash}");
        assert_eq!(newest(&dir)[hash], second.summary()[hash], "what `checkpoint ls` says");
    }
    let figures = |outcome: &Outcome| {
        ["held_out_loss", "accuracy", "top_5_accuracy"].map(|name| {
            let summary = outcome.summary();
            let figure = summary.get(name).unwrap_or_else(|| &summary["measures"][name]);
            figure.as_f64().expect("a number")
        })
    };
    let (ours, theirs) = (figures(&first), figures(&second));
    assert!(ours.iter().zip(&theirs).all(|(ours, theirs)| (ours - theirs).abs() < 1e-4), "{ours:?} and {theirs:?}");
    // Each has evaluated a part of what all tell.
    let told = |outcome: &Outcome| -> Vec<_> {
        let events = outcome.events.iter().map(|(_, event)| event).filter(|event| event["event"] == "evaluated");
        let joint = events.filter(|event| event["step"].as_u64() < Some(200));
        joint.map(|event| (event["step"].clone(), event["loss"].clone(), event["measures"].clone())).collect()
    };
    assert!(told(&first).len() == 4 && told(&first) == told(&second), "{:?} and {:?}", told(&first), told(&second));
    assert!(second.summary()["bytes_sent"].as_u64() > Some(0), "{}", second.summary());
}

/// A manifest tells no loss. Who computes another one over the run's first samples is refused by itself, and costs the others nothing.
#[test]
fn the_same_model_by_another_loss_is_refused_with_both_losses() {
    let dir = fresh();
    let loss = "CrossEntropyLossConfig::new().init(&labels.device()).forward(mlp.forward(rows), labels)";
    let program = outside(dir.path(), [loss, &format!("{loss} * 2.0")]);
    let founder = Peer::run(&PeerOptions::flags("--model mlp:64 --steps 100000000"));
    let refused = Peer::program_in(fresh(), &program, &founder.ticket()).finish();
    assert!(!refused.status.success() && !refused.stderr.contains("panicked"), "{}", refused.stderr);
    assert!(refused.stderr.contains("the loss over its first samples is"), "{}", refused.stderr);
    founder.wait_for_step(founder.reached() + 100);
    let views = founder.told().iter().filter(|event| event["event"] == "view").count();
    assert_eq!(views, 1, "it never was a member");
    end(founder, "TERM").summary();
}
