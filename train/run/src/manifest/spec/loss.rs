//! What a regression makes small.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What a regression makes small: a function of how far its outputs are from the labels, both scaled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LossKind {
    /// The square: outputs become means.
    Squared,
    /// The distance: outputs become medians.
    Absolute,
    /// Half the square up to a distance of 1, and from there on the distance less a half (Huber: "Robust Estimation of a Location
    /// Parameter", 1964): labels that are far off count less.
    Huber,
    /// This share of the distance where a label is above the output, and the rest of it where it is below (Koenker and Bassett:
    /// "Regression Quantiles", 1978): outputs become this quantile. Between 0 and 1, with six decimals at most.
    Quantile(f64),
}

impl LossKind {
    /// Checks what may be a stranger's.
    ///
    /// # Errors
    /// What is wrong, as a sentence.
    pub(super) fn check(self) -> Result<(), String> {
        match self {
            Self::Quantile(share) if !(share > 0.0 && share < 1.0 && (share * 1e6).round() / 1e6 == share) => {
                Err(format!(
                    "it learns the quantile {share}, but one between 0 and 1 with six decimals at most is possible"
                ))
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for LossKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Squared => f.write_str("squared"),
            Self::Absolute => f.write_str("absolute"),
            Self::Huber => f.write_str("huber"),
            Self::Quantile(share) => write!(f, "quantile:{share}"),
        }
    }
}

impl FromStr for LossKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let share = |share: &str| share.trim().parse().ok().map(Self::Quantile);
        let loss = match text.trim() {
            "squared" => Some(Self::Squared),
            "absolute" => Some(Self::Absolute),
            "huber" => Some(Self::Huber),
            other => other.strip_prefix("quantile:").and_then(share),
        };
        let loss =
            loss.ok_or_else(|| format!("`{text}` is no loss; write squared, absolute, huber or quantile:0.9"))?;
        loss.check().map(|()| loss)
    }
}

impl Serialize for LossKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for LossKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
