//! Layers of values, one over the other, each value with its origin.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use starling_node::settings::keys::{Key, OTHER_VARIABLES, Value, has_many_zeros, is_variable, keys};

use super::checked::Loaded;
use super::error::ConfigError;
use super::file;

/// How alike two names must be for the one to be suggested for the other, 0 to 1.
const ALIKE: f64 = 0.7;

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Nobody set it.
    Default,
    /// A file, and the line in it.
    File(PathBuf, usize),
    /// An environment variable.
    Variable(String),
    /// A flag.
    Flag(&'static str),
}

impl Origin {
    /// Of two layers, the one with the higher rank goes over the other.
    pub(super) fn rank(&self) -> u8 {
        match self {
            Self::Default => 0,
            Self::File(..) => 1,
            Self::Variable(_) => 2,
            Self::Flag(_) => 3,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path, line) => write!(f, "{}:{line}", path.display()),
            Self::Variable(name) => f.write_str(name),
            Self::Flag(flag) => f.write_str(flag),
        }
    }
}

/// What a flag said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlagValue {
    /// The key that it sets.
    pub key: &'static str,
    /// The flag, with its dashes.
    pub flag: &'static str,
    /// What was given; a list has several.
    pub values: Vec<String>,
}

/// The layers so far. Later ones go over earlier ones, key by key.
#[derive(Debug)]
pub struct Layers {
    values: BTreeMap<&'static str, Value>,
    origins: BTreeMap<&'static str, Origin>,
}

impl Default for Layers {
    fn default() -> Self {
        Self::new()
    }
}

impl Layers {
    /// The defaults alone.
    pub fn new() -> Self {
        let values = keys().filter_map(|key| Some((key.id, key.value()?))).collect();
        Self { values, origins: BTreeMap::new() }
    }

    /// Everything in the order of precedence: defaults, `path` (if given), variables, flags.
    ///
    /// # Errors
    /// The first thing that is unknown, of a wrong type or out of range, with its origin.
    pub fn load(
        path: Option<&Path>,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
        flags: &[FlagValue],
    ) -> Result<Loaded, ConfigError> {
        let mut layers = Self::new();
        if let Some(path) = path {
            layers.file(path, &file::read(path)?)?;
        }
        layers.variables(variables)?;
        layers.flags(flags)?;
        Ok(layers.finish())
    }

    /// Adds a file's text.
    ///
    /// # Errors
    /// [`ConfigError`], with the line.
    pub fn file(&mut self, path: &Path, text: &str) -> Result<(), ConfigError> {
        for line in file::lines(path, text)? {
            let origin = Origin::File(path.to_owned(), line.line);
            let section = line.section.as_str();
            if !keys().any(|key| key.parts().0 == section) {
                let suggestion = suggest(section, keys().map(|key| key.parts().0.to_owned()));
                return Err(ConfigError::Unknown { origin, what: "section", name: line.section, suggestion });
            }
            let Some((name, value)) = line.entry else { continue };
            let id = format!("{section}.{name}");
            let Some(key) = Key::find(&id) else {
                return Err(ConfigError::Unknown { origin, what: "key", name: id.clone(), suggestion: key_like(&id) });
            };
            self.set(key, value, origin)?;
        }
        Ok(())
    }

    /// Adds those of `variables` that are ours.
    ///
    /// # Errors
    /// [`ConfigError`], with the variable's name.
    pub fn variables(&mut self, variables: impl IntoIterator<Item = (OsString, OsString)>) -> Result<(), ConfigError> {
        for (name, value) in variables {
            let name = name.to_string_lossy().into_owned();
            let origin = Origin::Variable(name.clone());
            let Some(key) = keys().find(|key| key.variable() == name) else {
                if is_variable(&name) {
                    continue;
                }
                let known = keys().map(Key::variable).chain(OTHER_VARIABLES.map(str::to_owned));
                let suggestion = suggest(&name, known);
                return Err(ConfigError::Unknown { origin, what: "variable", name, suggestion });
            };
            let text = value.into_string().map_err(|_| ConfigError::NotText(name))?;
            self.set_text(key, &text, origin)?;
        }
        Ok(())
    }

