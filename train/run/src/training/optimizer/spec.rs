//! An optimizer with the values of its settings, as a manifest names it.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use serde::de::Error as _;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::average::Averaging;
use super::{NAMES, OptimizerEntry, SettingSpec, StateSize, StepInput, Update, find};

/// An optimizer with its settings.
///
/// A manifest holds its name and, as text, its settings as one JSON object in canonical form: all settings, sorted by name,
/// without blanks, each number as short as it can be written. What was read may be no optimizer of this program;
/// [`Self::check`] says so, and all else is for those that passed it.
#[derive(Clone, Copy)]
pub struct OptimizerSpec(Result<Chosen, Flaw>);

/// An optimizer of the registry, and the values of its settings in their order, then zeros.
#[derive(Clone, Copy)]
struct Chosen {
    row: &'static OptimizerEntry,
    values: [f32; OptimizerSpec::MAX_SETTINGS],
    /// What is kept of a [moving average](SettingSpec::AVERAGE) of the parameters.
    average: f32,
}

/// Why what was read is no optimizer.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Flaw {
    /// It has another name than all in the registry.
    Name,
    /// The settings are not those of the optimizer called so, or not in canonical form.
    Settings(&'static str),
}

impl OptimizerSpec {
    /// The most settings that an optimizer may have.
    pub const MAX_SETTINGS: usize = 8;

    /// The optimizer called `name`, with its defaults; `None` if there is none.
    pub fn named(name: &str) -> Option<Self> {
        let row = find(name)?;
        let mut values = [0.0; Self::MAX_SETTINGS];
        for (value, setting) in values.iter_mut().zip(row.optimizer.settings()) {
            *value = setting.default;
        }
        Some(Self(Ok(Chosen { row, values, average: SettingSpec::AVERAGE.default })))
    }

    /// The optimizer with another value of one setting. Whether that is possible is for [`Self::check`].
    ///
    /// # Panics
    /// If it has no setting of that name.
    #[must_use]
    pub fn with(self, setting: &str, value: f32) -> Self {
        let mut chosen = *self.chosen();
        if setting == SettingSpec::AVERAGE.name {
            chosen.average = value;
            return Self(Ok(chosen));
        }
        let at = chosen.settings().iter().position(|own| own.name == setting);
        chosen.values[at.unwrap_or_else(|| panic!("{} has no setting called {setting}", chosen.row.name))] = value;
        Self(Ok(chosen))
    }

    /// Plain gradient descent without weight decay.
    pub fn sgd(learning_rate: f32) -> Self {
        Self::registered("sgd").with("learning_rate", learning_rate)
    }

    /// Momentum 0.9, without Nesterov and weight decay.
    pub fn momentum(learning_rate: f32) -> Self {
        Self::registered("momentum").with("learning_rate", learning_rate)
    }

    /// AdamW with the usual settings: betas 0.9 and 0.999, epsilon 1e-8, weight decay 0.01.
    pub fn adam_w(learning_rate: f32) -> Self {
        Self::registered("adamw").with("learning_rate", learning_rate).with("weight_decay", 0.01)
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.chosen().row.name
    }

    /// Its settings with their values, then the [average](SettingSpec::AVERAGE).
    pub fn settings(&self) -> impl Iterator<Item = (&'static SettingSpec, f32)> {
        let chosen = self.chosen();
        let average = const { &SettingSpec::AVERAGE };
        chosen.settings().iter().zip(chosen.values).chain([(average, chosen.average)])
    }

    /// The value of one of its settings; `None` if it has none of that name.
    pub fn setting(&self, name: &str) -> Option<f32> {
        self.settings().find(|(setting, _)| setting.name == name).map(|(_, value)| value)
    }

    /// How many vectors of the parameters' length the optimizer keeps.
    pub fn moments(&self) -> usize {
        self.shape().moments
    }

    /// How many scalars the optimizer keeps.
    pub fn scalars(&self) -> usize {
        self.shape().scalars
    }

    /// Checks that it is an optimizer of this program, and that every setting is within its bounds.
    ///
    /// # Errors
    /// What is wrong, as a sentence without a subject, or with the setting as its subject. It repeats no text that was read.
    pub fn check(&self) -> Result<(), String> {
        match &self.0 {
            Ok(_) => self.settings().try_for_each(|(setting, value)| setting.check(value)),
            Err(Flaw::Name) => Err(format!("it is none of {}", NAMES.join(", "))),
            Err(Flaw::Settings(name)) => Err(format!("its settings are not those of {name}, in canonical form")),
        }
    }

