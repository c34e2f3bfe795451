//! One line for people.

use console::Style;

/// What a line is about, as far as a screen shows that.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Tone {
    /// What goes on.
    #[default]
    Plain,
    /// It gets better: somebody is there, something is done.
    Good,
    /// It may get worse: something to look at.
    Bad,
    /// To be copied: on a screen it has nothing before or behind it.
    Copy,
}

/// A line and its tone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Line {
    /// What it says.
    pub text: String,
    /// What it is about.
    pub tone: Tone,
}

impl Line {
    /// A line of this tone.
    pub fn new(tone: Tone, text: impl Into<String>) -> Self {
        Self { text: text.into(), tone }
    }

    /// The line in a file: everything in it has a time.
    pub fn in_file(&self, time: &str) -> String {
        if self.text.is_empty() { String::new() } else { format!("{time} {}", self.text) }
    }

    /// The line on a terminal, in colours if it has any.
    pub fn on_terminal(&self, time: &str) -> String {
        let style = Style::new().for_stderr();
        let style = match self.tone {
            Tone::Copy => return self.text.clone(),
            Tone::Plain => style,
            Tone::Good => style.green(),
            Tone::Bad => style.yellow(),
        };
        match self.text.as_str() {
            "" => String::new(),
            text => format!("{} {}", Style::new().for_stderr().dim().apply_to(time), style.apply_to(text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_be_copied_stands_alone_on_a_screen() {
        let line = Line::new(Tone::Copy, "starling join x");
        assert_eq!(line.on_terminal("12:00:00"), "starling join x");
        assert_eq!(line.in_file("12:00:00"), "12:00:00 starling join x");
        assert_eq!(Line::new(Tone::Copy, "").in_file("12:00:00"), "");
        let bad = Line::new(Tone::Bad, "gone").on_terminal("12:00:00");
        assert_eq!(console::strip_ansi_codes(&bad), "12:00:00 gone");
    }
}
