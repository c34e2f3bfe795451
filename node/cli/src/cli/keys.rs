//! The flags that set keys, as the table of keys has them.

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use starling_node::settings::keys::{FlagSpec, Key, Kind, VerbSet, keys};

use super::help::{about, heading};
use crate::config::FlagValue;

/// Those of who founds a run.
pub const RUN: u8 = VerbSet::RUN.0;
/// Those of who joins one.
pub const JOIN: u8 = VerbSet::JOIN.0;
/// Those of who keeps checkpoints.
pub const KEEP: u8 = VerbSet::KEEP.0;
/// Those of who fetches one.
pub const FETCH: u8 = VerbSet::FETCH.0;
/// Those of whoever looks at what is there.
pub const LOOK: u8 = VerbSet::LOOK.0;

/// What was given of the flags of a verb that set keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyFlags<const VERB: u8> {
    given: Vec<FlagValue>,
}

impl<const VERB: u8> KeyFlags<VERB> {
    /// The flags with what they say.
    pub fn values(&self) -> &[FlagValue] {
        &self.given
    }
}

impl<const VERB: u8> Args for KeyFlags<VERB> {
    fn augment_args(command: Command) -> Command {
        flags(VERB).fold(command, |command, (key, flag)| {
            command.arg(argument(key, flag, VERB)).args(negation(key, flag, VERB))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<const VERB: u8> FromArgMatches for KeyFlags<VERB> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut given = Vec::new();
        for (key, flag) in flags(VERB) {
            let of = |_| clap::Error::new(ErrorKind::InvalidValue);
            let values = matches.try_get_many::<String>(key.id).map_err(of)?;
            given.extend(values.map(|values| FlagValue {
                key: key.id,
                flag: flag.long,
                values: values.cloned().collect(),
            }));
            let negation = flag.negation.filter(|negation| matches.get_flag(id(negation)));
            given.extend(negation.map(|flag| FlagValue { key: key.id, flag, values: vec!["false".to_owned()] }));
        }
        Ok(Self { given })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The keys that a verb has flags for.
fn flags(verb: u8) -> impl Iterator<Item = (&'static Key, FlagSpec)> {
    keys().filter(move |key| key.verbs.meets(VerbSet(verb))).filter_map(|key| Some((key, key.flag?)))
}

fn argument(key: &'static Key, flag: FlagSpec, verb: u8) -> Arg {
    let argument = Arg::new(key.id).long(id(flag.long)).value_name(flag.takes).help(about(key, verb));
    let argument = heading(argument, key, verb).visible_aliases(flag.alias);
    match key.kind {
        Kind::Bool => argument.num_args(0..=1).require_equals(true).default_missing_value("true"),
        Kind::List => argument.action(ArgAction::Append),
        Kind::Integer(..) | Kind::Milliseconds(..) | Kind::Float(..) => argument.allow_negative_numbers(true),
        Kind::Text | Kind::Choice(_) => argument,
    }
}

/// The flag that says the contrary of another.
fn negation(key: &'static Key, flag: FlagSpec, verb: u8) -> Option<Arg> {
    let negation = id(flag.negation?);
    let argument = Arg::new(negation).long(negation).action(ArgAction::SetTrue).conflicts_with(key.id);
    Some(heading(argument.help(format!("The contrary of {}", flag.long)), key, verb))
}

fn id(flag: &'static str) -> &'static str {
    flag.trim_start_matches('-')
}
