//! What the command line takes and says of itself.

use clap::Command;
use starling_node::settings::keys::{DefaultValue, Key, VerbSet, keys};

use super::*;
use crate::config::FlagValue;

fn parse(line: &str) -> Result<Cli, clap::Error> {
    super::parse(line.split_whitespace().map(Into::into))
}

/// The flag values of `starling run`.
fn run_values(line: &str) -> Vec<FlagValue> {
    let Verb::Run(flags) = parse(line).expect("a good line").verb else { panic!("not a run: {line}") };
    flags.keys.values().to_vec()
}

/// The same of `starling join`.
fn join_values(line: &str) -> Vec<FlagValue> {
    let Verb::Join(flags) = parse(line).expect("a good line").verb else { panic!("not a join: {line}") };
    flags.keys.values().to_vec()
}

/// Who takes part with this key: a founder, if it is not a joiner's alone.
fn verb_of(key: &Key) -> &'static str {
    let is_joiners = key.verbs.meets(VerbSet::JOIN) && !key.verbs.meets(VerbSet::RUN);
    if is_joiners { "join" } else { "run" }
}

fn help_of(command: &Command, flag: &str) -> String {
    let long = flag.trim_start_matches("--");
    let argument = command.get_arguments().find(|argument| argument.get_long() == Some(long));
    argument.and_then(|argument| argument.get_help()).expect("every key's flag exists and has help").to_string()
}

#[test]
fn clap_finds_no_contradiction() {
    command().debug_assert();
}