    /// Adds flags.
    ///
    /// # Errors
    /// [`ConfigError`], with the flag.
    pub fn flags(&mut self, flags: &[FlagValue]) -> Result<(), ConfigError> {
        for flag in flags {
            let key = Key::find(flag.key).expect("invariant: flags set keys that exist");
            self.set_text(key, &flag.values.join(","), Origin::Flag(flag.flag))?;
        }
        Ok(())
    }

    /// The outcome.
    pub fn finish(self) -> Loaded {
        Loaded::new(self.values, self.origins)
    }

    fn set_text(&mut self, key: &'static Key, text: &str, origin: Origin) -> Result<(), ConfigError> {
        match key.kind.parse(text) {
            Some(value) => self.set(key, toml(&value), origin),
            None => Err(invalid(key, format!("`{text}`"), origin, "")),
        }
    }

    fn set(&mut self, key: &'static Key, value: toml::Value, origin: Origin) -> Result<(), ConfigError> {
        let written = match &value {
            toml::Value::String(text) => format!("`{text}`"),
            toml::Value::Float(value) if has_many_zeros(*value) => format!("{value:e}"),
            toml::Value::Integer(_)
            | toml::Value::Float(_)
            | toml::Value::Boolean(_)
            | toml::Value::Datetime(_)
            | toml::Value::Array(_)
            | toml::Value::Table(_) => value.to_string().replace('\n', " "),
        };
        let value = plain(value);
        let hint = key.kind.hint(value.as_ref());
        let Some(value) = value.and_then(|value| key.kind.check(value)) else {
            return Err(invalid(key, written, origin, hint));
        };
        self.values.insert(key.id, value);
        self.origins.insert(key.id, origin);
        Ok(())
    }
}

/// A value as a file has it.
pub(super) fn toml(value: &Value) -> toml::Value {
    toml::Value::try_from(value).expect("invariant: a value is plain data")
}

/// What a file has as a value; `None` if no key can be that.
fn plain(value: toml::Value) -> Option<Value> {
    Some(match value {
        toml::Value::String(text) => Value::Text(text),
        toml::Value::Boolean(value) => Value::Bool(value),
        toml::Value::Integer(value) => Value::Integer(value),
        toml::Value::Float(value) => Value::Float(value),
        toml::Value::Array(items) => {
            let texts =
                items.into_iter().map(|item| if let toml::Value::String(text) = item { Some(text) } else { None });
            Value::List(texts.collect::<Option<_>>()?)
        }
        toml::Value::Datetime(_) | toml::Value::Table(_) => return None,
    })
}

fn invalid(key: &'static Key, value: String, origin: Origin, hint: &str) -> ConfigError {
    ConfigError::Invalid { origin, key: key.id, value, allowed: key.kind.allowed() + hint }
}

/// A suggestion for an unknown `section.name`: a likely typo, or the same name in another section.
fn key_like(id: &str) -> String {
    let name = id.split_once('.').map_or(id, |(_, name)| name);
    match keys().find(|key| key.parts().1 == name) {
        Some(key) => format!(" (did you mean `{}`?)", key.id),
        None => suggest(id, keys().map(|key| key.id.to_owned())),
    }
}

/// ` (did you mean ...?)` with the most alike of `known`; nothing if none is alike enough.
fn suggest(name: &str, known: impl Iterator<Item = String>) -> String {
    let scored = known.map(|known| (strsim::normalized_damerau_levenshtein(name, &known), known));
    match scored.max_by(|a, b| a.0.total_cmp(&b.0)) {
        Some((score, known)) if score >= ALIKE => format!(" (did you mean `{known}`?)"),
        Some(_) | None => String::new(),
    }
}
