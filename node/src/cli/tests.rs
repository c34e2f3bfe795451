//! What the command line takes and says of itself.

use clap::{Command, CommandFactory, Parser};

use super::*;
use crate::config::{FlagValue, KEYS, Layers, show_json};

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(line.split_whitespace())
}

/// The flag values of `starling run`.
fn run_values(line: &str) -> Vec<FlagValue> {
    let Verb::Run(flags) = parse(line).expect("a good line").verb else { panic!("not a run: {line}") };
    flags.keys.values()
}

fn help_of(command: &Command, flag: &str) -> String {
    let long = flag.trim_start_matches("--");
    let argument = command.get_arguments().find(|argument| argument.get_long() == Some(long));
    argument.and_then(|argument| argument.get_help()).expect("every key's flag exists and has help").to_string()
}

#[test]
fn clap_finds_no_contradiction() {
    Cli::command().debug_assert();
}

#[test]
fn help_states_the_default_of_every_key() {
    let mut root = Cli::command();
    root.build();
    let run = root.find_subcommand("run").expect("there is a run verb");
    let dir = tempfile::tempdir().expect("a temp dir");
    let path = dir.path().display().to_string();
    let mut layers = Layers::new();
    layers.flags(&[FlagValue { key: "train.data_dir", flag: "--data-dir", values: vec![path] }]).expect("a path");
    let defaults = show_json(&layers.finish(), false).expect("defaults");
    for key in KEYS {
        let Some(flag) = key.flag else { continue };
        let (section, name) = key.parts();
        let default = match (key.id, &defaults[section][name]) {
            ("train.data_dir", _) => "starling in the user's data folder".to_owned(),
            (_, serde_json::Value::Null) => key.unset.expect("a key without a value says what then").to_owned(),
            (_, serde_json::Value::String(text)) => text.clone(),
            (_, serde_json::Value::Array(items)) if items.is_empty() => "none".to_owned(),
            (_, serde_json::Value::Array(items)) => {
                items.iter().filter_map(|item| item.as_str()).collect::<Vec<_>>().join(", ")
            }
            (_, other) => other.to_string(),
        };
        let help = help_of(run, flag);
        assert!(help.ends_with(&format!("[default: {default}]")), "{flag} does not say [default: {default}]: {help}");
    }
}

#[test]
fn every_flag_of_every_verb_states_its_default_or_is_required() {
    fn walk(command: &Command) {
        for argument in command.get_arguments() {
            let Some(long) = argument.get_long() else { continue };
            if ["help", "version", "no-header"].contains(&long) || argument.is_required_set() {
                continue;
            }
            let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
            let states = help.contains("[default: ") || !argument.get_default_values().is_empty();
            assert!(states, "--{long} of {} does not say its default", command.get_name());
        }
        command.get_subcommands().filter(|command| command.get_name() != "help").for_each(walk);
    }
    let mut root = Cli::command();
    root.build();
    walk(&root);
}

#[test]
fn flags_become_values_with_their_names() {
    let values =
        run_values("starling run --model mlp:8 --steps 5 --listen /ip4/1.2.3.4/tcp/1 --listen /ip4/1.2.3.4/tcp/2");
    assert!(values.contains(&FlagValue { key: "run.steps", flag: "--steps", values: vec!["5".to_owned()] }));
    let listen = values.iter().find(|value| value.key == "network.listen").expect("listen is there");
    assert_eq!(listen.values.len(), 2);
    assert_eq!(values.len(), 3);
}

#[test]
fn every_key_flag_sets_its_own_key() {
    for key in KEYS {
        let Some(flag) = key.flag.filter(|flag| *flag != "--verbose" && *flag != "--log-format") else { continue };
        let values = run_values(&format!("starling run {flag}=1"));
        assert_eq!(values.iter().map(|value| (value.key, value.flag)).collect::<Vec<_>>(), [(key.id, flag)]);
    }
}

#[test]
fn switches_work_with_and_without_a_value() {
    for (line, expected) in [
        ("starling run --public", vec![("--public", "true")]),
        ("starling run --public=false", vec![("--public", "false")]),
        ("starling run --header", vec![("--header", "true")]),
        ("starling run --no-header", vec![("--no-header", "false")]),
        ("starling run --mdns --no-header", vec![("--no-header", "false"), ("--mdns", "true")]),
    ] {
        let values = run_values(line);
        let found: Vec<_> = values.iter().map(|value| (value.flag, value.values[0].as_str())).collect();
        assert_eq!(found, expected, "{line}");
    }
    assert!(parse("starling run --header --no-header").is_err());
}

#[test]
fn resume_takes_the_newest_or_a_step() {
    let resume = |line: &str| {
        let Verb::Run(flags) = parse(line).expect("a good line").verb else { panic!("not a run: {line}") };
        flags.resume
    };
    assert_eq!(resume("starling run"), None);
    assert_eq!(resume("starling run --resume"), Some(Resume::Newest));
    assert_eq!(resume("starling run --resume=120"), Some(Resume::Step(120)));
    assert!(parse("starling run --resume=soon").is_err());
}

#[test]
fn global_flags_go_anywhere_and_set_the_log() {
    let level = |line: &str| {
        let values = parse(line).expect("a good line").global.values();
        values.into_iter().map(|value| value.values[0].clone()).collect::<Vec<_>>()
    };
    assert!(level("starling run").is_empty());
    assert_eq!(level("starling -vv run"), ["debug"]);
    assert_eq!(level("starling run -q --log-format json"), ["error", "json"]);
    assert!(parse("starling run -q -v").is_err());
    assert!(parse("starling status --json").expect("a good line").global.json);
}

#[test]
fn the_documentation_has_a_section_for_every_verb() {
    let text = include_str!("../../../docs/cli.md");
    for command in Cli::command().get_subcommands() {
        let name = command.get_name();
        let heads = [format!("## {name}"), format!("## {name} show")];
        assert!(text.lines().any(|line| heads.iter().any(|head| line == head)), "{name} has no section");
    }
}
