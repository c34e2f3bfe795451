//! In what numbers a device goes forward and backward.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What parameters and activations are on the device. The state, what members send and the update are in f32 in any case, and so is what is
/// evaluated and exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Precision {
    /// As the state.
    #[default]
    F32,
    /// Its range, with 8 bits of precision.
    Bf16,
    /// 11 bits of precision, of numbers below 65,520: losses are scaled, so that gradients do not vanish (Micikevicius et al.: "Mixed Precision
    /// Training", 2018).
    F16,
}

impl Precision {
    /// All there are.
    pub const ALL: [Self; 3] = [Self::F32, Self::Bf16, Self::F16];

    /// Whether losses are scaled.
    pub fn is_scaled(self) -> bool {
        self == Self::F16
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        })
    }
}

impl FromStr for Precision {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|precision| precision.to_string() == text);
        found.ok_or_else(|| format!("there is no precision `{text}`; write f32, bf16 or f16"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_read_as_it_is_written() {
        for precision in Precision::ALL {
            assert_eq!(precision.to_string().parse(), Ok(precision));
        }
        assert!("fp16".parse::<Precision>().expect_err("no such").contains("f32, bf16 or f16"));
    }
}
