//! A model, as users and manifests name it. What a program makes of the name is the program's concern: whoever keeps, checks or
//! shows a run knows none of them. It may come from another machine and end on a terminal, so what can't be is not repeated.

use std::fmt;
use std::str::FromStr;

use serde::ser::{SerializeMap, SerializeStructVariant};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};
use thiserror::Error;

use crate::state::canonical::{canonical, check_canonical};

/// The longest name of a model, in bytes.
pub const MAX_MODEL_NAME: usize = 64;
/// The longest settings of a model, in bytes.
pub const MAX_MODEL_SETTINGS: usize = 4_096;

/// What is trained: a name, and what it is set to as [canonical] JSON. The sizes of the data are not in it.
///
/// Settings that are whole numbers alone can be written as text: `softmax`, `mlp:128,64`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub enum ModelSpec {
    /// Nothing: members bring buffers of their own, and take their mean. No text names it, since no verb can train it.
    Raw,
    /// What a program has by that name: one of the command line's models, or the task that its user wrote.
    Named {
        /// What it is called.
        name: String,
        /// What it is set to, as [canonical] JSON.
        settings: String,
    },
}

/// A text that is not a model.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{text}` is not a model: {reason}; write a name, or a name with sizes, as mlp:64,64")]
pub struct ModelSpecError {
    /// The text.
    pub text: String,
    /// What is wrong with it.
    pub reason: String,
}

impl ModelSpec {
    /// The model of this name.
    pub fn named(name: &str, settings: &Value) -> Self {
        Self::Named { name: name.to_owned(), settings: canonical(settings) }
    }

    /// The model of this name and these sizes.
    pub fn sized(name: &str, sizes: &[u32]) -> Self {
        Self::named(name, &if sizes.is_empty() { Value::Null } else { json!(sizes) })
    }

    /// What it is called; `None` of buffers.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Raw => None,
            Self::Named { name, .. } => Some(name),
        }
    }

    /// Its sizes, if it is set to nothing else; none if they are not said.
    pub fn sizes(&self) -> Option<Vec<u32>> {
        match self {
            Self::Raw => None,
            Self::Named { settings, .. } if settings == "null" => Some(Vec::new()),
            Self::Named { settings, .. } => serde_json::from_str(settings).ok(),
        }
    }

    /// Checks that a terminal can show its name and settings, and that they are no longer than they may be.
    ///
    /// # Errors
    /// What is wrong, as a sentence.
    pub fn check(&self) -> Result<(), String> {
        let Self::Named { name, settings } = self else { return Ok(()) };
        let is_in_name =
            |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || "-_.".contains(letter);
        if !(1..=MAX_MODEL_NAME).contains(&name.len()) || !name.chars().all(is_in_name) {
            return Err(format!(
                "a name has 1 to {MAX_MODEL_NAME} lower-case letters, digits, `-`, `_` and `.`, and this one is none"
            ));
        }
        if settings.len() > MAX_MODEL_SETTINGS {
            let found = settings.len();
            return Err(format!("its settings have {found} bytes, but {MAX_MODEL_SETTINGS} are possible"));
        }
        check_canonical(settings).map_err(|reason| format!("its settings {reason}"))
    }
}

impl Default for ModelSpec {
    fn default() -> Self {
        Self::sized("mlp", &[64])
    }
}

impl FromStr for ModelSpec {
    type Err = ModelSpecError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fail = |reason: String| ModelSpecError { text: text.to_owned(), reason };
        let (name, sizes) = text.split_once(':').map_or((text, None), |(name, sizes)| (name, Some(sizes)));
        let size = |size: &str| size.trim().parse().map_err(|_| fail(format!("`{size}` is not a size")));
        let sizes: Vec<u32> =
            sizes.into_iter().flat_map(|sizes| sizes.split(',')).map(size).collect::<Result<_, _>>()?;
        let spec = Self::sized(name.trim(), &sizes);
        spec.check().map_err(fail)?;
        Ok(spec)
    }
}

impl fmt::Display for ModelSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name().unwrap_or("buffers"))?;
        for (at, size) in self.sizes().unwrap_or_default().iter().enumerate() {
            write!(f, "{}{size}", if at == 0 { ':' } else { ',' })?;
        }
        Ok(())
    }
}

impl Serialize for ModelSpec {
    /// For people as they write it, in as far as they can.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Named { name, settings } if serializer.is_human_readable() && self.sizes().is_none() => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry(name, &json!({ "settings": settings }))?;
                map.end()
            }
            _ if serializer.is_human_readable() => serializer.collect_str(self),
            Self::Raw => serializer.serialize_unit_variant("ModelSpec", 0, "Raw"),
            Self::Named { name, settings } => {
                let mut variant = serializer.serialize_struct_variant("ModelSpec", 1, "Named", 2)?;
                variant.serialize_field("name", name)?;
                variant.serialize_field("settings", settings)?;
                variant.end()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_read_and_written_as_text() {
        for (text, spec) in [
            ("softmax", ModelSpec::sized("softmax", &[])),
            ("mlp:64", ModelSpec::default()),
            ("mlp:128, 32", ModelSpec::sized("mlp", &[128, 32])),
            ("a_model-2.1:0", ModelSpec::sized("a_model-2.1", &[0])),
        ] {
            assert_eq!(text.parse(), Ok(spec.clone()));
            assert_eq!(spec.to_string().parse(), Ok(spec.clone()));
            assert_eq!(serde_json::to_value(&spec).expect("JSON"), json!(spec.to_string()));
            let bytes = postcard::to_allocvec(&spec).expect("plain data");
            assert_eq!(postcard::from_bytes(&bytes), Ok(spec));
        }
        assert_eq!(postcard::from_bytes(&[0]), Ok(ModelSpec::Raw));
        assert_eq!(ModelSpec::Raw.to_string(), "buffers");
    }

    #[test]
    fn a_text_that_is_no_model_is_refused_with_the_reason() {
        for (text, reason) in [
            ("", "and this one is none"),
            ("Mlp", "and this one is none"),
            ("mlp:", "`` is not a size"),
            ("mlp:a", "`a` is not a size"),
            ("mlp:-1", "`-1` is not a size"),
            ("mlp:1,,2", "`` is not a size"),
        ] {
            let error = text.parse::<ModelSpec>().expect_err("not a model").to_string();
            assert!(error.contains(reason) && error.contains(&format!("`{text}`")), "{error}");
        }
    }

    #[test]
    fn a_strangers_model_that_cannot_be_is_refused_and_not_repeated() {
        assert_eq!(ModelSpec::named("auto-encoder_2.1", &json!({ "b": 1, "a": 2 })).check(), Ok(()));
        for (name, settings, reason) in [
            ("", "null", "a name has 1 to 64"),
            ("\u{1b}[2J", "null", "and this one is none"),
            (&"a".repeat(65), "null", "and this one is none"),
            ("a", "\u{1b}[2J", "settings are no JSON"),
            ("a", r#"{"b":1,"a":2}"#, "not in their canonical form"),
            ("a", "[1, 2]", "not in their canonical form"),
            ("a", &" ".repeat(4_097), "4097 bytes"),
        ] {
            let model = ModelSpec::Named { name: name.to_owned(), settings: settings.to_owned() };
            let error = model.check().expect_err("refused");
            assert!(error.contains(reason) && !error.contains('\u{1b}'), "{error}");
        }
    }
}