#[test]
fn help_states_the_default_of_every_key() {
    let mut root = command();
    root.build();
    for key in keys() {
        let verb = root.find_subcommand(verb_of(key)).expect("there is such a verb");
        let Some(flag) = key.flag.map(|flag| flag.long) else { continue };
        let default = match key.default {
            DefaultValue::Value("") => "none",
            DefaultValue::Value(text) | DefaultValue::Like(text) | DefaultValue::None(text) => text,
        };
        let help = help_of(verb, flag);
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
    let mut root = command();
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
    for key in keys() {
        let Some(flag) = key.flag.map(|flag| flag.long).filter(|flag| *flag != "--verbose" && *flag != "--log-format")
        else {
            continue;
        };
        let values = match verb_of(key) {
            "run" => run_values(&format!("starling run {flag}=1")),
            _ => join_values(&format!("starling join - {flag}=1")),
        };
        assert_eq!(values.iter().map(|value| (value.key, value.flag)).collect::<Vec<_>>(), [(key.id, flag)]);
    }
}

#[test]
fn switches_work_with_and_without_a_value() {
    for (line, expected) in [
        ("starling run --public", vec![("--public", "true")]),
        ("starling run --public=false", vec![("--public", "false")]),
        ("starling run --public true", vec![("--public", "true")]),
        ("starling run --probe-links false --mdns", vec![("--mdns", "true"), ("--probe-links", "false")]),
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
    assert_eq!(resume("starling run --resume"), Some(ResumePolicy::Newest));
    assert_eq!(resume("starling run --resume=120"), Some(ResumePolicy::Step(120)));
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
    let text = include_str!("../../../../docs/cli.md");
    for command in command().get_subcommands() {
        let name = command.get_name();
        let heads = [format!("## {name}"), format!("## {name} show")];
        assert!(text.lines().any(|line| heads.iter().any(|head| line == head)), "{name} has no section");
    }
}

fn help(verb: &str, long: bool) -> String {
    let mut root = command();
    root.build();
    let command = root.find_subcommand_mut(verb).expect("there is such a verb");
    if long { command.render_long_help() } else { command.render_help() }.to_string()
}

#[test]
fn essentials_come_first_and_tuning_only_where_all_is_asked_for() {
    let (short, long) = (help("run", false), help("run", true));
    let place = |text: &str, what: &str| text.find(what).unwrap_or_else(|| panic!("{what} is missing from {text}"));
    for essential in
        ["--data ", "--label ", "--model ", "--steps ", "--min-peers ", "--data-dir ", "--device ", "--name "]
    {
        assert!(place(&short, essential) > 0 && place(&long, essential) < place(&long, "Tuning: "), "{essential}");
    }
    for tuning in ["--momentum ", "--fork-after ", "--update-ahead ", "--checkpoint-keep ", "--data-limit "] {
        assert!(!short.contains(tuning) && place(&long, tuning) > place(&long, "Tuning: "), "{tuning}");
    }
    for text in [&short, &long] {
        assert!(place(text, "--json") > place(text, "Every verb:"), "{text}");
    }
    assert!(short.lines().count() < 60, "{short}");
}

#[test]
fn a_joiner_is_told_no_founders_defaults() {
    let text = help("join", true);
    for founders in ["[default: mlp:64]", "[default: 600, ", "[default: adamw]", "[default: 10s]"] {
        assert!(!text.contains(founders), "{founders} in {text}");
    }
    assert!(
        text.contains("To insist on") && text.contains("--share-data") && text.contains("[default: as the run]"),
        "{text}"
    );
    assert!(help("run", true).contains("[default: mlp:64]"), "a founder is");
    for words in ["sgd, momentum, nesterov, adam, adamw, ", "lion"] {
        assert!(text.contains(words) && help("run", true).contains(words), "{words} of the registry are not told");
    }
}

#[test]
fn old_and_short_spellings_still_work() {
    let one =
        |line: &str| run_values(line).into_iter().map(|value| (value.key, value.values[0].clone())).collect::<Vec<_>>();
    assert_eq!(one("starling run --lr 0.5"), [("run.learning_rate", "0.5".to_owned())]);
    assert_eq!(one("starling run --max-stall 5s"), one("starling run --max-stall-ms 5s"));
    for line in ["--transport libp2p", "--data-plane universal", "--transport universal"] {
        let verb = parse(&format!("starling bench link {line}")).expect("a good line").verb;
        let Verb::Bench(BenchVerb::Link(flags)) = verb else { panic!("not a bench of links") };
        assert_eq!(flags.reduction.transport, bench::TransportName::Libp2p);
    }
}

#[test]
fn shells_know_the_words_and_the_configuration_says_what_is_wrong_with_others() {
    let mut script = Vec::new();
    clap_complete::generate(Shell::Bash, &mut command(), "starling", &mut script);
    let script = String::from_utf8_lossy(&script);
    for words in ["hierarchical", "int8", "nesterov", "universal", "equal", "mlp:"] {
        assert!(script.contains(words), "{words} is not completed");
    }
    assert_eq!(run_values("starling run --plan star")[0].values, ["star"]);
}

#[test]
fn an_error_is_one_line() {
    for (line, parts) in [
        ("starling run --stepz 5", vec!["unexpected argument '--stepz'", "'--steps'", "--help tells"]),
        ("starling join - --ticket-file x", vec!["cannot be used with", "--ticket-file"]),
        ("starling rum", vec!["unrecognized subcommand 'rum'", "run"]),
        ("starling bench link --mib 0", vec!["invalid value '0'", "1..=16384"]),
        ("starling run -q -v", vec!["cannot be used with"]),
    ] {
        let error = one_line(&parse(line).expect_err(line)).expect("an error");
        assert!(!error.contains('\n') && !error.starts_with("error"), "{error}");
        for part in parts {
            assert!(error.contains(part), "{part} is missing from: {error}");
        }
    }
    for asked in ["starling --help", "starling run -h", "starling --version"] {
        assert_eq!(one_line(&parse(asked).expect_err("no run")), None);
    }
    let version = parse("starling --version").expect_err("no run").to_string();
    let wire = format!("(wire version {})", starling_run::WIRE_VERSION);
    assert!(version.contains(env!("CARGO_PKG_VERSION")) && version.contains(&wire), "{version}");
}
