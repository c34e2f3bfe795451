//! How the command line explains itself: which flags come first, which are for tuning, what a joiner is told, and which words
//! a shell completes.

use std::any::TypeId;
use std::ffi::{OsStr, OsString};

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, Command, CommandFactory, FromArgMatches};

use super::Cli;
use crate::config::{KEYS, Kind};

/// Flags for tuning, under their own headings and only in the long help. All others come first.
const TUNING: [(&str, &[&str]); 4] = [
    (
        "Tuning: training",
        &[
            "optimizer",
            "learning-rate",
            "momentum",
            "beta1",
            "beta2",
            "epsilon",
            "weight-decay",
            "schedule",
            "warm-up",
            "clip",
            "batch-size",
            "seed",
            "held-out",
            "balance",
            "evaluate-every",
        ],
    ),
    ("Tuning: tables", &["header", "no-header", "delimiter", "data-limit"]),
    ("Tuning: files", &["checkpoint-every", "checkpoint-keep", "audit"]),
    (
        "Tuning: network",
        &[
            "announce",
            "allow",
            "mdns",
            "data-plane",
            "max-peers",
            "max-stall",
            "fork-after",
            "probe-links",
            "state-rate",
            "codec",
            "plan",
            "update-ahead",
        ],
    ),
];
/// Flags that every verb has.
const GLOBAL: (&str, &[&str]) = ("Every verb", &["json", "config", "verbose", "quiet", "show-ticket", "log-format"]);
/// What the run says and a joiner may insist on.
const INSIST: (&str, &[&str]) = (
    "To insist on (a run that differs is refused)",
    &[
        "model",
        "optimizer",
        "learning-rate",
        "momentum",
        "beta1",
        "beta2",
        "epsilon",
        "weight-decay",
        "schedule",
        "warm-up",
        "clip",
        "batch-size",
        "steps",
        "seed",
        "max-stall",
        "balance",
        "checkpoint-every",
        "codec",
        "plan",
        "label",
        "header",
        "no-header",
        "delimiter",
    ],
);
const DEFAULT: &str = "[default: ";
/// Beginnings of what these flags take.
const BEGINNINGS: [(&str, &[&str]); 2] = [("device", &["auto", "cpu", "gpu"]), ("model", &["softmax", "mlp:", "cnn:"])];

/// The whole command line.
pub fn command() -> Command {
    everywhere(Cli::command()).mut_subcommand("join", |join| join.mut_args(of_joiner))
}

/// Reads a command line.
///
/// # Errors
/// What clap says of it; [`one_line`] makes one line of that.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let mut command = command();
    let matches = command.try_get_matches_from_mut(with_values(arguments))?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// What clap says of a bad command line, as one line without `error: `; `None` if it is no error but what was asked for.
pub fn one_line(error: &clap::Error) -> Option<String> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            None
        }
        _ => Some(joined(&error.render().to_string())),
    }
}

fn joined(text: &str) -> String {
    let said =
        text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"));
    let mut joined = String::new();
    for line in said.filter(|line| !line.is_empty()) {
        match (joined.is_empty(), line.strip_prefix("tip: ")) {
            (true, _) => joined.push_str(line.trim_start_matches("error: ")),
            (false, Some(tip)) => joined = format!("{joined}; {tip}"),
            (false, None) => joined = format!("{joined} {line}"),
        }
    }
    format!("{joined}; --help tells what there is")
}

/// A switch takes its value behind `=`, because what follows it may be something else. `true` and `false` are nothing else.
fn with_values(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let is_switch = |argument: &OsStr| {
        KEYS.iter().any(|key| matches!(key.kind, Kind::Bool) && key.flag.is_some_and(|flag| argument == flag))
    };
    let mut joined: Vec<OsString> = Vec::new();
    let mut is_raw = false;
    for argument in arguments {
        match joined.last_mut() {
            Some(before) if !is_raw && is_switch(before) && (argument == "true" || argument == "false") => {
                before.push("=");
                before.push(argument);
            }
            Some(_) | None => {
                is_raw |= argument == "--";
                joined.push(argument);
            }
        }
    }
    joined
}

fn everywhere(command: Command) -> Command {
    arranged(command).mut_subcommands(everywhere)
}

fn arranged(command: Command) -> Command {
    command.mut_args(|argument| {
        let Some(long) = argument.get_long().map(str::to_owned) else { return argument };
        let has = |group: &&(&'static str, &[&str])| group.1.contains(&long.as_str());
        let argument = match TUNING.iter().find(has) {
            Some((heading, _)) => argument.help_heading(*heading).hide_short_help(true),
            None if GLOBAL.1.contains(&long.as_str()) => argument.help_heading(GLOBAL.0),
            None => argument,
        };
        completed(argument, &long)
    })
}

/// The flag with the words that it takes, for shells. Whoever writes another one hears of it from the configuration, which
/// knows more.
fn completed(argument: Arg, long: &str) -> Arg {
    let flag = format!("--{long}");
    let of_key = KEYS.iter().find(|key| key.flag == Some(flag.as_str())).and_then(|key| match key.kind {
        Kind::Choice(words) => Some(words),
        _ => None,
    });
    let words = of_key.or_else(|| BEGINNINGS.iter().find(|(name, _)| *name == long).map(|(_, words)| *words));
    // Flags that are read at once have their words already.
    let is_text = argument.get_value_parser().type_id() == TypeId::of::<String>();
    match words {
        // Words of a registry are not in the flag's own sentence.
        Some(words) if is_text => argument.value_parser(Words(words)).hide_possible_values(long != "optimizer"),
        Some(_) | None => argument,
    }
}

/// A joiner's defaults are not a founder's.
fn of_joiner(argument: Arg) -> Arg {
    let Some(long) = argument.get_long() else { return argument };
    let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
    let about = help.split(DEFAULT).next().unwrap_or_default().to_owned();
    if INSIST.1.contains(&long) {
        return argument.help(format!("{about}{DEFAULT}as the run]")).help_heading(INSIST.0).hide_short_help(true);
    }
    if long == "data" {
        let about = "This machine's copy of the run's data";
        return argument
            .help(format!("{about} {DEFAULT}from members that were started with --share-data; or the digits]"));
    }
    argument
}

/// Any text, of which some are known.
#[derive(Debug, Clone, Copy)]
struct Words(&'static [&'static str]);

impl TypedValueParser for Words {
    type Value = String;

    fn parse_ref(&self, command: &Command, argument: Option<&Arg>, value: &OsStr) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.0.iter().map(|word| PossibleValue::new(*word))))
    }
}
