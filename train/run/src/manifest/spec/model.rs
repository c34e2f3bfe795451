//! A model, as users and manifests name it. What a program makes of the name is the program's concern: whoever keeps, checks or
//! shows a run knows none of them. It may come from another machine and end on a terminal, so what can't be is not repeated.

use std::fmt;
use std::str::FromStr;

use serde::ser::{SerializeMap, SerializeStructVariant};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};
use thiserror::Error;

use super::loss::LossKind;
use super::options::{AugmentPolicy, ClassWeightPolicy, ModelOptions};
use crate::state::canonical::{canonical, check_canonical};

/// The longest name of a model, in bytes.
pub const MAX_MODEL_NAME: usize = 64;
/// Models whose sizes are of several kinds: they are written with `x` between them, as in `gpt:4x128x4`.
const CROSSED: [&str; 1] = ["gpt"];
/// The longest settings of a model, in bytes.
pub const MAX_MODEL_SETTINGS: usize = 4_096;

/// What is trained: a name, and what it is set to as [canonical] JSON. The sizes of the data are not in it.
///
/// Settings that are whole numbers can be written as text, and with them what else the command line's models have: `softmax`,
/// `mlp:128,64`, `cnn:8,16+dropout=0.1+augment=crop,flip`, `regression:64+loss=huber`, `gpt:4x128`.
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

/// Settings that are more than sizes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WithOptions {
    sizes: Vec<u32>,
    #[serde(default)]
    batch_norm: bool,
    #[serde(default)]
    residual: bool,
    #[serde(default)]
    tied_output: bool,
    #[serde(default)]
    dropout: f64,
    #[serde(default)]
    augment: Vec<AugmentPolicy>,
    #[serde(default)]
    loss: Option<LossKind>,
    #[serde(default)]
    class_weights: ClassWeightPolicy,
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

    /// The model of this name and these sizes, with these options.
    pub fn with_options(name: &str, sizes: &[u32], options: &ModelOptions) -> Self {
        let mut settings = json!({ "sizes": sizes });
        if options.batch_norm {
            settings["batch_norm"] = json!(true);
        }
        if options.residual {
            settings["residual"] = json!(true);
        }
        if options.tied_output {
            settings["tied_output"] = json!(true);
        }
        if options.dropout != 0.0 {
            settings["dropout"] = json!(options.dropout);
        }
        if !options.augment.is_empty() {
            settings["augment"] = json!(options.augment);
        }
        if let Some(loss) = options.loss {
            settings["loss"] = json!(loss);
        }
        if options.class_weights != ClassWeightPolicy::default() {
            settings["class_weights"] = json!(options.class_weights);
        }
        // Whoever has none is called as ever.
        if *options == ModelOptions::default() { Self::sized(name, sizes) } else { Self::named(name, &settings) }
    }

    /// What it is called; `None` of buffers.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Raw => None,
            Self::Named { name, .. } => Some(name),
        }
    }

    /// Its sizes, if it is set to nothing else than these and options; none if they are not said.
    pub fn sizes(&self) -> Option<Vec<u32>> {
        self.parts().map(|(sizes, _)| sizes)
    }

    /// Its sizes and options, if it is set to nothing else.
    pub fn parts(&self) -> Option<(Vec<u32>, ModelOptions)> {
        match self {
            Self::Raw => None,
            Self::Named { settings, .. } if settings == "null" => Some(<_>::default()),
            Self::Named { settings, .. } if settings.starts_with('[') => {
                Some((serde_json::from_str(settings).ok()?, ModelOptions::default()))
            }
            Self::Named { name, settings } => {
                let WithOptions { sizes, batch_norm, residual, tied_output, dropout, augment, loss, class_weights } =
                    serde_json::from_str(settings).ok()?;
                // What can be written in two ways is none of ours.
                let augment = ModelOptions::augmented(augment);
                let options = ModelOptions { batch_norm, residual, tied_output, dropout, augment, loss, class_weights };
                (Self::with_options(name, &sizes, &options) == *self).then_some((sizes, options))
            }
        }
    }

    /// The same model with other options. Of one that has other settings, nothing changes.
    #[must_use]
    pub fn having(self, change: impl FnOnce(&mut ModelOptions)) -> Self {
        let Some((name, (sizes, mut options))) = self.name().zip(self.parts()) else { return self };
        change(&mut options);
        Self::with_options(name, &sizes, &options)
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
        let mut parts = text.split('+');
        let model = parts.next().unwrap_or_default();
        let (name, sizes) = model.split_once(':').map_or((model, None), |(name, sizes)| (name, Some(sizes)));
        let size = |size: &str| size.trim().parse().map_err(|_| fail(format!("`{size}` is not a size")));
        let sizes: Vec<u32> = sizes
            .into_iter()
            .flat_map(|sizes| sizes.split([',', separator(name.trim())]))
            .map(size)
            .collect::<Result<_, _>>()?;
        let mut options = ModelOptions::default();
        parts.try_for_each(|part| options.read(part)).map_err(fail)?;
        let spec = Self::with_options(name.trim(), &sizes, &options);
        spec.check().map_err(fail)?;
        Ok(spec)
    }
}

impl fmt::Display for ModelSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name().unwrap_or("buffers"))?;
        let (sizes, options) = self.parts().unwrap_or_default();
        for (at, size) in sizes.iter().enumerate() {
            write!(f, "{}{size}", if at == 0 { ':' } else { separator(self.name().unwrap_or_default()) })?;
        }
        options.fmt(f)
    }
}

