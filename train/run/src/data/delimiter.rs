//! What stands between the cells of a table.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What stands between the cells of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delimiter {
    /// `,`
    Comma,
    /// One tab.
    Tab,
    /// `;`
    Semicolon,
    /// `|`
    Pipe,
    /// Blanks and tabs, as many as there are; those at the ends of a line count for nothing.
    Space,
}

impl Delimiter {
    /// All there are. Where two fit a table equally well, the first is taken.
    pub const ALL: [Self; 5] = [Self::Comma, Self::Tab, Self::Semicolon, Self::Pipe, Self::Space];

    /// As users write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Comma => "comma",
            Self::Tab => "tab",
            Self::Semicolon => "semicolon",
            Self::Pipe => "pipe",
            Self::Space => "space",
        }
    }
}

impl fmt::Display for Delimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Delimiter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|delimiter| delimiter.name() == text);
        found.ok_or_else(|| format!("`{text}` is none of {}", Self::ALL.map(Self::name).join(", ")))
    }
}
