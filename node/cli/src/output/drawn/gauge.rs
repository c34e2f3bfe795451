//! A bar with figures that fits the terminal, however narrow that is.

use console::{measure_text_width, truncate_str};

/// The widest bar, in columns.
const MAX_BAR: usize = 30;
/// The narrowest bar that is worth its place.
const MIN_BAR: usize = 4;
/// What stands between two figures.
const GAP: &str = "  ";

/// Signs for what is done and what is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gauge {
    done: char,
    left: char,
}

impl Gauge {
    /// In ASCII alone, or with blocks.
    pub fn new(is_ascii: bool) -> Self {
        if is_ascii { Self { done: '#', left: '-' } } else { Self { done: '█', left: '░' } }
    }

    /// With blocks, unless the locale says that the terminal knows only ASCII.
    pub fn of_locale() -> Self {
        Self::new(Self::is_ascii())
    }

    /// Whether the locale says that the terminal knows only ASCII.
    pub fn is_ascii() -> bool {
        is_ascii(|name| std::env::var(name).ok())
    }

    /// `head`, a bar, and as many of `figures`, the most important ones first, as fit into `width` columns.
    pub fn render(self, width: usize, head: &str, (done, whole): (u64, u64), figures: &[String]) -> String {
        // The last column is left free: some terminals break the line there.
        let width = width.saturating_sub(1);
        let mut text = String::new();
        let room = |text: &str| width.saturating_sub(measure_text_width(text) + measure_text_width(head));
        let needed = |figure: &str| measure_text_width(figure) + GAP.len();
        for figure in figures {
            if needed(figure) + if text.is_empty() { 0 } else { MIN_BAR } > room(&text) {
                break;
            }
            text = format!("{text}{GAP}{figure}");
        }
        let columns = room(&text).min(MAX_BAR);
        let bar = if columns < MIN_BAR { String::new() } else { self.bar(columns, done, whole) };
        truncate_str(&format!("{head}{bar}{text}"), width, "").into_owned()
    }

    fn bar(self, columns: usize, done: u64, whole: u64) -> String {
        let share = if whole == 0 { 0.0 } else { (done as f64 / whole as f64).clamp(0.0, 1.0) };
        let full = (share * columns as f64) as usize;
        (0..columns).map(|column| if column < full { self.done } else { self.left }).collect()
    }
}

/// Whether the locale that is in force for characters is that of plain ASCII.
fn is_ascii(variable: impl Fn(&str) -> Option<String>) -> bool {
    let set = |name| variable(name).filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
    locale.is_some_and(|locale| locale == "C" || locale == "POSIX")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_wraps_and_drops_what_matters_least() {
        let figures =
            ["step 1234/30000", "loss 0.1234", "123 456 samples/s", "3 members", "waiting 12.3 %", "12 min left"];
        let figures = figures.map(str::to_owned);
        let gauge = Gauge::new(false);
        for width in 1..200 {
            let line = gauge.render(width, "", (1234, 30_000), &figures);
            assert!(measure_text_width(&line) < width.max(1) || line.is_empty(), "{width}: {line}");
        }
        let wide = gauge.render(160, "peer 0 ", (15, 30), &figures);
        assert!(wide.starts_with("peer 0 ███████████████░░░░░░░░░░░░░░░  step"), "{wide}");
        assert!(wide.ends_with("12 min left"), "{wide}");
        let narrow = gauge.render(46, "", (1234, 30_000), &figures);
        assert!(narrow.contains("step 1234/30000  loss 0.1234") && !narrow.contains("samples/s"), "{narrow}");
        assert_eq!(Gauge::new(true).render(40, "", (1, 2), &[]), "###############---------------");
        assert_eq!(Gauge::new(true).render(12, "", (5, 0), &[]), "-----------");
    }

    #[test]
    fn a_locale_of_ascii_gets_ascii() {
        let with = |set: &[(&str, &str)]| {
            is_ascii(|name| set.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned()))
        };
        assert!(with(&[("LC_ALL", "C"), ("LANG", "de_DE.UTF-8")]));
        assert!(with(&[("LC_ALL", ""), ("LANG", "POSIX")]));
        assert!(!with(&[("LC_CTYPE", "C.UTF-8"), ("LANG", "C")]));
        assert!(!with(&[]));
    }
}
