//! From flags to the values of keys.

use super::{DemoFlags, EvalFlags, GenerateFlags, GlobalFlags, PredictFlags};
use crate::config::FlagValue;
use crate::output::Detail;

impl GlobalFlags {
    /// How much people are told.
    pub fn detail(&self) -> Detail {
        match (self.quiet, self.verbose) {
            (true, _) => Detail::Errors,
            (false, 0) => Detail::Changes,
            (false, 1..) => Detail::All,
        }
    }

    /// The flags that set keys.
    pub fn values(&self) -> Vec<FlagValue> {
        let level = match (self.quiet, self.verbose) {
            (true, _) => Some(("--quiet", "error")),
            (false, 0) => None,
            (false, 1) => Some(("--verbose", "info")),
            (false, 2) => Some(("--verbose", "debug")),
            (false, 3..) => Some(("--verbose", "trace")),
        };
        let level = level.map(|(flag, level)| one("log.level", flag, level));
        level
            .into_iter()
            .chain(self.log_format.as_ref().map(|format| one("log.format", "--log-format", format)))
            .collect()
    }
}

impl DemoFlags {
    /// The flags that set keys.
    pub fn values(&self) -> Vec<FlagValue> {
        vec![one("train.device", "--device", &self.device)]
    }
}

impl PredictFlags {
    /// The flags that set keys.
    pub fn values(&self) -> Vec<FlagValue> {
        vec![one("train.device", "--device", &self.device)]
    }
}

impl GenerateFlags {
    /// The flags that set keys.
    pub fn values(&self) -> Vec<FlagValue> {
        vec![one("train.device", "--device", &self.device)]
    }
}

impl EvalFlags {
    /// The flags that set keys.
    pub fn values(&self) -> Vec<FlagValue> {
        vec![one("train.device", "--device", &self.device)]
    }
}

fn one(key: &'static str, flag: &'static str, value: &str) -> FlagValue {
    FlagValue { key, flag, values: vec![value.to_owned()] }
}
