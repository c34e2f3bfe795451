//! What the value of a key may be.

use serde::Serialize;

use super::duration;

/// A key's type and range.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// Any text; what it may say is checked by whatever it sets.
    Text,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// `true` or `false`.
    Bool,
    /// A whole number within these bounds, both included. None is below 0.
    Integer(i64, i64),
    /// A duration, as a whole number of milliseconds within these bounds, both included, or as text such as `10s`.
    Milliseconds(i64, i64),
    /// A number within these bounds, both included.
    Float(f64, f64),
    /// Texts; in the environment, comma-separated.
    List,
}

/// A value, as plain data.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// Of [`Kind::Text`] and [`Kind::Choice`].
    Text(String),
    /// Of [`Kind::Bool`].
    Bool(bool),
    /// Of [`Kind::Integer`] and [`Kind::Milliseconds`].
    Integer(i64),
    /// Of [`Kind::Float`].
    Float(f64),
    /// Of [`Kind::List`].
    List(Vec<String>),
}

/// What a setter relies on.
const CHECKED: &str = "invariant: a value was checked as its key's kind";

impl Value {
    /// A text.
    ///
    /// # Panics
    /// This and its sisters, if it is another value: [`Kind::check`] comes first.
    pub fn text(&self) -> &str {
        let Self::Text(text) = self else { panic!("{CHECKED}: {self:?}") };
        text
    }

    /// A truth.
    ///
    /// # Panics
    /// As [`Self::text`].
    pub fn bool(&self) -> bool {
        let Self::Bool(value) = self else { panic!("{CHECKED}: {self:?}") };
        *value
    }

    /// A count.
    ///
    /// # Panics
    /// As [`Self::text`].
    pub fn count(&self) -> u64 {
        let Self::Integer(value) = self else { panic!("{CHECKED}: {self:?}") };
        u64::try_from(*value).expect(CHECKED)
    }

    /// A number.
    ///
    /// # Panics
    /// As [`Self::text`].
    pub fn float(&self) -> f64 {
        let Self::Float(value) = self else { panic!("{CHECKED}: {self:?}") };
        *value
    }

    /// Texts.
    ///
    /// # Panics
    /// As [`Self::text`].
    pub fn list(&self) -> &[String] {
        let Self::List(items) = self else { panic!("{CHECKED}: {self:?}") };
        items
    }

    /// What the text means, by what reads it.
    pub(super) fn parse<T: std::str::FromStr<Err: ToString>>(&self) -> Result<T, String> {
        self.text().parse().map_err(|error: T::Err| error.to_string())
    }

    /// A count that its key's range keeps small.
    pub(super) fn small(&self) -> u32 {
        u32::try_from(self.count()).expect(CHECKED)
    }
}

/// A number as people write it: with an exponent where it would have many zeros.
fn number(value: f64) -> String {
    if has_many_zeros(value) { format!("{value:e}") } else { value.to_string() }
}

/// Whether a number is better written with an exponent.
pub fn has_many_zeros(value: f64) -> bool {
    value.is_finite() && value != 0.0 && !(1e-4..1e9).contains(&value.abs())
}

impl Kind {
    /// What values there are, for messages: "must be ...".
    pub fn allowed(self) -> String {
        match self {
            Self::Text => "text, and not empty".to_owned(),
            Self::Choice(words) => format!("one of {}", words.join(", ")),
            Self::Bool => "true or false".to_owned(),
            Self::Milliseconds(min, max) => {
                format!("a duration such as 10s, or a whole number of milliseconds, from {min} to {max} of them")
            }
            Self::Integer(min, max) => format!("a whole number from {min} to {max}"),
            Self::Float(min, max) => format!("a number from {} to {}", number(min), number(max)),
            Self::List => "a list of texts".to_owned(),
        }
    }

    /// Advice for a value of another type that only its quotes keep from being one of this kind.
    pub fn hint(self, value: Option<&Value>) -> &'static str {
        match (self, value) {
            (Self::Integer(..) | Self::Float(..) | Self::Bool, Some(Value::Text(text)))
                if self.parse(text).is_some() =>
            {
                "; write it without quotes"
            }
            _ => "",
        }
    }

    /// `value` in this kind's own form; `None` if it is of another type or out of range.
    pub fn check(self, value: Value) -> Option<Value> {
        match (self, value) {
            (Self::Text, Value::Text(text)) if !text.is_empty() => Some(Value::Text(text)),
            (Self::Choice(words), Value::Text(text)) => words.contains(&text.as_str()).then_some(Value::Text(text)),
            (Self::Integer(min, max) | Self::Milliseconds(min, max), Value::Integer(value)) => {
                (min..=max).contains(&value).then_some(Value::Integer(value))
            }
            (Self::Milliseconds(..), Value::Text(text)) => {
                let duration = duration::parse(&text).ok()?;
                self.check(Value::Integer(i64::try_from(duration.as_millis()).ok()?))
            }
            (Self::Float(min, max), Value::Float(value)) => (min..=max).contains(&value).then_some(Value::Float(value)),
            // Nobody should have to write `momentum = 0.0`.
            (Self::Float(..), Value::Integer(value)) => self.check(Value::Float(value as f64)),
            (Self::Bool, value @ Value::Bool(_)) | (Self::List, value @ Value::List(_)) => Some(value),
            (
                Self::Text
                | Self::Choice(_)
                | Self::Bool
                | Self::Integer(..)
                | Self::Milliseconds(..)
                | Self::Float(..)
                | Self::List,
                Value::Text(_) | Value::Integer(_) | Value::Float(_) | Value::Bool(_) | Value::List(_),
            ) => None,
        }
    }

    /// What `text` says, as a value of this kind; `None` if it says none. Not checked for range.
    pub fn parse(self, text: &str) -> Option<Value> {
        match self {
            Self::Text | Self::Choice(_) => Some(Value::Text(text.to_owned())),
            Self::Bool => text.parse().ok().map(Value::Bool),
            Self::Integer(..) => text.parse().ok().map(Value::Integer),
            Self::Milliseconds(..) => Some(text.parse().map_or_else(|_| Value::Text(text.to_owned()), Value::Integer)),
            Self::Float(..) => text.parse().ok().map(Value::Float),
            Self::List => {
                let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
                Some(Value::List(items.map(str::to_owned).collect()))
            }
        }
    }
}
