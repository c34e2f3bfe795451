//! How the command line explains itself: which flags come first, which are for tuning, what a joiner is told, and which words
//! a shell completes.

use std::any::TypeId;
use std::ffi::{OsStr, OsString};

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, Command, CommandFactory, FromArgMatches};
use starling_node::settings::keys::{DefaultValue, Key, Kind, keys};

use super::{Cli, JOIN};
use crate::program;

/// Flags that every verb has.
const GLOBAL: (&str, &[&str]) = ("Every verb", &["json", "config", "verbose", "quiet", "show-ticket", "log-format"]);
/// The heading of what the run says and a joiner may insist on.
const INSIST: &str = "To insist on (a run that differs is refused)";
/// Beginnings of what `--device` takes.
const DEVICES: [&str; 3] = ["auto", "cpu", "gpu"];

/// The whole command line.
pub fn command() -> Command {
    everywhere(Cli::command())
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
        keys().any(|key| matches!(key.kind, Kind::Bool) && key.flag.is_some_and(|flag| argument == flag.long))
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
        let argument = match GLOBAL.1.contains(&long.as_str()) {
            true => argument.help_heading(GLOBAL.0),
            false => argument,
        };
        completed(argument, &long)
    })
}

/// The flag with the words that it takes, for shells. Whoever writes another one hears of it from the configuration, which
/// knows more.
fn completed(argument: Arg, long: &str) -> Arg {
    let flag = format!("--{long}");
    let of_key = keys().find(|key| key.flag.is_some_and(|own| own.long == flag)).and_then(|key| match key.kind {
        Kind::Choice(words) => Some(words),
        _ => None,
    });
    let words = match long {
        "device" => Some(DEVICES.to_vec()),
        "model" => Some(program::models()),
        _ => of_key.map(<[_]>::to_vec),
    };
    // Flags that are read at once have their words already.
    let is_text = argument.get_value_parser().type_id() == TypeId::of::<String>();
    match words {
        // Words of a registry are not in the flag's own sentence.
        Some(words) if is_text => argument.value_parser(Words(words)).hide_possible_values(long != "optimizer"),
        Some(_) | None => argument,
    }
}

/// What the help of a verb says of a key's flag. A joiner's defaults are not a founder's.
pub(super) fn about(key: &Key, verb: u8) -> String {
    let about = key.about.trim_end_matches('.');
    match key.default {
        _ if verb == JOIN && key.id == "data.source" => {
            "This machine's copy of the run's data [default: from members that were started with --share-data; or the digits]"
                .to_owned()
        }
        _ if verb == JOIN && key.is_of_run => format!("{about} [default: as the run]"),
        DefaultValue::Value("") => format!("{about} [default: none]"),
        DefaultValue::Value(text) | DefaultValue::Like(text) | DefaultValue::None(text) => format!("{about} [default: {text}]"),
    }
}

/// Puts a key's flag where a verb lists it.
pub(super) fn heading(argument: Arg, key: &Key, verb: u8) -> Arg {
    match key.heading {
        _ if verb == JOIN && key.is_of_run => argument.help_heading(INSIST).hide_short_help(true),
        Some(heading) => argument.help_heading(heading).hide_short_help(true),
        None => argument,
    }
}

/// Any text, of which some are known.
#[derive(Debug, Clone)]
struct Words(Vec<&'static str>);

impl TypedValueParser for Words {
    type Value = String;

    fn parse_ref(&self, command: &Command, argument: Option<&Arg>, value: &OsStr) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.0.iter().copied().map(PossibleValue::new)))
    }
}
