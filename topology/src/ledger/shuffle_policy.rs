//! How far samples are shuffled in an epoch.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The most rows of a block.
const MAX_ROWS: u32 = 1 << 24;
/// Blocks of a window where nobody says otherwise.
const USUAL_BLOCKS: u32 = 16;
/// The most blocks of a window.
const MAX_BLOCKS: u32 = 1 << 16;

/// Letters of what is none that an error repeats.
const MAX_TOLD: usize = 40;

/// Whether an epoch visits samples in any order, or so that those lying near each other come near each other. In bytes it is its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum ShufflePolicy {
    /// Any order is as likely as any other.
    #[default]
    Full,
    /// Blocks of consecutive samples come in any order; so many at a time make a window, whose samples come in any order.
    Blocks {
        /// Samples of a block.
        rows: u32,
        /// Blocks of a window.
        blocks: u32,
    },
}

impl ShufflePolicy {
    /// Blocks as they are if nothing else is said of them: some 130,000 samples at a time.
    pub const BLOCKS: Self = Self::Blocks { rows: 8192, blocks: USUAL_BLOCKS };

    /// Checks numbers that may be a stranger's.
    ///
    /// # Errors
    /// What is wrong, as a sentence.
    pub fn check(self) -> Result<(), String> {
        let Self::Blocks { rows, blocks } = self else { return Ok(()) };
        match (1..=MAX_ROWS).contains(&rows) && (1..=MAX_BLOCKS).contains(&blocks) {
            true => Ok(()),
            false => Err(format!(
                "it is {self}, but a block has 1 to {MAX_ROWS} samples, and a window 1 to {MAX_BLOCKS} blocks"
            )),
        }
    }
}

impl fmt::Display for ShufflePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("full"),
            Self::Blocks { rows, blocks } => write!(f, "blocks:{rows}x{blocks}"),
        }
    }
}

impl From<ShufflePolicy> for String {
    fn from(shuffle: ShufflePolicy) -> Self {
        shuffle.to_string()
    }
}

impl TryFrom<String> for ShufflePolicy {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for ShufflePolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let read = || match text.split_once(':') {
            None if text == "full" => Some(Self::Full),
            None if text == "blocks" => Some(Self::BLOCKS),
            None => None,
            Some(("blocks", sizes)) => {
                let (rows, blocks) = sizes.split_once('x').map_or((sizes, None), |(rows, blocks)| (rows, Some(blocks)));
                let blocks = blocks.map_or(Some(USUAL_BLOCKS), |blocks| blocks.parse().ok())?;
                Some(Self::Blocks { rows: rows.parse().ok()?, blocks })
            }
            Some(_) => None,
        };
        let found: Self = read().ok_or_else(|| {
            let text: String = text.chars().take(MAX_TOLD).collect();
            format!("`{text}` says no shuffle; write full, blocks, or blocks:ROWSxBLOCKS, as blocks:8192x16")
        })?;
        found.check().map(|()| found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_no_run_has_is_refused() {
        for (text, shuffle) in [
            ("full", ShufflePolicy::Full),
            ("blocks", ShufflePolicy::BLOCKS),
            ("blocks:100", ShufflePolicy::Blocks { rows: 100, blocks: 16 }),
            ("blocks:100x3", ShufflePolicy::Blocks { rows: 100, blocks: 3 }),
        ] {
            assert_eq!(text.parse(), Ok(shuffle));
            assert_eq!(shuffle.to_string().parse(), Ok(shuffle));
        }
        for text in ["", "none", "full:1", "blocks:", "blocks:x3", "blocks:3x", "blocks:-1x2", "blocks:1x2x3"] {
            let error = text.parse::<ShufflePolicy>().expect_err(text);
            assert!(error.contains("blocks:ROWSxBLOCKS"), "{error}");
        }
        for text in ["blocks:0x1", "blocks:1x0", "blocks:16777217x1", "blocks:1x65537"] {
            let error = text.parse::<ShufflePolicy>().expect_err(text);
            assert!(error.contains("a block has 1 to 16777216 samples"), "{error}");
        }
    }
}
