//! The keys of the configuration, a row each: what it is called, what it may be and is by default, what it means, and what it sets.
//!
//! Whoever reads values from somewhere goes by [`KEYS`] alone: the command line makes its flags, variables, file and help of it, a
//! program the [variables](crate::Settings::from_env) it heeds. A new key is a row here and the field that it sets.

/// Takes over whatever a key's kind allows: `put!(|run, value| run.steps = value.count())`.
macro_rules! put {
    (|$to:ident, $value:ident| $set:expr) => {
        |$to, $value| {
            $set;
            Ok(())
        }
    };
}

mod duration;
mod kind;
mod machine;
mod run;

use std::ops::BitOr;

use starling_run::RunSpec;

use crate::settings::{FoundOptions, Settings};

pub use kind::{Kind, Value, has_many_zeros};

/// All of them, section by section, in the order in which they are shown and take effect.
pub static KEYS: [&[Key]; 7] =
    [run::RUN, machine::DATA, machine::TRAIN, machine::NETWORK, run::COLLECTIVE, run::SECURITY, machine::LOG];

const TRAINING: &str = "Tuning: training";
const TABLES: &str = "Tuning: tables";
const FILES: &str = "Tuning: files";
const NETWORKS: &str = "Tuning: network";

/// One key of the configuration.
#[derive(Debug)]
pub struct Key {
    /// `section.name`.
    pub id: &'static str,
    /// Its type and range.
    pub kind: Kind,
    /// What it is where nobody says.
    pub default: DefaultValue,
    /// What it does, one sentence.
    pub about: &'static str,
    /// What it sets.
    pub sets: KeyTarget,
    /// The flag that sets it, if there is one.
    pub flag: Option<FlagSpec>,
    /// Which verbs have that flag of their own.
    pub verbs: VerbSet,
    /// The heading under which all help lists its flag; `None`: most users need it, so that it comes first.
    pub heading: Option<&'static str>,
    /// Whether a joiner has it from the run, unless its user says it.
    pub is_of_run: bool,
}

