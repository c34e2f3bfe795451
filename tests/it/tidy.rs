//! The house rules. Each rule is a function over a path and a text that says what is wrong. Here they are put to the
//! whole repository; beside each rule, a sample shows that it can fail.

mod documents;
mod manifests;
mod nouns;
mod repository;
mod sources;

use std::collections::BTreeSet;

use repository::{File, files};

/// A program as its user writes it, who knows nothing of this repository.
const OUTSIDE: &str = "node/starling/outside/";

/// Puts `rule` to each file that `wanted` picks, and shows all that is wrong at once.
fn hold(wanted: impl Fn(&str) -> bool, rule: impl Fn(&File) -> Vec<String>) {
    let picked: Vec<&File> = files().iter().filter(|file| wanted(&file.path)).collect();
    assert!(!picked.is_empty(), "the rule is about no file at all");
    let tell = |file: &File| {
        let path = file.path.clone();
        rule(file).into_iter().map(move |problem| format!("{path}: {problem}"))
    };
    let wrong: Vec<String> = picked.into_iter().flat_map(tell).collect();
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

fn is_rust(path: &str) -> bool {
    path.ends_with(".rs")
}

fn is_document(path: &str) -> bool {
    path.ends_with(".md")
}

fn is_member_manifest(path: &str) -> bool {
    path.ends_with("/Cargo.toml") && !path.starts_with(OUTSIDE)
}

#[test]
fn packages_depend_only_on_those_to_their_left() {
    hold(is_member_manifest, |file| manifests::dependencies(&file.path, &file.text));
}

#[test]
fn packages_are_built_of_nothing_that_they_may_not_name() {
    let manifests: Vec<&str> =
        files().iter().filter(|file| is_member_manifest(&file.path)).map(|file| file.text.as_str()).collect();
    let lock = &files().iter().find(|file| file.path == "Cargo.lock").expect("the lock file").text;
    hold(is_member_manifest, |file| manifests::brought(&file.path, &file.text, &manifests, lock));
}

#[test]
fn every_member_inherits_lints_and_licence() {
    hold(is_member_manifest, |file| manifests::inheritance(&file.text));
}

#[test]
fn every_package_is_a_member_of_the_workspace() {
    let manifests = files().iter().filter(|file| is_member_manifest(&file.path));
    let members: Vec<&str> = manifests.filter_map(|file| file.path.strip_suffix("/Cargo.toml")).collect();
    hold(|path| path == "Cargo.toml", |file| manifests::membership(&file.text, &members));
}

#[test]
fn a_users_program_needs_nothing_but_the_crate() {
    let ours = &files().iter().find(|file| file.path == "Cargo.lock").expect("the lock file").text;
    let of_users = |name: &str| format!("{OUTSIDE}{name}");
    hold(|path| path == of_users("Cargo.toml"), |file| manifests::users(&file.text));
    hold(|path| path == of_users("Cargo.lock"), |file| manifests::other_builds(&file.text, ours, &[]));
    let brought = ["burn-onnx", "onnx-ir", "prettyplease", "protobuf", "rust-format", "strum", "strum_macros", "syn"];
    hold(|path| path == of_users("onnx/Cargo.lock"), |file| manifests::other_builds(&file.text, ours, &brought));
}

#[test]
fn protocol_packages_own_no_socket_clock_or_task() {
    hold(is_rust, |file| sources::absences(&file.path, &file.text));
}

#[test]
fn unsafe_code_is_where_it_has_to_be() {
    hold(is_rust, |file| sources::unsafe_code(&file.path, &file.text));
}

#[test]
fn the_simulator_has_no_machine_of_its_own_for_what_the_engine_does() {
    let engine = files().iter().filter(|file| file.path.starts_with("train/engine/src/"));
    let machines: Vec<String> = engine.flat_map(|file| sources::types(&file.text)).collect();
    assert!(machines.len() > 10, "these are all: {machines:?}");
    hold(|path| path.starts_with("sims/src/") && is_rust(path), |file| sources::doubles(&machines, &file.text));
}

#[test]
fn models_of_the_command_line_are_written_as_users_write_theirs() {
    let root = files().iter().find(|file| file.path == "node/starling/src/lib.rs").expect("the crate for users");
    let exports = sources::exports(&root.text);
    let besides = [
        "train/src/task/classification.rs",
        "train/src/task/evaluation.rs",
        "train/src/task/language.rs",
        "train/src/task/regression.rs",
        "train/src/network/mod.rs",
        "train/src/network/transformer.rs",
    ];
    // What those of the registry are to it, what classifiers share, and how long a text's samples and its vocabulary may be.
    let own = [
        "AnyModule",
        "AnyTask",
        "Batch",
        "CONTEXT",
        "Chosen",
        "ClassificationTask",
        "Dropout",
        "Gpt",
        "LabelKind",
        "LanguageTask",
        "LayerSpec",
        "MAX_TOKENS",
        "Model",
        "Network",
        "OutputKind",
        "RegressionTask",
        "ResidualBlock",
        "Rotation",
        "RowModule",
        "Size",
        "Tables",
        "TransformerNetwork",
        "augment",
        "check_layers",
        "check_widths",
        "choose",
        "evaluation",
        "halves",
        "no_blocks",
        "no_embeddings",
        "unusable",
    ];
    hold(
        |path| path.starts_with("train/src/network/models/") || besides.contains(&path),
        |file| sources::not_exported(&file.text, &exports, &own),
    );
}

#[test]
fn nothing_is_marked_as_unfinished() {
    hold(|path| path != "Cargo.lock", |file| sources::markers(&file.text));
}

#[test]
fn no_file_names_a_place_on_somebodys_machine() {
    hold(|_| true, |file| sources::machine_paths(&file.text));
}

#[test]
fn tests_run_always_and_do_not_sleep() {
    hold(is_rust, |file| sources::idle_tests(&file.path, &file.text));
}

#[test]
fn every_crate_says_what_it_is() {
    let is_root = |path: &str| path.ends_with("src/lib.rs") || path.ends_with("src/main.rs");
    hold(is_root, |file| sources::introduction(&file.text));
}

#[test]
fn public_types_have_few_nouns_and_all_are_listed() {
    let sources = files().iter().filter(|file| nouns::is_library(&file.path));
    let used: BTreeSet<&str> = sources.flat_map(|file| nouns::used(&file.text)).collect();
    assert!(used.len() > 10, "these are all: {used:?}");
    hold(|path| path == "docs/README.md", |file| nouns::wrong(&used, &file.text));
}

#[test]
fn links_lead_somewhere() {
    hold(is_document, |file| documents::dead_links(&file.path, &file.text, files()));
}

/// The README says how little a program of one's own takes.
#[test]
fn a_users_first_program_is_short() {
    hold(|path| path == "node/starling/examples/own_model.rs", |file| documents::at_most(80, &file.text));
}

#[test]
fn decisions_have_one_form() {
    let is_decision = |path: &str| path.starts_with("docs/adr/");
    hold(is_decision, |file| documents::decision(&file.path, &file.text));
}

#[test]
fn the_index_lists_every_document() {
    let documents: Vec<&str> =
        files().iter().filter_map(|file| file.path.strip_prefix("docs/")).filter(|path| *path != "README.md").collect();
    hold(|path| path == "docs/README.md", |file| documents::unlisted(&file.text, &documents));
}
