//! What people call a machine: its own name for itself, told to the other members and shown beside short ids.
//!
//! A name is for people alone: nothing is decided by it, and two members may have the same one. It travels behind admission,
//! in identify's agent version: `starling/0.1.0 lab-2`.

use std::fmt;
use std::str::FromStr;

/// The longest name, in characters.
pub const MAX_CHARS: usize = 32;

/// What an agent version begins with, before the name.
const AGENT: &str = concat!("starling/", env!("CARGO_PKG_VERSION"));

/// Where Linux, and most others, say what the machine is called.
const HOST_FILES: [&str; 2] = ["/proc/sys/kernel/hostname", "/etc/hostname"];

/// 1 to 32 printable characters without spaces at its ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name(String);

impl Name {
    /// What this machine calls itself in its network, up to the first dot; `None` if that is no name.
    pub fn of_host() -> Option<Self> {
        let from_files = HOST_FILES.iter().find_map(|file| std::fs::read_to_string(file).ok());
        let text = from_files.or_else(|| std::env::var("COMPUTERNAME").ok())?;
        text.trim().split('.').next()?.parse().ok()
    }

    /// What identify tells others of whoever has this name, or none.
    pub(crate) fn agent(name: Option<&Self>) -> String {
        name.map_or_else(|| AGENT.to_owned(), |name| format!("{AGENT} {name}"))
    }

    /// The name in what another peer's identify told; `None` if there is none, or it is not fit to be shown.
    pub(crate) fn of_agent(agent: &str) -> Option<Self> {
        let (program, name) = agent.split_once(' ')?;
        program.starts_with("starling/").then(|| name.parse().ok())?
    }
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let count = text.chars().take(MAX_CHARS + 1).count();
        let is_trimmed = text.trim() == text;
        // What the library would escape moves the cursor, turns the writing round, or can't be seen.
        let is_shown = |char: char| {
            let is_plain = matches!(char, '\'' | '"' | '\\') || char.escape_debug().count() == 1;
            is_plain && !is_unseen(char)
        };
        if (1..=MAX_CHARS).contains(&count) && is_trimmed && text.chars().all(is_shown) {
            Ok(Self(text.to_owned()))
        } else {
            Err(NameError)
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether a character does something to a terminal or to the writing around it, or shows nothing where one would look for
/// something: controls, and those that Unicode calls default ignorable, with the fillers of Hangul and the empty Braille cell.
pub fn is_unseen(char: char) -> bool {
    char.is_control()
        || matches!(
            char,
            '\u{ad}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

/// A text that is no name. What it is may not be fit to be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a name has 1 to {MAX_CHARS} printable characters, and no space at its ends")]
pub struct NameError;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_short_and_can_be_seen() {
        let longest = "é".repeat(MAX_CHARS);
        for name in ["a", "lab-2", "peer 0", "Büro \"links\"", "日本", "o'neill\\", &longest] {
            assert_eq!(name.parse::<Name>().expect(name).to_string(), name);
        }
        let long = "x".repeat(MAX_CHARS + 1);
        let unseen = [
            "\u{1b}[31mred",
            "a\nb",
            "a\tb",
            "\u{202e}abc",
            "a\u{200b}b",
            "\u{feff}",
            "a\u{9b}b",
            "a\u{2028}b",
            "\0",
            "\u{3164}",
        ];
        for name in ["", " ", " a", "a ", &long].into_iter().chain(unseen) {
            assert_eq!(name.parse::<Name>(), Err(NameError), "{name:?}");
        }
    }

    #[test]
    fn a_name_survives_the_trip_and_nothing_else_is_one() {
        let name: Name = "lab 2".parse().expect("a name");
        assert_eq!(Name::of_agent(&Name::agent(Some(&name))), Some(name));
        assert_eq!(Name::of_agent(&Name::agent(None)), None);
        for agent in
            ["", "rust-libp2p/0.48", "other/1 lab", "starling/0.1.0 ", "starling/0.1.0 \u{1b}[2J", "starling/9"]
        {
            assert_eq!(Name::of_agent(agent), None, "{agent:?}");
        }
        assert_eq!(Name::of_agent(&format!("starling/0.1.0 {}", "x".repeat(4096))), None);
    }
}