/// What stands between the sizes of the model that is called so.
fn separator(name: &str) -> char {
    if CROSSED.contains(&name) { 'x' } else { ',' }
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
            ("gpt:4x128", ModelSpec::sized("gpt", &[4, 128])),
            ("gpt: 4,128 x 4", ModelSpec::sized("gpt", &[4, 128, 4])),
        ] {
            assert_eq!(text.parse(), Ok(spec.clone()));
            assert_eq!(spec.to_string().parse(), Ok(spec.clone()));
            assert_eq!(serde_json::to_value(&spec).expect("JSON"), json!(spec.to_string()));
            let bytes = postcard::to_allocvec(&spec).expect("plain data");
            assert_eq!(postcard::from_bytes(&bytes), Ok(spec));
        }
        assert_eq!(ModelSpec::sized("gpt", &[4, 128, 4]).to_string(), "gpt:4x128x4");
        let augment = vec![AugmentPolicy::Crop, AugmentPolicy::Flip];
        let options = ModelOptions { dropout: 0.1, augment, ..ModelOptions::default() };
        let full = ModelSpec::with_options("cnn", &[8, 16], &options);
        let ModelSpec::Named { settings, .. } = &full else { panic!("it has a name") };
        assert_eq!(settings, r#"{"augment":["crop","flip"],"dropout":0.1,"sizes":[8,16]}"#);
        for text in ["cnn:8,16+dropout=0.1+augment=crop,flip", "cnn:8,16 + augment=flip,crop,flip + dropout=0.10"] {
            assert_eq!(text.parse(), Ok(full.clone()), "{text}");
        }
        assert_eq!(full.to_string(), "cnn:8,16+dropout=0.1+augment=crop,flip");
        assert_eq!(serde_json::to_value(&full).expect("JSON"), json!(full.to_string()));
        assert_eq!((full.sizes(), full.parts()), (Some(vec![8, 16]), Some((vec![8, 16], options))));
        let balanced = ModelOptions { class_weights: ClassWeightPolicy::Balanced, ..ModelOptions::default() };
        let balanced = ModelSpec::with_options("softmax", &[], &balanced);
        assert_eq!(balanced.to_string(), "softmax+class-weights=balanced");
        assert_eq!(balanced.to_string().parse(), Ok(balanced));
        let normalized = ModelOptions { batch_norm: true, dropout: 0.1, ..ModelOptions::default() };
        let normalized = ModelSpec::with_options("cnn", &[8], &normalized);
        assert_eq!(normalized.to_string(), "cnn:8+batch-norm+dropout=0.1");
        assert_eq!("cnn:8 + dropout=0.1 + batch-norm".parse(), Ok(normalized));
        let residual = ModelOptions { batch_norm: true, residual: true, ..ModelOptions::default() };
        let residual = ModelSpec::with_options("cnn", &[8], &residual);
        assert_eq!(residual.to_string(), "cnn:8+batch-norm+residual");
        assert_eq!("cnn:8 + residual + batch-norm".parse(), Ok(residual));
        let tied = ModelOptions { tied_output: true, ..ModelOptions::default() };
        let tied = ModelSpec::with_options("gpt", &[2, 64, 4, 2], &tied);
        assert_eq!(
            ("gpt:2x64x4x2 + tied-output".parse(), &*tied.to_string()),
            (Ok(tied.clone()), "gpt:2x64x4x2+tied-output")
        );
        assert_eq!("mlp+class-weights=equal".parse(), Ok(ModelSpec::sized("mlp", &[])));
        assert_eq!("mlp+dropout=0".parse(), Ok(ModelSpec::sized("mlp", &[])));
        // A program's own settings are no options.
        for settings in [
            json!({ "dropout": 0.1 }),
            json!({ "sizes": [1], "rate": 2 }),
            json!({ "sizes": [1], "dropout": 0 }),
            json!({ "sizes": [1], "batch_norm": false }),
            json!({ "sizes": [1], "augment": ["flip", "crop"] }),
        ] {
            let own = ModelSpec::named("own", &settings);
            assert_eq!((own.parts(), own.to_string()), (None, "own".to_owned()));
            assert_eq!(own.clone().having(|options| options.dropout = 0.5), own);
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
            ("mlp:4x4", "`4x4` is not a size"),
            ("gpt:4xx4", "`` is not a size"),
            ("mlp:1,,2", "`` is not a size"),
            (
                "mlp:1+drop=0.1",
                "`drop=0.1` is none of batch-norm, residual, tied-output, dropout=SHARE, augment=WAYS, loss=LOSS and class-weights=WEIGHTS",
            ),
            ("linear+loss=cubic", "`cubic` is no loss; write squared, absolute, huber or quantile:0.9"),
            ("linear+loss=quantile:1", "it learns the quantile 1, but one between 0 and 1"),
            ("mlp+dropout=1", "it drops 1 of its numbers, but 0 to 0.95"),
            ("mlp+dropout=NaN", "it drops NaN"),
            ("mlp+dropout=x", "`x` is not a share"),
            ("mlp+class-weights=1,2", "`1,2` are no weights of classes; write equal or balanced"),
            ("cnn+augment=turn", "`turn` is no way to change images"),
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
