//! How a batch is divided among members.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// How a batch is divided among members. As text: `speed` or `equal`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BalancePolicy {
    /// In proportion to measured speeds, so that all are done at the same time.
    #[default]
    Speed,
    /// Equally, whatever their speeds.
    Equal,
}

/// A text that is not a way to divide a batch.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{text}` is not a way to divide a batch; write speed or equal")]
pub struct BalanceError {
    /// The text.
    pub text: String,
}

impl FromStr for BalancePolicy {
    type Err = BalanceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.trim() {
            "speed" => Ok(Self::Speed),
            "equal" => Ok(Self::Equal),
            _ => Err(BalanceError { text: text.to_owned() }),
        }
    }
}

impl fmt::Display for BalancePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Speed => "speed",
            Self::Equal => "equal",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_balance_is_read_and_written_as_text() {
        for balance in [BalancePolicy::Speed, BalancePolicy::Equal] {
            assert_eq!(balance.to_string().parse(), Ok(balance));
        }
        let message = "fair".parse::<BalancePolicy>().expect_err("no balance").to_string();
        assert!(message.contains("`fair`") && message.contains("speed or equal"), "{message}");
    }
}
