//! A number that an optimizer is set by.

/// A setting of an optimizer: all are numbers, each within bounds of its own.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SettingSpec {
    /// Its name, in manifests and as the configuration's `run.<name>`.
    pub name: &'static str,
    /// Its value where nobody says another.
    pub default: f32,
    /// The least that it may be.
    pub least: f64,
    /// The most that it may be.
    pub most: f64,
}

impl SettingSpec {
    /// The step size. Each optimizer has a default of its own.
    pub const LEARNING_RATE: Self = Self { name: "learning_rate", default: 0.1, least: 1e-12, most: 1e3 };
    /// The share of the velocity that is kept.
    pub const MOMENTUM: Self = Self { name: "momentum", default: 0.9, least: 0.0, most: 0.9999 };
    /// The decay of the first moment.
    pub const BETA1: Self = Self { name: "beta1", default: 0.9, least: 0.0, most: 0.99999 };
    /// The decay of the second moment.
    pub const BETA2: Self = Self { name: "beta2", default: 0.999, least: 0.0, most: 0.99999 };
    /// What is added to the root of the second moment.
    pub const EPSILON: Self = Self { name: "epsilon", default: 1e-8, least: 1e-16, most: 1.0 };
    /// The penalty on large parameters.
    pub const WEIGHT_DECAY: Self = Self { name: "weight_decay", default: 0.0, least: 0.0, most: 10.0 };

    /// The setting with another default.
    pub const fn or(self, default: f32) -> Self {
        Self { default, ..self }
    }

    /// Checks that `value` is within the bounds.
    ///
    /// # Errors
    /// What it is and what it may be, as a sentence.
    pub fn check(&self, value: f32) -> Result<(), String> {
        let Self { name, least, most, .. } = *self;
        if (least as f32..=most as f32).contains(&value) {
            return Ok(());
        }
        Err(format!("{name} is {value}, but {least:e} to {most:e} are possible"))
    }
}