    /// Whether an average of the parameters is kept.
    pub fn averages(&self) -> bool {
        self.chosen().average > 0.0
    }

    /// The optimizer's own settings' values, in order.
    pub(super) fn values(&self) -> &[f32] {
        let chosen = self.chosen();
        &chosen.values[..chosen.settings().len()]
    }

    /// What the scalars become by one more step.
    pub(super) fn advance(&self, scalars: &[f64]) -> Vec<f64> {
        let own = self.chosen().row.optimizer.shape().scalars;
        let mut next = self.chosen().row.optimizer.advance(self.values(), &scalars[..own]);
        next.extend(scalars[own..].iter().map(|power| power * f64::from(self.chosen().average)));
        next
    }

    /// What a step does to each element, where the learning rate is `values`' first, and these are the scalars for the step.
    pub(super) fn begin(&self, values: &[f32], scale: f32, scalars: &[f64]) -> Box<dyn Update> {
        let Chosen { row, average, .. } = *self.chosen();
        let scalars = &scalars[..row.optimizer.shape().scalars];
        let step = row.optimizer.begin(&StepInput { values, scale, scalars });
        if self.averages() { Box::new(Averaging { step, decay: average }) } else { step }
    }

    fn shape(&self) -> StateSize {
        let StateSize { moments, scalars } = self.chosen().row.optimizer.shape();
        let more = usize::from(self.averages());
        StateSize { moments: moments + more, scalars: scalars + more }
    }

    fn registered(name: &str) -> Self {
        Self::named(name).expect("invariant: the registry has the name")
    }

    fn chosen(&self) -> &Chosen {
        self.0.as_ref().expect("invariant: what was read is checked first")
    }

    fn read(name: &str, settings: &str) -> Self {
        let Some(spec) = Self::named(name) else { return Self(Err(Flaw::Name)) };
        let chosen = spec.chosen();
        Self(chosen.read(settings).ok_or(Flaw::Settings(chosen.row.name)))
    }
}

impl Chosen {
    fn settings(&self) -> &'static [SettingSpec] {
        self.row.optimizer.settings()
    }

    /// Settings with their values, sorted by name; an average that there is none of is not among them.
    fn sorted(&self) -> BTreeMap<&'static str, f32> {
        let own = self.settings().iter().map(|setting| setting.name).zip(self.values);
        own.chain((self.average != 0.0).then_some((SettingSpec::AVERAGE.name, self.average))).collect()
    }

    /// The settings as canonical JSON. Rust writes the shortest text that is read as the same number again.
    fn write(&self) -> String {
        let mut text = String::from("{");
        for (name, value) in self.sorted() {
            let comma = if text.len() > 1 { "," } else { "" };
            write!(text, "{comma}\"{name}\":{value:?}").expect("invariant: writing to memory does not fail");
        }
        text + "}"
    }

    /// The same optimizer with the settings of a text, if it is what [`Self::write`] makes of them. Not by way of a JSON
    /// parser, which reads numbers as f64: rounded twice, a number may not be the one that was written.
    fn read(mut self, text: &str) -> Option<Self> {
        let fields = text.strip_prefix('{')?.strip_suffix('}')?;
        for field in fields.split(',') {
            let (name, value) = field.strip_prefix('"')?.split_once("\":")?;
            if name == SettingSpec::AVERAGE.name {
                self.average = value.parse().ok()?;
                continue;
            }
            let at = self.settings().iter().position(|setting| setting.name == name)?;
            self.values[at] = value.parse().ok()?;
        }
        (self.write() == text).then_some(self)
    }
}

impl Default for OptimizerSpec {
    fn default() -> Self {
        Self::adam_w(1e-3)
    }
}

impl PartialEq for OptimizerSpec {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Ok(ours), Ok(theirs)) => {
                (ours.row.name, ours.values, ours.average) == (theirs.row.name, theirs.values, theirs.average)
            }
            (Err(ours), Err(theirs)) => ours == theirs,
            (Ok(_), Err(_)) | (Err(_), Ok(_)) => false,
        }
    }
}

impl fmt::Debug for OptimizerSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Ok(chosen) => write!(f, "{}{:?}", chosen.row.name, chosen.sorted()),
            Err(flaw) => flaw.fmt(f),
        }
    }
}