/// What a key is where nobody says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultValue {
    /// This value, as text.
    Value(&'static str),
    /// As if it were this value, though it is not set.
    Like(&'static str),
    /// It has none: what happens then, in words.
    None(&'static str),
}

/// A flag of the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlagSpec {
    /// With its dashes.
    pub long: &'static str,
    /// What its value is called.
    pub takes: &'static str,
    /// What it is called besides, without dashes.
    pub alias: Option<&'static str>,
    /// The flag that says the contrary, of a switch that is neither on nor off by itself.
    pub negation: Option<&'static str>,
}

/// Takes over a value that was checked as its key's kind, or says why it is none.
type Set<To> = fn(&mut To, &Value) -> Result<(), String>;

/// What a key sets.
#[derive(Debug, Clone, Copy)]
pub enum KeyTarget {
    /// What all members share: the founder says it, and a joiner may insist on it.
    Run(Set<RunSpec>),
    /// What a founder says besides.
    Founding(Set<FoundOptions>),
    /// This machine alone.
    Machine(Set<Settings>),
    /// Nothing of the node's: whoever starts it reads that.
    Outside,
}

/// Verbs of the command line that take keys as flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerbSet(pub u8);

impl VerbSet {
    /// None: the key has no flag, or one that all verbs have.
    pub const NONE: Self = Self(0);
    /// Who founds a run.
    pub const RUN: Self = Self(1);
    /// Who joins one.
    pub const JOIN: Self = Self(2);
    /// Who keeps checkpoints.
    pub const KEEP: Self = Self(4);
    /// Who fetches one.
    pub const FETCH: Self = Self(8);
    /// Whoever looks at what is there.
    pub const LOOK: Self = Self(16);
    /// All of them.
    pub const ALL: Self = Self(31);

    /// Whether both have one in common.
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl BitOr for VerbSet {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Variables of ours that set no key: the configuration's file, a ticket.
pub const OTHER_VARIABLES: [&str; 2] = ["STARLING_CONFIG", "STARLING_TICKET"];
/// What the variables begin with that only tests set.
const TEST_PREFIX: &str = "STARLING_TEST_";

/// Whether a variable of the environment is none of ours, or one that exists.
pub fn is_variable(name: &str) -> bool {
    !name.starts_with("STARLING_")
        || name.starts_with(TEST_PREFIX)
        || OTHER_VARIABLES.contains(&name)
        || keys().any(|key| key.variable() == name)
}

/// All keys.
pub fn keys() -> impl Iterator<Item = &'static Key> {
    KEYS.into_iter().flatten()
}

impl Key {
    const fn new(id: &'static str, kind: Kind, default: DefaultValue, about: &'static str, sets: KeyTarget) -> Self {
        let (flag, heading, verbs) = (None, None, VerbSet::NONE);
        let is_of_run = matches!(sets, KeyTarget::Run(_));
        Self { id, kind, default, about, sets, flag, verbs, heading, is_of_run }
    }

    /// The flag that sets it, of those who take part.
    const fn flag(mut self, long: &'static str, takes: &'static str) -> Self {
        self.flag = Some(FlagSpec { long, takes, alias: None, negation: None });
        self.verbs = if matches!(self.sets, KeyTarget::Founding(_)) { VerbSet::RUN } else { VerbSet(3) };
        self
    }

    /// The flag of all verbs that sets it.
    const fn global(mut self, long: &'static str) -> Self {
        self.flag = Some(FlagSpec { long, takes: "", alias: None, negation: None });
        self
    }

    const fn alias(mut self, alias: &'static str) -> Self {
        if let Some(flag) = &mut self.flag {
            flag.alias = Some(alias);
        }
        self
    }

    const fn negated(mut self, negation: &'static str) -> Self {
        if let Some(flag) = &mut self.flag {
            flag.negation = Some(negation);
        }
        self
    }

    /// Of these verbs alone.
    const fn only(mut self, verbs: VerbSet) -> Self {
        self.verbs = verbs;
        self
    }

    /// These verbs have it too.
    const fn also(mut self, verbs: VerbSet) -> Self {
        self.verbs = VerbSet(self.verbs.0 | verbs.0);
        self
    }

    const fn under(mut self, heading: &'static str) -> Self {
        self.heading = Some(heading);
        self
    }

    const fn of_run(mut self) -> Self {
        self.is_of_run = true;
        self
    }

    /// The key called `id`.
    pub fn find(id: &str) -> Option<&'static Self> {
        keys().find(|key| key.id == id)
    }

    /// Section and name.
    pub fn parts(&self) -> (&'static str, &'static str) {
        self.id.split_once('.').expect("invariant: a key's id is section.name")
    }

    /// The environment variable that sets it.
    pub fn variable(&self) -> String {
        format!("STARLING_{}", self.id.replace('.', "_").to_uppercase())
    }

    /// What is set where nobody says.
    pub fn value(&self) -> Option<Value> {
        let DefaultValue::Value(text) = self.default else { return None };
        Some(self.read(text).expect("invariant: a default is of its key's kind"))
    }

    /// What is shown where nobody says.
    pub fn shown(&self) -> Option<Value> {
        let (DefaultValue::Value(text) | DefaultValue::Like(text)) = self.default else { return None };
        Some(self.read(text).expect("invariant: a default is of its key's kind"))
    }

    /// What `text` says; `None` if it is of another type or out of range.
    pub fn read(&self, text: &str) -> Option<Value> {
        self.kind.parse(text).and_then(|value| self.kind.check(value))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    use starling_collective::Codec;
    use starling_engine::leaf::reach_search::RolePolicy;
    use starling_run::{BalancePolicy, Delimiter};
    use starling_topology::Quorum;
    use starling_topology::plan::PlanPolicy;

    use super::*;

    /// A row has its words, and what reads them has its own: each side knows those of the other.
    #[test]
    fn words_of_a_choice_are_those_of_what_it_sets() {
        let rows: [(&str, BTreeSet<String>); 6] = [
            ("data.delimiter", Delimiter::ALL.iter().map(ToString::to_string).collect()),
            ("collective.codec", Codec::ALL.iter().map(ToString::to_string).collect()),
            ("security.quorum", Quorum::ALL.iter().map(ToString::to_string).collect()),
            ("run.balance", [BalancePolicy::Speed, BalancePolicy::Equal].iter().map(ToString::to_string).collect()),
            ("network.role", RolePolicy::ALL.iter().map(ToString::to_string).collect()),
            ("collective.plan", PlanPolicy::ALL.iter().map(ToString::to_string).collect()),
        ];
        for (id, expected) in rows {
            let key = Key::find(id).expect("there is such a key");
            let Kind::Choice(words) = key.kind else { panic!("{id} has no words") };
            assert_eq!(words.iter().map(|word| (*word).to_owned()).collect::<BTreeSet<_>>(), expected, "{id}");
        }
        // And no word is taken for another: each sets what it says.
        for key in keys() {
            let Kind::Choice(words) = key.kind else { continue };
            for word in words {
                let value = key.read(word).unwrap_or_else(|| panic!("{}: {word}", key.id));
                let taken = match key.sets {
                    KeyTarget::Run(set) => set(&mut RunSpec::default(), &value),
                    KeyTarget::Founding(set) => set(&mut FoundOptions::new(RunSpec::default()), &value),
                    KeyTarget::Machine(set) => set(&mut Settings::new(PathBuf::from("d")), &value),
                    KeyTarget::Outside => Ok(()),
                };
                assert_eq!(taken, Ok(()), "{}: {word}", key.id);
            }
        }
    }

    #[test]
    fn rows_are_in_their_sections_and_none_is_there_twice() {
        let ids: BTreeSet<&str> = keys().map(|key| key.id).collect();
        let flags: BTreeSet<&str> = keys().filter_map(|key| key.flag).map(|flag| flag.long).collect();
        assert_eq!(ids.len(), keys().count());
        assert_eq!(flags.len(), keys().filter(|key| key.flag.is_some()).count());
        for section in KEYS {
            assert!(section.iter().all(|key| key.parts().0 == section[0].parts().0), "{}", section[0].id);
        }
        assert!(keys().all(|key| key.about.ends_with('.') && key.heading.is_none_or(|_| key.flag.is_some())));
    }

    #[test]
    fn a_variable_that_there_is_none_of_is_found() {
        for name in ["PATH", "STARLINGS", "STARLING_RUN_STEPS", "STARLING_TICKET", "STARLING_TEST_X"] {
            assert!(is_variable(name), "{name}");
        }
        assert!(!is_variable("STARLING_NETWORK_LISTN"));
    }

    #[test]
    fn defaults_are_those_that_programs_have() {
        let (dir, mut founding) = (PathBuf::from("d"), FoundOptions::new(RunSpec::default()));
        let mut settings = Settings::new(dir.clone());
        for (key, value) in keys().filter_map(|key| Some((key, key.value()?))) {
            let taken = match key.sets {
                KeyTarget::Run(set) => set(&mut founding.run, &value),
                KeyTarget::Founding(set) => set(&mut founding, &value),
                KeyTarget::Machine(set) => set(&mut settings, &value),
                KeyTarget::Outside => Ok(()),
            };
            taken.unwrap_or_else(|reason| panic!("{}: {reason}", key.id));
        }
        assert_eq!(format!("{settings:?}"), format!("{:?}", Settings::new(dir)));
        let mut expected = FoundOptions::new(RunSpec::default());
        // A program's own model learns for as long as it says, by its own optimizer.
        (expected.run.steps, expected.run.optimizer) = (founding.run.steps, founding.run.optimizer);
        assert_eq!(format!("{founding:?}"), format!("{expected:?}"));
    }
}