/// Name and settings of an optimizer, as a manifest's bytes have them.
#[derive(Serialize, Deserialize)]
struct Named {
    name: String,
    settings: String,
}

impl Serialize for OptimizerSpec {
    /// For people, one field called as the optimizer, whose value is the settings.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let chosen = self.chosen();
        if serializer.is_human_readable() {
            let mut map = serializer.serialize_map(Some(1))?;
            map.serialize_entry(chosen.row.name, &chosen.sorted())?;
            return map.end();
        }
        Named { name: chosen.row.name.to_owned(), settings: chosen.write() }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for OptimizerSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            return Err(D::Error::custom("an optimizer is read from a manifest's bytes alone"));
        }
        let Named { name, settings } = Named::deserialize(deserializer)?;
        Ok(Self::read(&name, &settings))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_checked_by_name() {
        assert_eq!(OptimizerSpec::sgd(0.1).check(), Ok(()));
        assert_eq!(OptimizerSpec::momentum(0.1).check(), Ok(()));
        assert_eq!(OptimizerSpec::default().check(), Ok(()));
        let adam_w = OptimizerSpec::adam_w(1.0);
        for (spec, name) in [
            (OptimizerSpec::sgd(0.0), "learning_rate is 0, but 1e-12 to 1e3 are possible"),
            (OptimizerSpec::sgd(f32::NAN), "learning_rate is NaN"),
            (OptimizerSpec::sgd(1.0).with("weight_decay", -1.0), "weight_decay is -1"),
            (OptimizerSpec::momentum(1.0).with("momentum", 1.0), "momentum is 1"),
            (adam_w.with("beta2", f32::INFINITY), "beta2 is inf"),
            (adam_w.with("epsilon", 0.0), "epsilon is 0"),
        ] {
            let reason = spec.check().expect_err("out of range");
            assert!(reason.starts_with(name), "{reason}");
        }
    }

    /// Whatever a setting is, whoever reads it has the same bits, or refuses it.
    #[test]
    fn every_optimizer_survives_its_bytes() {
        for name in NAMES {
            let spec = OptimizerSpec::named(name).expect("it is in the list");
            assert_eq!(spec.check(), Ok(()), "{spec:?}");
            for rate in [1e-12, 0.1, 0.3, 1.0 / 3.0, 999.9999, 1.1754944e-38, 16_777_216.0, -0.0, f32::NAN] {
                let spec = spec.with("learning_rate", rate);
                let bytes = postcard::to_allocvec(&spec).expect("plain data");
                let read: OptimizerSpec = postcard::from_bytes(&bytes).expect("the same");
                assert_eq!(postcard::to_allocvec(&read).expect("plain data"), bytes);
                assert_eq!(read.setting("learning_rate").map(f32::to_bits), Some(rate.to_bits()));
            }
        }
    }

    #[test]
    fn names_and_settings_of_strangers_are_refused_and_not_printed() {
        let settings = "{\"learning_rate\":0.1,\"weight_decay\":0.0}";
        assert_eq!(OptimizerSpec::sgd(0.1).chosen().write(), settings);
        assert_eq!(OptimizerSpec::read("sgd", settings), OptimizerSpec::sgd(0.1));
        let reason = OptimizerSpec::read("\u{1b}[2Jsgd", settings).check().expect_err("no optimizer");
        assert!(reason.starts_with("it is none of sgd, momentum, nesterov") && !reason.contains('\u{1b}'), "{reason}");
        for text in [
            "",
            "{}",
            "{\"learning_rate\":0.1}",
            "{\"weight_decay\":0.0,\"learning_rate\":0.1}",
            "{\"learning_rate\":0.1,\"learning_rate\":0.1,\"weight_decay\":0.0}",
            "{\"learning_rate\":0.10,\"weight_decay\":0.0}",
            "{\"learning_rate\":0.1, \"weight_decay\":0.0}",
            "{\"learning_rate\":0.1,\"weight_decay\":0.0,\"beta1\":0.9}",
            "{\"learning_rate\":\"\u{1b}\",\"weight_decay\":0.0}",
            "{\"learning_rate\":0.1,\"weight_decay\":0.0}}",
        ] {
            let reason = OptimizerSpec::read("sgd", text).check().expect_err("not canonical");
            assert_eq!(reason, "its settings are not those of sgd, in canonical form", "{text}");
        }
    }
}
